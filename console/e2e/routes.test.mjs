// The routes of a running transfer on a map, with live rates, and what happens there when a machine ends.

import assert from "node:assert/strict";
import { test } from "node:test";
import { URL, look, signIn, withPage } from "./browser.mjs";

const { TRADEWIND_JOB: JOB, TRADEWIND_MACHINES: MACHINES } = process.env;
const RATE = /^[0-9.]+ [kMG]bit\/s$/;

test("a running transfer shows the rate of each hop, a machine that stalls, and one that replaces it", async () => {
  await withPage("light", async (page) => {
    page.setDefaultTimeout(60_000);
    await signIn(page);
    await page.goto(`${URL}/#/transfers/${JOB}`);
    const routes = page.getByRole("region", { name: "Routes" });
    const map = routes.getByRole("img", { name: /^Map of the routes/ });
    assert.ok(await map.evaluate((image) => image.decode().then(() => image.naturalWidth > 100)));
    const hops = routes.getByRole("table", { name: "Hops between regions" });
    const [hop, machines] = [hops.getByRole("row").nth(1), routes.getByRole("table", { name: "Routes of machines" })];
    await hop.getByRole("cell", { name: "works" }).waitFor();
    await hop.getByRole("cell", { name: "aws:us-east-1" }).waitFor();
    // The figures on the map are those of the table.
    const figures = routes.locator(".map svg text");
    await until(async () => !/^0 /.test(await figures.textContent()) && RATE.test(await figures.textContent()));
    await until(async () => (await hop.getByRole("cell").nth(3).innerText()) === (await figures.textContent()));
    await routes.getByText("All routes work.").waitFor();
    await routes.getByText("Limited now by").waitFor();
    await routes.getByText(/^read \d+ of \d+, .*write \d+ of \d+$/).waitFor();
    const before = await machines.getByRole("row").nth(1).getByRole("cell").first().innerText();
    await look(page, "light", "routes");
    const machine = Number(MACHINES.split(" ").at(-1));
    process.kill(machine, "SIGSTOP");
    await hop.getByRole("cell", { name: /^(stalled|down)$/ }).waitFor();
    await routes.getByText(/^1 of 1 routes (stalled|down)\.$/).waitFor();
    await until(async () => /stalled|down/.test(await figures.textContent()));
    process.kill(machine, "SIGKILL");
    const ended = routes.getByRole("table", { name: "Machines that ended" });
    const gone = before.split(" → ").at(-1);
    await ended.getByRole("row", { name: gone }).waitFor();
    const after = await machines.getByRole("row").nth(1).getByRole("cell").first().innerText();
    assert.equal(await ended.getByRole("row").nth(1).getByRole("cell").last().innerText(), after.split(" → ").at(-1));
    await page.getByRole("region", { name: "Events" }).getByText(`machine ${gone} ended`).waitFor();
    await hop.getByRole("cell", { name: "works" }).waitFor();
  });
  await withPage("dark", async (page) => {
    await signIn(page);
    await page.goto(`${URL}/#/transfers/${JOB}`);
    await page.getByRole("table", { name: "Machines that ended" }).waitFor();
    await look(page, "dark", "routes");
  });
});

async function until(isSo) {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 100));
}

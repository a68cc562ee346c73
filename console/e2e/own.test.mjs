// A user's own console: the file that opens it signs in, once, and the jobs of the command line are listed.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DATA, look, submit, withPage } from "./browser.mjs";

const FILE = process.env.TRADEWIND_PAGE;
const JOB = process.env.TRADEWIND_JOB;

test("the file signs in once; a transfer is started; the jobs of the command line are listed", async () => {
  await withPage("light", async (page) => {
    await page.getByText("tradewind console").waitFor();
    await look(page, "light", "own-sign-in");
    await page.goto(`file://${FILE}`);
    await page.waitForURL(/^http:/);
    await page.getByRole("heading", { name: "Transfers" }).waitFor();
    const address = page.url();
    assert.match(address, /#\/transfers$/);
    const pages = await page.getByRole("navigation").getByRole("link").allInnerTexts();
    assert.ok(pages.includes("Command line") && !pages.includes("Tenants"));
    const token = await page.evaluate(() => Object.values(sessionStorage).join());
    assert.match(token, /^tw1_/);
    await page.reload();
    await page.getByRole("heading", { name: "Transfers" }).waitFor();

    const id = await submit(page, `${DATA}/source`, `${DATA}/own`);
    await page.getByRole("region", { name: "Progress" }).getByText("done", { exact: true }).waitFor();
    await page.getByRole("link", { name: "Command line" }).click();
    const list = page.getByRole("region", { name: "Jobs of the command line" });
    await list.getByText(JOB).waitFor();
    assert.equal(await list.getByText(id).count(), 0);
    assert.equal(await list.getByRole("row").count(), 2);
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      await look(page, scheme, "command-line");
    }
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByText("tradewind console").waitFor();
  });
});

test("an address that was used or made up signs nobody in", async () => {
  await withPage("light", async (page) => {
    await page.goto("about:blank");
    await page.goto(`${process.env.TRADEWIND_URL}/#code=made-up`);
    await page.getByText("the address was used before, or has expired").waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    assert.ok(!page.url().includes("made-up"));
  });
});

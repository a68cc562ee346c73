// The page Plan: what a transfer costs at each rate, and its routes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { signIn, withPage } from "./browser.mjs";

test("a click on a point of the frontier shows its routes on a map", async () => {
  await withPage("light", async (page) => {
    page.setDefaultTimeout(400_000);
    await signIn(page);
    await page.getByRole("link", { name: "Plan", exact: true }).click();
    await page.getByLabel("From region").selectOption("aws:us-east-1");
    await page.getByLabel("To region").selectOption("aws:us-east-2");
    await page.getByLabel("Machines in each region").fill("1");
    await page.getByRole("button", { name: "Show rates and costs" }).click();
    const frontier = page.getByRole("region", { name: "Rates and costs" });
    const cursor = frontier.getByLabel("Point");
    const first = await cursor.getAttribute("aria-valuetext");
    assert.match(first, /^[0-9.]+ Gbit\/s for \$/);
    const chart = await frontier.locator("svg").boundingBox();
    await page.mouse.click(chart.x + chart.width - 20, chart.y + chart.height / 2);
    assert.notEqual(await cursor.getAttribute("aria-valuetext"), first);
    await cursor.press("ArrowLeft");
    await frontier.getByText(/^tradewind plan aws:us-east-1 aws:us-east-2 --volume 100GB --min-throughput /).waitFor();
    await frontier.getByRole("button", { name: "Show the routes" }).click();
    const routes = page.getByRole("region", { name: "Routes" });
    await routes.getByRole("cell", { name: /^aws:us-east-1 → / }).first().waitFor();
    const map = routes.getByRole("img", { name: /^Map of the routes/ });
    assert.ok(await map.evaluate((image) => image.decode().then(() => image.naturalWidth > 100)));
    const chosen = (await cursor.getAttribute("aria-valuetext")).split(" ")[0];
    await frontier.getByRole("link", { name: "New transfer at this rate" }).click();
    assert.equal(await page.getByLabel("Goal of the machines").inputValue(), "rate");
    assert.ok(Math.abs(Number(await page.getByLabel("Minimum rate").inputValue()) - Number(chosen)) < 0.01);
    await page.getByText("shows the price at each rate").getByRole("link", { name: "Plan" }).click();
    await page.getByLabel("From region").waitFor();
  });
});

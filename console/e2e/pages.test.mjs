// The pages Grid, Market, Operation and Tenants.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DATA, TOKEN, URL, signIn, withPage } from "./browser.mjs";

test("the grid is used with the keyboard alone, and shows the history of a link", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Grid" }).click();
    const cell = page.locator("td.learned");
    assert.equal(await cell.getAttribute("title"), "eu-central-1 → eu-west-1");
    assert.match(await cell.getAttribute("class"), /heat\d/);
    await page.getByLabel("to", { exact: true }).focus();
    await page.keyboard.press("Tab");
    await page.keyboard.press("End");
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "aws:ap-east-1 → aws:af-south-1" }).waitFor();
    await page.getByText("No transfer has used this link yet").waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.dataset.cell), "1 0");
    await cell.click();
    const history = page.getByRole("region", { name: "History of the link" });
    await history.waitFor();
    assert.deepEqual((await history.getByRole("cell").allInnerTexts()).slice(2), ["2026-01-02", "at least 8.00"]);
    await page.getByLabel("From").selectOption("gcp");
    await page.getByRole("rowheader", { name: "europe-west1", exact: true }).waitFor();
  });
});

test("the market has margins, the price now and the energy, and follows its assumptions", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Market" }).click();
    const margins = page.getByRole("region", { name: "List of margins" });
    await margins.getByText("$0.3000 to $0.3833").waitFor();
    await page.getByText(/^0 %: /).waitFor();
    await page.getByText(/^\$0\.3\d+ per hour$/).waitFor();
    await page.getByLabel("Extra machines").fill("2");
    await page.getByText("none: the margin is empty").waitFor();
    assert.equal(await margins.getByRole("row").count(), 4);
    await page.getByLabel("Extra machines").fill("200");
    await page.locator("#extra-wrong").getByText("100").waitFor();
  });
});

/** Replace the limits of resources. */
async function limit(limits) {
  const answer = await fetch(`${URL}/v1/limits`, {
    method: "PUT",
    headers: { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/json" },
    body: JSON.stringify({ limits }),
  });
  assert.equal(answer.status, 200);
}

test("a tenant sees open auctions and results, and places and withdraws a bid", async () => {
  await limit([{ kind: "link", name: "a:1>a:2", rate_gbps: 1 }]);
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Market" }).click();
    const lots = page.getByRole("region", { name: "List of open auctions" });
    await lots.getByRole("row", { name: "a:1>a:2" }).getByText("$0.30").waitFor();
    const bids = page.getByRole("region", { name: "Bids of default" });
    await bids.getByText("won 0.3 Gbit/s for $0.21, of which $0.0700 was refunded").waitFor();
    const past = page.getByRole("region", { name: "List of past auctions" });
    await past.getByRole("row", { name: "a:1>a:2" }).getByText("$0.70").waitFor();
    await bids.getByLabel("Rate of the bid").fill("0.25");
    await bids.getByLabel("At most for 1 Gbit/s").fill("0.9");
    await bids.getByRole("button", { name: "Place bid" }).click();
    await page.locator("#bid-rate-wrong").getByText("not a multiple of 0.1").waitFor();
    await bids.getByLabel("Rate of the bid").fill("0.5");
    await bids.getByLabel("Hour from").fill("2020-01-01T10:00");
    await bids.getByRole("button", { name: "Place bid" }).click();
    await page.locator("#bid-hour-wrong").getByText("is not open").waitFor();
    const later = new Date(Date.now() + 5 * 3_600_000 - new Date().getTimezoneOffset() * 60_000);
    await bids.getByLabel("Hour from").fill(later.toISOString().slice(0, 16));
    await bids.getByRole("button", { name: "Place bid" }).click();
    await bids.getByText("open, $0.45 reserved").waitFor();
    await bids.getByRole("button", { name: "Withdraw the bid for a:1>a:2" }).click();
    await bids.getByText("reserved").waitFor({ state: "detached" });
  });
  await limit([]);
});

test("an admin limits and closes resources, and opens them again", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Operation" }).click();
    await page.getByLabel("Limited resource").fill("a b");
    await page.getByLabel("Transfers at a time").fill("2");
    await page.getByRole("button", { name: "Set limit" }).click();
    await page.locator("#limit-name-wrong").getByText("pattern").waitFor();
    for (const [name, rate] of [["s3://one", "3"], ["s3://two", ""], ["s3://one", "5"]]) {
      await page.getByLabel("Limited resource").fill(name);
      await page.getByLabel("Rate [Gbit/s]").fill(rate);
      await page.getByRole("button", { name: "Set limit" }).click();
      await page.getByRole("row", { name }).getByText(rate ? `${rate} Gbit/s` : "no limit").first().waitFor();
    }
    await page.getByRole("button", { name: "Remove the limit of s3://one" }).click();
    await page.getByRole("row", { name: "s3://one" }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Remove the limit of s3://two" }).click();
    await page.getByText("No resource is limited.").waitFor();

    const bans = page.getByRole("region", { name: "Bans", exact: true });
    await bans.getByRole("button", { name: "Close now" }).click();
    await page.locator("#ban-reason-wrong").getByText("at least 1").waitFor();
    await bans.getByLabel("Resource to close").fill("s3://one");
    await bans.getByLabel("Reason").fill("the bucket moves");
    await bans.getByLabel("Refuse new transfers").check();
    await bans.getByRole("button", { name: "Close now" }).click();
    await bans.getByText("running ones finish, new ones are refused").waitFor();
    await bans.getByRole("button", { name: "Lift s3://one" }).click();
    await bans.getByText("No resource is closed.").waitFor();
  });
});

test("an admin plans and cancels maintenance and a schedule", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Operation" }).click();
    const windows = page.getByRole("region", { name: "Maintenance windows", exact: true });
    await windows.getByLabel("Resource to close").fill("s3://one");
    await windows.getByLabel("Reason").fill("new disks");
    await windows.getByLabel("From").fill("2099-01-01T10:00");
    await windows.getByLabel("Until").fill("2099-01-01T09:00");
    await windows.getByRole("button", { name: "Plan maintenance" }).click();
    await windows.getByText("the window ends before it starts").waitFor();
    await windows.getByLabel("Until").fill("2099-01-01T12:00");
    await windows.getByRole("button", { name: "Plan maintenance" }).click();
    await windows.getByRole("cell", { name: "2099-01-01 12:00:00" }).waitFor();
    await windows.getByRole("button", { name: "Cancel s3://one" }).click();
    await windows.getByText("No maintenance is planned.").waitFor();

    await page.getByRole("link", { name: "Schedules" }).click();
    const schedules = page.getByRole("region", { name: "Schedules of default" });
    await schedules.getByLabel("Source").fill("/etc");
    await schedules.getByLabel("Destination").fill(`${DATA}/nightly`);
    await schedules.getByLabel("Minute hour").fill("30 2 * * *");
    await schedules.getByRole("button", { name: "Make schedule" }).click();
    await page.locator("#schedule-source-wrong").getByText("not below an allowed folder").waitFor();
    await schedules.getByLabel("Source").fill(`${DATA}/source`);
    await schedules.getByRole("button", { name: "Make schedule" }).click();
    await schedules.getByRole("cell", { name: "02:30:00" }).waitFor();
    await schedules.getByRole("button", { name: "Delete the schedule" }).click();
    await schedules.getByText("There are no schedules.").waitFor();
  });
});

test("an admin sets a budget, which transfers then need a quote for, and sees the invoices", async () => {
  const tariff = { name: "per GB", unit: "GB", tiers: [{ from_quantity: 0, usd_micros_per_unit: 1_000_000_000 }] };
  const answer = await fetch(`${URL}/v1/tariffs`, {
    method: "PUT",
    headers: { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/json" },
    body: JSON.stringify({ tariffs: [tariff] }),
  });
  assert.equal(answer.status, 200);
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Tenants" }).click();
    await page.getByLabel("New tenant").fill("payer");
    await page.getByRole("button", { name: "Make tenant" }).click();
    await page.getByLabel("Tenant with the budget").selectOption("payer");
    await page.getByLabel("Budget [USD]").fill("12.5");
    await page.getByRole("button", { name: "Set budget" }).click();
    const budgets = page.getByRole("region", { name: "List of budgets" });
    await budgets.getByText("$12.50 a month").waitFor();
    await page.getByText("budget.set").first().waitFor();

    await page.getByLabel("Tenant", { exact: true }).selectOption("payer");
    await page.getByRole("button", { name: "Make token" }).click();
    const token = await page.locator("pre").innerText();
    await page.getByRole("button", { name: "Sign out" }).click();
    await signIn(page, token.trim());
    await page.getByRole("link", { name: "New transfer" }).first().click();
    await page.getByLabel("Source", { exact: true }).fill(`${DATA}/source`);
    await page.getByLabel("Destination", { exact: true }).fill(`${DATA}/payer`);
    await page.getByRole("button", { name: "Start the transfer" }).click();
    await page.getByText("a job needs a quote").waitFor();
    await page.getByRole("button", { name: "Get a quote" }).click();
    await page.getByRole("button", { name: "Start at this price" }).click();
    await page.getByRole("region", { name: "Progress" }).getByText("done", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();

    await signIn(page);
    await page.getByRole("link", { name: "Tenants" }).click();
    await page.getByRole("button", { name: "Remove the budget of payer" }).click();
    await page.getByText("No tenant has a budget.").waitFor();
    const invoices = page.getByRole("region", { name: "Invoices" });
    await invoices.getByLabel("of", { exact: true }).selectOption("payer");
    await invoices.getByRole("button", { name: "Show the invoice" }).click();
    await invoices.getByRole("cell", { name: "$0.30", exact: true }).first().waitFor();
    const waiting = page.waitForEvent("download");
    await invoices.getByRole("button", { name: /^Save the invoice/ }).click();
    assert.match((await waiting).suggestedFilename(), /^invoice-.*\.payer\.csv$/);
  });
});

test("a connection is made, gets a new secret and is deleted, and its secret is never shown", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Connections" }).click();
    await page.getByLabel("Name of the connection").fill("archive");
    await page.getByLabel("Bucket or prefix").fill("s3://lab-archive/in/");
    await page.getByLabel("Access key id").fill("AKIDARCHIVE");
    await page.getByRole("button", { name: "Add connection" }).click();
    await page.getByText("the secret of s3:// is access_key_id and secret_access_key").waitFor();
    const secret = page.getByLabel("Secret access key");
    assert.equal(await secret.getAttribute("type"), "password");
    await secret.fill("first-secret");
    await page.getByRole("button", { name: "Add connection" }).click();
    await page.getByRole("cell", { name: "s3://lab-archive/in/" }).waitFor();
    assert.equal(await secret.inputValue(), "");
    await page.getByRole("link", { name: "Replace the secret of archive" }).click();
    const replaced = page.getByRole("region", { name: "New secret of archive" });
    await replaced.getByLabel("Access key id").fill("AKIDSECOND");
    await replaced.getByLabel("Secret access key").fill("second-secret");
    await replaced.getByRole("button", { name: "Replace secret" }).click();
    await replaced.getByText("The secret is replaced.").waitFor();
    assert.doesNotMatch(await page.content(), /first-secret|second-secret|AKIDSECOND/);
    await page.getByRole("button", { name: "Delete the connection archive" }).click();
    await page.getByText("There are no connections.").waitFor();
  });
});

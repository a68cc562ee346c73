// The pages Sites and Webhooks, members, weights and tariffs.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { DATA, signIn, submit, withPage } from "./browser.mjs";

test("a webhook gets the event of a transfer, and again when its delivery is replayed", async () => {
  const got = [];
  const receiver = createServer((request, answer) => {
    request.resume().on("end", () => {
      got.push(request.url);
      answer.end();
    });
  });
  await new Promise((done) => receiver.listen(0, "127.0.0.1", done));
  try {
    await withPage("light", async (page) => {
      await signIn(page);
      await page.getByRole("link", { name: "Webhooks" }).click();
      const list = page.getByRole("region", { name: "Webhooks of default" });
      await list.getByLabel("URL of the receiver").fill("ftp://x");
      await list.getByRole("button", { name: "Add webhook" }).click();
      await list.getByText("ftp").first().waitFor();
      const url = `http://127.0.0.1:${receiver.address().port}/hook`;
      await list.getByLabel("URL of the receiver").fill(url);
      await list.getByLabel("failed").uncheck();
      await list.getByRole("button", { name: "Add webhook" }).click();
      await list.getByText("is shown only once").waitFor();
      await list.getByRole("row", { name: url }).getByText("cancelled, done").waitFor();

      const id = await submit(page, `${DATA}/source`, `${DATA}/told`);
      await page.getByRole("link", { name: "Webhooks" }).click();
      await page.getByRole("link", { name: `Deliveries to ${url}` }).click();
      const deliveries = page.getByRole("region", { name: "List of deliveries" });
      await deliveries.getByText("delivered").waitFor();
      await page.getByRole("button", { name: `Send again: ${id} done` }).click();
      while (got.length < 2) await page.waitForTimeout(50);
      assert.deepEqual(got, ["/hook", "/hook"]);
      await deliveries.getByText("delivered").waitFor();
      await page.getByRole("button", { name: `Delete the webhook ${url}` }).click();
      await page.getByText("There are no webhooks.").waitFor();
    });
  } finally {
    receiver.close();
  }
});

test("an admin sets and removes weights and a tariff with tiers", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Operation" }).click();
    const weights = page.getByRole("region", { name: "Weights", exact: true });
    await weights.getByLabel("Tenant with the weight").fill("No Name");
    await weights.getByLabel("Weight", { exact: true }).fill("3");
    await weights.getByRole("button", { name: "Set weight" }).click();
    await page.locator("#weight-tenant-wrong").getByText("pattern").waitFor();
    await weights.getByLabel("Tenant with the weight").fill("default");
    await weights.getByLabel("Activity, or empty").fill("backup");
    await weights.getByRole("button", { name: "Set weight" }).click();
    await weights.getByRole("button", { name: "Remove the weight of backup of default" }).click();
    await weights.getByText("has the weight 1.").waitFor();

    const tariffs = page.getByRole("region", { name: "Tariffs", exact: true });
    await tariffs.getByLabel("Name of the tariff").fill("tiered");
    await tariffs.getByLabel("Price [USD]").fill("cheap");
    await tariffs.getByRole("button", { name: "Set tariff" }).click();
    await page.locator("#tariff-prices-wrong").getByText("Write a price").waitFor();
    await tariffs.getByLabel("Price [USD]").fill("0: 0.02, 10000: 0.015");
    await tariffs.getByLabel("From region").fill("aws:eu-west-1");
    await tariffs.getByRole("button", { name: "Set tariff" }).click();
    const row = tariffs.getByRole("row", { name: "tiered" });
    await row.getByText("$0.0150 per GB from 10,000 GB on").waitFor();
    await row.getByText("aws:eu-west-1 → *").waitFor();
    await tariffs.getByLabel("Name of the tariff").fill("by load");
    await tariffs.getByLabel("Price [USD]").fill("0.03-0.01");
    await tariffs.getByRole("button", { name: "Set tariff" }).click();
    await page.locator("#tariff-prices-wrong").getByText("Write a price").waitFor();
    await tariffs.getByLabel("Price [USD]").fill("0.01-0.03");
    await tariffs.getByRole("button", { name: "Set tariff" }).click();
    await tariffs.getByRole("row", { name: "by load" }).getByText("$0.0100 to $0.0300 per GB").waitFor();
    await tariffs.getByRole("button", { name: "Remove the tariff by load" }).click();
    await tariffs.getByRole("button", { name: "Remove the tariff tiered" }).click();
    await row.waitFor({ state: "detached" });
  });
});

test("sites are listed, and a member is blocked and admitted again", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Sites" }).click();
    await page.getByRole("cell", { name: `${DATA}/lab/default` }).waitFor();
    await page.getByRole("cell", { name: "tradewind send DIR lab:NAME" }).waitFor();
    await page.getByRole("link", { name: "Tenants" }).click();
    const members = page.getByRole("region", { name: "Members of default" });
    await members.getByRole("button", { name: "Block ada", exact: true }).click();
    await members.getByText("blocked since").waitFor();
    await page.getByText("member.block").first().waitFor();
    await members.getByRole("button", { name: "Unblock ada" }).click();
    await members.getByText("admitted").waitFor();
  });
});

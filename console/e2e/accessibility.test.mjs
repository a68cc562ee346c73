// axe-core finds nothing on any page, in light and dark. With SHOTS=DIR each page is also saved as a picture.

import { test } from "node:test";
import { DATA, look, signIn, submit, withPage } from "./browser.mjs";

for (const scheme of ["light", "dark"]) {
  test(`each page is accessible in ${scheme}`, async () => {
    await withPage(scheme, async (page) => {
      await look(page, scheme, "sign-in");
      await signIn(page);
      await submit(page, `${DATA}/source`, `${DATA}/seen-${scheme}`);
      await page.getByRole("region", { name: "Progress" }).getByText("done", { exact: true }).waitFor();
      await page.getByRole("region", { name: "List of objects" }).getByRole("table").waitFor();
      await look(page, scheme, "transfer");
      await submit(page, `${DATA}/large`, `${DATA}/running-${scheme}`, "1");
      await submit(page, `${DATA}/source`, `${DATA}/running-${scheme}/below`);
      await page.getByText(/^Waiting: Job/i).waitFor();
      await page.getByRole("link", { name: "Transfers", exact: true }).click();
      await page.getByRole("progressbar").first().waitFor();
      await look(page, scheme, "transfers");
      await page.getByRole("link", { name: "New transfer" }).first().click();
      await page.getByLabel("Source", { exact: true }).fill("/etc/x");
      await page.getByLabel("Destination", { exact: true }).fill(`${DATA}/x`);
      await page.getByRole("button", { name: "Start the transfer" }).click();
      await page.locator("#source-wrong").getByText("not below").waitFor();
      await look(page, scheme, "new");
      await page.getByLabel("Source", { exact: true }).fill(`${DATA}/source`);
      await page.getByRole("button", { name: "Get a quote" }).click();
      await page.getByRole("region", { name: "Quote" }).waitFor();
      await look(page, scheme, "quote");
      await page.getByRole("link", { name: "Grid" }).click();
      await page.locator("td.learned").click();
      await page.getByRole("region", { name: "History of the link" }).waitFor();
      await look(page, scheme, "grid");
      await page.getByRole("link", { name: "Market" }).click();
      await page.getByRole("region", { name: "List of margins" }).waitFor();
      await look(page, scheme, "market");
      await page.getByRole("link", { name: "Operation" }).click();
      await page.getByLabel("Limited resource").fill("s3://seen");
      await page.getByLabel("Transfers at a time").fill("2");
      await page.getByRole("button", { name: "Set limit" }).click();
      await page.getByRole("region", { name: "List of limits" }).waitFor();
      const bans = page.getByRole("region", { name: "Bans", exact: true });
      await bans.getByLabel("Resource to close").fill("s3://seen");
      await bans.getByLabel("Reason").fill("the bucket moves");
      await bans.getByRole("button", { name: "Close now" }).click();
      await page.getByRole("region", { name: "List: Bans" }).waitFor();
      await look(page, scheme, "operation");
      await page.getByRole("link", { name: "Tenants" }).click();
      await page.getByText("job.submit").first().waitFor();
      await page.getByLabel("Name", { exact: true }).fill(`robot-${scheme}`);
      await page.getByRole("button", { name: "Make token" }).click();
      await page.getByText("is shown only once").waitFor();
      await page.getByLabel("Budget [USD]").fill("1000");
      await page.getByRole("button", { name: "Set budget" }).click();
      await page.getByRole("region", { name: "List of budgets" }).waitFor();
      await look(page, scheme, "tenants");
      const remove = page.getByRole("button", { name: "Remove the budget of default" });
      await remove.click();
      await remove.waitFor({ state: "detached" });
    });
  });
}

// What users do with transfers and tokens, from the first page on.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { DATA, TOKEN, signIn, submit, withPage } from "./browser.mjs";

test("a wrong token is refused, and the right one stays in this tab only", async () => {
  await withPage("light", async (page) => {
    await page.getByLabel("Token").fill("tw1_wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("the token is missing, unknown, expired or revoked").waitFor();
    await signIn(page);
    assert.equal(await page.evaluate(() => localStorage.length), 0);
    assert.equal(await page.evaluate(() => sessionStorage.length), 1);
    await page.reload();
    await page.getByRole("heading", { name: "Transfers" }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  });
});

test("a token in the address signs nobody in, replaces no token, and leaves the address", async () => {
  await withPage("light", async (page) => {
    const home = page.url();
    const sent = [];
    page.on("request", (request) => sent.push(request.headers().authorization));
    await openLink(page, `${home}#token=${TOKEN}`);
    await page.getByLabel("Token").waitFor();
    assert.equal(sent.filter(Boolean).length, 0);
    await signIn(page);
    await openLink(page, `${home}#token=tw1_of_somebody_else`);
    await page.getByRole("heading", { name: "Transfers" }).waitFor();
    assert.ok(!page.url().includes("token"));
    await page.evaluate(() => (location.hash = "token=tw1_of_somebody_else"));
    await page.waitForURL(/#\/transfers$/);
    assert.deepEqual(new Set(sent.filter(Boolean)), new Set([`Bearer ${TOKEN}`]));
    assert.equal(await page.evaluate(() => Object.values(sessionStorage).join()), TOKEN);
  });
});

/** Load an address anew, also if only its fragment differs. */
async function openLink(page, address) {
  await page.goto("about:blank");
  await page.goto(address);
}

test("a transfer from the form to its receipt", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    const id = await submit(page, `${DATA}/source`, `${DATA}/copied`);
    const progress = page.getByRole("region", { name: "Progress" });
    await progress.getByText("done", { exact: true }).waitFor();
    await progress.getByText("3 of 3").waitFor();
    await page.getByText("length → length").first().waitFor();
    await page.getByRole("cell", { name: `file://${DATA}/copied/0` }).waitFor();
    await page.getByRole("region", { name: "Events" }).getByText("running").waitFor();
    const waiting = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download receipt" }).click();
    const receipt = JSON.parse(await readFile(await (await waiting).path(), "utf-8"));
    assert.deepEqual([receipt.job_id, receipt.complete], [id, true]);
    await page.getByRole("link", { name: "Transfers", exact: true }).click();
    await page.getByRole("row", { name: id }).getByText("300 kB of 300 kB").waitFor();
  });
});

test("a quote shows its price, becomes stale when the form changes, and starts a transfer", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "New transfer" }).first().click();
    await page.getByLabel("Source", { exact: true }).fill(`${DATA}/source`);
    await page.getByLabel("Destination", { exact: true }).fill(`${DATA}/quoted`);
    await page.getByLabel("Priority").fill("101");
    await page.getByRole("button", { name: "Get a quote" }).click();
    await page.locator("#priority-wrong").getByText("100").waitFor();
    await page.getByLabel("Priority").fill("7");
    await page.getByLabel("Maximum routes").fill("2");
    await page.getByRole("button", { name: "Get a quote" }).click();
    await page.getByText("routes: this job rents no machines").first().waitFor();
    await page.getByLabel("Maximum routes").fill("");
    await page.getByLabel(/^Do not send bytes again/).check();
    await page.getByText("-d '{").getByText('"deduplication":true').waitFor();
    await page.getByText(/^tradewind cp .* --dedup on /).waitFor();
    await page.getByRole("button", { name: "Get a quote" }).click();
    await page.getByText("deduplication: this job rents no machines").first().waitFor();
    await page.getByLabel(/^Do not send bytes again/).uncheck();
    await page.getByLabel("Runs on").selectOption("fleet");
    await page.getByRole("button", { name: "Get a quote" }).click();
    await page.getByText("via fleet: the operator rents no machines for jobs").first().waitFor();
    await page.getByLabel("Runs on").selectOption("here");
    await page.getByLabel("Goal of the machines").selectOption("the cheapest within a time");
    await page.getByLabel("Deadline [minutes]").fill("10");
    await page.getByText("-d '{").getByText('"deadline_s":600').waitFor();
    await page.getByText(/^tradewind cp .* --deadline 600s /).waitFor();
    await page.getByLabel("Goal of the machines").selectOption("the cheapest at a rate");
    await page.getByLabel("Minimum rate [Gbit/s]").fill("2.5");
    await page.getByText(/^tradewind cp .* --min-throughput 2.5Gbit\/s /).waitFor();
    await page.getByRole("button", { name: "Get a quote" }).click();
    await page.getByText("min_throughput_gbps: this job rents no machines").first().waitFor();
    await page.getByLabel("Goal of the machines").selectOption("the fastest for the cost");
    await page.getByLabel("Activity").fill("archive");
    await page.getByLabel("Compression").selectOption("auto");
    await page.getByLabel("Size of chunks [MiB]").fill("65");
    await page.getByRole("button", { name: "Get a quote" }).click();
    await page.locator("#chunk-wrong").getByText("67108864").waitFor();
    await page.getByLabel("Size of chunks [MiB]").fill("8");
    await page.getByRole("button", { name: "Get a quote" }).click();
    const quote = page.getByRole("region", { name: "Quote" });
    await quote.getByText("3, 300 kB").waitFor();
    await quote.getByText(/for 59 min/).waitFor();
    await page.getByLabel("Priority").fill("8");
    await quote.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Get a quote" }).click();
    await quote.getByText("$0.00").first().waitFor();
    await page.getByRole("button", { name: "Start at this price" }).click();
    await page.getByRole("region", { name: "Progress" }).getByText("done", { exact: true }).waitFor();
    await page.getByRole("region", { name: "Request" }).getByText("8", { exact: true }).waitFor();
    await page.getByRole("region", { name: "Request" }).getByText("8.39 MB").waitFor();
    await page.getByRole("region", { name: "Request" }).getByText("archive").waitFor();
    await page.getByRole("region", { name: "Ledger" }).getByText("Charged at most, by its quote").waitFor();
    await page.getByRole("region", { name: "Progress" }).getByText(/auto: .* sent for /).waitFor();
  });
});

test("a running transfer shows its expected end, and another one why it waits", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    const id = await submit(page, `${DATA}/large`, `${DATA}/expected`, "1");
    const address = page.url();
    const progress = page.getByRole("region", { name: "Progress" });
    await progress.getByText(/^in \d/).waitFor();
    await progress.getByText("in 90% of cases").waitFor();
    await submit(page, `${DATA}/source`, `${DATA}/expected/below`);
    await page.getByText(/^Waiting: Job/i).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.goto(address);
    await page.getByRole("button", { name: `Cancel ${id}` }).click();
    await progress.getByText("cancelled", { exact: true }).waitFor();
  });
});

test("a running transfer names the hop that limits its rate, and the relay that says so", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    const route = { name: "gw-1 → relay-1 → gw-2", regions: ["a:1", "a:2"], share: 1, planned_gbps: null };
    const hop = { src: "a:1", dst: "a:2", routes: [route.name], planned_gbps: null, lines: [], figures_at: null };
    await page.route("**/v1/jobs/*/plan", (asked) =>
      asked.fulfill({ json: { routes: [route], hops: [hop], machines: [], limits: [], map: null } }),
    );
    const relay = { gateway: "relay-1", peer: "gw-2", by_relay: true };
    const cases = [
      [{ slowest: "network", slowest_hop: relay }, "the network from relay-1 to gw-2, relay relay-1 says"],
      [{ slowest: "network", slowest_hop: { ...relay, by_relay: false } }, "the network from relay-1 to gw-2"],
      [{ slowest: "network" }, "the network between the machines"],
      [{ slowest: "write" }, "writing to the destination"],
      [{}, "not known yet"],
    ];
    let limits = {};
    await page.route("**/v1/jobs/*/events", (asked) => asked.fulfill({ contentType: "text/event-stream", body: progressOf(limits) }));
    await submit(page, `${DATA}/large`, `${DATA}/limited`, "1");
    for (const [reported, words] of cases) {
      limits = reported;
      await page.reload();
      await page.getByRole("region", { name: "Routes" }).getByText(words, { exact: true }).waitFor();
    }
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("region", { name: "Progress" }).getByText("cancelled", { exact: true }).waitFor();
  });
});

/** A stream with one progress event of a slow job. */
function progressOf(limits) {
  const counts = { listed: true, objects_total: 9, bytes_total: 9, objects_done: 1, bytes_done: 1, objects_skipped: 0 };
  const progress = { event: "progress", ...counts, objects_failed: 0, retries: 0, bytes_per_s: 1, elapsed_s: 1, hops: [], limits };
  return `data: ${JSON.stringify(progress)}\n\n`;
}

test("a running transfer is paused, resumed and cancelled from the list", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    const id = await submit(page, `${DATA}/large`, `${DATA}/cancelled`, "1");
    await page.getByRole("link", { name: "All transfers" }).click();
    const row = page.getByRole("row", { name: id });
    await row.getByText("running", { exact: true }).waitFor();
    await row.getByRole("button", { name: "Pause" }).click();
    await row.getByText("paused", { exact: true }).waitFor();
    await row.getByRole("button", { name: "Resume" }).click();
    await row.getByText("running", { exact: true }).waitFor();
    await row.getByRole("button", { name: "Cancel" }).click();
    await row.getByText("cancelled", { exact: true }).waitFor();
    assert.equal(await row.getByRole("button").count(), 0);
  });
});

test("an error of the API is shown beside its field, and the form shows the same command", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "New transfer" }).first().click();
    await page.getByLabel("Source", { exact: true }).fill("/etc/x y");
    await page.getByLabel("Destination", { exact: true }).fill(`${DATA}/x`);
    await page.getByText(`tradewind cp -r '/etc/x y' ${DATA}/x`).waitFor();
    await page.getByText('"source":"/etc/x y"').waitFor();
    await page.getByRole("button", { name: "Start the transfer" }).click();
    await page.locator("#source-wrong").getByText("not below an allowed folder").waitFor();
    assert.equal(await page.getByLabel("Source", { exact: true }).getAttribute("aria-invalid"), "true");
    assert.equal(await page.locator("#destination-wrong").innerText(), "");
  });
});

test("an admin makes a tenant and a token, and revokes one; a viewer sees none of it", async () => {
  await withPage("light", async (page) => {
    await signIn(page);
    await page.getByRole("link", { name: "Tenants" }).click();
    await page.getByLabel("New tenant").fill("lab");
    await page.getByRole("button", { name: "Make tenant" }).click();
    await page.getByRole("region", { name: "Tenants", exact: true }).getByRole("cell", { name: "lab" }).waitFor();
    await page.getByLabel("Name", { exact: true }).fill("reader");
    await page.getByLabel("Role").selectOption("viewer");
    await page.getByRole("button", { name: "Make token" }).click();
    const token = await page.locator("pre").innerText();
    await page.getByText("token.make").first().waitFor();

    await page.getByRole("button", { name: "Sign out" }).click();
    await signIn(page, token.trim());
    assert.deepEqual(await page.getByRole("navigation").getByRole("link").allInnerTexts(), ["Transfers", "Plan", "Grid", "Market", "Sites", "Connections"]);
    await page.getByRole("button", { name: "Sign out" }).click();

    await signIn(page);
    await page.getByRole("link", { name: "Tenants" }).click();
    await page.getByRole("button", { name: "Revoke reader" }).click();
    await page.getByRole("region", { name: "List of tokens" }).getByRole("row", { name: "reader" }).getByText("revoked").waitFor();
    await page.getByText("token.revoke").first().waitFor();
  });
});

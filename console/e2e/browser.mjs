// A headless Chromium on the server that the environment names.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import { chromium } from "playwright-core";

const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf-8");

export const TOKEN = process.env.TRADEWIND_TOKEN;
export const DATA = process.env.TRADEWIND_DATA;
export const URL = process.env.TRADEWIND_URL;

/** Run `work` on a page of a signed-in user; `scheme` is "light" or "dark". Errors of the page fail the test. */
export async function withPage(scheme, work) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
  try {
    const context = await browser.newContext({ colorScheme: scheme, viewport: { width: 1280, height: 900 } });
    const page = await context.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("console", (line) => {
      // The browser itself reports each answer with an error status.
      if (line.type() === "error" && !line.text().startsWith("Failed to load resource")) errors.push(line.text());
    });
    page.on("dialog", (dialog) => dialog.accept());
    await page.goto(`${URL}/`);
    await work(page);
    if (errors.length > 0) throw new Error(errors.join("\n"));
  } finally {
    await browser.close();
  }
}

export async function signIn(page, token = TOKEN) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Transfers" }).waitFor();
}

/** Fill in the form for a new transfer, start it, and return its id. */
export async function submit(page, source, destination, limit_mb_per_s = "") {
  await page.getByRole("link", { name: "New transfer" }).first().click();
  await page.getByLabel("Source", { exact: true }).fill(source);
  await page.getByLabel("Destination", { exact: true }).fill(destination);
  await page.getByLabel("Maximum rate").fill(limit_mb_per_s);
  await page.getByRole("button", { name: "Start the transfer" }).click();
  await page.waitForURL(/#\/transfers\/./);
  return page.url().split("/").at(-1);
}

/** Check that axe-core finds nothing on the page. With SHOTS=DIR the page is also saved as a picture. */
export async function look(page, scheme, name) {
  if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${name}-${scheme}.png`, fullPage: true });
  // The page's policy allows no script of others; the debugger is not bound by it.
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run());
  const words = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" ")}`);
  assert.deepEqual(words, [], name);
}

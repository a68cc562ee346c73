// Prices of a tariff as people type them.

import type { Tariff } from "./types";

const MICROS_PER_USD = 1_000_000;
const AMOUNT = /^\d+(\.\d+)?$/;
const QUANTITY = /^\d+$/;

/** Return the tiers of `0.02`, or of `0: 0.02, 10000: 0.015`: USD per unit from a quantity on. Null for other text. */
export function tiersOf(text: string): Tariff["tiers"] | null {
  const tiers = text.split(",").map((part, place) => {
    const words = part.split(":").map((word) => word.trim());
    const [from, usd] = words.length === 1 && place === 0 ? ["0", words[0]] : words;
    if (words.length > 2 || !QUANTITY.test(from ?? "") || !AMOUNT.test(usd ?? "")) return null;
    return { from_quantity: Number(from), usd_micros_per_unit: Math.round(Number(usd) * MICROS_PER_USD) };
  });
  return tiers.every((tier) => tier !== null) ? tiers : null;
}

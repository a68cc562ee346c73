// Prices of a tariff as people type them.

import type { Tariff } from "./types";

const MICROS_PER_USD = 1_000_000;
const AMOUNT = /^\d+(\.\d+)?$/;
const QUANTITY = /^\d+$/;

/**
 * Return the tiers of `0.02`, or of `0: 0.02, 10000: 0.015`: USD per unit from a quantity on. `0.01-0.02` is the price of
 * an idle link and that of a full one. Null for other text.
 */
export function tiersOf(text: string): Tariff["tiers"] | null {
  const tiers = text.split(",").map((part, place) => {
    const words = part.split(":").map((word) => word.trim());
    const [from, usd] = words.length === 1 && place === 0 ? ["0", words[0]] : words;
    const bounds = (usd ?? "").split("-").map((word) => word.trim());
    if (words.length > 2 || bounds.length > 2 || !QUANTITY.test(from ?? "") || !bounds.every((word) => AMOUNT.test(word))) return null;
    const [idle = 0, full = null] = bounds.map((word) => Math.round(Number(word) * MICROS_PER_USD));
    if (full !== null && full < idle) return null;
    return { from_quantity: Number(from), usd_micros_per_unit: idle, usd_micros_per_unit_max: full };
  });
  return tiers.every((tier) => tier !== null) ? tiers : null;
}

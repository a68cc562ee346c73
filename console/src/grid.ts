// Rates of links for the heat map, read from the CSV of `GET /v1/grid`: one request has all links.

export interface Rate {
  gbps: number;
  isLearned: boolean;
}

/** Rates by source and destination. */
export type Rates = Map<string, Map<string, Rate>>;

/** Lower bounds of the colours [Gbit/s]; the first colour is below the first bound. */
export const BOUNDS_GBPS = [2, 3, 4, 5, 7, 10];

/** Return the number of the colour of a rate. */
export function level(gbps: number): number {
  return BOUNDS_GBPS.filter((bound) => gbps >= bound).length;
}

/** Return the rates of a table. Only the columns up to the rate and the last one are read; none of them is quoted. */
export function parseRates(csv: string): Rates {
  const rates: Rates = new Map();
  for (const line of csv.split("\n").slice(1)) {
    const [src, dst, gbps] = line.split(",", 3);
    if (!src || !dst || !gbps) continue;
    const row = rates.get(src) ?? new Map<string, Rate>();
    row.set(dst, { gbps: Number(gbps), isLearned: !/,0\r?$/.test(line) });
    rates.set(src, row);
  }
  return rates;
}

export function cloudOf(region: string): string {
  return region.slice(0, region.indexOf(":"));
}

export function nameOf(region: string): string {
  return region.slice(region.indexOf(":") + 1);
}

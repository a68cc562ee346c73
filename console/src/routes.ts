// The routes of a running transfer: their present rates, from progress events, and what is wrong with them.

import { bits, duration } from "./format";
import type { Counts, JobHop } from "./types";

/** Rates are averages over this time, and over at least two pauses between answers: bytes count once a chunk arrived. */
const SPAN_S = 5;
/** Progress older than this is forgotten. */
const SPAN_S_MAX = 60;
/** A route whose requests have no answer for this time, and for three of its longest pauses before, is stalled. */
const STALLED_S = 10;
const [PAUSES_OF_SPAN, PAUSES_OF_STALL] = [2, 3];

/** The state of a route or hop. A hop over which no route sends now is idle. */
export type Condition = "works" | "idle" | "stalled" | "down";

/** Present figures of a route. `silent_s` is the time since its last answer. */
export interface RouteNow {
  bytes: number;
  bytes_per_s: number;
  condition: Condition;
  silent_s: number;
}

/** The present figures of a hop on the map. */
export interface HopMark {
  name: string;
  lines: [number, number][][];
  figures_at: [number, number] | null;
  words: string;
  tone: "works" | "quiet" | "bad";
}

interface Seen {
  at_s: number;
  bytes: number;
}

interface History {
  /** Bytes by time, the oldest first. */
  seen: Seen[];
  answered_s: number;
  pause_s_max: number;
}

/** The rates of the routes of one job, from its progress events. */
export class RouteRates {
  private at_s = 0;
  private histories = new Map<string, History>();

  /** Return what each route that is in use does now, by its name. */
  see(progress: Counts): Map<string, RouteNow> {
    // A new run counts from zero.
    if (progress.elapsed_s < this.at_s) this.histories.clear();
    this.at_s = progress.elapsed_s;
    const found = new Map<string, RouteNow>();
    for (const hop of progress.hops) {
      if (hop.retired) continue;
      const history = this.histories.get(hop.name) ?? { seen: [], answered_s: this.at_s, pause_s_max: 0 };
      this.histories.set(hop.name, history);
      this.add(history, hop.bytes);
      const silent_s = this.at_s - history.answered_s;
      const bytes_per_s = this.rate(history);
      const is_stalled = hop.requests_in_flight > 0 && silent_s >= Math.max(STALLED_S, PAUSES_OF_STALL * history.pause_s_max);
      const condition = !hop.up ? "down" : is_stalled ? "stalled" : bytes_per_s > 0 || hop.requests_in_flight > 0 ? "works" : "idle";
      found.set(hop.name, { bytes: hop.bytes, bytes_per_s, condition, silent_s });
    }
    return found;
  }

  private add(history: History, bytes: number): void {
    const last = history.seen.at(-1);
    if (last !== undefined && bytes > last.bytes) {
      // The first answer comes after connections were made, which says nothing about the next ones.
      if (last.bytes > 0) history.pause_s_max = Math.max(history.pause_s_max, this.at_s - history.answered_s);
      history.answered_s = this.at_s;
    }
    history.seen.push({ at_s: this.at_s, bytes });
    const span_s = Math.min(SPAN_S_MAX, Math.max(SPAN_S, PAUSES_OF_SPAN * history.pause_s_max));
    while (history.seen.length > 2 && (history.seen[1]?.at_s ?? 0) <= this.at_s - span_s) history.seen.shift();
  }

  private rate(history: History): number {
    const [first, last] = [history.seen[0], history.seen.at(-1)];
    if (first === undefined || last === undefined || last.at_s <= first.at_s) return 0;
    return (last.bytes - first.bytes) / (last.at_s - first.at_s);
  }
}

/** Return the rate of a hop between two regions, the sum of its routes, and the worst of their states. */
export function hopNow(hop: JobHop, routes: ReadonlyMap<string, RouteNow>): { bytes_per_s: number; condition: Condition } {
  const mine = hop.routes.map((name) => routes.get(name)).filter((one) => one !== undefined);
  const states = mine.map((one) => one.condition);
  const condition = (["down", "stalled", "works"] as const).find((one) => states.includes(one)) ?? "idle";
  return { bytes_per_s: mine.reduce((sum, one) => sum + one.bytes_per_s, 0), condition };
}

export function markOf(hop: JobHop, routes: ReadonlyMap<string, RouteNow>): HopMark {
  const { bytes_per_s, condition } = hopNow(hop, routes);
  const isBad = condition === "down" || condition === "stalled";
  const rate = bits(bytes_per_s * 8);
  return {
    name: `${hop.src} → ${hop.dst}`,
    lines: hop.lines,
    figures_at: hop.figures_at,
    words: isBad && bytes_per_s === 0 ? condition : isBad ? `${rate}, ${condition}` : rate,
    tone: isBad ? "bad" : bytes_per_s > 0 ? "works" : "quiet",
  };
}

export function conditionWords(now: RouteNow): string {
  return now.condition === "stalled" ? `stalled, no answer for ${duration(now.silent_s)}` : now.condition;
}

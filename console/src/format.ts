// Figures and times as text. Units are decimal, as on the command line.

import type { Counts, Job, JobDetail } from "./types";

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

export function bytes(count: number): string {
  let power = 0;
  while (count >= 999.5 && power < UNITS.length - 1) {
    count /= 1000;
    power += 1;
  }
  return `${power === 0 || count >= 99.5 ? Math.round(count) : count.toPrecision(3)} ${UNITS[power]}`;
}

export function rate(bytes_per_s: number): string {
  return `${bytes(bytes_per_s)}/s`;
}

export function gbps(rate: number): string {
  return `${Number(rate.toPrecision(3))} Gbit/s`;
}

/** Return a rate as text. */
export function bits(bits_per_s: number): string {
  const power = bits_per_s >= 999.5e6 ? 9 : bits_per_s >= 999.5e3 ? 6 : 3;
  return `${Number((bits_per_s / 10 ** power).toPrecision(3))} ${{ 9: "G", 6: "M", 3: "k" }[power]}bit/s`;
}

export function usd(amount: number): string {
  return `$${amount.toFixed(amount > 0 && amount < 0.1 ? 4 : 2)}`;
}

/** Return a price in millionths of a dollar as text. */
export function price(usd_micros: number): string {
  return usd(usd_micros / 1_000_000);
}

export function count(number: number): string {
  return number.toLocaleString("en");
}

export function time(unix_ms: number): string {
  const at = new Date(unix_ms);
  const pad = (number: number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

export function duration(seconds: number): string {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** Return when a job will end, as an interval from now; null if its end is not known. */
export function end(eta: JobDetail["eta"], now_ms: number): string | null {
  if (eta === null) return null;
  const [from_s, to_s] = [eta.earliest_unix_ms, eta.latest_unix_ms].map((at) => Math.max(0, (at - now_ms) / 1000));
  const [from, to] = [duration(from_s ?? 0), duration(to_s ?? 0)];
  return from === to ? `in ${to}` : `in ${from} to ${to}`;
}

/** Return the time that is left at the average rate [s]; null while the total or the rate is not known. */
export function left_s(job: Job, counts: Counts | null): number | null {
  if (job.state !== "running" || counts === null || !counts.listed || counts.bytes_per_s <= 0) return null;
  return Math.max(0, counts.bytes_total - counts.bytes_done) / counts.bytes_per_s;
}

/** Return the end of a place, for lists. */
export function short(place: string, length_max = 44): string {
  return place.length <= length_max ? place : `…${place.slice(1 - length_max)}`;
}

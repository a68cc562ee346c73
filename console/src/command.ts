// The same transfer as a command line and as a request of the API.

import type { Compression, Via } from "./types";

export const DEFAULT_ACTIVITY = "default";

export interface Draft {
  source: string;
  destination: string[];
  verb: "cp" | "sync" | "mv";
  recursive: boolean;
  delete: boolean;
  verify: "auto" | "read";
  limit_bytes_per_s: number | null;
  priority: number;
  chunk_bytes: number | null;
  routes: number | null;
  compression: Compression;
  deduplication: boolean;
  /** Null: as the service decides. */
  via: Via | null;
  max_cost_usd: number | null;
  /** At most one of these two. */
  deadline_s: number | null;
  min_throughput_gbps: number | null;
  max_vms: number | null;
  activity: string;
}

/** Return text as one word of a POSIX shell. */
export function quote(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Return the command that does the same with the credentials of the one who runs it. */
export function commandLine(draft: Draft): string {
  const words = ["tradewind", draft.verb];
  if (draft.recursive && draft.verb !== "sync") words.push("-r");
  if (draft.delete && draft.verb === "sync") words.push("--delete");
  if (draft.verify !== "auto") words.push("--verify", draft.verify);
  if (draft.limit_bytes_per_s !== null) words.push("--limit-rate", `${draft.limit_bytes_per_s}B/s`);
  if (draft.chunk_bytes !== null) words.push("--chunk-size", `${draft.chunk_bytes}B`);
  if (draft.routes !== null) words.push("--routes", `${draft.routes}`);
  if (draft.compression !== "off") words.push("--compress", draft.compression);
  if (draft.deduplication) words.push("--dedup", "on");
  if (draft.via !== null) words.push("--via", draft.via === "here" ? "local" : draft.via);
  // The command takes one goal, and a cost is one there.
  if (draft.deadline_s !== null) words.push("--deadline", `${draft.deadline_s}s`);
  else if (draft.min_throughput_gbps !== null) words.push("--min-throughput", `${draft.min_throughput_gbps}Gbit/s`);
  else if (draft.max_cost_usd !== null) words.push("--max-cost", `${draft.max_cost_usd}USD`);
  if (draft.max_vms !== null) words.push("--max-vms", `${draft.max_vms}`);
  words.push(quote(draft.source || "SRC"));
  if (draft.destination.length > 1) for (const place of draft.destination) words.push("--to", quote(place));
  else words.push(quote(draft.destination[0] || "DST"));
  return words.join(" ");
}

/** Return the body of `POST /v1/jobs`, without defaults. */
export function requestBody(draft: Draft): Record<string, unknown> {
  const [only, ...others] = draft.destination;
  const body: Record<string, unknown> = {
    source: draft.source,
    destination: others.length > 0 ? draft.destination : (only ?? ""),
    verb: draft.verb,
  };
  if (draft.recursive && draft.verb !== "sync") body.recursive = true;
  if (draft.delete && draft.verb === "sync") body.delete = true;
  if (draft.verify !== "auto") body.verify = draft.verify;
  if (draft.limit_bytes_per_s !== null) body.limit_bytes_per_s = draft.limit_bytes_per_s;
  if (draft.priority !== 0) body.priority = draft.priority;
  if (draft.chunk_bytes !== null) body.chunk_bytes = draft.chunk_bytes;
  if (draft.routes !== null) body.routes = draft.routes;
  if (draft.compression !== "off") body.compression = draft.compression;
  if (draft.deduplication) body.deduplication = true;
  if (draft.via !== null) body.via = draft.via;
  if (draft.max_cost_usd !== null) body.max_cost_usd = draft.max_cost_usd;
  if (draft.deadline_s !== null) body.deadline_s = draft.deadline_s;
  if (draft.min_throughput_gbps !== null) body.min_throughput_gbps = draft.min_throughput_gbps;
  if (draft.max_vms !== null) body.max_vms = draft.max_vms;
  if (draft.activity !== DEFAULT_ACTIVITY) body.activity = draft.activity;
  return body;
}

/** Return the request with curl. The token comes from the environment, so that it is in no history. */
export function curl(draft: Draft, server: string, key: string): string {
  return [
    `curl -H "Authorization: Bearer $TOKEN" -H "Idempotency-Key: ${key}"`,
    `  -d ${quote(JSON.stringify(requestBody(draft)))} ${server}/v1/jobs`,
  ].join(" \\\n");
}

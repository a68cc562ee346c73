// Documents of the API, as docs/reference/service-api.md describes them. Only the fields that the console reads.

export const STATES = ["waiting", "running", "pausing", "stopping", "cancelling", "paused", "done", "failed", "cancelled"] as const;
export type State = (typeof STATES)[number];

export interface JobRequest {
  source: string;
  destination: string[];
  verb: "cp" | "sync" | "mv";
  recursive: boolean;
  delete: boolean;
  verify: "auto" | "read";
  limit_bytes_per_s: number | null;
  stall_s: number;
  priority: number;
}

export interface Job {
  id: string;
  state: State;
  waiting: string | null;
  created_unix_ms: number;
  updated_unix_ms: number;
  attempts: number;
  error: string | null;
  hint: string | null;
  request: JobRequest;
}

export interface Hop {
  id: number;
  name: string;
  bytes: number;
  up: boolean;
  retired: boolean;
}

export interface Counts {
  listed: boolean;
  objects_total: number;
  bytes_total: number;
  objects_done: number;
  bytes_done: number;
  objects_skipped: number;
  objects_failed: number;
  retries: number;
  bytes_per_s: number;
  elapsed_s: number;
  hops: Hop[];
}

export interface LedgerLine {
  what: string;
  usd: number;
}

export interface JobDetail extends Job {
  /** The job ends between these times in 90% of cases. */
  eta: { earliest_unix_ms: number; latest_unix_ms: number } | null;
  counts: Counts | null;
  proofs: Record<string, number> | null;
  ledger: { predicted_usd: number | null; metered_usd: number; lines: LedgerLine[] } | null;
}

export interface JobEvent {
  event: string;
  state?: State;
  reason?: string | null;
  at_unix_ms?: number;
  [field: string]: unknown;
}

export interface TransferObject {
  source: string;
  destination: string;
  size_bytes: number;
  verdict: string;
  proof: { source: string; hop: string; destination: string } | null;
}

/** Who a token belongs to, and what it may do. */
export interface Me {
  token: string;
  tenant: string;
  role: string;
  scopes: string[];
}

export interface Tenant {
  name: string;
  created_unix_ms: number;
}

export interface Token {
  id: string;
  tenant: string;
  name: string;
  role: string;
  scopes: string[];
  created_unix_ms: number;
  expires_unix_ms: number | null;
  revoked_unix_ms: number | null;
}

export interface AuditEntry {
  number: number;
  at_unix_ms: number;
  token: string;
  action: string;
  target: string;
  detail: Record<string, unknown>;
}

export interface Page {
  next: string | number | null;
}

export interface Quote {
  id: string;
  usd_micros: number;
  lines: { what: string; usd_micros: number }[];
  expires_unix_ms: number;
  objects: number;
  volume_bytes: number;
  max_bytes: number;
  rate_gbps: number | null;
  notes: string[];
}

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
  chunk_bytes?: number | null;
  activity: string;
  /** Absent in transfers of earlier versions, as are the fields below. */
  routes?: number | null;
  compression?: Compression;
  deduplication?: boolean;
  via?: Via | null;
  max_cost_usd?: number | null;
  deadline_s?: number | null;
  min_throughput_gbps?: number | null;
  max_vms?: number | null;
  quote?: string | null;
}

export const VIAS = ["auto", "fleet", "here"] as const;
export type Via = (typeof VIAS)[number];

export const COMPRESSIONS = ["off", "auto", "lz4", "zstd"] as const;
export type Compression = (typeof COMPRESSIONS)[number] | `zstd:${number}`;

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
  requests_in_flight: number;
}

export type Stage = "read" | "network" | "write";

/** Limits on concurrent requests. `slowest` is the stage that limits the rate now, and `slowest_hop` the hop if it is known. */
export type StageLimits = { [stage in Stage]?: { now: number; max: number } | null } & {
  slowest?: Stage | null;
  slowest_hop?: SlowHop | null;
};

/** The hop from `gateway` to `peer`. `by_relay`: only the statement of a relay, `gateway`, says so. */
export interface SlowHop {
  gateway: string;
  peer: string;
  by_relay: boolean;
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
  limits?: StageLimits | null;
}

/** The latest plan of a job. Positions are those on the map [px]. */
export interface JobPlan {
  routes: { name: string; regions: string[]; share: number; planned_gbps: number | null }[];
  hops: JobHop[];
  machines: { name: string; region: string; is_used: boolean; replaced_by: string | null }[];
  limits: string[];
  map: { svg: string; width_px: number; height_px: number } | null;
}

export interface JobHop {
  src: string;
  dst: string;
  routes: string[];
  planned_gbps: number | null;
  lines: [number, number][][];
  figures_at: [number, number] | null;
}

export interface LedgerLine {
  what: string;
  usd: number;
}

export interface JobDetail extends Job {
  /** The job ends between these times in 90% of cases. */
  eta: { earliest_unix_ms: number; latest_unix_ms: number } | null;
  /** The most that the transfer is charged; null without a quote. */
  quote_usd_micros: number | null;
  counts: Counts | null;
  proofs: Record<string, number> | null;
  ledger: { predicted_usd: number | null; metered_usd: number; lines: LedgerLine[] } | null;
  /** Number of routes between machines; null on the server's own machine. */
  routes: number | null;
  /** Null if it is off. Bytes are sums over all hops. */
  compression: (Savings & { codec: string }) | null;
  deduplication: Savings | null;
}

export interface Savings {
  carried_bytes: number;
  sent_bytes: number;
  ratio: number | null;
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

/** A job of the user's state folder, which a user's own console only shows. */
export interface CommandLineJob {
  id: string;
  state: string;
  verb: string;
  source: string;
  destination: string[];
  created_unix_ms: number;
  objects_done: number;
  objects_total: number;
  bytes_done: number;
  bytes_total: number;
}

/** The owner of a token, and its rights. */
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
  id: string;
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
  routes: number | null;
  rate_gbps: number | null;
  notes: string[];
}

export interface Observation {
  date: string;
  gbps: number;
  /** Something else limited the transfer. */
  at_least: boolean;
}

export interface Link {
  src: string;
  dst: string;
  gbps: number;
  rtt_ms: number | null;
  kind: string;
  source: string;
  date: string;
  confidence: number;
  transfers: number;
  history: Observation[];
}

export interface Market {
  least_extra_nodes: number;
  margins: {
    extra_nodes: number;
    empty: boolean;
    usd_per_hour: [number, number];
    usd_per_gb: [number, number];
    unified_usd_per_gb: [number, number];
  }[];
  costs: { volume_gb: number; e2e_usd: number; umr_usd: number; outbound_usd: number }[];
  energy: { case: string; applications: number; service_nodes: number; ratio: number }[];
  now: {
    /** Tenants get it rounded to quarters. */
    utilisation: number;
    usd_per_hour: number | null;
    /** Null except for service admins. */
    running_jobs: number | null;
    service_nodes: number | null;
    energy_ratio: number | null;
  };
}

/** A link with open auctions. Hours are counted since 1970, UTC. */
export interface Lot {
  link: string;
  first_hour: number;
  last_hour: number;
  reserve_usd_micros: number;
}

/** A bid of the tenant. Its price is for 1 Gbit/s. */
export interface Bid {
  id: string;
  link: string;
  hour: number;
  rate_gbps: number;
  usd_micros: number;
  state: "open" | "won" | "lost" | "void";
  reserved_usd_micros: number;
  won_gbps: number;
  charged_usd_micros: number;
  /** For bandwidth that the service has withheld; known after the hour. */
  refunded_usd_micros: number;
}

/** An auction that is over; without a price it was void. */
export interface Auction {
  link: string;
  hour: number;
  usd_micros: number | null;
}

export interface Limit {
  kind: string;
  name: string;
  active: number | null;
  rate_gbps: number | null;
  usd_per_day: number | null;
}

/** A ban or a maintenance window. */
export interface Ban {
  id: string;
  kind: string;
  name: string;
  reason: string;
  stops_jobs: boolean;
  refuses_jobs: boolean;
  start_unix_ms: number;
  end_unix_ms: number | null;
}

export interface Schedule {
  id: string;
  request: JobRequest;
  /** Null if only events submit transfers. */
  cron: string | null;
  time_zone: string;
  overlap: string;
  next_unix_ms: number | null;
  submitted: number;
  skipped: string | null;
}

export interface Budget {
  tenant: string;
  period: string;
  limit_usd_micros: number;
  spent_usd_micros: number;
  reserved_usd_micros: number;
  left_usd_micros: number;
}

export interface InvoiceEntry {
  id: string;
  month: string;
  final: boolean;
}

export interface Invoice extends InvoiceEntry {
  number: string;
  total_cents: number;
  lines: { subject: string; what: string; usd_micros: number; cents: number }[];
}

export interface Member {
  id: string;
  issuer: string;
  subject: string;
  role: string;
  first_unix_ms: number;
  last_unix_ms: number;
  blocked_unix_ms: number | null;
}

export interface Webhook {
  id: string;
  url: string;
  states: string[];
  dropped: number;
  created_unix_ms: number;
}

export interface Delivery {
  id: string;
  state: "pending" | "delivered" | "failed";
  attempts: number;
  error: string | null;
  created_unix_ms: number;
  body: { job_id: string; state: string };
}

/** A place of the tenant with credentials of its own. Its secret is never shown. */
export interface Connection {
  name: string;
  kind: "s3" | "gs" | "az" | "r2";
  place: string;
  endpoint: string | null;
  region: string | null;
  created_unix_ms: number;
  replaced_unix_ms: number;
}

export interface Fleet {
  id: string;
  provider: string;
  state: string;
  jobs: string[];
  created_unix_ms: number;
  warm_until_unix_ms: number | null;
  cost_usd: number | null;
  machines: Machine[];
}

export interface Machine {
  name: string;
  region: string;
  type: string | null;
  /** Null if the provider does not say. */
  alive: boolean | null;
  lease_end_unix_ms: number | null;
  usd_per_hour: number | null;
  phases_s: Record<string, number>;
}

/** A link that has a limit or a ban, or has had transfers. */
export interface LinkState {
  name: string;
  known_gbps: number | null;
  limit: { active: number | null; rate_gbps: number | null; usd_per_day: number | null } | null;
  bans: Ban[];
  load: { jobs: number; rate_gbps: number };
  /** Smoothed over hours; prices follow it. */
  utilisation: number;
  tuning: {
    jobs_max: number;
    read_requests: number;
    write_requests: number;
    goodput_gbps: number;
    success: number;
  } | null;
}

/** A decision of the scheduler, or of the gateways of a job, about a link. */
export interface LinkDecision {
  number: number;
  link: string;
  at_unix_ms: number;
  job: string | null;
  reason: string;
}

export interface Weight {
  tenant: string;
  activity: string | null;
  weight: number;
}

export interface Tariff {
  name: string;
  unit: string;
  tiers: { from_quantity: number; usd_micros_per_unit: number; usd_micros_per_unit_max: number | null }[];
  src: string;
  dst: string;
  valid_from_s: number;
  valid_until_s: number | null;
}

export interface Site {
  name: string;
  place: string;
}

/** The least cost of a rate. */
export interface FrontierPoint {
  rate_gbps: number;
  usd: number;
}

/** The cheapest plan of at least a rate. */
export interface PlannedTransfer {
  rate_gbps: number;
  time_s: number;
  usd: number;
  egress_usd: number;
  routes: { regions: string[]; share: number }[];
  machines: { region: string; type: string; count: number }[];
  explanation: string;
  map_svg: string;
}

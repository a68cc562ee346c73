//! The program of one gateway.

use crate::{JobSpec, StoreSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Answer of `GET /v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// Version of the gateway program.
    pub gateway: String,
    /// [`crate::CONTRACT_VERSION`].
    pub contract: u32,
    /// Address of the data port, `ip:port`, where this gateway listens for peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_address: Option<String>,
    /// Milliseconds since the machine began to run its boot script; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booted_ms_ago: Option<u64>,
    /// Notice of the cloud that it takes the machine back; absent if the cloud gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<TakingBack>,
}

/// The cloud's notice that it takes the gateway's machine back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakingBack {
    /// Seconds for which the gateway still works before it drains; null while the cloud has announced nothing.
    pub leaves_in_s: Option<u64>,
}

/// Body of `PUT /v1/program`: the whole work of one gateway for one job.
///
/// A route names its stations in the order lead, source, relays…, sink. The gateway looks its own name up: first
/// station: lead; second: source; last: sink; between: relay. Consecutive stations of one name are the same process
/// and are joined by memory instead of a hop (local mode is `["local", "local", "local"]`).
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// [`crate::CONTRACT_VERSION`].
    pub contract: u32,
    /// Job id: 1 to 64 of `[a-z0-9-]`.
    pub job_id: String,
    /// Name of this gateway, as in its certificate.
    pub node: String,
    /// All routes that pass this gateway.
    pub routes: Vec<RouteSpec>,
    /// Outgoing hops of this gateway.
    #[serde(default)]
    pub hops: Vec<HopSpec>,
    /// Incoming hops whose connections this gateway opens, because their upstream ends cannot reach it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dials: Vec<DialSpec>,
    /// For the lead: the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<JobSpec>,
    /// For a source: the store to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<StoreSpec>,
    /// For a sink: the stores to write, in the order of [`JobSpec::targets`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sinks: Vec<StoreSpec>,
    /// For a source that is not the lead: the keys that it may read. A lead takes them from its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<KeyScope>,
    /// For a sink that is not the lead: the keys that it may write, one scope for each of `sinks`. A lead takes them
    /// from its job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<KeyScope>,
    /// For a sink that is not the lead: the objects that it may copy inside the store. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopyScope>,
    /// Key of the run (64 hex digits): source and sink seal bodies with it for each other. They need it if any of
    /// their routes leaves this gateway; relays must not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal_key_hex: Option<String>,
    /// Named limits.
    #[serde(default)]
    pub limits: Limits,
}

/// Hides the seal key, so that no log line shows it.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contract, job_id, node, routes, hops, dials, lead, source, sinks, .. } = self;
        let Self { reads, writes, copies, seal_key_hex, limits, .. } = self;
        f.debug_struct("Program")
            .field("contract", contract)
            .field("job_id", job_id)
            .field("node", node)
            .field("routes", routes)
            .field("hops", hops)
            .field("dials", dials)
            .field("lead", lead)
            .field("source", source)
            .field("sinks", sinks)
            .field("reads", reads)
            .field("writes", writes)
            .field("copies", copies)
            .field("seal_key_hex", &seal_key_hex.as_ref().map(|_| "redacted"))
            .field("limits", limits)
            .finish()
    }
}

/// Keys of one store that a gateway may touch for its job, whatever a peer requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyScope {
    /// One object.
    Object {
        /// Its key.
        key: String,
    },
    /// All keys that begin with `prefix`; with an empty one, all keys.
    Prefix {
        /// The prefix.
        prefix: String,
    },
}

impl KeyScope {
    /// Returns whether the scope contains `key`.
    pub fn holds(&self, key: &str) -> bool {
        match self {
            Self::Object { key: only } => key == only,
            Self::Prefix { prefix } => key.starts_with(prefix.as_str()),
        }
    }
}

/// Objects that may be copied inside a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyScope {
    /// Bucket or container to copy from.
    pub bucket: String,
    /// Keys there.
    pub keys: KeyScope,
}

/// One route through the overlay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// Unique in the job.
    pub id: u16,
    /// Stations: lead, source, relays…, sink.
    pub nodes: Vec<String>,
    /// Wanted share of the bytes, in (0, 1]; the lead normalises the shares.
    pub share: f64,
    /// Egress price of all hops together.
    #[serde(default)]
    pub usd_per_gb: f64,
}

/// Body of `PUT /v1/routes`: new routes for a gateway whose program runs. Requests in flight continue. A route with the
/// same id keeps its stations and price and gets its new share. A route that is left out gets no more work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Routes {
    /// All routes that pass this gateway from now on.
    pub routes: Vec<RouteSpec>,
    /// All its outgoing hops from now on. Existing hops can gain connections and never lose any. A hop that no route uses
    /// any more ends when all its requests are answered.
    #[serde(default)]
    pub hops: Vec<HopSpec>,
    /// All [`Program::dials`] from now on. A connection that is open stays open until its upstream end closes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dials: Vec<DialSpec>,
    /// For the lead: [`JobSpec::ceiling_usd_per_gb`] from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_usd_per_gb: Option<f64>,
    /// For the lead: [`JobSpec::rate_limit_bytes_per_s`] from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit_bytes_per_s: Option<u64>,
}

/// One outgoing bundle of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HopSpec {
    /// Name of the gateway at the other end.
    pub to: String,
    /// Its data port, `ip:port`. Absent: the gateway at the other end opens the connections, to our data port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// TCP connections, 1 to 64.
    pub connections: u16,
}

/// One incoming bundle of connections that this gateway opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DialSpec {
    /// Name of the gateway at the upstream end.
    pub upstream: String,
    /// Its data port, `ip:port`.
    pub address: String,
    /// TCP connections, 1 to 64.
    pub connections: u16,
}

/// Named limits of a gateway; see `docs/reference/limits.md` for what happens at each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Object bytes held at once by source and sink together.
    pub memory_bytes: u64,
    /// For a sink of a job that deduplicates: bytes that it keeps in memory, so that they need not be sent again.
    pub dedup_window_bytes: u64,
    /// Maximum requests in flight to one store; adaptive below that.
    pub store_requests_max: u32,
    /// Requests in flight to the source at first; adaptive after that, up to `store_requests_max`.
    pub read_requests_start: u32,
    /// The same for each destination.
    pub write_requests_start: u32,
    /// Maximum attempts of one store request; then the object fails.
    pub store_tries_max: u32,
    /// Maximum time for all attempts of one store request, in seconds.
    pub store_retry_s: u32,
    /// The same while the store is unreachable or does not answer. The lead then retries until the job's `stall_s`.
    pub store_reach_s: u32,
    /// Maximum time, in seconds, without a byte of an answer; then the request is retried.
    pub store_idle_s: u32,
    /// Maximum silence of a store that works by itself (a copy, the completion of an upload, an fsync), in seconds. Also the
    /// maximum duration of such work with signs of life, plus the time of its bytes at 4 MiB/s. White space in an answer ends
    /// a silence; a dead connection ends the request sooner.
    pub store_work_s: u32,
    /// Maximum silence of a peer, in seconds; then it counts as dead.
    pub peer_silence_s: u32,
    /// For the lead: maximum time without an answer, in seconds; then the request is retried. It is the backstop behind all
    /// other limits, so it is longer than any store's slowest work.
    pub request_s: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            dedup_window_bytes: 256 << 20,
            store_requests_max: 64,
            read_requests_start: 16,
            write_requests_start: 16,
            store_tries_max: 10,
            store_retry_s: 120,
            store_reach_s: 45,
            store_idle_s: 30,
            store_work_s: 3_600,
            peer_silence_s: 15,
            request_s: 7_200,
        }
    }
}

//! Reports of a lead while it works: lines of `GET /v1/events`, and the job's status file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of `GET /v1/events` (NDJSON).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Progress, twice a second while the job runs.
    Progress(Progress),
    /// One object could not be moved.
    ObjectFailed(FailedObject),
    /// A message for the user, sent once: a route went down or came back, a gateway is out of space, ….
    Notice {
        /// One line.
        message: String,
    },
    /// A gateway changed how many requests it has in flight.
    LimitChanged(LimitChanged),
    /// `--dry-run`: one mapping.
    WouldCopy {
        /// Source URL.
        source: String,
        /// Destination URL.
        destination: String,
        /// Length.
        size_bytes: u64,
    },
    /// `--dry-run` with `--delete`: one deletion.
    WouldDelete {
        /// Destination URL.
        destination: String,
    },
    /// The last line: how the job ended.
    Done(Summary),
}

/// Progress of a job. Each object counts once per destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// True if the source has been listed to the end; until then totals only grow.
    pub listed: bool,
    /// Objects to be moved, as far as they have been listed.
    pub objects_total: u64,
    /// Bytes to be moved, as far as they have been listed.
    pub bytes_total: u64,
    /// Objects written and proven.
    pub objects_done: u64,
    /// Number of `objects_done` that earlier runs of the job moved.
    #[serde(default)]
    pub objects_earlier: u64,
    /// Bytes acknowledged.
    pub bytes_done: u64,
    /// Number of `bytes_done` that earlier runs of the job moved; rates leave them out.
    #[serde(default)]
    pub bytes_earlier: u64,
    /// Objects that the destination already has.
    pub objects_skipped: u64,
    /// Objects that failed.
    pub objects_failed: u64,
    /// Retries: one for each failed request, whatever its number of objects, and one for all requests that a route lost
    /// until it answered again.
    pub retries: u64,
    /// Bytes of this run that were sent a second time over another route because the first one did not answer.
    #[serde(default)]
    pub duplicate_bytes: u64,
    /// Bytes per second over the last seconds; in a summary, over the whole run.
    pub bytes_per_s: f64,
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// Egress cost so far at the plan's prices, over all runs of the job.
    pub cost_usd: f64,
    /// Traffic of each route.
    pub hops: Vec<HopActivity>,
    /// Limits on concurrent requests, once the gateways have reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<StageLimits>,
}

/// A stage on the way of a body. Each has its own limit on concurrent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Reading from the source.
    Read,
    /// Sending from the source's gateway.
    Network,
    /// Writing to the destination.
    Write,
}

/// The limits on concurrent requests, each summed over the gateways that work at that stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageLimits {
    /// Requests to the source store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<StageLimit>,
    /// Connections that send from the sources at the same time. None if the bytes cross no network between gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<StageLimit>,
    /// Requests to the destination stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<StageLimit>,
    /// The stage that limits the rate now; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest: Option<Stage>,
    /// The hop that limits the rate now; none unless the network does and one hop is seen to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_hop: Option<SlowHop>,
    /// The hops of relays that sent lately, as the relays themselves report them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relay_hops: Vec<HopLimit>,
}

/// A hop that limits the rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlowHop {
    /// Gateway that sends.
    pub gateway: String,
    /// Gateway that receives.
    pub peer: String,
    /// True if only the statement of the sender, a relay, says so.
    #[serde(default)]
    pub by_relay: bool,
}

/// The limit of a relay's hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HopLimit {
    /// Relay, which sends.
    pub gateway: String,
    /// Gateway that receives.
    pub peer: String,
    /// Connections that may send at the same time.
    pub now: u32,
    /// The highest limit that is allowed.
    pub max: u32,
}

/// A limit that tunes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageLimit {
    /// Present limit.
    pub now: u32,
    /// The highest limit that is allowed.
    pub max: u32,
}

/// Why a limit was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitReason {
    /// Requests waited, so more are tried.
    Waiting,
    /// More requests did not raise the rate, so the last increase is reverted.
    NoGain,
    /// The store asked for fewer requests.
    SlowDown,
    /// Most requests failed or timed out.
    Errors,
}

/// A changed limit on concurrent requests. Steps in one direction within half a second are one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitChanged {
    /// Gateway that changed it.
    pub gateway: String,
    /// Stage.
    pub stage: Stage,
    /// URL of the store, or name of the gateway to which the bytes are sent.
    pub peer: String,
    /// Limit before.
    pub before: u32,
    /// Limit now.
    pub now: u32,
    /// Why.
    pub reason: LimitReason,
    /// True if only the statement of the gateway, a relay, says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_relay: bool,
}

/// Activity of one route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HopActivity {
    /// `a → b → c`.
    pub name: String,
    /// Bytes acknowledged.
    pub bytes: u64,
    /// Part of `bytes` that did not have to be sent, because bodies were deduplicated or compressed.
    #[serde(default)]
    pub saved_bytes: u64,
    /// Part of `saved_bytes` that deduplication saved; compression saved the rest.
    #[serde(default)]
    pub deduplicated_bytes: u64,
    /// True if it works now.
    pub up: bool,
    /// Number in the program.
    #[serde(default)]
    pub id: u16,
    /// True if it gets no more work, because the routes were changed.
    #[serde(default)]
    pub retired: bool,
    /// Requests that were sent on it and not answered.
    #[serde(default)]
    pub requests_in_flight: u64,
}

/// One object that could not be moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedObject {
    /// Source URL.
    pub source: String,
    /// Destination URL.
    pub destination: String,
    /// Kind of the error, e.g. `forbidden`, `not_found`, `changed`, `mismatch`, `invalid_key`, `no_space`, `unavailable`.
    pub kind: String,
    /// One line.
    pub message: String,
    /// One line of advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How the job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All objects moved and proven (exit 0).
    Done,
    /// Failed as a whole (exit 1).
    Failed,
    /// The job would lose or overwrite data; nothing was started (exit 2).
    Refused,
    /// The source does not exist, or nothing is under it (exit 3).
    SourceNotFound,
    /// Some objects failed (exit 4).
    SomeFailed,
    /// All errors may be temporary; a retry may succeed (exit 5).
    Unavailable,
    /// Bytes did not match (exit 6).
    Mismatch,
    /// Not authorised (exit 7).
    Unauthorised,
    /// Stopped by the cost or size ceiling (exit 8).
    Ceiling,
    /// Interrupted, resumable (exit 130).
    Interrupted,
}

/// Number of objects by proof. Names: see `docs/concepts/integrity.md`.
pub type Proofs = BTreeMap<String, u64>;

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// How it ended.
    pub outcome: Outcome,
    /// One line for the user when it did not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// One line of advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Final counts.
    pub progress: Progress,
    /// Objects deleted at the destinations, or at the source for `mv`.
    pub objects_deleted: u64,
    /// Objects that should have been deleted and still exist.
    #[serde(default)]
    pub objects_not_deleted: u64,
    /// Objects that `--delete` would delete, in a dry run or in a job that waits for confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_delete: Option<ToDelete>,
    /// Objects that this run wrote without the tags that their sources have.
    #[serde(default)]
    pub tags_dropped: u64,
    /// Files that this run wrote without a mode, owner or time that the metadata of their sources states in a form that
    /// cannot be read.
    #[serde(default)]
    pub attributes_ignored: u64,
    /// Number of objects by proof.
    pub proofs: Proofs,
    /// Result at each destination.
    pub destinations: Vec<DestinationSummary>,
}

/// Objects and bytes that would be deleted, all destinations together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToDelete {
    /// Objects.
    pub objects: u64,
    /// Their lengths together.
    pub bytes: u64,
}

/// Result at one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DestinationSummary {
    /// URL with prefix.
    pub url: String,
    /// Objects moved.
    pub objects: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Objects failed.
    pub failed: u64,
}

/// State of a job as `jobs list` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// A lead works on it, or crashed (the lock beside the file tells which).
    Running,
    /// Ended well.
    Done,
    /// Ended with failures.
    Failed,
    /// Stopped before its end; `jobs resume` resumes it.
    Interrupted,
    /// Cancelled; uploads aborted.
    Cancelled,
}

/// `status.json` in the job's folder: written by the lead at each change of state and every few seconds, by rename.
/// While the lead runs, it holds an exclusive `flock` on `lock` in the same folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// State.
    pub state: JobState,
    /// Latest counts.
    pub progress: Progress,
    /// Set at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Milliseconds since the Unix epoch.
    pub updated_unix_ms: i64,
}

//! The metrics of a gateway, and the Prometheus text that `GET /metrics` returns.
//!
//! The node counts in its own atomics and returns a [`MetricsSnapshot`] on request. Names, help lines and kinds are
//! defined here, so that they are written once. Metrics of the process itself (memory, CPU, files) are read here.

use crate::tcp_buffers;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use tradewind_contract::{Progress, SplitHop};

/// The two kinds of Prometheus metrics that a gateway uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only increases.
    Counter,
    /// Increases and decreases.
    Gauge,
}

/// Definition of one metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name, with its unit.
    pub name: &'static str,
    /// Help text, in one line.
    pub help: &'static str,
    /// Kind.
    pub kind: Kind,
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Counter }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Gauge }
}

/// Labels: `from`, `to` (gateway names).
pub const HOP_BYTES: Metric = counter("tradewind_hop_bytes_total", "Bytes sent over a hop, headers included.");
/// Labels: `from`, `to`.
pub const HOP_CHUNKS: Metric = counter("tradewind_hop_chunks_total", "Requests (chunks, mostly) sent over a hop.");
/// Labels: `from`, `to`.
pub const HOP_CONNECTIONS: Metric = gauge("tradewind_hop_connections", "Connections of a hop that are up.");
/// Labels: `from`, `to`.
pub const HOP_SENDERS_LIMIT: Metric =
    gauge("tradewind_hop_senders_limit", "Connections of a hop that may send at the same time now (adaptive).");
/// On a gateway with a split proxy. Labels: `to` (the next proxy), `source` (`taken`, `missed`).
const SPLIT_HOP_FLOWS: Metric = counter(
    "tradewind_split_hop_flows_total",
    "Flows to a next split proxy: taken over a connection that was ready, or missed, so that they opened one.",
);
/// Labels: `to`.
const SPLIT_HOP_DIALED: Metric =
    counter("tradewind_split_hop_dialed_total", "Connections opened to a next split proxy, before a flow or for it.");
/// Labels: `to`.
const SPLIT_HOP_DEAD: Metric =
    counter("tradewind_split_hop_dead_total", "Connections to a next split proxy that broke while they were ready.");
/// Labels: `to`.
const SPLIT_HOP_READY: Metric =
    gauge("tradewind_split_hop_ready", "Connections to a next split proxy that are ready for flows.");
/// Labels: `to`, `source`.
const SPLIT_HOP_FIRST_BYTE: Metric = gauge(
    "tradewind_split_hop_first_byte_seconds",
    "Median time to the first byte from the destination, over the latest flows to a next split proxy.",
);
/// Labels: `store` (URL), `end` (`ok`, `slow_down`, `retried`, `failed`).
pub const STORE_REQUESTS: Metric = counter("tradewind_store_requests_total", "Requests to a store, by result.");
/// Labels: `store`.
pub const STORE_REQUESTS_LIMIT: Metric =
    gauge("tradewind_store_requests_limit", "Requests that may be in flight to a store now (adaptive).");
/// On a lead; no labels.
const RETRIES: Metric = counter("tradewind_order_retries_total", "Orders that were retried.");
/// On a lead; no labels.
const JOB_OBJECTS_DONE: Metric = counter("tradewind_job_objects_done_total", "Objects closed and proven.");
/// On a lead; no labels.
const JOB_OBJECTS_FAILED: Metric = counter("tradewind_job_objects_failed_total", "Objects that failed.");
/// On a lead; no labels.
const JOB_BYTES_DONE: Metric = counter("tradewind_job_bytes_done_total", "Bytes acknowledged.");
/// No labels.
pub const CHUNKS_IN_FLIGHT: Metric = gauge("tradewind_chunks_in_flight", "Chunks sent and not yet acknowledged.");
/// No labels.
pub const MEMORY_HELD_BYTES: Metric = gauge("tradewind_memory_held_bytes", "Object bytes held now.");
/// No labels.
pub const MEMORY_LIMIT_BYTES: Metric = gauge("tradewind_memory_limit_bytes", "Object bytes that may be held at once.");
/// On a sink; no labels.
pub const SINK_WRITTEN_BYTES: Metric =
    counter("tradewind_sink_written_bytes_total", "Object bytes that a sink has written, also those written again.");
/// On a sink; no labels.
pub const SINK_SAVED_BYTES: Metric = counter(
    "tradewind_sink_saved_bytes_total",
    "Bytes that bodies to a sink did not carry, because of deduplication and compression.",
);
/// On a sink; no labels.
pub const SINK_DEDUPLICATED_BYTES: Metric =
    counter("tradewind_sink_deduplicated_bytes_total", "Saved bytes that deduplication saved.");
/// On a source of a job that deduplicates; no labels.
pub const DEDUPLICATED_BYTES: Metric =
    counter("tradewind_deduplicated_bytes_total", "Object bytes for which a source sent references.");
/// On a sink of a job that deduplicates; no labels.
pub const DEDUPLICATION_WINDOW_BYTES: Metric =
    gauge("tradewind_deduplication_window_bytes", "Bytes that a sink keeps, so that they need not be sent again.");
/// On a sink of a job that deduplicates; no labels.
pub const DEDUPLICATION_REFUSED: Metric = counter(
    "tradewind_deduplication_refused_total",
    "Bodies that a sink refused because bytes that they refer to were no longer kept.",
);

const PROCESS_RESIDENT_BYTES: Metric = gauge("process_resident_memory_bytes", "Resident memory.");
const PROCESS_CPU_SECONDS: Metric = counter("process_cpu_seconds_total", "User and system CPU time.");
const PROCESS_OPEN_FDS: Metric = gauge("process_open_fds", "Open file descriptors.");
const PROCESS_MAX_FDS: Metric = gauge("process_max_fds", "Limit of open file descriptors.");
/// Labels: `direction` (`receive`, `send`).
const TCP_WINDOW_MAX_BYTES: Metric = gauge(
    "tradewind_tcp_window_max_bytes",
    "Largest TCP buffer that the kernel gives a connection here; it bounds what is in flight.",
);

/// One measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric that it belongs to.
    pub metric: &'static Metric,
    /// Label names and values.
    pub labels: Vec<(&'static str, Cow<'static, str>)>,
    /// The value.
    pub value: f64,
}

/// All values at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsSnapshot {
    samples: Vec<Sample>,
}

impl MetricsSnapshot {
    /// Adds one value.
    pub fn add<const N: usize>(
        &mut self,
        metric: &'static Metric,
        labels: [(&'static str, Cow<'static, str>); N],
        value: f64,
    ) {
        self.samples.push(Sample { metric, labels: labels.into(), value });
    }

    /// The values in the order in which they were added.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the snapshot without values that name stores.
    pub fn without_stores(mut self) -> Self {
        self.samples.retain(|sample| sample.labels.iter().all(|(label, _)| *label != "store"));
        self
    }

    /// Formats as Prometheus text, version 0.0.4: the samples of one metric follow its help line.
    pub fn to_prometheus(&self) -> String {
        let mut by_metric: Vec<&Sample> = self.samples.iter().collect();
        by_metric.sort_by_key(|sample| sample.metric.name);
        let mut text = String::new();
        let mut previous = "";
        for sample in by_metric {
            let Metric { name, help, kind } = sample.metric;
            if previous != *name {
                let kind = match kind {
                    Kind::Counter => "counter",
                    Kind::Gauge => "gauge",
                };
                let _infallible = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
                previous = name;
            }
            let _infallible = writeln!(text, "{name}{} {}", label_set(&sample.labels), sample.value);
        }
        text
    }
}

fn label_set(labels: &[(&'static str, Cow<'static, str>)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escape = |value: &str| value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Adds the job's progress from the lead's latest event.
pub(super) fn add_progress(snapshot: &mut MetricsSnapshot, progress: &Progress) {
    snapshot.add(&RETRIES, [], progress.retries as f64);
    snapshot.add(&JOB_OBJECTS_DONE, [], progress.objects_done as f64);
    snapshot.add(&JOB_OBJECTS_FAILED, [], progress.objects_failed as f64);
    snapshot.add(&JOB_BYTES_DONE, [], progress.bytes_done as f64);
}

/// Adds the state of a split proxy's connections to its next proxies.
pub(super) fn add_split_hops(snapshot: &mut MetricsSnapshot, hops: &BTreeMap<String, SplitHop>) {
    for (name, hop) in hops {
        let to = || ("to", Cow::from(name.clone()));
        for (source, flows, first_byte_ms) in
            [("taken", hop.taken, hop.first_byte_ms_taken), ("missed", hop.missed, hop.first_byte_ms_missed)]
        {
            snapshot.add(&SPLIT_HOP_FLOWS, [to(), ("source", source.into())], flows as f64);
            if let Some(ms) = first_byte_ms {
                snapshot.add(&SPLIT_HOP_FIRST_BYTE, [to(), ("source", source.into())], ms / 1e3);
            }
        }
        snapshot.add(&SPLIT_HOP_DIALED, [to()], hop.dialed as f64);
        snapshot.add(&SPLIT_HOP_DEAD, [to()], hop.dead as f64);
        snapshot.add(&SPLIT_HOP_READY, [to()], hop.ready as f64);
    }
}

/// Adds what the kernel reports about this process. Values that it does not report (no `/proc`) are left out.
pub fn add_process_figures(snapshot: &mut MetricsSnapshot) {
    if let Some(bytes) = resident_bytes() {
        snapshot.add(&PROCESS_RESIDENT_BYTES, [], bytes as f64);
    }
    if let Some(seconds) = cpu_seconds() {
        snapshot.add(&PROCESS_CPU_SECONDS, [], seconds);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        snapshot.add(&PROCESS_OPEN_FDS, [], files.count() as f64);
    }
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        snapshot.add(&PROCESS_MAX_FDS, [], limit as f64);
    }
    for (direction, setting) in [("receive", "tcp_rmem"), ("send", "tcp_wmem")] {
        if let Some(bytes) = tcp_buffers::largest(setting) {
            snapshot.add(&TCP_WINDOW_MAX_BYTES, [("direction", direction.into())], bytes as f64);
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in brackets and may contain anything; after the last bracket the fields are fixed.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_stand_together_and_labels_are_escaped() {
        let mut snapshot = MetricsSnapshot::default();
        snapshot.add(&HOP_BYTES, [("from", "a".into()), ("to", "b".into())], 5.0);
        snapshot.add(&RETRIES, [], 2.0);
        snapshot.add(&HOP_BYTES, [("from", "odd\"\\\n".into()), ("to", "c".into())], 18_446_744_073_709.0);
        assert_eq!(
            snapshot.to_prometheus(),
            "# HELP tradewind_hop_bytes_total Bytes sent over a hop, headers included.\n\
             # TYPE tradewind_hop_bytes_total counter\n\
             tradewind_hop_bytes_total{from=\"a\",to=\"b\"} 5\n\
             tradewind_hop_bytes_total{from=\"odd\\\"\\\\\\n\",to=\"c\"} 18446744073709\n\
             # HELP tradewind_order_retries_total Orders that were retried.\n\
             # TYPE tradewind_order_retries_total counter\n\
             tradewind_order_retries_total 2\n"
        );
    }

    #[test]
    fn a_split_proxy_has_the_state_of_its_pools() {
        let hop = serde_json::json!({"dialed": 5, "connect_ms_min": 1.0, "connect_ms_last": 1.0, "ready": 2, "taken": 3,
            "missed": 1, "dead": 1, "first_byte_ms_taken": 210.0});
        let hops = BTreeMap::from([("exit".to_owned(), serde_json::from_value(hop).unwrap())]);
        let mut snapshot = MetricsSnapshot::default();
        add_split_hops(&mut snapshot, &hops);
        let text = snapshot.to_prometheus();
        for line in [
            "tradewind_split_hop_flows_total{to=\"exit\",source=\"taken\"} 3",
            "tradewind_split_hop_flows_total{to=\"exit\",source=\"missed\"} 1",
            "tradewind_split_hop_dialed_total{to=\"exit\"} 5",
            "tradewind_split_hop_dead_total{to=\"exit\"} 1",
            "tradewind_split_hop_ready{to=\"exit\"} 2",
            "tradewind_split_hop_first_byte_seconds{to=\"exit\",source=\"taken\"} 0.21",
        ] {
            assert!(text.lines().any(|each| each == line), "{text}");
        }
    }

    #[test]
    fn the_process_has_memory_and_files() {
        let mut snapshot = MetricsSnapshot::default();
        add_process_figures(&mut snapshot);
        let value = |metric: &Metric| snapshot.samples().iter().find(|sample| sample.metric == metric).map(|s| s.value);
        assert!(value(&PROCESS_RESIDENT_BYTES).is_some_and(|bytes| bytes > 100_000.0));
        assert!(value(&PROCESS_OPEN_FDS).is_some_and(|files| files >= 3.0));
        assert!(value(&PROCESS_CPU_SECONDS).is_some_and(|seconds| seconds < 1e6));
        let windows: Vec<f64> =
            snapshot.samples().iter().filter(|one| one.metric == &TCP_WINDOW_MAX_BYTES).map(|s| s.value).collect();
        assert!(windows.len() == 2 && windows.iter().all(|bytes| *bytes >= 4096.0), "{windows:?}");
    }
}

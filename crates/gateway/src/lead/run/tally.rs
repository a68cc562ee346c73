//! Counters for the progress while the job runs, and for the summary at its end.

use crate::node::work::{Placed, Proof};
use std::collections::VecDeque;
use tokio::time::Instant;
use tradewind_contract::{DestinationSummary, HopActivity, JobSpec, Progress, Proofs, RouteSpec};
use tradewind_wire::RouteId;
use tradewind_wire::shares::{Activity, Shares};

/// Number of latest ticks over which the displayed rate is averaged.
const RATE_TICKS: usize = 10;

pub(super) struct Tally {
    started: Instant,
    pub(super) listed: bool,
    objects_total: u64,
    bytes_total: u64,
    objects_done: u64,
    /// The part of `objects_done` that earlier runs moved.
    objects_earlier: u64,
    bytes_done: u64,
    objects_skipped: u64,
    objects_failed: u64,
    restarts: u64,
    pub(super) objects_deleted: u64,
    pub(super) not_deleted: u64,
    /// Objects of this run that were written without the tags of their sources.
    pub(super) tags_dropped: u64,
    /// Files of this run that lack what the metadata of their sources states, because it cannot be read.
    pub(super) attributes_ignored: u64,
    /// The part of `bytes_done` that earlier runs transferred.
    bytes_earlier: u64,
    destinations: Vec<DestinationSummary>,
    skipped_at: Vec<u64>,
    /// Finished objects by the proofs of source and destination.
    proven: Vec<((Proof, Proof), u64)>,
    recent: VecDeque<(Instant, u64)>,
    ticks: u64,
    route_names: Vec<(RouteId, String)>,
    crosses_hops: bool,
}

impl Tally {
    pub(super) fn new(job: &JobSpec, routes: &[RouteSpec]) -> Self {
        let destination = |target: &tradewind_contract::Target| DestinationSummary {
            url: format!("{}/{}", target.store.url.trim_end_matches('/'), target.key),
            ..DestinationSummary::default()
        };
        let started = Instant::now();
        Self {
            started,
            listed: false,
            objects_total: 0,
            bytes_total: 0,
            objects_done: 0,
            objects_earlier: 0,
            bytes_done: 0,
            objects_skipped: 0,
            objects_failed: 0,
            restarts: 0,
            objects_deleted: 0,
            not_deleted: 0,
            tags_dropped: 0,
            attributes_ignored: 0,
            bytes_earlier: 0,
            destinations: job.targets.iter().map(destination).collect(),
            skipped_at: vec![0; job.targets.len()],
            proven: Vec::new(),
            recent: VecDeque::from([(started, 0)]),
            ticks: 0,
            route_names: routes.iter().map(|route| (RouteId(route.id), name(route))).collect(),
            crosses_hops: routes.iter().any(|route| stations(route).len() > 1),
        }
    }

    /// Adds more routes.
    pub(super) fn know(&mut self, routes: &[RouteSpec]) {
        let fresh = |route: &&RouteSpec| !self.route_names.iter().any(|(id, _)| id.0 == route.id);
        let more: Vec<_> = routes.iter().filter(fresh).map(|route| (RouteId(route.id), name(route))).collect();
        self.route_names.extend(more);
    }

    pub(super) fn found(&mut self, bytes: u64) {
        self.objects_total += 1;
        self.bytes_total += bytes;
    }

    pub(super) fn skipped(&mut self, target: u16, objects: u64) {
        self.objects_skipped += objects;
        self.skipped_at[usize::from(target)] += objects;
    }

    /// Counts objects that an earlier run of this job moved, both in the totals and as done.
    pub(super) fn already_done(&mut self, target: u16, objects: u64, bytes: u64) {
        self.objects_total += objects;
        self.bytes_total += bytes;
        self.objects_done += objects;
        self.objects_earlier += objects;
        self.bytes_done += bytes;
        self.bytes_earlier += bytes;
        let destination = &mut self.destinations[usize::from(target)];
        destination.objects += objects;
        destination.bytes += bytes;
    }

    pub(super) fn acked(&mut self, target: u16, bytes: u64) {
        self.bytes_done += bytes;
        self.destinations[usize::from(target)].bytes += bytes;
    }

    /// Counts parts that an earlier run of this job moved.
    pub(super) fn acked_earlier(&mut self, target: u16, bytes: u64) {
        self.acked(target, bytes);
        self.bytes_earlier += bytes;
    }

    /// Subtracts acknowledged bytes whose object failed or starts again. Earlier runs transferred `earlier_bytes` of
    /// them.
    pub(super) fn unacked(&mut self, target: u16, bytes: u64, earlier_bytes: u64) {
        self.bytes_done -= bytes;
        self.bytes_earlier -= earlier_bytes;
        self.destinations[usize::from(target)].bytes -= bytes;
    }

    pub(super) fn retried(&mut self) {
        self.restarts += 1;
    }

    pub(super) fn finished(&mut self, target: u16, placed: &Placed) {
        self.objects_done += 1;
        self.tags_dropped += u64::from(placed.tags_dropped);
        self.attributes_ignored += u64::from(placed.attributes_ignored);
        self.destinations[usize::from(target)].objects += 1;
        let proofs = (placed.source_proof, placed.target_proof);
        match self.proven.iter_mut().find(|(known, _)| *known == proofs) {
            Some((_, objects)) => *objects += 1,
            None => self.proven.push((proofs, 1)),
        }
    }

    /// Counts an object of an earlier run that was checked and is still there.
    pub(super) fn survived(&mut self, target: u16) {
        self.objects_done += 1;
        self.objects_earlier += 1;
        self.destinations[usize::from(target)].objects += 1;
    }

    /// Counts a failed object; `None` if it concerns no particular destination.
    pub(super) fn failed(&mut self, target: Option<u16>) {
        self.objects_failed += 1;
        if let Some(target) = target {
            self.destinations[usize::from(target)].failed += 1;
        }
    }

    /// Returns whether this run has moved anything, or may have.
    pub(super) fn has_written(&self) -> bool {
        self.objects_done > self.objects_earlier || self.objects_failed > 0
    }

    /// Returns whether any object is where it should be.
    pub(super) fn any_done(&self) -> bool {
        self.objects_done + self.objects_skipped > 0
    }

    /// Returns whether any object is at this destination, moved or found there.
    pub(super) fn any_done_at(&self, target: u16) -> bool {
        self.destinations[usize::from(target)].objects + self.skipped_at[usize::from(target)] > 0
    }

    pub(super) fn objects_total(&self) -> u64 {
        self.objects_total
    }

    pub(super) fn bytes_total(&self) -> u64 {
        self.bytes_total
    }

    pub(super) fn objects_failed(&self) -> u64 {
        self.objects_failed
    }

    pub(super) fn ticks(&self) -> u64 {
        self.ticks
    }

    pub(super) fn route_name(&self, route: RouteId) -> &str {
        self.route_names.iter().find(|(id, _)| *id == route).map_or("?", |(_, name)| name)
    }

    /// The name of the check that protects the bytes between source and sink.
    pub(super) fn hop_proof(&self) -> &'static str {
        if self.crosses_hops { "sealed" } else { "memory" }
    }

    pub(super) fn progress(&mut self, retries: u64, shares: &Shares) -> Progress {
        self.ticks += 1;
        let now = Instant::now();
        self.recent.push_back((now, self.bytes_now()));
        if self.recent.len() > RATE_TICKS {
            self.recent.pop_front();
        }
        Progress { bytes_per_s: self.recent_rate(now), ..self.totals(retries, shares) }
    }

    /// Bytes acknowledged in this run.
    fn bytes_now(&self) -> u64 {
        self.bytes_done - self.bytes_earlier
    }

    /// As [`Tally::progress`], with the mean rate of the whole job.
    pub(super) fn totals(&self, retries: u64, shares: &Shares) -> Progress {
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let activity = |of: Activity| HopActivity {
            name: self.route_name(of.route).to_owned(),
            bytes: of.done_bytes,
            saved_bytes: of.saved_bytes,
            deduplicated_bytes: of.deduplicated_bytes,
            up: of.up,
            id: of.route.0,
            retired: of.retired,
            requests_in_flight: of.flight_requests as u64,
        };
        Progress {
            listed: self.listed,
            objects_total: self.objects_total,
            bytes_total: self.bytes_total,
            objects_done: self.objects_done,
            objects_earlier: self.objects_earlier,
            bytes_done: self.bytes_done,
            objects_skipped: self.objects_skipped,
            objects_failed: self.objects_failed,
            retries: retries + self.restarts,
            duplicate_bytes: shares.duplicate_bytes(),
            bytes_earlier: self.bytes_earlier,
            bytes_per_s: self.bytes_now() as f64 / elapsed_s.max(1e-3),
            elapsed_s,
            cost_usd: shares.spent_usd(),
            hops: shares.activity().map(activity).collect(),
            limits: None,
        }
    }

    fn recent_rate(&self, now: Instant) -> f64 {
        let Some((since, bytes)) = self.recent.front() else { return 0.0 };
        self.bytes_now().saturating_sub(*bytes) as f64 / now.duration_since(*since).as_secs_f64().max(1e-3)
    }

    pub(super) fn proofs(&self) -> Proofs {
        let earlier = (self.objects_earlier > 0).then(|| ("earlier run".to_owned(), self.objects_earlier));
        let mut proofs: Proofs = earlier.into_iter().collect();
        for ((source, target), objects) in &self.proven {
            *proofs.entry(proof_name(*source, *target)).or_default() += objects;
        }
        proofs
    }

    pub(super) fn destinations(&self) -> Vec<DestinationSummary> {
        self.destinations.clone()
    }
}

fn proof_name(source: Proof, target: Proof) -> String {
    match source {
        Proof::StoreCopy => target.name().to_owned(),
        _ => format!("{} → {}", source.name(), target.name()),
    }
}

/// The gateways that the bytes pass, without the lead.
fn stations(route: &RouteSpec) -> Vec<&str> {
    let mut stations: Vec<&str> = route.nodes.iter().skip(1).map(String::as_str).collect();
    stations.dedup();
    stations
}

fn name(route: &RouteSpec) -> String {
    stations(route).join(" → ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_starts_again_takes_back_what_earlier_runs_moved_of_it_and_no_more() {
        let job = serde_json::json!({
            "source": { "url": "mem:" }, "selection": { "kind": "prefix", "prefix": "" },
            "targets": [{ "store": { "url": "mem:" }, "key": "" }],
        });
        let mut tally = Tally::new(&serde_json::from_value(job).unwrap(), &[]);
        tally.acked_earlier(0, 600);
        tally.acked(0, 100);
        tally.acked(0, 1_000);
        tally.unacked(0, 700, 600);
        assert_eq!((tally.bytes_done, tally.bytes_earlier, tally.bytes_now()), (1_000, 0, 1_000));
    }
}

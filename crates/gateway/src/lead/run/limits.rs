//! The limits on concurrent requests at all gateways, as these report them: the events of their changes, and which of
//! reading, network and writing limits the rate now.

use crate::node::hop_reports::HopReport;
use crate::node::load::{StageAt, StageLoad};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tradewind_contract::{HopLimit, LimitChanged, SlowHop, Stage, StageLimit, StageLimits};

/// Stages of gateways that are kept. A fleet has far fewer.
const STAGES_MAX: usize = 1 << 14;
/// A report that is older says nothing about now.
const RECENT: Duration = Duration::from_secs(5);
/// A stage is the bottleneck if something waits for its turn there for at least this share of the time.
const QUEUED_SHARE_MIN: f64 = 0.5;

/// A relay's hop is the bottleneck if at least this many requests wait for the next gateway there, on average, and more
/// than wait for bytes from upstream. Its connections are as many as those that bring requests, so nothing queues for them.
const HELD_REQUESTS_MIN: f64 = 1.0;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Limits {
    stages: BTreeMap<(String, StageAt), Reported>,
    /// The latest report of each hop of a relay: relay, next gateway.
    relay_hops: BTreeMap<(String, String), ReportedHop>,
    /// The stage at whose store the latest request failed; `None` after a success.
    failing: Option<Stage>,
}

/// The latest report of one stage of one gateway.
#[derive(Debug)]
struct Reported {
    load: StageLoad,
    at: Instant,
    /// Share of the time since the report before it in which something waited for its turn.
    queued_share: f64,
    /// Mean number of the lead's requests at this stage in that time.
    requests: f64,
}

/// The latest report of a relay about one hop.
#[derive(Debug)]
struct ReportedHop {
    report: HopReport,
    at: Instant,
    /// Mean number of requests since the report before it that waited for the next gateway.
    held: f64,
    is_full: bool,
}

/// All gateways of one stage.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    limit: Option<StageLimit>,
    queued_share: f64,
    requests: f64,
}

impl Limits {
    /// Keeps a report. Returns the changes that it tells of; `url_of` gives the URL of a store.
    pub(super) fn heard(
        &mut self,
        load: StageLoad,
        now: Instant,
        url_of: impl Fn(&StageAt) -> String,
    ) -> Vec<LimitChanged> {
        let changed = |(before, after, reason): &(u32, u32, _)| LimitChanged {
            gateway: load.gateway.clone(),
            stage: stage_of(&load.at),
            peer: url_of(&load.at),
            before: *before,
            now: *after,
            reason: *reason,
            by_relay: false,
        };
        let changes = load.changes.iter().map(changed).collect();
        let name = (load.gateway.clone(), load.at.clone());
        if let Some(before) = self.stages.get(&name) {
            let since = Reported::since(&before.load, load, now);
            self.stages.insert(name, since);
        } else if self.stages.len() < STAGES_MAX {
            let start = StageLoad { elapsed_ms: 0, queued_ms: 0, busy_ms: 0, ..load.clone() };
            self.stages.insert(name, Reported::since(&start, load, now));
        }
        changes
    }

    /// Keeps the report of a relay. Returns the changes in it. One that is not newer than the last has come
    /// over another source, unless the relay has started again.
    pub(super) fn heard_from_relay(&mut self, report: HopReport, now: Instant) -> Vec<LimitChanged> {
        let name = (report.relay.clone(), report.to.clone());
        let before = self.relay_hops.get(&name);
        let is_known = before.is_some_and(|before| {
            report.elapsed_ms <= before.report.elapsed_ms && now.saturating_duration_since(before.at) <= RECENT
        });
        if is_known || before.is_none() && self.relay_hops.len() >= STAGES_MAX {
            return Vec::new();
        }
        let changed = |(before, after, reason): &(u32, u32, _)| LimitChanged {
            gateway: report.relay.clone(),
            stage: Stage::Network,
            peer: report.to.clone(),
            before: *before,
            now: *after,
            reason: *reason,
            by_relay: true,
        };
        let changes = report.changes.iter().map(changed).collect();
        let reported = ReportedHop::since(before.map(|before| &before.report), report, now);
        self.relay_hops.insert(name, reported);
        changes
    }

    /// Records how the latest request ended. `failing`: the stage at whose store it failed after all its retries. While
    /// nothing succeeds, that stage is the slowest: a request that is being retried reports nothing.
    pub(super) fn answered(&mut self, failing: Option<Stage>) {
        self.failing = failing;
    }

    /// The limits now, if any was reported. `in_flight`: the lead's requests without an answer.
    pub(super) fn now(&self, in_flight: u64, now: Instant) -> Option<StageLimits> {
        let [read, network, write] = [Stage::Read, Stage::Network, Stage::Write].map(|stage| self.together(stage, now));
        let relayed = self.full_relay_hop(now);
        // The hops of relays come after those of the sources, so the sources' queues fill too.
        let queued_share = if relayed.is_some() { 1.0 } else { network.queued_share };
        let network = Together { queued_share, ..network };
        let is_known = read.limit.is_some() && write.limit.is_some();
        let measured = || is_known.then(|| slowest(read, network, write, in_flight as f64)).flatten();
        let slowest = if in_flight > 0 { self.failing.or_else(measured) } else { None };
        let slowest_hop =
            if slowest == Some(Stage::Network) { relayed.or_else(|| self.full_source_hop(now)) } else { None };
        let has_any = read.limit.is_some() || write.limit.is_some() || slowest.is_some();
        has_any.then(|| StageLimits {
            read: read.limit,
            network: network.limit,
            write: write.limit,
            slowest,
            slowest_hop,
            relay_hops: self.recent_relay_hops(now).map(|(_, reported)| reported.limit()).collect(),
        })
    }

    fn recent_relay_hops(&self, now: Instant) -> impl Iterator<Item = (&(String, String), &ReportedHop)> {
        self.relay_hops.iter().filter(move |(_, reported)| now.saturating_duration_since(reported.at) <= RECENT)
    }

    /// The fullest hop of a relay among those that do not lead to another one: a full hop fills those before it.
    fn full_relay_hop(&self, now: Instant) -> Option<SlowHop> {
        let full: Vec<_> = self.recent_relay_hops(now).filter(|(_, reported)| reported.is_full).collect();
        let is_last = |to: &String| full.iter().all(|((relay, _), _)| relay != to);
        let last = full.iter().filter(|((_, to), _)| is_last(to));
        let ((gateway, peer), _) = last.max_by(|(_, one), (_, other)| one.held.total_cmp(&other.held))?;
        Some(SlowHop { gateway: gateway.clone(), peer: peer.clone(), by_relay: true })
    }

    fn full_source_hop(&self, now: Instant) -> Option<SlowHop> {
        let hops = self.stages.iter().filter_map(|((from, at), reported)| match at {
            StageAt::Network { peer } => Some((from, peer, reported)),
            _ => None,
        });
        let is_full = |reported: &Reported| {
            reported.queued_share >= QUEUED_SHARE_MIN && now.saturating_duration_since(reported.at) <= RECENT
        };
        let full = hops.filter(|(_, _, reported)| is_full(reported));
        let (from, to, _) =
            full.max_by(|(_, _, one), (_, _, other)| one.queued_share.total_cmp(&other.queued_share))?;
        Some(SlowHop { gateway: from.clone(), peer: to.clone(), by_relay: false })
    }

    fn together(&self, stage: Stage, now: Instant) -> Together {
        let of_stage = self.stages.iter().filter(|((_, at), _)| stage_of(at) == stage);
        of_stage.fold(Together::default(), |mut sum, (_, reported)| {
            let limit = sum.limit.get_or_insert_default();
            limit.now += reported.load.limit;
            limit.max += reported.load.limit_max;
            if now.saturating_duration_since(reported.at) <= RECENT {
                sum.queued_share = sum.queued_share.max(reported.queued_share);
                sum.requests += reported.requests;
            }
            sum
        })
    }
}

impl Reported {
    fn since(before: &StageLoad, load: StageLoad, now: Instant) -> Self {
        let elapsed_ms = load.elapsed_ms.saturating_sub(before.elapsed_ms).max(1) as f64;
        let queued_share = load.queued_ms.saturating_sub(before.queued_ms) as f64 / elapsed_ms;
        let requests = load.busy_ms.saturating_sub(before.busy_ms) as f64 / elapsed_ms;
        Self { load, at: now, queued_share, requests }
    }
}

impl ReportedHop {
    fn since(before: Option<&HopReport>, report: HopReport, now: Instant) -> Self {
        let before = before.filter(|before| before.elapsed_ms < report.elapsed_ms);
        let mean = |of: fn(&HopReport) -> u64| {
            let elapsed_ms = report.elapsed_ms.saturating_sub(before.map_or(0, |before| before.elapsed_ms)).max(1);
            of(&report).saturating_sub(before.map_or(0, of)) as f64 / elapsed_ms as f64
        };
        let (held, receiving) = (mean(|report| report.sending_ms), mean(|report| report.receiving_ms));
        Self { report, at: now, held, is_full: held >= HELD_REQUESTS_MIN && held >= receiving }
    }

    fn limit(&self) -> HopLimit {
        let HopReport { relay, to, limit, limit_max, .. } = &self.report;
        HopLimit { gateway: relay.clone(), peer: to.clone(), now: *limit, max: *limit_max }
    }
}

/// The stage that limits the rate. A full stage also fills those before it, so the last full one counts. If none is
/// full, it is the one where the requests spend most of their time.
fn slowest(read: Together, network: Together, write: Together, in_flight: f64) -> Option<Stage> {
    let stages = [(Stage::Write, write), (Stage::Network, network), (Stage::Read, read)];
    let full = stages.iter().find(|(_, stage)| stage.queued_share >= QUEUED_SHARE_MIN);
    if let Some((stage, _)) = full {
        return Some(*stage);
    }
    let between = (in_flight - read.requests - write.requests).max(0.0);
    let on_network = if network.limit.is_some() { between } else { 0.0 };
    let times = [(Stage::Read, read.requests), (Stage::Network, on_network), (Stage::Write, write.requests)];
    let most = times.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
    most.filter(|(_, requests)| *requests > 0.0).map(|(stage, _)| stage)
}

const fn stage_of(at: &StageAt) -> Stage {
    match at {
        StageAt::Read => Stage::Read,
        StageAt::Network { .. } => Stage::Network,
        StageAt::Write { .. } => Stage::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_contract::LimitReason;

    fn load(gateway: &str, at: StageAt, elapsed_ms: u64, queued_ms: u64, busy_ms: u64) -> StageLoad {
        let gateway = gateway.to_owned();
        StageLoad { gateway, at, limit: 16, limit_max: 64, elapsed_ms, queued_ms, busy_ms, changes: Vec::new() }
    }

    /// Two reports of each stage, a second apart: share of the time in which something waited, and requests.
    fn slowest_of(read: (f64, f64), network: (f64, f64), write: (f64, f64), in_flight: u64) -> Option<Stage> {
        let (mut limits, now) = (Limits::default(), Instant::now());
        let network_at = StageAt::Network { peer: "sink".to_owned() };
        let stages = [(StageAt::Read, read), (network_at, network), (StageAt::Write { target: 0 }, write)];
        for (at, (queued, requests)) in stages {
            limits.heard(load("a", at.clone(), 1_000, 500, 500), now, |_| String::new());
            let (queued_ms, busy_ms) = (500 + (queued * 1e3) as u64, 500 + (requests * 1e3) as u64);
            limits.heard(load("a", at, 2_000, queued_ms, busy_ms), now, |_| String::new());
        }
        limits.now(in_flight, now).unwrap().slowest
    }

    #[test]
    fn the_last_full_stage_is_the_slowest() {
        assert_eq!(slowest_of((1.0, 16.0), (1.0, 0.0), (0.9, 1.0), 40), Some(Stage::Write));
        assert_eq!(slowest_of((1.0, 16.0), (0.7, 0.0), (0.1, 9.0), 40), Some(Stage::Network));
        assert_eq!(slowest_of((0.6, 1.0), (0.1, 0.0), (0.1, 30.0), 40), Some(Stage::Read));
    }

    #[test]
    fn if_no_stage_is_full_it_is_where_the_requests_spend_their_time() {
        assert_eq!(slowest_of((0.0, 7.0), (0.0, 0.0), (0.0, 1.0), 10), Some(Stage::Read));
        assert_eq!(slowest_of((0.0, 1.0), (0.0, 0.0), (0.0, 1.0), 10), Some(Stage::Network));
        assert_eq!(slowest_of((0.0, 1.0), (0.0, 0.0), (0.0, 7.0), 10), Some(Stage::Write));
        assert_eq!(slowest_of((0.0, 1.0), (0.0, 0.0), (0.0, 7.0), 0), None);
    }

    #[test]
    fn a_store_at_which_everything_fails_is_the_slowest_until_something_succeeds() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        limits.answered(Some(Stage::Read));
        let expected = StageLimits { slowest: Some(Stage::Read), ..StageLimits::default() };
        assert_eq!((limits.now(1, now), limits.now(0, now)), (Some(expected), None));
        for (at, queued_ms) in [(StageAt::Read, 0), (StageAt::Write { target: 0 }, 900)] {
            limits.heard(load("a", at, 1_000, queued_ms, 0), now, |_| String::new());
        }
        assert_eq!(limits.now(1, now + 2 * RECENT).unwrap().slowest, Some(Stage::Read));
        limits.answered(None);
        assert_eq!(limits.now(1, now).unwrap().slowest, Some(Stage::Write));
    }

    #[test]
    fn limits_of_one_stage_are_summed_and_old_reports_name_no_bottleneck() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        assert_eq!(limits.now(1, now), None);
        for gateway in ["a", "b"] {
            for (at, queued_ms) in [(StageAt::Read, 900), (StageAt::Write { target: 1 }, 100)] {
                limits.heard(load(gateway, at, 1_000, queued_ms, 0), now, |_| String::new());
            }
        }
        let both = Some(StageLimit { now: 32, max: 128 });
        let expected = StageLimits { read: both, write: both, slowest: Some(Stage::Read), ..StageLimits::default() };
        assert_eq!(limits.now(1, now), Some(expected.clone()));
        assert_eq!(limits.now(1, now + 2 * RECENT), Some(StageLimits { slowest: None, ..expected }));
    }

    #[test]
    fn each_change_is_told_with_its_store_and_reason() {
        let change = (16, 8, LimitReason::SlowDown);
        let load = StageLoad { changes: vec![change], ..load("a", StageAt::Write { target: 0 }, 1, 0, 0) };
        let told = Limits::default().heard(load, Instant::now(), |_| "s3://b".to_owned());
        let (gateway, peer) = ("a".to_owned(), "s3://b".to_owned());
        let reason = LimitReason::SlowDown;
        let by_relay = false;
        assert_eq!(told, [LimitChanged { gateway, stage: Stage::Write, peer, before: 16, now: 8, reason, by_relay }]);
    }

    fn hop_report(relay: &str, to: &str, elapsed_ms: u64, receiving_ms: u64, sending_ms: u64) -> HopReport {
        let (relay, to) = (relay.to_owned(), to.to_owned());
        HopReport { relay, to, limit: 6, limit_max: 8, elapsed_ms, receiving_ms, sending_ms, changes: Vec::new() }
    }

    fn hop(from: &str, to: &str, by_relay: bool) -> SlowHop {
        SlowHop { gateway: from.to_owned(), peer: to.to_owned(), by_relay }
    }

    /// A source that sends to a full hop, and a store that is not busy.
    fn sending(now: Instant) -> Limits {
        let mut limits = Limits::default();
        let network = StageAt::Network { peer: "r1".to_owned() };
        for (at, queued_ms) in [(StageAt::Read, 900), (network, 900), (StageAt::Write { target: 0 }, 0)] {
            limits.heard(load("a", at, 1_000, queued_ms, 0), now, |_| String::new());
        }
        limits
    }

    #[test]
    fn the_last_full_hop_is_the_slowest() {
        let now = Instant::now();
        let slowest = |reports: &[HopReport]| {
            let mut limits = sending(now);
            reports.iter().for_each(|report| drop(limits.heard_from_relay(report.clone(), now)));
            let limits = limits.now(9, now).unwrap();
            assert_eq!(limits.slowest, Some(Stage::Network));
            limits.slowest_hop.unwrap()
        };
        assert_eq!(slowest(&[]), hop("a", "r1", false));
        let empty = hop_report("r1", "sink", 1_000, 4_000, 1_000);
        assert_eq!(slowest(std::slice::from_ref(&empty)), hop("a", "r1", false));
        let full = hop_report("r1", "sink", 1_000, 1_000, 4_000);
        assert_eq!(slowest(&[full]), hop("r1", "sink", true));
        let both = [hop_report("r1", "r2", 1_000, 0, 9_000), hop_report("r2", "sink", 1_000, 1_000, 4_000)];
        assert_eq!(slowest(&both), hop("r2", "sink", true));
        let idle = [hop_report("r1", "r2", 1_000, 0, 9_000), hop_report("r2", "sink", 1_000, 0, 900)];
        assert_eq!(slowest(&idle), hop("r1", "r2", true));
    }

    #[test]
    fn a_full_store_is_slower_than_any_hop_and_a_relay_that_says_nothing_more_is_forgotten() {
        let now = Instant::now();
        let mut limits = sending(now);
        limits.heard_from_relay(hop_report("r1", "sink", 1_000, 0, 4_000), now);
        let expected = HopLimit { gateway: "r1".to_owned(), peer: "sink".to_owned(), now: 6, max: 8 };
        assert_eq!(limits.now(9, now).unwrap().relay_hops, [expected]);
        let later = now + 2 * RECENT;
        assert_eq!(limits.now(9, later).map(|limits| (limits.slowest_hop, limits.relay_hops.len())), Some((None, 0)));
        limits.heard(load("b", StageAt::Write { target: 0 }, 1_000, 900, 0), now, |_| String::new());
        let limits = limits.now(9, now).unwrap();
        assert_eq!((limits.slowest, limits.slowest_hop), (Some(Stage::Write), None));
    }

    #[test]
    fn a_report_that_comes_twice_counts_once_and_a_relay_that_started_again_counts() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        let changes = vec![(8, 6, LimitReason::Errors)];
        let report = HopReport { changes, ..hop_report("r1", "sink", 9_000, 0, 9_000) };
        let told = limits.heard_from_relay(report.clone(), now);
        assert!(matches!(&told[..], [LimitChanged { by_relay: true, before: 8, now: 6, .. }]), "{told:?}");
        assert_eq!(limits.heard_from_relay(report, now), []);
        assert!(limits.full_relay_hop(now).is_some());
        let again = hop_report("r1", "sink", 1_000, 900, 100);
        let later = now + 2 * RECENT;
        limits.heard_from_relay(again, later);
        assert_eq!(limits.recent_relay_hops(later).count(), 1);
        assert!(limits.full_relay_hop(later).is_none());
    }
}

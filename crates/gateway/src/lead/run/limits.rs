//! The limits on concurrent requests at all gateways, as these report them: the events of their changes, and which of
//! reading, network and writing limits the rate now.

use crate::node::load::{StageAt, StageLoad};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tradewind_contract::{LimitChanged, Stage, StageLimit, StageLimits};

/// Stages of gateways that are kept. A fleet has far fewer.
const STAGES_MAX: usize = 1 << 14;
/// A report that is older says nothing about now.
const RECENT: Duration = Duration::from_secs(5);
/// A stage is the bottleneck if something waits for its turn there for at least this share of the time.
const QUEUED_SHARE_MIN: f64 = 0.5;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Limits {
    stages: BTreeMap<(String, StageAt), Reported>,
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

    /// Records how the latest request ended. `failing`: the stage at whose store it failed after all its retries. While
    /// nothing succeeds, that stage is the slowest: a request that is being retried reports nothing.
    pub(super) fn answered(&mut self, failing: Option<Stage>) {
        self.failing = failing;
    }

    /// The limits now, if any was reported. `in_flight`: the lead's requests without an answer.
    pub(super) fn now(&self, in_flight: u64, now: Instant) -> Option<StageLimits> {
        let [read, network, write] = [Stage::Read, Stage::Network, Stage::Write].map(|stage| self.together(stage, now));
        let limits = StageLimits { read: read.limit, network: network.limit, write: write.limit, slowest: None };
        let is_known = read.limit.is_some() && write.limit.is_some();
        let measured = || is_known.then(|| slowest(read, network, write, in_flight as f64)).flatten();
        let slowest = if in_flight > 0 { self.failing.or_else(measured) } else { None };
        let has_any = read.limit.is_some() || write.limit.is_some() || slowest.is_some();
        has_any.then_some(StageLimits { slowest, ..limits })
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
        let expected = StageLimits { read: both, network: None, write: both, slowest: Some(Stage::Read) };
        assert_eq!(limits.now(1, now), Some(expected));
        assert_eq!(limits.now(1, now + 2 * RECENT), Some(StageLimits { slowest: None, ..expected }));
    }

    #[test]
    fn each_change_is_told_with_its_store_and_reason() {
        let change = (16, 8, LimitReason::SlowDown);
        let load = StageLoad { changes: vec![change], ..load("a", StageAt::Write { target: 0 }, 1, 0, 0) };
        let told = Limits::default().heard(load, Instant::now(), |_| "s3://b".to_owned());
        let (gateway, peer) = ("a".to_owned(), "s3://b".to_owned());
        let reason = LimitReason::SlowDown;
        assert_eq!(told, [LimitChanged { gateway, stage: Stage::Write, peer, before: 16, now: 8, reason }]);
    }
}

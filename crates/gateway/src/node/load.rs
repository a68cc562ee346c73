//! What sources and sinks tell the lead, inside their answers, about their limits on concurrent requests.
//!
//! A sink seals it with its answer. A source adds its own to the answers that pass it: relays cannot change either.

use super::attempts::Attempts;
use super::clock::Clock;
use super::throttle::Throttle;
use super::work::SinkAnswer;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;
use tradewind_contract::LimitReason;

/// Shortest time between two reports of one stage.
const REPORT_EVERY_MS: u64 = 500;

/// An answer as it reaches the lead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// From the sink.
    pub sink: SinkAnswer,
    /// From the source that the answer passed.
    pub source: Option<StageLoad>,
}

/// One stage at one gateway, since it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLoad {
    /// Name of the gateway.
    pub gateway: String,
    /// The stage.
    pub at: StageAt,
    /// Requests that may be in flight.
    pub limit: u32,
    /// The highest limit that is allowed.
    pub limit_max: u32,
    /// Time since the start.
    pub elapsed_ms: u64,
    /// Time in which something waited for its turn.
    pub queued_ms: u64,
    /// Times that the lead's requests spent at this stage, summed over the requests.
    pub busy_ms: u64,
    /// Changes of the limit since the last report, oldest first: from, to, reason.
    pub changes: Vec<(u32, u32, LimitReason)>,
}

/// What the requests of a stage go to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StageAt {
    /// The source store.
    Read,
    /// The next gateway.
    Network {
        /// Its name.
        peer: String,
    },
    /// A destination.
    Write {
        /// Its index among the job's targets.
        target: u16,
    },
}

/// Measures one stage of this gateway.
#[derive(Debug)]
pub struct StageMeter {
    gateway: String,
    at: StageAt,
    throttle: Arc<Throttle>,
    clock: Clock,
    busy_us: AtomicU64,
    told_ms: AtomicU64,
}

/// A request at a stage, until it is dropped.
pub(super) struct Busy<'a> {
    meter: &'a StageMeter,
    since: Instant,
}

impl StageMeter {
    /// Measures what `throttle` limits.
    pub fn new(gateway: &str, at: StageAt, throttle: Arc<Throttle>) -> Arc<Self> {
        let (gateway, clock) = (gateway.to_owned(), Clock::start());
        Arc::new(Self { gateway, at, throttle, clock, busy_us: AtomicU64::new(0), told_ms: AtomicU64::new(0) })
    }

    /// Measures how a source reads.
    pub fn of_reading(gateway: &str, attempts: &Attempts) -> Arc<Self> {
        Self::new(gateway, StageAt::Read, attempts.throttle().clone())
    }

    /// Counts a request at this stage.
    pub(super) fn busy(&self) -> Busy<'_> {
        Busy { meter: self, since: Instant::now() }
    }

    /// Returns whether the lead should be told again. The next report is then due a while later.
    pub(super) fn is_due(&self) -> bool {
        let (now, told) = (self.clock.now_ms(), self.told_ms.load(Ordering::Relaxed));
        now >= told + REPORT_EVERY_MS
            && self.told_ms.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The report of now.
    pub(super) fn load(&self) -> StageLoad {
        let reading = self.throttle.read();
        StageLoad {
            gateway: self.gateway.clone(),
            at: self.at.clone(),
            limit: reading.limit,
            limit_max: reading.limit_max,
            elapsed_ms: self.clock.now_ms(),
            queued_ms: reading.queued.as_millis() as u64,
            busy_ms: self.busy_us.load(Ordering::Relaxed) / 1000,
            changes: reading.changes.iter().map(|change| (change.from, change.to, change.reason)).collect(),
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let busy_us = self.since.elapsed().as_micros() as u64;
        self.meter.busy_us.fetch_add(busy_us, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_stage_is_reported_twice_a_second_with_what_happened_since() {
        let throttle = Throttle::new(8, 1..=64);
        let meter = StageMeter::new("site-a", StageAt::Read, throttle.clone());
        assert!(!meter.is_due());
        let busy = [meter.busy(), meter.busy()];
        tokio::time::sleep(Duration::from_millis(600)).await;
        drop(busy);
        throttle.slow_down();
        assert!(meter.is_due() && !meter.is_due());
        let load = meter.load();
        assert_eq!((load.limit, load.elapsed_ms, load.queued_ms, load.busy_ms), (4, 600, 0, 1_200));
        assert_eq!(load.changes, [(8, 4, LimitReason::SlowDown)]);
        assert_eq!(meter.load().changes, []);
    }
}

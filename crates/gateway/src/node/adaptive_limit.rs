//! Decides how much work to keep in progress: doubles it while that raises the rate, and reverts a doubling that does
//! not.
//!
//! A distant store answers each request slowly, so many must be in progress. A nearby store is busy with a few, and
//! more of them only use memory beyond the CPU caches, which takes a fifth of the CPU time of a download from the same
//! machine. Only measurement can tell which it is. The limit does no I/O and reads no clock: the caller passes what was
//! released and when.

use std::time::Duration;
use tokio::time::Instant;

/// Shortest period over which a rate is measured.
const EPOCH_MIN: Duration = Duration::from_millis(100);
/// An epoch lasts until at least this multiple of the level has been released.
const EPOCH_ROUNDS: f64 = 2.0;
/// A doubling is kept if the rate grows by this factor.
const GAIN_MIN: f64 = 1.1;
/// Epochs to wait before another doubling, after one that did not raise the rate.
const REST_EPOCHS: u32 = 16;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    since: Option<Instant>,
    released: f64,
    starved: bool,
    /// The rate, in units per second, at the last settled level.
    settled: f64,
    probing: bool,
    rest_epochs: u32,
}

/// How the level changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Unchanged.
    Keep,
    /// Double the level.
    Double,
    /// Revert the last doubling, which did not raise the rate.
    Revert,
}

impl AdaptiveLimit {
    /// A limit without measurements.
    pub(super) const fn new() -> Self {
        Self { since: None, released: 0.0, starved: false, settled: 0.0, probing: false, rest_epochs: 0 }
    }

    /// Notes that a request had to wait: the level is the bottleneck.
    pub(super) const fn waited(&mut self) {
        self.starved = true;
    }

    /// Counts `amount` as released. `level` is the present level in the same unit.
    pub(super) fn released(&mut self, amount: f64, level: f64, now: Instant) -> Change {
        let since = *self.since.get_or_insert(now);
        self.released += amount;
        let elapsed = now.saturating_duration_since(since);
        if elapsed < EPOCH_MIN || self.released < EPOCH_ROUNDS * level {
            return Change::Keep;
        }
        let rate = self.released / elapsed.as_secs_f64();
        let starved = self.starved;
        (self.since, self.released, self.starved) = (Some(now), 0.0, false);
        self.judge(rate, starved)
    }

    fn judge(&mut self, rate: f64, starved: bool) -> Change {
        if self.probing {
            if starved && rate >= GAIN_MIN * self.settled {
                self.settled = rate;
                return Change::Double;
            }
            self.probing = false;
            self.rest_epochs = REST_EPOCHS;
            return Change::Revert;
        }
        self.settled = rate;
        if !starved {
            return Change::Keep;
        }
        if self.rest_epochs > 0 {
            self.rest_epochs -= 1;
            return Change::Keep;
        }
        self.probing = true;
        Change::Double
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a store that delivers `per_unit` a second for each unit in progress, up to `most`. Returns the levels.
    fn levels(per_unit: f64, most: f64, starved: bool) -> Vec<f64> {
        let (mut limit, mut level, mut now) = (AdaptiveLimit::new(), 4.0, Instant::now());
        let mut seen = Vec::new();
        for _ in 0..4_000 {
            if starved {
                limit.waited();
            }
            now += Duration::from_secs_f64(1.0 / (per_unit * level).min(most));
            level = match limit.released(1.0, level, now) {
                Change::Keep => level,
                Change::Double => level * 2.0,
                Change::Revert => level / 2.0,
            };
            seen.push(level);
        }
        seen
    }

    #[test]
    fn a_far_store_gets_what_it_needs() {
        let seen = levels(5.0, 160.0, true);
        assert!(seen.iter().filter(|level| **level >= 32.0).count() > 3_000);
    }

    #[test]
    fn a_near_store_is_not_swamped() {
        let seen = levels(500.0, 1_000.0, true);
        assert!(seen.iter().filter(|level| **level <= 4.0).count() > 3_000);
        assert!(seen.iter().all(|level| *level <= 8.0));
    }

    #[test]
    fn what_nobody_waits_for_does_not_grow() {
        assert!(levels(5.0, 160.0, false).iter().all(|level| *level == 4.0));
    }
}

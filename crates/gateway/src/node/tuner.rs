//! Decides how many requests to one store, or over one hop, may be in flight: additive increase, multiplicative
//! decrease, on goodput and errors.
//!
//! - **Increase**: by one per round of successes, if something waited for its turn in that round. Until the first
//!   decrease the steps are a quarter of the limit, so that a distant store soon gets what it needs.
//! - **No gain**: once the limit has grown by a quarter, the goodput must have grown too. If not, the store or the link
//!   is the bottleneck, and the growth is taken back for a while.
//! - **Decrease**: by half, when the store asks for fewer requests, or when many requests fail or time out.
//!
//! The tuner does no I/O and reads no clock: the caller passes what happened and when.

use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::time::Instant;
use tradewind_contract::LimitReason;

/// Shortest round: goodput over a shorter time says little.
const ROUND_MIN: Duration = Duration::from_millis(50);
/// Goodput is compared once the limit has grown by this factor.
const GROWTH: f64 = 1.25;
/// After such a growth the goodput must have risen by this factor. Full use of the growth would give [`GROWTH`].
const GAIN_MIN: f64 = 1.05;
/// Time without an increase after one that brought nothing. It doubles each time, up to [`REST_MAX`].
const REST_MIN: Duration = Duration::from_secs(1);
/// See [`REST_MIN`].
const REST_MAX: Duration = Duration::from_secs(64);
/// Decreases for one reason within this time count as one.
const DECREASE_PAUSE: Duration = Duration::from_millis(500);
/// The limit is halved if a larger share of the latest requests failed.
const FAILED_SHARE_MAX: f64 = 0.5;
/// What one request counts for in the goodput, besides its bytes. Small objects cost requests, not bytes.
const REQUEST_WORTH_BYTES: f64 = 65_536.0;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Tuner {
    limit: f64,
    limit_min: f64,
    limit_max: f64,
    /// Begin of the current round; `None` before the first success.
    since: Option<Instant>,
    successes: f64,
    bytes: f64,
    waited: bool,
    /// Limit and goodput against which a growth of the limit is measured.
    before: Option<(f64, f64)>,
    rest: Duration,
    rest_until: Option<Instant>,
    /// Whether there was no decrease yet.
    starting: bool,
    /// Share of failures among the latest requests, as many as the limit.
    failed_share: f64,
    decreased: Option<Instant>,
}

/// A changed limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Limit before.
    pub(super) from: u32,
    /// Limit now.
    pub(super) to: u32,
    /// Why.
    pub(super) reason: LimitReason,
}

impl Tuner {
    /// Starts with `limit` and stays within `bounds`, which begin with at least 1.
    pub(super) fn new(limit: u32, bounds: RangeInclusive<u32>) -> Self {
        let limit_max = bounds.end().max(&1);
        let limit_min = bounds.start().clamp(&1, limit_max);
        Self {
            limit: f64::from(limit.clamp(*limit_min, *limit_max)),
            limit_min: f64::from(*limit_min),
            limit_max: f64::from(*limit_max),
            since: None,
            successes: 0.0,
            bytes: 0.0,
            waited: false,
            before: None,
            rest: REST_MIN,
            rest_until: None,
            starting: true,
            failed_share: 0.0,
            decreased: None,
        }
    }

    /// Requests that may be in flight.
    pub(super) const fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// The highest limit that is allowed.
    pub(super) const fn limit_max(&self) -> u32 {
        self.limit_max as u32
    }

    /// Allows more, and allows it at once if the limit was the highest.
    pub(super) fn raise_max(&mut self, limit_max: u32) {
        let limit_max = f64::from(limit_max).max(self.limit_max);
        if self.limit >= self.limit_max {
            self.limit = limit_max;
        }
        self.limit_max = limit_max;
    }

    /// Notes that a request had to wait for its turn.
    pub(super) const fn waited(&mut self) {
        self.waited = true;
    }

    /// Counts a success that moved `bytes`.
    pub(super) fn succeeded(&mut self, bytes: u64, now: Instant) -> Option<Change> {
        self.failed_share *= 1.0 - 1.0 / self.limit.max(2.0);
        let since = *self.since.get_or_insert(now);
        self.successes += 1.0;
        self.bytes += bytes as f64;
        let elapsed = now.saturating_duration_since(since);
        if elapsed < ROUND_MIN || self.successes < self.limit {
            return None;
        }
        let goodput = (self.bytes + REQUEST_WORTH_BYTES * self.successes) / elapsed.as_secs_f64();
        let waited = std::mem::take(&mut self.waited);
        (self.since, self.successes, self.bytes) = (Some(now), 0.0, 0.0);
        self.end_round(goodput, waited, now)
    }

    fn end_round(&mut self, goodput: f64, waited: bool, now: Instant) -> Option<Change> {
        if !waited {
            self.before = None;
            return None;
        }
        match self.before {
            Some((limit, before)) if self.limit >= GROWTH * limit => {
                if goodput < GAIN_MIN * before {
                    self.before = None;
                    self.rest_until = Some(now + self.rest);
                    self.rest = (2 * self.rest).min(REST_MAX);
                    self.starting = false;
                    return self.set(limit, LimitReason::NoGain);
                }
                self.before = Some((self.limit, goodput));
                self.rest = REST_MIN;
            }
            Some(_) => {}
            None => self.before = Some((self.limit, goodput)),
        }
        if self.rest_until.is_some_and(|until| now < until) {
            self.before = None;
            return None;
        }
        let step = if self.starting { self.limit / 4.0 } else { 1.0 };
        self.set(self.limit + step.max(1.0), LimitReason::Waiting)
    }

    /// Records that the store asked for fewer requests.
    pub(super) fn slow_down(&mut self, now: Instant) -> Option<Change> {
        self.decrease(LimitReason::SlowDown, now)
    }

    /// Counts a request that failed for a reason that may be temporary, or timed out.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Change> {
        self.failed_share += (1.0 - self.failed_share) / self.limit.max(2.0);
        if self.failed_share <= FAILED_SHARE_MAX { None } else { self.decrease(LimitReason::Errors, now) }
    }

    fn decrease(&mut self, reason: LimitReason, now: Instant) -> Option<Change> {
        if self.decreased.is_some_and(|at| now.saturating_duration_since(at) < DECREASE_PAUSE) {
            return None;
        }
        self.decreased = Some(now);
        self.failed_share = 0.0;
        self.starting = false;
        (self.rest, self.rest_until) = (REST_MIN, None);
        self.before = None;
        (self.since, self.successes, self.bytes, self.waited) = (None, 0.0, 0.0, false);
        self.set((self.limit / 2.0).floor(), reason)
    }

    fn set(&mut self, limit: f64, reason: LimitReason) -> Option<Change> {
        let from = self.limit();
        self.limit = limit.clamp(self.limit_min, self.limit_max);
        let to = self.limit();
        (from != to).then_some(Change { from, to, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// A store that answers each request after `latency_s`, and moves at most `bytes_per_s` in all.
    struct Simulated {
        latency_s: f64,
        bytes_per_s: f64,
        /// Above this number of requests in flight it asks for fewer.
        requests_max: f64,
    }

    const BYTES: u64 = 1 << 20;

    /// Runs the tuner against the store for `seconds`. Returns the limit after each request.
    fn limits(tuner: &mut Tuner, store: &Simulated, seconds: f64, waits: bool) -> Vec<u32> {
        let (mut now, mut rng, mut seen) = (Instant::now(), SmallRng::seed_from_u64(7), Vec::new());
        let end = now + Duration::from_secs_f64(seconds);
        while now < end {
            let limit = f64::from(tuner.limit());
            let per_s = (limit / store.latency_s).min(store.bytes_per_s / BYTES as f64);
            now += Duration::from_secs_f64(rng.random_range(0.9..1.1) / per_s);
            if waits {
                tuner.waited();
            }
            if limit > store.requests_max {
                tuner.slow_down(now);
            } else {
                tuner.succeeded(BYTES, now);
            }
            seen.push(tuner.limit());
        }
        seen
    }

    #[test]
    fn a_distant_store_soon_gets_all_that_it_needs() {
        let store = Simulated { latency_s: 0.2, bytes_per_s: 1e12, requests_max: 1e9 };
        let seen = limits(&mut Tuner::new(16, 1..=64), &store, 3.0, true);
        assert_eq!(seen.last(), Some(&64));
    }

    #[test]
    fn a_store_that_is_busy_gets_no_more_than_it_can_use() {
        // 100 MiB/s are reached with 20 requests.
        let store = Simulated { latency_s: 0.2, bytes_per_s: 100.0 * BYTES as f64, requests_max: 1e9 };
        let seen = limits(&mut Tuner::new(16, 1..=64), &store, 60.0, true);
        let settled = &seen[seen.len() / 2..];
        assert!(settled.iter().all(|limit| (16..=32).contains(limit)), "{settled:?}");
    }

    #[test]
    fn nothing_grows_that_nobody_waits_for() {
        let store = Simulated { latency_s: 0.05, bytes_per_s: 1e12, requests_max: 1e9 };
        assert!(limits(&mut Tuner::new(16, 1..=64), &store, 10.0, false).iter().all(|limit| *limit == 16));
    }

    #[test]
    fn a_store_that_asks_for_fewer_gets_about_what_it_takes() {
        let store = Simulated { latency_s: 0.02, bytes_per_s: 1e12, requests_max: 10.0 };
        let seen = limits(&mut Tuner::new(16, 1..=64), &store, 60.0, true);
        let settled = &seen[seen.len() / 2..];
        let mean = settled.iter().map(|limit| f64::from(*limit)).sum::<f64>() / settled.len() as f64;
        assert!((5.0..=10.0).contains(&mean), "{mean}");
    }

    #[test]
    fn one_burst_of_refusals_halves_once() {
        let (mut tuner, now) = (Tuner::new(16, 1..=64), Instant::now());
        assert_eq!(tuner.slow_down(now), Some(Change { from: 16, to: 8, reason: LimitReason::SlowDown }));
        assert_eq!(tuner.slow_down(now + DECREASE_PAUSE / 2), None);
        assert_eq!(tuner.slow_down(now + DECREASE_PAUSE).map(|change| change.to), Some(4));
    }

    #[test]
    fn many_failures_halve_the_limit_and_single_ones_do_not() {
        let (mut tuner, mut now) = (Tuner::new(16, 1..=64), Instant::now());
        for request in 0..1_000 {
            now += Duration::from_millis(10);
            let change = if request % 5 == 0 { tuner.failed(now) } else { tuner.succeeded(0, now) };
            assert_eq!(change, None);
        }
        let halved = (0..16).find_map(|_| tuner.failed(now));
        assert_eq!(halved, Some(Change { from: 16, to: 8, reason: LimitReason::Errors }));
    }

    #[test]
    fn the_limit_stays_within_its_bounds_whatever_happens() {
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let bounds = rng.random_range(1..10)..=rng.random_range(10..100);
            let (mut tuner, mut now) = (Tuner::new(rng.random_range(0..200), bounds.clone()), Instant::now());
            for _ in 0..2_000 {
                now += Duration::from_micros(rng.random_range(0..50_000));
                let before = tuner.limit();
                let change = match rng.random_range(0..20) {
                    0 => tuner.slow_down(now),
                    1..3 => tuner.failed(now),
                    3..6 => {
                        tuner.waited();
                        None
                    }
                    _ => tuner.succeeded(rng.random_range(0..1 << 24), now),
                };
                assert!(bounds.contains(&tuner.limit()));
                assert_eq!(change.map_or(before, |change| change.to), tuner.limit());
                assert!(change.is_none_or(|change| change.from == before && change.to != before));
            }
        }
    }
}

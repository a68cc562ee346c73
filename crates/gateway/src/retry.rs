//! Decides which store requests are retried, when, and for how long: exponential backoff with jitter, limited in
//! attempts and in time.
//!
//! All callers of stores share this policy. The lead and the tasks use it unchanged;
//! [`Attempts`](crate::node::attempts::Attempts) of sources and sinks adds a throttle and watches progress. Stores
//! themselves retry only requests for tokens (`crates/store/src/token/request.rs`), for which no caller waits.

use crate::drain::drained;
use rand::Rng;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{JobSpec, Limits};
use tradewind_store::{Error, ErrorKind, Result, WorkLimits};

/// First wait between two attempts; doubles with each.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// First wait after the store asked for fewer requests.
const BACKOFF_SLOW_DOWN_MIN: Duration = Duration::from_millis(500);
/// Longest wait.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Limits of the attempts of a request.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Most attempts, including the first.
    pub tries_max: u32,
    /// No new attempt begins after this time.
    pub total_max: Duration,
    /// An attempt without an answer for this long is a [`ErrorKind::Timeout`].
    pub idle_max: Duration,
    /// The same if the store works on its own; see [`RetryPolicy::working`].
    pub work_max: Duration,
    /// Limit of the retries of an unreachable store.
    pub unreachable: Unreachable,
    /// True if an attempt counts even when the store only asks for fewer requests; false if a throttle reacts to that.
    pub counts_slow_down: bool,
}

/// Limit of the retries of an unreachable store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Like any other, but no new attempt begins after this time. This includes a store that was connected and does not
    /// answer.
    AtMost(Duration),
    /// Attempts are not counted. They continue for this time while no connection can be made.
    WaitFor(Duration),
}

impl From<&Limits> for RetryPolicy {
    fn from(limits: &Limits) -> Self {
        let total_max = Duration::from_secs(u64::from(limits.store_retry_s));
        Self {
            tries_max: limits.store_tries_max.max(1),
            total_max,
            idle_max: Duration::from_secs(u64::from(limits.store_idle_s.max(1))),
            work_max: Duration::from_secs(u64::from(limits.store_work_s.max(1))),
            unreachable: Unreachable::AtMost(total_max),
            counts_slow_down: true,
        }
    }
}

impl RetryPolicy {
    /// The policy of a job's lead: it waits for an unreachable store as long as the job may stall.
    pub fn of_job(limits: &Limits, job: &JobSpec) -> Self {
        Self { unreachable: Unreachable::WaitFor(Duration::from_secs(job.stall_s.into())), ..Self::from(limits) }
    }

    /// The policy of a source or sink. It abandons an unreachable store sooner than one that answers: the lead then
    /// tries another route, or waits.
    pub fn of_gateway(limits: &Limits) -> Self {
        let unreachable = Unreachable::AtMost(Duration::from_secs(limits.store_reach_s.into()));
        Self { unreachable, counts_slow_down: false, ..Self::from(limits) }
    }

    /// The policy for requests that let the store work on `bytes` bytes, such as the completion of an upload.
    pub fn working(self, bytes: u64) -> Self {
        Self { idle_max: WorkLimits::of(self.work_max, bytes).total_max, ..self }
    }

    /// Runs `attempt` until it succeeds, fails permanently, or the policy is exhausted; then returns the last error.
    /// `operation` and `url` name the request in the error of an attempt without an answer.
    pub async fn run<T, F, Fut>(&self, operation: &'static str, url: &str, attempt: F) -> Result<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let never = CancellationToken::new();
        let ended = self.run_until_stopped(&never, operation, url, attempt).await;
        ended.unwrap_or_else(|| unreachable!("nothing else holds the token"))
    }

    /// Like [`RetryPolicy::run`], but begins no attempt after `stop`, and waits at most
    /// [`DRAIN_MAX`](crate::drain::DRAIN_MAX) for one in flight. Returns `None` if it was stopped; the last attempt may
    /// still have taken effect.
    pub async fn run_until_stopped<T, F, Fut>(
        &self,
        stop: &CancellationToken,
        operation: &'static str,
        url: &str,
        mut attempt: F,
    ) -> Option<Result<T>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let began = Instant::now();
        let mut tries = 0;
        while !stop.is_cancelled() {
            let error = match drained(stop, tokio::time::timeout(self.idle_max, attempt())).await? {
                Ok(Ok(value)) => return Some(Ok(value)),
                Ok(Err(error)) => error,
                Err(_) => {
                    let waited = format!("no answer for {} s", self.idle_max.as_secs());
                    Error::new(ErrorKind::Timeout, operation, url, waited)
                }
            };
            tries += 1;
            let Some(wait) = self.wait_after(&error, tries, began.elapsed()) else { return Some(Err(error)) };
            tracing::debug!(%error, tries, wait_ms = wait.as_millis() as u64, "store request is tried again");
            stop.run_until_cancelled(tokio::time::sleep(wait)).await?;
        }
        None
    }

    /// Returns how long to wait after attempt number `tries`, `spent` after the first began; `None` when it was the
    /// last.
    pub(crate) fn wait_after(&self, error: &Error, tries: u32, spent: Duration) -> Option<Duration> {
        let wait = backoff(tries, error.kind);
        let total_max = match (self.unreachable, error.kind) {
            (Unreachable::WaitFor(connect_max), ErrorKind::Connection) => {
                // The last attempt is made when the time is over.
                let left = connect_max.saturating_sub(spent);
                return (!left.is_zero()).then(|| wait.min(left));
            }
            (Unreachable::AtMost(max), ErrorKind::Connection | ErrorKind::Timeout) => max.min(self.total_max),
            _ => self.total_max,
        };
        let is_counted = self.counts_slow_down || error.kind != ErrorKind::SlowDown;
        let is_over = !error.kind.is_transient() || is_counted && tries >= self.tries_max || spent + wait > total_max;
        (!is_over).then_some(wait)
    }
}

/// Wait after attempt number `tries` (counted from 1): doubling, capped, and half of it random, so that many workers do
/// not retry at the same time.
pub fn backoff(tries: u32, kind: ErrorKind) -> Duration {
    let first = if kind == ErrorKind::SlowDown { BACKOFF_SLOW_DOWN_MIN } else { BACKOFF_MIN };
    let full = first.saturating_mul(1 << (tries.saturating_sub(1)).min(16)).min(BACKOFF_MAX);
    full.mul_f64(rand::rng().random_range(0.5..1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn policy() -> RetryPolicy {
        let (total_max, idle_max) = (Duration::from_secs(600), Duration::from_secs(30));
        let unreachable = Unreachable::AtMost(total_max);
        RetryPolicy { tries_max: 4, total_max, idle_max, work_max: idle_max, unreachable, counts_slow_down: true }
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "head", "mem:/x", "no")
    }

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_retried() {
        let tries = Cell::new(0);
        let answer = policy()
            .run("head", "mem:/x", || {
                tries.set(tries.get() + 1);
                let answer = if tries.get() < 3 { Err(error(ErrorKind::SlowDown)) } else { Ok(7) };
                async move { answer }
            })
            .await;
        assert_eq!((answer.unwrap(), tries.get()), (7, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_errors_are_not_retried() {
        let tries = Cell::new(0);
        let answer: Result<()> = policy()
            .run("head", "mem:/x", || {
                tries.set(tries.get() + 1);
                async { Err(error(ErrorKind::Forbidden)) }
            })
            .await;
        assert_eq!((answer.unwrap_err().kind, tries.get()), (ErrorKind::Forbidden, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn tries_and_silence_are_bounded() {
        let tries = Cell::new(0);
        let answer: Result<()> = policy()
            .run("head", "mem:/x", || {
                tries.set(tries.get() + 1);
                std::future::pending()
            })
            .await;
        assert_eq!((answer.unwrap_err().kind, tries.get()), (ErrorKind::Timeout, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreachable_store_is_retried_by_time_and_one_that_answers_by_attempts() {
        for (kind, stall_s, tries_range) in
            [(ErrorKind::Connection, 60, 10..40), (ErrorKind::Connection, 1, 3..8), (ErrorKind::Server, 60, 4..5)]
        {
            let (tries, began) = (Cell::new(0), Instant::now());
            let patient = RetryPolicy { unreachable: Unreachable::WaitFor(Duration::from_secs(stall_s)), ..policy() };
            let answer: Result<()> = patient
                .run("head", "mem:/x", || {
                    tries.set(tries.get() + 1);
                    async move { Err(error(kind)) }
                })
                .await;
            assert_eq!(answer.unwrap_err().kind, kind);
            assert!(tries_range.contains(&tries.get()), "{} tries of {kind:?} in {stall_s} s", tries.get());
            let waited = kind == ErrorKind::Connection;
            assert_eq!(began.elapsed() >= Duration::from_secs(stall_s), waited);
            assert!(began.elapsed() < Duration::from_secs(stall_s + 1));
        }
    }

    #[test]
    fn a_gateway_abandons_an_unreachable_store_sooner_than_a_busy_one() {
        let limits = Limits { store_reach_s: 10, store_retry_s: 60, store_tries_max: 4, ..Limits::default() };
        let policy = RetryPolicy::of_gateway(&limits);
        let waits =
            |kind, tries, spent_s| policy.wait_after(&error(kind), tries, Duration::from_secs(spent_s)).is_some();
        assert!(waits(ErrorKind::Connection, 1, 0) && !waits(ErrorKind::Connection, 1, 10));
        assert!(!waits(ErrorKind::Timeout, 1, 10) && waits(ErrorKind::Server, 1, 10));
        assert!(!waits(ErrorKind::Server, 4, 0) && waits(ErrorKind::SlowDown, 40, 0));
        assert!(!waits(ErrorKind::SlowDown, 40, 60));
    }

    #[test]
    fn waits_grow_to_a_ceiling() {
        for tries in 1..100 {
            assert!(backoff(tries, ErrorKind::Server) <= BACKOFF_MAX);
        }
        assert!(backoff(1, ErrorKind::SlowDown) >= BACKOFF_SLOW_DOWN_MIN / 2);
        assert!(backoff(20, ErrorKind::Server) >= BACKOFF_MAX / 2);
    }
}

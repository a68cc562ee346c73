//! Retries of one store request: which errors are retried, for how long, and how long a silent request may last.

use super::throttle::Throttle;
use crate::failure::ObjectUrl;
use crate::retry::RetryPolicy;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;
use tradewind_contract::Limits;
use tradewind_store::{Error, ErrorKind, Result, WorkLimits, with_progress};

/// How one gateway sends requests to one store.
#[derive(Clone, Debug)]
pub struct Attempts {
    throttle: Arc<Throttle>,
    /// Decides which requests are retried. A request without progress is dropped after the policy's time limit.
    policy: RetryPolicy,
    counts: Arc<Counts>,
    /// When the current series of transient failures began; `None` after any other answer.
    failing_since: Arc<Mutex<Option<Instant>>>,
}

/// Counts of requests to a store, by result.
#[derive(Debug, Default)]
pub struct Counts {
    /// Succeeded.
    pub ok: AtomicU64,
    /// Failed and were retried.
    pub retried: AtomicU64,
    /// The store asked for fewer requests (also counted as retried or failed).
    pub slow_down: AtomicU64,
    /// Failed after all retries, or with a permanent error.
    pub failed: AtomicU64,
}

impl Attempts {
    /// Retries and throttle of a source, with the program's limits.
    pub fn of_reading(limits: &Limits) -> Self {
        Self::new(limits, limits.read_requests_start)
    }

    /// Retries and throttle of a destination, with the program's limits.
    pub fn of_writing(limits: &Limits) -> Self {
        Self::new(limits, limits.write_requests_start)
    }

    /// Allows `start` requests in flight at first; the throttle tunes this.
    fn new(limits: &Limits, start: u32) -> Self {
        Self {
            throttle: Throttle::new(start, 1..=limits.store_requests_max),
            policy: RetryPolicy::of_gateway(limits),
            counts: Arc::default(),
            failing_since: Arc::default(),
        }
    }

    /// The counters for the metrics.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Requests that may be in flight now.
    pub fn concurrency(&self) -> u32 {
        self.throttle.limit()
    }

    /// The limit on requests in flight.
    pub fn throttle(&self) -> &Arc<Throttle> {
        &self.throttle
    }

    /// Requests in flight.
    #[cfg(test)]
    pub(super) fn active(&self) -> u32 {
        self.throttle.active()
    }

    /// Runs `request` until it succeeds, fails permanently, or its time is over. Each attempt holds one slot of the
    /// throttle. An attempt is dropped if `progress` (bytes, or signs of life) does not grow for as long as `patience`
    /// allows.
    pub async fn run<T, F>(
        &self,
        describe: Describe<'_>,
        patience: Patience,
        progress: &Arc<AtomicU64>,
        mut request: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let started = Instant::now();
        for tries in 1.. {
            let slot = self.throttle.slot().await;
            let moved = progress.load(Ordering::Relaxed);
            let outcome = self.watched(describe, patience, progress, request()).await;
            drop(slot);
            let error = match outcome {
                Ok(value) => {
                    self.answered();
                    self.throttle.succeeded(progress.load(Ordering::Relaxed).saturating_sub(moved));
                    self.counts.ok.fetch_add(1, Ordering::Relaxed);
                    return Ok(value);
                }
                Err(error) => error,
            };
            match error.kind {
                ErrorKind::SlowDown => {
                    self.throttle.slow_down();
                    self.counts.slow_down.fetch_add(1, Ordering::Relaxed);
                }
                ErrorKind::Timeout | ErrorKind::Connection | ErrorKind::Server => self.throttle.failed(),
                _ => {}
            }
            // A connection that was lost while bytes moved does not mean that the store is down.
            let answers = matches!(error.kind, ErrorKind::SlowDown | ErrorKind::Server);
            if !error.kind.is_transient() || !answers && progress.load(Ordering::Relaxed) != moved {
                self.answered();
            }
            let is_hopeless = error.kind.is_transient() && self.is_hopeless();
            let wait = self.policy.wait_after(&error, tries, started.elapsed()).filter(|_| !is_hopeless);
            let Some(wait) = wait else {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            };
            self.counts.retried.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(wait).await;
        }
        unreachable!("the loop above ends by returning")
    }

    /// Records an answer other than a transient error.
    fn answered(&self) {
        *self.failing_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records a transient error. Returns whether the store has answered with nothing else for as long as one request
    /// is retried. From then on each request has a single attempt, so that a store that is down costs that time once
    /// and not for each object.
    fn is_hopeless(&self) -> bool {
        let mut since = self.failing_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get_or_insert_with(Instant::now).elapsed() >= self.policy.total_max
    }

    async fn watched<T>(
        &self,
        describe: Describe<'_>,
        patience: Patience,
        progress: &Arc<AtomicU64>,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let (silence_max, bytes) = match patience {
            Patience::Transfer => (self.policy.idle_max, 0),
            Patience::Work { bytes } => (self.policy.work_max, bytes),
        };
        let limits = WorkLimits::of(self.policy.work_max, bytes);
        let mut request = std::pin::pin!(with_progress(Arc::clone(progress), limits, request));
        let mut seen = progress.load(Ordering::Relaxed);
        loop {
            if let Ok(done) = tokio::time::timeout(silence_max, &mut request).await {
                return done;
            }
            let now = progress.load(Ordering::Relaxed);
            if now == seen {
                let message = format!("no answer for {} s", silence_max.as_secs());
                return Err(Error::new(ErrorKind::Timeout, describe.operation, describe.url.to_string(), message));
            }
            seen = now;
        }
    }
}

/// Possible reasons for the silence of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Bytes move, or an answer is due at once.
    Transfer,
    /// The store copies, assembles parts or syncs. A second request would only start the work again. TCP keepalive
    /// detects a store that died meanwhile; [`WorkLimits`] stop one that keeps showing signs of life.
    Work {
        /// Number of bytes that the store works on.
        bytes: u64,
    },
}

/// Names a request in an error that the store itself did not return.
#[derive(Clone, Copy, Debug)]
pub struct Describe<'a> {
    /// `get`, `put`, ….
    pub operation: &'static str,
    /// The object.
    pub url: ObjectUrl<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    fn attempts() -> Attempts {
        Attempts::of_reading(&Limits { store_idle_s: 30, store_work_s: 600, ..Limits::default() })
    }

    /// Runs a request whose answer takes `seconds`. Returns how often it was made, and its result.
    async fn slow_request(patience: Patience, seconds: u64) -> (u32, Result<()>) {
        let made = Cell::new(0);
        let describe = Describe { operation: "copy", url: ObjectUrl { root: "s3://b", key: "k" } };
        let done = attempts()
            .run(describe, patience, &Arc::default(), || {
                made.set(made.get() + 1);
                async move {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    Ok(())
                }
            })
            .await;
        (made.get(), done)
    }

    #[tokio::test(start_paused = true)]
    async fn work_of_the_store_is_waited_for_once() {
        let (made, done) = slow_request(Patience::Work { bytes: 0 }, 500).await;
        assert_eq!((made, done.is_ok()), (1, true));
        let (made, done) = slow_request(Patience::Transfer, 35).await;
        assert!(made > 1 && done.is_err(), "a transfer that stands still is issued again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_only_fails_costs_its_time_once() {
        let attempts = attempts();
        let tries = Cell::new(0);
        let refused = || async {
            tries.set(tries.get() + 1);
            Err::<(), _>(Error::new(ErrorKind::SlowDown, "put", "s3://b/k", "busy"))
        };
        let progress = Arc::default();
        let describe = Describe { operation: "put", url: ObjectUrl { root: "s3://b", key: "k" } };
        let put = || attempts.run(describe, Patience::Transfer, &progress, refused);
        let began = Instant::now();
        assert!(put().await.is_err() && tries.get() > 10 && began.elapsed() >= Duration::from_secs(110));
        tokio::time::sleep(Duration::from_secs(20)).await;
        let (tried, began) = (tries.get(), Instant::now());
        assert!(put().await.is_err());
        assert_eq!((tries.get() - tried, began.elapsed()), (1, Duration::ZERO));
        attempts.answered();
        let tried = tries.get();
        assert!(put().await.is_err() && tries.get() - tried > 10, "it is patient again after an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_end_a_silence() {
        let progress = Arc::new(AtomicU64::new(0));
        let describe = Describe { operation: "complete upload", url: ObjectUrl { root: "s3://b", key: "k" } };
        let alive = || async {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(100)).await;
                progress.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        assert!(attempts().run(describe, Patience::Work { bytes: 0 }, &progress, alive).await.is_ok());
    }
}

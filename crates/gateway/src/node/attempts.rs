//! Tries of one store request: which errors are tried again, how long, and with how much patience.

use super::budget::Throttle;
use crate::retry::RetryPolicy;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;
use tradewind_contract::Limits;
use tradewind_store::{Error, ErrorKind, Result, WorkLimits, with_progress};

/// How one gateway treats one store.
#[derive(Clone, Debug)]
pub struct Attempts {
    throttle: Arc<Throttle>,
    /// Which requests are tried again. One that makes no progress for as long as it says is dropped.
    policy: RetryPolicy,
    counts: Arc<Counts>,
    /// When the first of the requests failed that have failed for a passing cause since the last one that did not.
    failing_since: Arc<Mutex<Option<Instant>>>,
}

/// Requests to a store, by how they ended.
#[derive(Debug, Default)]
pub struct Counts {
    /// Went well.
    pub ok: AtomicU64,
    /// Failed and were tried again.
    pub retried: AtomicU64,
    /// Asked for fewer requests (also counted as retried or failed).
    pub slow_down: AtomicU64,
    /// Failed for good.
    pub failed: AtomicU64,
}

impl Attempts {
    /// As the program's limits say.
    pub fn new(limits: &Limits) -> Self {
        Self {
            throttle: Throttle::new(limits.store_requests_max),
            policy: RetryPolicy::of_gateway(limits),
            counts: Arc::default(),
            failing_since: Arc::default(),
        }
    }

    /// Counters for the metrics.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Requests that may be in flight now.
    pub fn concurrency(&self) -> usize {
        self.throttle.limit()
    }

    /// Requests in flight.
    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.throttle.active()
    }

    /// Runs `request` until it succeeds, fails for good, or patience ends. Each try holds one slot of the throttle.
    /// A try is dropped when `progress` (bytes, or signs of life) stands still for as long as `patience` allows.
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
                    self.throttle.succeeded();
                    self.counts.ok.fetch_add(1, Ordering::Relaxed);
                    return Ok(value);
                }
                Err(error) => error,
            };
            if error.kind == ErrorKind::SlowDown {
                self.throttle.slow_down();
                self.counts.slow_down.fetch_add(1, Ordering::Relaxed);
            }
            // A connection that was lost while bytes moved is no sign that the store is down.
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

    /// The store answered something else than a passing error.
    fn answered(&self) {
        *self.failing_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes a passing error. Whether the store has answered nothing else for as long as one request is tried: then each
    /// further one has a single try, so that a store that is down costs its time once and not for each object.
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
                return Err(Error::new(ErrorKind::Timeout, describe.operation, describe.url, message));
            }
            seen = now;
        }
    }
}

/// What a request that is silent may be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Bytes move, or an answer is due at once.
    Transfer,
    /// The store copies, puts parts together or syncs. Issuing the request again would only make it begin anew. A store
    /// that died meanwhile is noticed by its connection (TCP keepalive), one that shows signs of life for ever by
    /// [`WorkLimits`].
    Work {
        /// Length of what the store works on.
        bytes: u64,
    },
}

/// Names a request in an error that the store itself did not make.
#[derive(Clone, Copy, Debug)]
pub struct Describe<'a> {
    /// `get`, `put`, ….
    pub operation: &'static str,
    /// URL of store or object.
    pub url: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    fn attempts() -> Attempts {
        Attempts::new(&Limits { store_idle_s: 30, store_work_s: 600, ..Limits::default() })
    }

    /// How often a request was made whose answer takes `seconds`, and what came of it.
    async fn slow_request(patience: Patience, seconds: u64) -> (u32, Result<()>) {
        let made = Cell::new(0);
        let describe = Describe { operation: "copy", url: "s3://b/k" };
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
        let describe = Describe { operation: "put", url: "s3://b/k" };
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
        let describe = Describe { operation: "complete upload", url: "s3://b/k" };
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

//! Tries of one store request: which errors are tried again, how long, and with how much patience.

use super::budget::Throttle;
use rand::Rng;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tradewind_contract::Limits;
use tradewind_store::{Error, ErrorKind, Result};

/// First pause between two tries; doubled each time, with jitter.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How one gateway treats one store.
#[derive(Clone, Debug)]
pub struct Attempts {
    throttle: Arc<Throttle>,
    tries_max: u32,
    retry_time_max: Duration,
    /// No progress of a request for so long, and it is given up.
    pub idle_max: Duration,
    counts: Arc<Counts>,
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
            tries_max: limits.store_tries_max.max(1),
            retry_time_max: Duration::from_secs(limits.store_retry_s.into()),
            idle_max: Duration::from_secs(limits.store_idle_s.max(1).into()),
            counts: Arc::default(),
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

    /// Runs `request` until it succeeds, fails for good, or patience ends. Each try holds one slot of the throttle.
    /// A try is dropped when `progress` (bytes, if given) stands still for `idle_max`.
    pub async fn run<T, F>(
        &self,
        describe: Describe<'_>,
        progress: Option<&AtomicU64>,
        mut request: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let started = Instant::now();
        let mut pause = PAUSE_MIN;
        for tries in 1.. {
            let slot = self.throttle.slot().await;
            let outcome = self.watched(describe, progress, request()).await;
            drop(slot);
            let error = match outcome {
                Ok(value) => {
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
            let patient = started.elapsed() + pause < self.retry_time_max
                && (tries < self.tries_max || error.kind == ErrorKind::SlowDown);
            if !error.kind.is_transient() || !patient {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
            self.counts.retried.fetch_add(1, Ordering::Relaxed);
            let jitter = rand::rng().random_range(0.5..1.0);
            tokio::time::sleep(pause.mul_f64(jitter)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        unreachable!("the loop above ends by returning")
    }

    async fn watched<T>(
        &self,
        describe: Describe<'_>,
        progress: Option<&AtomicU64>,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut request = std::pin::pin!(request);
        let mut seen = progress.map(|bytes| bytes.load(Ordering::Relaxed));
        loop {
            if let Ok(done) = tokio::time::timeout(self.idle_max, &mut request).await {
                return done;
            }
            let now = progress.map(|bytes| bytes.load(Ordering::Relaxed));
            if now == seen {
                let message = format!("no answer for {} s", self.idle_max.as_secs());
                return Err(Error::new(ErrorKind::Timeout, describe.operation, describe.url, message));
            }
            seen = now;
        }
    }
}

/// Names a request in an error that the store itself did not make.
#[derive(Clone, Copy, Debug)]
pub struct Describe<'a> {
    /// `get`, `put`, ….
    pub operation: &'static str,
    /// URL of store or object.
    pub url: &'a str,
}

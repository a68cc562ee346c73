//! Tries a store request again while that may help: exponential backoff with jitter, bounded in tries and in time.

use rand::Rng;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use tradewind_contract::Limits;
use tradewind_store::{Error, ErrorKind, Result};

/// First wait between two tries; doubles with each.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// First wait after the store asked for fewer requests.
const BACKOFF_SLOW_DOWN_MIN: Duration = Duration::from_millis(500);
/// No wait is longer.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// How long and how often a request is tried.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Tries in all, the first included.
    pub tries_max: u32,
    /// No new try begins after so long.
    pub total_max: Duration,
    /// A try that gives no answer for so long is a [`ErrorKind::Timeout`].
    pub idle_max: Duration,
}

impl From<&Limits> for RetryPolicy {
    fn from(limits: &Limits) -> Self {
        Self {
            tries_max: limits.store_tries_max.max(1),
            total_max: Duration::from_secs(u64::from(limits.store_retry_s)),
            idle_max: Duration::from_secs(u64::from(limits.store_idle_s.max(1))),
        }
    }
}

impl RetryPolicy {
    /// Runs `attempt` until it succeeds, fails for good, or the policy is exhausted; the last error is returned.
    /// `operation` and `url` name the request in the error of a try that never answered.
    pub async fn run<T, F, Fut>(&self, operation: &'static str, url: &str, mut attempt: F) -> Result<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let deadline = Instant::now() + self.total_max;
        let mut tries = 0;
        loop {
            let error = match tokio::time::timeout(self.idle_max, attempt()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(_) => {
                    let waited = format!("no answer for {} s", self.idle_max.as_secs());
                    Error::new(ErrorKind::Timeout, operation, url, waited)
                }
            };
            tries += 1;
            let wait = backoff(tries, error.kind);
            if !error.kind.is_transient() || tries >= self.tries_max || Instant::now() + wait > deadline {
                return Err(error);
            }
            tracing::debug!(%error, tries, wait_ms = wait.as_millis() as u64, "store request is tried again");
            tokio::time::sleep(wait).await;
        }
    }
}

/// Wait before the try that follows the `tries`th (counted from 1): doubling, capped, with half of it random so that
/// many workers do not come back at once.
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
        RetryPolicy { tries_max: 4, total_max: Duration::from_secs(600), idle_max: Duration::from_secs(30) }
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "head", "mem:/x", "no")
    }

    #[tokio::test(start_paused = true)]
    async fn passing_errors_are_tried_again() {
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
    async fn lasting_errors_are_not() {
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

    #[test]
    fn waits_grow_to_a_ceiling() {
        for tries in 1..100 {
            assert!(backoff(tries, ErrorKind::Server) <= BACKOFF_MAX);
        }
        assert!(backoff(1, ErrorKind::SlowDown) >= BACKOFF_SLOW_DOWN_MIN / 2);
        assert!(backoff(20, ErrorKind::Server) >= BACKOFF_MAX / 2);
    }
}

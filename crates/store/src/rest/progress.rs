//! Tracks signs of life of requests whose body shows no progress, and limits how long such work may take. A server that
//! copies objects or assembles parts sends white space meanwhile, or reports that it is not done yet.
//!
//! The caller scopes a request with [`with_progress`]. The innermost readers of answers count each sign with
//! [`still_at_work`], which fails once the work has taken too long. This is a task-local rather than an argument
//! because only those readers see the signs, and only watchdogs need them.

use super::Call;
use crate::{ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Work on many bytes may take [`WorkLimits::silence_max`] plus the time of the bytes at this rate.
pub const WORK_BYTES_PER_S_MIN: u64 = 4 << 20;

/// Maximum time for which a store may work on one request.
#[derive(Clone, Copy, Debug)]
pub struct WorkLimits {
    /// Longest time without any progress.
    pub silence_max: Duration,
    /// Longest time in all, whatever signs of life the store gives.
    pub total_max: Duration,
}

impl WorkLimits {
    /// Limits of `work_max`; the total is longer by the time of `bytes` at [`WORK_BYTES_PER_S_MIN`].
    pub fn of(work_max: Duration, bytes: u64) -> Self {
        Self { silence_max: work_max, total_max: work_max + Duration::from_secs(bytes / WORK_BYTES_PER_S_MIN) }
    }
}

#[derive(Debug)]
struct Watch {
    progress: Arc<AtomicU64>,
    limits: WorkLimits,
    first_sign: OnceLock<Instant>,
}

tokio::task_local! {
    static WATCH: Watch;
}

/// Runs `request`; each sign of life of the server increments `progress`.
pub async fn with_progress<F: Future>(progress: Arc<AtomicU64>, limits: WorkLimits, request: F) -> F::Output {
    WATCH.scope(Watch { progress, limits, first_sign: OnceLock::new() }, request).await
}

/// Counts a sign that the server is at work. Outside a scope, does nothing.
///
/// # Errors
/// [`ErrorKind::Unfinished`]: the server has been at work for too long since its first sign.
pub(crate) fn still_at_work(call: &Call) -> Result<()> {
    let watched = |watch: &Watch| {
        watch.progress.fetch_add(1, Ordering::Relaxed);
        let since = *watch.first_sign.get_or_init(Instant::now);
        (since.elapsed() > watch.limits.total_max).then_some(watch.limits.total_max)
    };
    match WATCH.try_with(watched) {
        Ok(Some(total_max)) => Err(unfinished(call, total_max)),
        _ => Ok(()),
    }
}

/// The limits of the current request; `None` outside a scope.
pub(crate) fn work_limits() -> Option<WorkLimits> {
    WATCH.try_with(|watch| watch.limits).ok()
}

fn unfinished(call: &Call, total_max: Duration) -> crate::Error {
    let why = format!("the store is still working after {} s, the longest time allowed", total_max.as_secs());
    call.error(ErrorKind::Unfinished, why)
}

//! Signs of life of a request whose body says nothing of how far it is: a server that copies or puts parts together
//! sends white space, or reports that it is not done yet. And how long such work may take.
//!
//! The caller scopes a request with [`with_progress`]; the innermost readers of answers count a sign with [`still_at_work`],
//! which fails once the work has taken too long. A task-local and not an argument, because only those readers know, and
//! only watchdogs care.

use super::Call;
use crate::{ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Work on many bytes has their time at this rate on top of [`WorkLimits::silence_max`].
pub const WORK_BYTES_PER_S_MIN: u64 = 4 << 20;

/// How long a store may work on one request.
#[derive(Clone, Copy, Debug)]
pub struct WorkLimits {
    /// Without any progress.
    pub silence_max: Duration,
    /// In all, whatever signs of life it gives.
    pub total_max: Duration,
}

impl WorkLimits {
    /// `work_max`, and for the total the time of `bytes` at [`WORK_BYTES_PER_S_MIN`] on top.
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

/// Runs `request`; each sign of life of the server adds to `progress`.
pub async fn with_progress<F: Future>(progress: Arc<AtomicU64>, limits: WorkLimits, request: F) -> F::Output {
    WATCH.scope(Watch { progress, limits, first_sign: OnceLock::new() }, request).await
}

/// The server sent a sign that it is at work. Without a scope nobody watches.
///
/// # Errors
/// [`ErrorKind::Unfinished`]: it has been at work for too long since its first sign.
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

/// The limits of the request that runs; `None` without a scope.
pub(crate) fn work_limits() -> Option<WorkLimits> {
    WATCH.try_with(|watch| watch.limits).ok()
}

fn unfinished(call: &Call, total_max: Duration) -> crate::Error {
    let why = format!("the store is still at work after {} s, and is not waited for any longer", total_max.as_secs());
    call.error(ErrorKind::Unfinished, why)
}

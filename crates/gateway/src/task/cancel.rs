//! `jobs cancel`: aborts what a stopped job has left open and marks it cancelled.

use super::{Streams, TaskError, TaskResult};
use crate::lead::journal::{Journal, JournalError};
use crate::lead::state_dir::StateDir;
use crate::lead::status::{self, now_unix_ms};
use crate::lead::sweep::abort_all;
use crate::retry::RetryPolicy;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{JobState, JobStatus, Outcome, Progress};
use tradewind_store::Store;

/// Aborts the uploads that the journal knows and those it may not know, then writes the status. Objects that are done
/// stay. When an upload cannot be aborted the job stays as it is, so that cancelling can be tried again.
pub(super) async fn cancel(
    dir: &Path,
    stores: Vec<Arc<dyn Store>>,
    policy: RetryPolicy,
    stop: CancellationToken,
    streams: &mut Streams,
) -> TaskResult {
    let state = StateDir::open_existing(dir)?;
    let journal = match Journal::open_existing(&state) {
        Err(JournalError::Missing(_)) => Journal::disabled(),
        other => other?,
    };
    let Some(swept) = stop.run_until_cancelled(abort_all(&journal, &stores, policy)).await else {
        return Err(TaskError::ended(Outcome::Interrupted, "interrupted; uploads may be left", Some("cancel again")));
    };
    let swept = swept?;
    for error in &swept.failed {
        streams.say_error(&error.to_string(), error.hint());
    }
    if !swept.failed.is_empty() {
        let outcome = if swept.failed.iter().all(|error| error.kind.is_transient()) {
            Outcome::Unavailable
        } else {
            Outcome::SomeFailed
        };
        let message = format!("{} unfinished uploads could not be aborted", swept.failed.len());
        return Err(TaskError::ended(outcome, message, Some("cancel again when the store can be reached")));
    }
    let before = status::read(state.path()).unwrap_or_else(|error| {
        streams.say(&format!("note: the job's status could not be read: {error}"));
        None
    });
    let before = before.unwrap_or_else(|| status::running(Progress::default()));
    let after = JobStatus { state: JobState::Cancelled, updated_unix_ms: now_unix_ms(), ..before };
    status::write(state.path(), &after)?;
    streams.say(&format!("cancelled; {} unfinished uploads aborted", swept.aborted));
    Ok(())
}

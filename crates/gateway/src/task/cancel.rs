//! `jobs cancel`: removes what a stopped job left unfinished and marks it cancelled.

use super::error::{TaskError, TaskResult};
use super::streams::Streams;
use crate::failure::counted;
use crate::lead::journal::{Journal, JournalError};
use crate::lead::state_dir::StateDir;
use crate::lead::status::{self, now_unix_ms};
use crate::lead::sweep::{SweepEnd, abort_all, remove_unfinished_writes};
use crate::retry::RetryPolicy;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{JobState, JobStatus, Outcome, Progress};
use tradewind_store::Store;

/// Removes temporary files, aborts uploads that the journal lists and those it may lack, then writes the status. Finished
/// objects stay. If one of these cannot be removed, the job is left unchanged, so that cancelling can be retried. A job
/// without its journal is cancelled too, because it can never be resumed; the message says what may be left.
pub(super) async fn cancel(
    dir: &Path,
    stores: Vec<Arc<dyn Store>>,
    policy: RetryPolicy,
    stop: CancellationToken,
    streams: &mut Streams,
) -> TaskResult {
    let state = StateDir::open_existing(dir)?;
    let before = status::read(state.path()).unwrap_or_else(|error| {
        streams.say(&format!("note: cannot read the job's status: {error}"));
        None
    });
    let has_begun = before.as_ref().is_some_and(|status| status.progress.objects_total > 0);
    let (swept, lost) = match stop.run_until_cancelled(sweep(&state, &stores, policy)).await {
        None => {
            return Err(TaskError::ended(
                Outcome::Interrupted,
                "interrupted: unfinished uploads may remain",
                Some("run `tradewind jobs cancel` again"),
            ));
        }
        Some(Ok(swept)) => (swept, None),
        Some(Err(error @ JournalError::Missing(_))) => (SweepEnd::default(), has_begun.then_some(error)),
        Some(Err(error @ JournalError::Corrupt { .. })) => (SweepEnd::default(), Some(error)),
        Some(Err(error)) => return Err(error.into()),
    };
    for error in &swept.failed {
        streams.say_error(&error.to_string(), error.hint());
    }
    if !swept.failed.is_empty() {
        let outcome = if swept.failed.iter().all(|error| error.kind.is_transient()) {
            Outcome::Unavailable
        } else {
            Outcome::SomeFailed
        };
        let message = format!("{} could not be aborted", unfinished(swept.failed.len() as u64));
        return Err(TaskError::ended(
            outcome,
            message,
            Some("run `tradewind jobs cancel` again when the store is reachable"),
        ));
    }
    let before = before.unwrap_or_else(|| status::running(Progress::default()));
    let after = JobStatus { state: JobState::Cancelled, updated_unix_ms: now_unix_ms(), ..before };
    status::write(state.path(), &after)?;
    if let Some(error) = lost {
        let message = format!("cancelled, but unfinished uploads may remain: {error}");
        let hint = "abort them at the destination, or set a lifecycle rule that removes them";
        return Err(TaskError::ended(Outcome::SomeFailed, message, Some(hint)));
    }
    streams.say(&format!("cancelled; {} aborted", unfinished(swept.aborted)));
    Ok(())
}

fn unfinished(uploads: u64) -> String {
    counted(uploads, "unfinished upload", "unfinished uploads")
}

/// Removes the temporary files first, because the journal may be unusable.
async fn sweep(state: &StateDir, stores: &[Arc<dyn Store>], policy: RetryPolicy) -> Result<SweepEnd, JournalError> {
    let written = remove_unfinished_writes(state.path(), stores).await;
    let journal = Journal::open_existing(state)?;
    let mut end = abort_all(&journal, stores, policy).await?;
    end.aborted += written.aborted;
    end.failed.extend(written.failed);
    Ok(end)
}

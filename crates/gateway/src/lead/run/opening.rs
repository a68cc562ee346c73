//! What must be there before a job begins: its folder, journal and report.

use super::{LeadSetup, work};
use crate::background::Background;
use crate::control::events::EventSender;
use crate::lead::journal::{Journal, JournalError};
use crate::lead::report::Report;
use crate::lead::state_dir::StateDir;
use crate::lead::status;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use tradewind_contract::{Event, JobSpec, Outcome, Progress, Summary};

/// Why a job cannot begin.
#[derive(Debug)]
pub struct CannotBegin {
    /// One line.
    pub message: String,
    /// One line of advice.
    pub hint: Option<String>,
}

/// Runs the job to its end and tells it. Never fails: what goes wrong is in the summary, a panic too.
///
/// # Errors
/// The job's folder, journal or report cannot be used: nothing was begun.
pub async fn begin(setup: LeadSetup) -> Result<impl Future<Output = ()>, CannotBegin> {
    let state = open_state(&setup.job, setup.background)?;
    let journal = open_journal(&setup.job, state.as_ref())?;
    let report = setup.job.report_file.as_ref().map(|path| Report::open(Path::new(path), setup.job.resume)).transpose();
    let report = report
        .map_err(|error| CannotBegin { message: format!("the report cannot be written: {error}"), hint: None })?;
    let unfinished = journal.unfinished().await.map_err(journal_failed)?;
    let (job, events) = (setup.job.clone(), setup.events.clone());
    let work = AssertUnwindSafe(work(setup, state, journal, report, unfinished)).catch_unwind();
    Ok(async move {
        if work.await.is_err() {
            tell_panic(&job, &events);
        }
    })
}

fn tell_panic(job: &JobSpec, events: &EventSender) {
    let summary = Summary {
        outcome: Outcome::Failed,
        message: Some("internal error of the lead; see the gateway's log".to_owned()),
        hint: Some("report it, and resume the job".to_owned()),
        progress: Progress::default(),
        objects_deleted: 0,
        objects_not_deleted: 0,
        to_delete: None,
        proofs: Default::default(),
        destinations: Vec::new(),
    };
    if let Some(path) = &job.state_dir
        && let Err(error) = status::write(Path::new(path), &status::ended(summary.clone()))
    {
        tracing::warn!(%error, "cannot write the job's status");
    }
    events.send(Event::Done(summary));
}

fn open_state(job: &JobSpec, background: Background) -> Result<Option<StateDir>, CannotBegin> {
    let Some(path) = job.state_dir.as_deref().map(Path::new) else { return Ok(None) };
    let opened = if job.resume { StateDir::open_existing(path) } else { StateDir::create(path) };
    opened
        .map(|state| Some(state.with_background(background)))
        .map_err(|error| CannotBegin { message: error.to_string(), hint: Some(error.hint().to_owned()) })
}

fn open_journal(job: &JobSpec, state: Option<&StateDir>) -> Result<Journal, CannotBegin> {
    match state {
        None => Ok(Journal::disabled()),
        Some(_) if job.dry_run => Ok(Journal::disabled()),
        Some(dir) if job.resume => Journal::open_or_create(dir).map_err(journal_failed),
        Some(dir) => Journal::create(dir).map_err(journal_failed),
    }
}

fn journal_failed(error: JournalError) -> CannotBegin {
    CannotBegin { message: error.to_string(), hint: Some(error.hint().to_owned()) }
}

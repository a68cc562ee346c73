//! Opens a job: its folder, journal and report, and the checks before anything is transferred.

use super::context::Context;
use super::source_deletions::SourceDeletions;
use super::{LeadSetup, Run, Surveying, work};
use crate::background::Background;
use crate::control::events::EventSender;
use crate::lead::journal::{Entry, Journal, JournalError};
use crate::lead::places::Places;
use crate::lead::report::Report;
use crate::lead::state_dir::StateDir;
use crate::lead::survey::{FOUND_QUEUE_MAX, Survey, SurveyError};
use crate::lead::sweep::Intents;
use crate::lead::{probe, status, sweep};
use crate::retry::RetryPolicy;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{Event, JobSpec, Limits, Outcome, Progress, SourceTags, Summary};
use tradewind_store::{Store, TagSupport};

/// Why a job cannot begin.
#[derive(Debug)]
pub struct CannotBegin {
    /// One-line message.
    pub message: String,
    /// One line of advice.
    pub hint: Option<String>,
}

/// Opens the job's files, and returns a future that runs the job to its end and reports it. That future never fails:
/// the summary states every error, also a panic.
///
/// # Errors
/// The job's folder, journal or report cannot be used: nothing was begun.
pub async fn begin(setup: LeadSetup) -> Result<impl Future<Output = ()>, CannotBegin> {
    let state = open_state(&setup.job, setup.background)?;
    let journal = open_journal(&setup.job, state.as_ref())?;
    let report = setup.job.report_file.as_ref().map(|path| Report::open(Path::new(path), setup.job.resume)).transpose();
    let report =
        report.map_err(|error| CannotBegin { message: format!("cannot write the report: {error}"), hint: None })?;
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
        tags_dropped: 0,
        attributes_ignored: 0,
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

impl Run {
    /// Refuses overlapping places, clears unnamed leftovers of a killed run, and starts the survey.
    pub(super) async fn prepare(&mut self, limits: &Limits) -> Result<Surveying, SurveyError> {
        let context = self.context.clone();
        let journal = self.recorder.journal.clone();
        let is_fresh = journal.done_set()?.is_empty();
        let Context { job, source, targets, policy, .. } = context.as_ref();
        refuse_lost_tags(job.source_tags, source, targets)?;
        check_locks(job, targets, *policy).await?;
        let places = Places { job, source, targets, policy: *policy };
        let (proven_apart, shut) = futures::join!(places.refuse_overlaps(is_fresh), probe::shut_targets(job, targets));
        self.finisher.proven_apart = proven_apart?;
        if let Some(Some(error)) = shut.first()
            && shut.iter().all(Option::is_some)
        {
            return Err(SurveyError::Target(error.clone()));
        }
        let suspect_since_unix_ms = note_boots(&context, &journal).await?;
        if job.resume {
            sweep::abort_orphans(&journal, targets, *policy, Intents::Kept).await?;
        }
        if journal.is_enabled() {
            list_writes(&context).await;
        }
        if job.delete_source && !job.dry_run {
            let begun = SourceDeletions::begin(job, source.as_ref());
            self.finisher.source_deletions =
                begun.inspect_err(|error| context.notice(format!("sources will not be deleted: {error}"))).ok();
        }
        let done = journal.done_set()?;
        let done_before_deletion = if job.delete_source { done.totals_before_deletion().await? } else { None };
        let (out, found) = mpsc::channel(FOUND_QUEUE_MAX);
        let cancel = CancellationToken::new();
        let survey = Survey {
            job: job.clone(),
            source: source.clone(),
            targets: targets.clone(),
            limits: limits.clone(),
            done,
            done_before_deletion,
            local: context.local,
            suspect_since_unix_ms,
            may_be_source: self.finisher.proven_apart.iter().map(|is_proven| !is_proven).collect(),
            shut,
            out,
            cancel: cancel.clone(),
        };
        Ok(Surveying {
            found,
            received: Vec::new().into_iter(),
            task: tokio::spawn(survey.run()),
            cancel,
            listed: false,
        })
    }
}

/// Removes the temporary files of earlier runs, and lists those of this run. Neither is worth a failed job.
async fn list_writes(context: &Context) {
    let Some(dir) = context.job.state_dir.as_deref().map(Path::new) else { return };
    for error in sweep::remove_unfinished_writes(dir, &context.targets).await.failed {
        context.notice(format!("temporary files of earlier runs may be left behind: {error}"));
    }
    if let Err(error) = sweep::list_writes(dir, &context.targets).await {
        tracing::warn!(%error, "temporary files may be left behind if this process is killed");
    }
}

/// Records the boot IDs of the machines on which this run writes. Returns, for each destination, the time since which
/// it may have lost unsynced writes of earlier runs; `None` if no machine was restarted meanwhile.
async fn note_boots(context: &Context, journal: &Journal) -> Result<Vec<Option<i64>>, SurveyError> {
    let job = &context.job;
    let earlier = if job.resume { journal.boots().await? } else { Vec::new() };
    if job.resume && earlier.is_empty() {
        // The row was lost, and later runs must not assume that this boot was the only one.
        journal.record(Entry::Began { boot: String::new(), unix_ms: 0 }).await?;
    }
    let mut suspect_since = Vec::with_capacity(context.targets.len());
    for (store, target) in context.targets.iter().zip(&job.targets) {
        let Some(boot) = store.volatile_boot().filter(|_| !target.store.fsync && !job.delete_source) else {
            suspect_since.push(None);
            continue;
        };
        // The boot IDs of sinks elsewhere are unknown here.
        let boot = if context.local { boot } else { "" };
        journal.record(Entry::Began { boot: boot.to_owned(), unix_ms: status::now_unix_ms() }).await?;
        let same_boot = !earlier.is_empty() && earlier.iter().all(|(earlier, _)| earlier == boot && !boot.is_empty());
        let since = earlier.iter().map(|(_, began_unix_ms)| *began_unix_ms).min().unwrap_or(0);
        suspect_since.push((job.resume && !same_boot).then_some(since));
    }
    Ok(suspect_since)
}

/// Refuses to write objects with a retention or a hold where a destination cannot have them.
async fn check_locks(job: &JobSpec, targets: &[Arc<dyn Store>], policy: RetryPolicy) -> Result<(), SurveyError> {
    if job.object_lock.is_none() {
        return Ok(());
    }
    let checks = targets.iter().map(|store| policy.run("lock", store.url(), || store.check_lock()));
    futures::future::try_join_all(checks).await.map(drop).map_err(SurveyError::Target)
}

/// Refuses a job that must keep tags between stores of which one has none. The client refuses it by the kinds of the
/// stores; only an opened store knows what its service has.
fn refuse_lost_tags(rule: SourceTags, source: &Arc<dyn Store>, targets: &[Arc<dyn Store>]) -> Result<(), SurveyError> {
    let without = || [source].into_iter().chain(targets).find(|store| store.tag_support() == TagSupport::Missing);
    match without().filter(|_| rule == SourceTags::Keep) {
        Some(store) => Err(SurveyError::NoTags { url: store.url().to_owned() }),
        None => Ok(()),
    }
}

//! Records what the job has done for three readers: the journal for a later run, the report for the user, and the
//! counts for progress and summary. Nothing counts as done until it is recorded here.

use super::causes::{Cause, Causes, FailureSite};
use super::context::Context;
use super::doubted::Copied;
use super::tally::Tally;
use crate::failure::ObjectUrl;
use crate::lead::journal::{Entry, Journal, fingerprint};
use crate::lead::report::{CopiedLine, ObjectVerdict, ProofNames, Report, Verdict};
use crate::lead::survey::{SurveyError, WorkItem};
use crate::node::work::{Failure, Placed};
use std::sync::Arc;
use tradewind_contract::{Event, FailedObject, Outcome};
use tradewind_store::Written;
use tradewind_wire::Fault;

/// See the module's documentation.
pub(super) struct Recorder {
    context: Arc<Context>,
    pub(super) journal: Journal,
    report: Option<Report>,
    pub(super) tally: Tally,
    pub(super) causes: Causes,
    /// Stores that have answered with nothing but errors for as long as the job may stall, each with a message.
    failing: Vec<(FailureSite, String)>,
    /// Whether the latest failure closed the source or the last destination.
    all_closed: bool,
}

impl Recorder {
    pub(super) fn new(context: Arc<Context>, journal: Journal, report: Option<Report>, tally: Tally) -> Self {
        Self { context, journal, report, tally, causes: Causes::default(), failing: Vec::new(), all_closed: false }
    }

    pub(super) async fn record(&self, entry: Entry) -> Result<(), SurveyError> {
        Ok(self.journal.record(entry).await?)
    }

    /// Counts and reports an object that is done. Call [`Recorder::close`] after it.
    pub(super) async fn copied(&mut self, copied: &Copied) {
        let Copied { item, placed, retries, .. } = copied;
        if item.check.is_some() {
            self.tally.survived(item.target);
        } else {
            self.tally.finished(item.target, placed);
        }
        // The run that wrote the object has reported it; if not, its line is added at the end.
        if let Some(report) = self.report.as_ref().filter(|_| item.check.is_none()) {
            let target = &self.context.targets[usize::from(item.target)];
            let proof = ProofNames {
                source: placed.source_proof.name(),
                hop: self.tally.hop_proof(),
                destination: placed.target_proof.name(),
            };
            let line = CopiedLine {
                source: ObjectUrl { root: self.context.source.url(), key: &item.info.key },
                destination: ObjectUrl { root: target.url(), key: &item.target_key },
                size_bytes: item.info.size_bytes,
                proof,
                retries: *retries,
            };
            report.add(&line).await;
        }
    }

    /// Journals an object as done. `written` only for a `mv`, which checks the copy again before it deletes the source.
    pub(super) async fn close(
        &self,
        item: Box<WorkItem>,
        placed: Box<Placed>,
        written: Option<Box<Written>>,
    ) -> Result<(), SurveyError> {
        let fingerprint = fingerprint(&item.info);
        let (target, target_key, size_bytes) = (item.target, item.target_key, item.info.size_bytes);
        self.record(Entry::Closed { target, target_key, fingerprint, size_bytes, unsynced: placed.unsynced, written })
            .await
    }

    pub(super) async fn object_failed(&mut self, item: &WorkItem, failure: &Failure, retries: u64) {
        let (source, destination) = self.context.urls(item);
        let Failure { kind, message, hint, side, .. } = failure.clone();
        self.tally.failed(Some(item.target));
        let site = FailureSite::of(side, Some(item.target));
        self.failed(FailedObject { source, destination, kind, message, hint }, site, retries).await;
    }

    /// Counts an object that the survey found but that cannot be moved, as if it had failed later.
    pub(super) async fn refused(&mut self, failed: FailedObject, target: Option<u16>, bytes: u64) {
        self.tally.found(bytes);
        self.tally.failed(target);
        let site = target.map_or(FailureSite::Source, FailureSite::Target);
        self.failed(failed, site, 0).await;
    }

    /// Records an object that was to be deleted but stays.
    pub(super) async fn not_deleted(&mut self, failed: FailedObject) {
        self.tally.not_deleted += 1;
        self.failed(failed, FailureSite::Elsewhere, 0).await;
    }

    async fn failed(&mut self, failed: FailedObject, site: FailureSite, retries: u64) {
        let failed = FailedObject { hint: failed.hint.map(|hint| self.context.fitting(hint)), ..failed };
        let FailedObject { kind, message, hint, .. } = failed.clone();
        let cause = Cause { site: self.context.closable(site), kind, message, hint };
        if self.causes.failed(cause) && self.nothing_is_open() {
            self.all_closed = true;
        }
        if let Some(report) = &self.report {
            report.add(&ObjectVerdict { retries, ..ObjectVerdict::from(&failed) }).await;
        }
        self.context.events.send(Event::ObjectFailed(failed));
    }

    /// Records that an object of a destination, or a source of a `mv`, is deleted.
    pub(super) async fn deleted(&mut self, destination: String) {
        self.tally.objects_deleted += 1;
        if let Some(report) = &self.report {
            report.add(&ObjectVerdict { destination, verdict: Verdict::Deleted, ..ObjectVerdict::default() }).await;
        }
    }

    /// Records that a request for an object failed, after all its retries.
    pub(super) fn note_trouble(&mut self, target: u16, failure: &Failure, now_ms: u64) {
        let site = self.context.closable(FailureSite::of(failure.side, Some(target)));
        // A store that refuses a conditional write does answer.
        let is_trouble = failure.fault == Fault::Unavailable && !failure.is_unmet();
        if !is_trouble || matches!(site, FailureSite::TargetFiles | FailureSite::Elsewhere) {
            return;
        }
        let patience = self.context.patience();
        if self.causes.unavailable(site, now_ms, patience.as_millis() as u64) {
            let url = self.context.site_url(site);
            self.failing.push((site, crate::lead::survey::answers_only_errors(url, patience, &failure.message)));
        }
    }

    /// Returns the stores to be closed since the last call, each with a message.
    pub(super) fn take_failing(&mut self) -> Vec<(FailureSite, String)> {
        std::mem::take(&mut self.failing)
    }

    /// Returns whether a failure has closed the source or the last destination since the last call.
    pub(super) fn take_all_closed(&mut self) -> bool {
        std::mem::take(&mut self.all_closed)
    }

    pub(super) fn nothing_is_open(&self) -> bool {
        let is_closed = |site| self.causes.closed(site).is_some();
        is_closed(FailureSite::Source)
            || (0..self.context.targets.len()).all(|target| is_closed(FailureSite::Target(target as u16)))
    }

    /// Completes the report. A run that was asked to stop leaves the lines of earlier runs to the next run.
    pub(super) async fn finish_report(&mut self, outcome: Outcome) -> std::io::Result<()> {
        let Some(report) = self.report.take() else { return Ok(()) };
        let completes = self.context.job.resume && outcome != Outcome::Interrupted;
        let completed = if completes {
            super::earlier_runs::report_earlier(&self.context, &self.journal, &report).await
        } else {
            Ok(())
        };
        report.finish().await.and(completed)
    }
}

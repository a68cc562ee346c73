//! What the job has done, kept for three readers: the journal for a later run, the report for the user, and the counts
//! for progress and summary. Nothing is done until it is recorded here.

use super::causes::{Cause, Causes, Place};
use super::context::Context;
use super::doubted::Copied;
use super::tally::Tally;
use crate::lead::journal::{Entry, Journal, fingerprint};
use crate::lead::report::{ObjectVerdict, ProofRecord, Report, Verdict};
use crate::lead::survey::{SurveyError, WorkItem};
use crate::node::work::{Failure, Placed};
use std::sync::Arc;
use tradewind_contract::{Event, FailedObject, Outcome};
use tradewind_store::Written;
use tradewind_wire::Fault;

/// See the module's head.
pub(super) struct Recorder {
    context: Arc<Context>,
    pub(super) journal: Journal,
    report: Option<Report>,
    pub(super) tally: Tally,
    pub(super) causes: Causes,
    /// Stores that have answered nothing but errors for as long as the job may stall, and what to say of each.
    failing: Vec<(Place, String)>,
    /// The latest failure closed the source or the last destination.
    all_closed: bool,
}

impl Recorder {
    pub(super) fn new(context: Arc<Context>, journal: Journal, report: Option<Report>, tally: Tally) -> Self {
        Self { context, journal, report, tally, causes: Causes::default(), failing: Vec::new(), all_closed: false }
    }

    pub(super) async fn record(&self, entry: Entry) -> Result<(), SurveyError> {
        Ok(self.journal.record(entry).await?)
    }

    /// The object is done: it is counted and reported. [`Recorder::close`] comes after it.
    pub(super) async fn copied(&mut self, copied: &Copied) {
        let Copied { item, placed, retries, .. } = copied;
        if item.check.is_some() {
            self.tally.survived(item.target);
        } else {
            self.tally.finished(item.target, placed);
        }
        // The run that wrote it has reported it, or its line is added at the end.
        if let Some(report) = self.report.as_ref().filter(|_| item.check.is_none()) {
            let (source, destination) = self.context.urls(item);
            let proof = ProofRecord {
                source: placed.source_proof.name().to_owned(),
                hop: self.tally.hop_proof().to_owned(),
                destination: placed.target_proof.name().to_owned(),
            };
            let verdict = ObjectVerdict {
                source,
                destination,
                size_bytes: item.info.size_bytes,
                verdict: Verdict::Copied,
                proof: Some(proof),
                retries: *retries,
                ..ObjectVerdict::default()
            };
            report.add(verdict).await;
        }
    }

    /// Journals an object as done. `written` only for a `mv`, which looks at the copy again before it deletes the source.
    pub(super) async fn close(
        &self,
        item: WorkItem,
        placed: Placed,
        written: Option<Written>,
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
        let place = Place::of(side, Some(item.target));
        self.failed(FailedObject { source, destination, kind, message, hint }, place, retries).await;
    }

    /// What the survey found and cannot be moved is counted like what failed later.
    pub(super) async fn refused(&mut self, failed: FailedObject, target: Option<u16>, bytes: u64) {
        self.tally.found(bytes);
        self.tally.failed(target);
        let place = target.map_or(Place::Source, Place::Target);
        self.failed(failed, place, 0).await;
    }

    /// Something that was to be deleted stays.
    pub(super) async fn not_deleted(&mut self, failed: FailedObject) {
        self.tally.not_deleted += 1;
        self.failed(failed, Place::Elsewhere, 0).await;
    }

    async fn failed(&mut self, failed: FailedObject, place: Place, retries: u64) {
        let failed = FailedObject { hint: failed.hint.map(|hint| self.context.fitting(hint)), ..failed };
        let FailedObject { kind, message, hint, .. } = failed.clone();
        let cause = Cause { place: self.context.closable(place), kind, message, hint };
        if self.causes.failed(cause) && self.nothing_is_open() {
            self.all_closed = true;
        }
        if let Some(report) = &self.report {
            report.add(ObjectVerdict { retries, ..ObjectVerdict::from(&failed) }).await;
        }
        self.context.events.send(Event::ObjectFailed(failed));
    }

    /// An object of a destination, or a source of a `mv`, is gone.
    pub(super) async fn deleted(&mut self, destination: String) {
        self.tally.objects_deleted += 1;
        if let Some(report) = &self.report {
            report.add(ObjectVerdict { destination, verdict: Verdict::Deleted, ..ObjectVerdict::default() }).await;
        }
    }

    /// Notes that a request for an object failed, after all its tries.
    pub(super) fn note_trouble(&mut self, target: u16, failure: &Failure, now_ms: u64) {
        let place = self.context.closable(Place::of(failure.side, Some(target)));
        // A store that refuses a write on a condition answers.
        let is_trouble = failure.fault == Fault::Unavailable && !failure.is_unmet();
        if !is_trouble || matches!(place, Place::TargetFiles | Place::Elsewhere) {
            return;
        }
        let patience = self.context.patience();
        if self.causes.unavailable(place, now_ms, patience.as_millis() as u64) {
            let url = self.context.place_url(place);
            self.failing.push((place, crate::lead::survey::answers_only_errors(url, patience, &failure.message)));
        }
    }

    /// The stores to be closed since the last call, and what to say of each.
    pub(super) fn take_failing(&mut self) -> Vec<(Place, String)> {
        std::mem::take(&mut self.failing)
    }

    /// Returns whether a failure has closed the source or the last destination since the last call.
    pub(super) fn take_all_closed(&mut self) -> bool {
        std::mem::take(&mut self.all_closed)
    }

    pub(super) fn nothing_is_open(&self) -> bool {
        let is_closed = |place| self.causes.closed(place).is_some();
        is_closed(Place::Source)
            || (0..self.context.targets.len()).all(|target| is_closed(Place::Target(target as u16)))
    }

    /// Completes the report. A run that was told to stop leaves the lines of earlier runs to the next.
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

//! Handles an object between the end of its write and its completion, and the work it leaves for the end: a second
//! check of its source or copy, uploads to sweep, sources to delete.

use super::context::Context;
use super::doubted::{Copied, LOOKS_AT_ONCE_MAX};
use super::looking::Beginning;
use super::outdated::{Fresh, Outdated, Rechecked, changed, may_be_outdated};
use super::recorder::Recorder;
use super::source_deletions::SourceDeletions;
use super::transfer::ObjectTransfer;
use crate::failure::object_url;
use crate::lead::backlog::Backlog;
use crate::lead::copies::ProvenCopy;
use crate::lead::journal::{Entry, Intent};
use crate::lead::survey::{SurveyError, WorkItem};
use crate::node::work::{Failure, Proof, Side};
use futures::StreamExt;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::FailedObject;
use tradewind_store::{Expect, ObjectInfo, Precondition};
use tradewind_wire::Fault;

/// See the module's documentation.
pub(super) struct Finisher {
    pub(super) context: Arc<Context>,
    pub(super) outdated: Outdated,
    doubted: Backlog<Copied>,
    /// Objects whose upload was requested more than once. They are swept at the end, because an abandoned request may
    /// open another upload after its object is done.
    pub(super) asked_again: Backlog<Intent>,
    /// The sources that a `mv` deletes. `None` for other jobs, and if writing its file failed, so that all sources
    /// stay.
    pub(super) source_deletions: Option<SourceDeletions>,
    /// See [`Places::refuse_overlaps`](crate::lead::places::Places::refuse_overlaps).
    pub(super) proven_apart: Vec<bool>,
}

impl Finisher {
    pub(super) fn new(context: Arc<Context>, dir: Option<&Path>) -> Self {
        Self {
            context,
            outdated: Outdated::new(),
            doubted: Backlog::new(dir),
            asked_again: Backlog::new(dir),
            source_deletions: None,
            proven_apart: Vec::new(),
        }
    }

    /// Remembers the known uploads of an object after the object has ended.
    fn remember_orphans(&mut self, transfer: &mut ObjectTransfer) {
        if transfer.item.orphans_since_unix_ms.is_some() {
            return;
        }
        let Some(intent) = transfer.intent_with_orphans() else { return };
        transfer.item.orphans_since_unix_ms = Some(intent.intent_unix_ms);
        if let Err(error) = self.asked_again.push(&intent) {
            self.context.notice(format!("an unfinished upload of {} may be left behind: {error}", intent.target_key));
        }
    }

    /// Ends a transfer that must start again. Returns the item to load.
    pub(super) fn restarted(&mut self, mut transfer: Box<ObjectTransfer>, recorder: &mut Recorder) -> Box<WorkItem> {
        recorder.tally.unacked(transfer.item.target, transfer.acked_bytes(), transfer.earlier_bytes);
        recorder.tally.retried();
        self.remember_orphans(&mut transfer);
        transfer.item
    }

    /// Ends a transfer that failed. If the copy can be made in another way, returns the item to load and why it begins.
    pub(super) async fn failed(
        &mut self,
        mut transfer: Box<ObjectTransfer>,
        fault: Fault,
        recorder: &mut Recorder,
    ) -> Option<(Box<WorkItem>, Beginning)> {
        recorder.tally.unacked(transfer.item.target, transfer.acked_bytes(), transfer.earlier_bytes);
        self.remember_orphans(&mut transfer);
        if transfer.must_be_moved_again() {
            return Some((Box::new(WorkItem { check: None, ..*transfer.item }), Beginning::First));
        }
        if transfer.may_travel_instead() {
            recorder.tally.retried();
            return Some((Box::new(WorkItem { server_side: false, ..*transfer.item }), Beginning::Again));
        }
        let lost = || Failure::new(fault, "unavailable", "the connection was lost repeatedly");
        let failure = transfer.failure.unwrap_or_else(lost);
        recorder.object_failed(&transfer.item, &failure, transfer.retries).await;
        None
    }

    /// Ends a transfer that is done, or keeps it until it has been checked again.
    pub(super) async fn finished(
        &mut self,
        mut transfer: Box<ObjectTransfer>,
        recorder: &mut Recorder,
    ) -> Result<(), SurveyError> {
        self.remember_orphans(&mut transfer);
        let (server_side, in_parts) = (transfer.item.server_side, transfer.part_bytes.is_some());
        let (acked_bytes, earlier_bytes) = (transfer.acked_bytes(), transfer.earlier_bytes);
        let ObjectTransfer { item, placed: Some(placed), retries, condition, may_restart, upload, .. } = *transfer
        else {
            return Ok(());
        };
        // A check at the end looks at its source, too.
        let is_doubtful = server_side && (in_parts || placed.target_proof == Proof::Length);
        if !is_doubtful && may_be_outdated(&item, !may_restart, &self.context) {
            let acked_bytes = if in_parts { acked_bytes } else { placed.size_bytes };
            let written = Fresh { item, placed, retries, condition, may_restart, acked_bytes, earlier_bytes, upload };
            self.outdated.look(self.context.clone(), written);
            return Ok(());
        }
        let copied = Copied { item, placed, retries, source: is_doubtful.then_some(condition) };
        if is_doubtful || copied.item.may_land_late {
            return self.doubt(&copied);
        }
        self.conclude(copied, recorder).await
    }

    /// Concludes an object whose source is unchanged since it was read. A changed one fails, or is returned to be
    /// copied again unless the job `is_stopping`.
    pub(super) async fn rechecked(
        &mut self,
        rechecked: Rechecked,
        is_stopping: bool,
        recorder: &mut Recorder,
    ) -> Result<Option<Box<WorkItem>>, SurveyError> {
        let Rechecked { fresh, now } = rechecked;
        let failure = match &now {
            Ok(now) => match fresh.condition.difference(now) {
                None => return self.settle(fresh, recorder).await.map(|()| None),
                Some(difference) => {
                    changed(&object_url(self.context.source.as_ref(), &fresh.item.info.key), difference)
                }
            },
            Err(error) => Failure::of_store(error, Side::Source),
        };
        let Fresh { mut item, placed, retries, acked_bytes, earlier_bytes, may_restart, upload, .. } = fresh;
        recorder.tally.unacked(item.target, acked_bytes, earlier_bytes);
        if upload.is_some() {
            // The copy is complete, so the upload cannot be resumed.
            let (target, target_key) = (item.target, item.target_key.clone());
            recorder.record(Entry::Abandoned { target, target_key, upload }).await?;
        }
        if now.is_ok() && may_restart && !is_stopping {
            recorder.tally.retried();
            let own_copy = Precondition::written(&placed.written);
            item.expect = (!own_copy.is_any()).then_some(Expect::Is(Box::new(own_copy)));
            return Ok(Some(item));
        }
        recorder.object_failed(&item, &failure, retries).await;
        Ok(None)
    }

    async fn settle(&mut self, fresh: Fresh, recorder: &mut Recorder) -> Result<(), SurveyError> {
        let Fresh { item, placed, retries, .. } = fresh;
        let copied = Copied { item, placed, retries, source: None };
        if copied.item.may_land_late { self.doubt(&copied) } else { self.conclude(copied, recorder).await }
    }

    /// Keeps an object for a check at the end.
    fn doubt(&mut self, copied: &Copied) -> Result<(), SurveyError> {
        self.doubted.push(copied).map_err(SurveyError::Backlog)
    }

    /// Checks the doubted objects again: concludes those that are right, and fails the others. Call it when no request
    /// is in flight. No check begins after `stop`; unchecked objects are copied again when the job is resumed.
    pub(super) async fn settle_doubted(
        &mut self,
        stop: &CancellationToken,
        recorder: &mut Recorder,
    ) -> Result<(), SurveyError> {
        let (context, doubted) = (self.context.clone(), self.doubted.take().map_err(SurveyError::Backlog)?);
        let looks = futures::stream::iter(doubted.map(|copied| {
            let context = context.clone();
            async move {
                let mut copied = copied.map_err(SurveyError::Backlog)?;
                let verdict = context.look_again(&mut copied).await;
                Ok::<_, SurveyError>((copied, verdict))
            }
        }));
        let mut looks = std::pin::pin!(looks.take_until(stop.cancelled()).buffered(LOOKS_AT_ONCE_MAX));
        while let Some(looked) = looks.next().await {
            let (copied, verdict) = looked?;
            match verdict {
                Ok(()) => self.conclude(copied, recorder).await?,
                Err(failure) => recorder.object_failed(&copied.item, &failure, copied.retries).await,
            }
        }
        Ok(())
    }

    /// Concludes an object that is done.
    async fn conclude(&mut self, copied: Copied, recorder: &mut Recorder) -> Result<(), SurveyError> {
        recorder.copied(&copied).await;
        let Copied { item, placed, .. } = copied;
        let written = self.context.job.delete_source.then(|| placed.written.clone());
        if let Some(written) = written.clone() {
            let (target, key, size_bytes) = (item.target, item.target_key.clone(), item.info.size_bytes);
            self.copied(&item.info, ProvenCopy { target, key, size_bytes, written }, recorder).await;
        }
        recorder.close(item, placed, written.map(Box::new)).await
    }

    /// For `mv`: records that one more destination has the object.
    pub(super) async fn copied(&mut self, source: &ObjectInfo, copy: ProvenCopy, recorder: &mut Recorder) {
        match self.source_deletions.as_mut().map(|deletions| deletions.copied(source, copy)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => recorder.not_deleted(self.versions_differ(source)).await,
            Some(Err(error)) => {
                self.source_deletions = None;
                self.context.notice(format!("sources were not deleted: {error}"));
            }
        }
    }

    /// The failure of a source that changed between the copies to two destinations.
    fn versions_differ(&self, source: &ObjectInfo) -> FailedObject {
        let url = object_url(self.context.source.as_ref(), &source.key);
        let message = "the object was kept: it changed during the copy, and the destinations have different versions";
        FailedObject {
            source: String::new(),
            destination: url.clone(),
            kind: "changed".to_owned(),
            message: format!("delete {url}: {message}"),
            hint: Some("resume the job to copy the latest version everywhere".to_owned()),
        }
    }
}

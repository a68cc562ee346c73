//! Takes objects from the survey to the dispatcher. Some are inspected first, some wait until others are written. Finds
//! the uploads of earlier runs for them.

use super::causes::{Cause, FailureSite};
use super::context::Context;
use super::looking::{Beginning, Extent, Look, Looked, look};
use super::outlook::Outlook;
use super::recorder::Recorder;
use super::transfer::{ObjectTransfer, needs_attributes};
use super::twins::{Twins, judge};
use crate::failure::{distinct_sizes, object_url};
use crate::lead::journal::UnfinishedUpload;
use crate::lead::survey::{SurveyError, Twin, WorkItem};
use crate::node::work::{Failure, Side, UPLOAD_GONE};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;
use tradewind_contract::Event;
use tradewind_store::PartTag;
use tradewind_wire::Fault;

/// Maximum number of objects being inspected (`HEAD`) before they go to the scheduler.
const LOOKS_MAX: usize = 64;
/// Maximum number of objects that start over and are named.
const START_OVER_NOTES_MAX: u64 = 10;
/// Maximum number of copies that a dry run announces.
const DRY_RUN_EVENTS_MAX: u64 = 1000;

/// See the module's documentation.
pub(super) struct Intake {
    context: Arc<Context>,
    /// Uploads of earlier runs that no object has claimed, by destination and key.
    unfinished: HashMap<(u16, String), UnfinishedUpload>,
    looking: usize,
    looked: (mpsc::Sender<Looked>, mpsc::Receiver<Looked>),
    pub(super) outlook: Outlook,
    twins: Twins,
    /// Number of objects whose unfinished upload of an earlier run is of no use.
    started_over: u64,
}

/// The result of admitting an object of the survey.
pub(super) enum Admitted {
    /// It is being inspected, waits, or is finished already.
    Nothing,
    /// Its transfer can begin.
    Transfer(Box<ObjectTransfer>),
    /// It would exceed a ceiling.
    OverCeiling {
        /// The bytes that would be moved, and the user's ceiling.
        message: String,
        /// How to allow more.
        hint: &'static str,
    },
}

impl Intake {
    pub(super) fn new(context: Arc<Context>, unfinished: Vec<UnfinishedUpload>, dir: Option<&Path>) -> Self {
        let by_place = |upload: UnfinishedUpload| ((upload.intent.target, upload.intent.target_key.clone()), upload);
        Self {
            unfinished: unfinished.into_iter().map(by_place).collect(),
            looking: 0,
            looked: mpsc::channel(LOOKS_MAX),
            outlook: Outlook::new(&context.job),
            twins: Twins::new(dir),
            started_over: 0,
            context,
        }
    }

    /// Returns whether another object of the survey can be admitted.
    pub(super) fn has_room(&self) -> bool {
        self.looking < LOOKS_MAX && !self.outlook.is_looking()
    }

    /// Returns whether no object is being inspected.
    pub(super) fn is_idle(&self) -> bool {
        self.looking == 0
    }

    /// Returns the next inspected object.
    pub(super) async fn next(&mut self) -> Option<Looked> {
        self.looked.1.recv().await
    }

    /// Number of uploads of earlier runs that no object has claimed.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    /// Removes and returns the uploads of earlier runs that no object has claimed.
    pub(super) fn take_unfinished(&mut self) -> HashMap<(u16, String), UnfinishedUpload> {
        std::mem::take(&mut self.unfinished)
    }

    /// Admits an object of the survey.
    pub(super) async fn item(&mut self, item: Box<WorkItem>, recorder: &mut Recorder) -> Result<Admitted, SurveyError> {
        match item.twin {
            Some(Twin { is_there: true, .. }) if self.context.job.dry_run => {
                recorder.tally.skipped(item.target, 1);
                return Ok(Admitted::Nothing);
            }
            Some(Twin { is_there: true, .. }) => return self.twins.wait(&item).map(|()| Admitted::Nothing),
            Some(_) | None => recorder.tally.found(item.info.size_bytes),
        }
        if let Some(cause) = recorder.causes.closed(FailureSite::Target(item.target)).cloned() {
            let Cause { kind, message, hint, .. } = cause;
            let failure =
                Failure { fault: Fault::Permanent, kind, message, hint, side: Some(Side::Target), leaves: None };
            recorder.object_failed(&item, &failure, 0).await;
            return Ok(Admitted::Nothing);
        }
        if let Some(over_ceiling) = self.over_ceiling(recorder) {
            return Ok(over_ceiling);
        }
        match item.twin {
            _ if self.context.job.dry_run => self.would_copy(&item, recorder),
            Some(_) => self.twins.wait(&item)?,
            None => return Ok(self.load(item, Beginning::First, recorder)),
        }
        Ok(Admitted::Nothing)
    }

    fn over_ceiling(&self, recorder: &Recorder) -> Option<Admitted> {
        let job = &self.context.job;
        let ceiling = job.listed_bytes_max()?;
        let total = recorder.tally.bytes_total();
        if total <= ceiling {
            return None;
        }
        let least = if recorder.tally.listed { "" } else { "at least " };
        let (option, hint) = match job.ceiling_bytes == Some(ceiling) {
            true => ("--max-bytes", "raise --max-bytes"),
            false => ("--max-cost", "raise --max-cost"),
        };
        let [total, ceiling] = distinct_sizes(total, ceiling);
        let message = format!("{least}{total} would be moved, but {option} allows {ceiling}");
        Some(Admitted::OverCeiling { message, hint })
    }

    fn would_copy(&self, item: &WorkItem, recorder: &Recorder) {
        if recorder.tally.objects_total() <= DRY_RUN_EVENTS_MAX {
            let (source, destination) = self.context.urls(item);
            self.context.events.send(Event::WouldCopy { source, destination, size_bytes: item.info.size_bytes });
        }
    }

    /// Makes a transfer of an object. Inspects the object first if the listing does not have enough data.
    pub(super) fn load(&mut self, item: Box<WorkItem>, beginning: Beginning, recorder: &mut Recorder) -> Admitted {
        if item.twin.is_some() {
            self.begin_judging(item);
            return Admitted::Nothing;
        }
        let looks_at_target = self.outlook.wants_look(&item);
        if item.check.is_some()
            || !looks_at_target && beginning == Beginning::First && !needs_attributes(&item, &self.context)
        {
            let transfer = ObjectTransfer::whole(item, &self.context);
            return Admitted::Transfer(self.ready(transfer, recorder));
        }
        self.looking += 1;
        let (context, looking) = (self.context.clone(), Look::begin(self.looked.0.clone(), &item));
        // Gateways elsewhere check each part themselves.
        let earlier = self.unfinished.get(&(item.target, item.target_key.clone())).filter(|_| self.context.local);
        let earlier = earlier.map(Extent::of);
        tokio::spawn(async move { looking.end(look(item, beginning, earlier, looks_at_target, &context).await) });
        Admitted::Nothing
    }

    fn begin_judging(&mut self, item: Box<WorkItem>) {
        self.looking += 1;
        let (context, looking) = (self.context.clone(), Look::begin(self.looked.0.clone(), &item));
        tokio::spawn(async move { looking.end(judge(item, &context).await) });
    }

    /// Handles an object that was inspected.
    pub(super) async fn looked(&mut self, looked: Looked, recorder: &mut Recorder) -> Admitted {
        self.looking -= 1;
        match looked {
            Looked::Ready(transfer) => {
                if transfer.looked_at_target {
                    self.outlook.looked(transfer.item.target, transfer.item.expect.as_ref());
                }
                Admitted::Transfer(self.ready(transfer, recorder))
            }
            Looked::Judged(judged) => self.judged(judged.0, judged.1, recorder),
            Looked::Failed(failed) => {
                let (item, failure) = *failed;
                if item.twin.is_some_and(|twin| twin.is_there) {
                    recorder.tally.found(item.info.size_bytes);
                }
                self.outlook.not_looked(item.target);
                recorder.object_failed(&item, &failure, 0).await;
                Admitted::Nothing
            }
        }
    }

    /// Handles a twin whose name leads to no object with another name.
    fn judged(&mut self, item: Box<WorkItem>, is_there: bool, recorder: &mut Recorder) -> Admitted {
        if is_there {
            recorder.tally.skipped(item.target, 1);
            return Admitted::Nothing;
        }
        if item.twin.is_some_and(|twin| twin.is_there) {
            recorder.tally.found(item.info.size_bytes);
        }
        self.load(Box::new(WorkItem { twin: None, ..*item }), Beginning::First, recorder)
    }

    /// Gives a transfer the upload of an earlier run, if there is one, and the guess about its destination.
    fn ready(&mut self, mut transfer: Box<ObjectTransfer>, recorder: &mut Recorder) -> Box<ObjectTransfer> {
        if transfer.item.check.is_none()
            && !self.unfinished.is_empty()
            && let place = (transfer.item.target, transfer.item.target_key.clone())
            && let Some(upload) = self.unfinished.get(&place)
            && transfer.resumes(upload)
            && let Some(upload) = self.unfinished.remove(&place)
        {
            let store = &self.context.targets[usize::from(transfer.item.target)];
            let (boot, local) = (store.volatile_boot(), self.context.local);
            // Another program may have changed the temporary file meanwhile, and its bytes must not become the only
            // copy.
            let is_doubtful = transfer.parts_are_doubtful || self.context.job.delete_source;
            let survives = |part: &PartTag| boot.is_none() || local && !is_doubtful && boot == Some(&part.tag);
            transfer.resume_upload(upload, survives);
            recorder.tally.acked_earlier(transfer.item.target, transfer.acked_bytes());
        }
        self.note_start_over(&transfer);
        if transfer.part_bytes.is_some() {
            transfer.recall_orphans();
        }
        if self.outlook.is_free(transfer.item.target) {
            transfer.guess_that_it_is_new();
        }
        transfer
    }

    /// Notes that an object with an unfinished upload of an earlier run is copied from its first byte, and why.
    fn note_start_over(&mut self, transfer: &ObjectTransfer) {
        if self.unfinished.is_empty() {
            return;
        }
        let place = (transfer.item.target, transfer.item.target_key.clone());
        let Some(upload) = self.unfinished.get(&place).filter(|upload| !upload.parts.is_empty()) else { return };
        self.started_over += 1;
        if transfer.item.check.is_some() || self.started_over > START_OVER_NOTES_MAX {
            return;
        }
        let url = object_url(self.context.targets[usize::from(place.0)].as_ref(), &place.1);
        let why = match transfer.part_bytes == Some(upload.intent.chunk_bytes) {
            true => "its source has changed since the earlier run",
            false => "its parts now have another size",
        };
        self.context.notice(format!("{url} starts over: {why}"));
    }

    /// Notes that an object starts over because the upload of an earlier run, which was to be resumed, is of no use.
    pub(super) fn note_upload_gone(&mut self, transfer: &ObjectTransfer) {
        let Some(failure) = transfer.failure.as_ref().filter(|failure| failure.kind == UPLOAD_GONE) else { return };
        if transfer.earlier_bytes == 0 {
            return;
        }
        self.started_over += 1;
        if self.started_over <= START_OVER_NOTES_MAX {
            let (_, url) = self.context.urls(&transfer.item);
            let why = "its unfinished upload cannot be resumed";
            self.context.notice(format!("{url} starts over: {why}: {}", failure.message));
        }
    }

    /// Begins a round of the twins that wait until nothing else is in progress. Returns whether there were any.
    /// `wants_more`: whether the scheduler accepts more objects.
    pub(super) fn begin_round_of_twins(&mut self, wants_more: bool) -> Result<bool, SurveyError> {
        self.twins.begin_round()?;
        self.load_twins(wants_more)?;
        Ok(self.looking > 0)
    }

    /// Starts to inspect as many twins of the round as the limits allow.
    pub(super) fn load_twins(&mut self, wants_more: bool) -> Result<(), SurveyError> {
        while wants_more && self.looking < LOOKS_MAX {
            let Some(item) = self.twins.next(&self.context.targets)? else { break };
            self.begin_judging(item);
        }
        Ok(())
    }
}

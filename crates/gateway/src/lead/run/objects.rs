//! Objects come from the survey, are looked at where that is needed, taken on, and let go as finished or failed.

use super::cargo::{self, Cargo, Prepared};
use super::{DRY_RUN_EVENTS_MAX, Running, Surveying};
use crate::lead::failure::object_url;
use crate::lead::journal::{Entry, fingerprint};
use crate::lead::report::{ObjectVerdict, ProofRecord, Verdict};
use crate::lead::survey::{Found, SurveyError, WorkItem};
use crate::node::work::Failure;
use tradewind_contract::{Event, FailedObject, Outcome};
use tradewind_wire::{Fault, ObjectId};

impl Running {
    pub(super) async fn found(&mut self, found: Option<Found>, surveying: &mut Surveying) {
        match found {
            Some(Found::Item(item)) => self.item(item),
            Some(Found::Skipped { target, objects, bytes }) => self.tally.skipped(target, objects, bytes),
            Some(Found::AlreadyDone { target, objects, bytes }) => self.tally.already_done(target, objects, bytes),
            Some(Found::Refused(failed)) => self.refused(failed).await,
            Some(Found::Listed) => {
                self.tally.listed = true;
                surveying.listed = true;
            }
            None => surveying.listed = true,
        }
    }

    pub(super) fn item(&mut self, item: WorkItem) {
        self.tally.found(item.info.size_bytes);
        if self.setup.job.ceiling_bytes.is_some_and(|ceiling| self.tally.bytes_total() > ceiling) {
            let message = "more bytes are to be moved than the ceiling allows".to_owned();
            return self.stop(Outcome::Ceiling, Some(message), Some("raise --max-bytes or --max-cost"));
        }
        if self.setup.job.dry_run {
            return self.would_copy(&item);
        }
        self.load(item, false);
    }

    pub(super) fn would_copy(&mut self, item: &WorkItem) {
        if self.tally.objects_total() <= DRY_RUN_EVENTS_MAX {
            let (source, destination) = self.urls(item);
            self.setup.events.send(Event::WouldCopy { source, destination, size_bytes: item.info.size_bytes });
        }
    }

    /// Gives an object to the state machine, after a look at it where more must be known than a listing tells.
    pub(super) fn load(&mut self, item: WorkItem, restarted: bool) {
        if !restarted && cargo::is_whole(&item, &self.setup) {
            return self.take_on(Cargo::whole(item, &self.setup));
        }
        self.preparing += 1;
        let (setup, prepared) = (self.setup.clone(), self.prepared.0.clone());
        tokio::spawn(async move {
            let looked = cargo::look(item, restarted, &setup).await;
            // The lead waits for every look it has begun; if it is gone, so is the job.
            prepared.send(looked).await.ok();
        });
    }

    pub(super) async fn prepared(&mut self, prepared: Prepared) {
        self.preparing -= 1;
        match prepared {
            Prepared::Ready(cargo) => self.take_on(*cargo),
            Prepared::Failed(failed) => self.object_failed(&failed.0, &failed.1, 0).await,
        }
    }

    pub(super) fn take_on(&mut self, mut cargo: Cargo) {
        let place = (cargo.item.target, cargo.item.target_key.clone());
        if let Some(upload) = self.unfinished.get(&place)
            && cargo.resumes(upload)
            && let Some(upload) = self.unfinished.remove(&place)
        {
            self.tally.acked(cargo.item.target, upload.parts.iter().map(|part| part.size_bytes).sum());
            cargo.go_on_with(upload);
        }
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        self.lead.add(id, cargo.new_object());
        self.cargo.insert(id, cargo);
    }

    pub(super) async fn ended_badly(&mut self, cargo: Cargo, fault: Fault) {
        if cargo.may_travel_instead() {
            self.tally.retried();
            return self.load(WorkItem { server_side: false, ..cargo.item }, true);
        }
        let lost = || Failure::new(fault, "unavailable", "the way was lost again and again");
        let failure = cargo.failure.unwrap_or_else(lost);
        self.object_failed(&cargo.item, &failure, cargo.retries).await;
    }

    pub(super) async fn finished(&mut self, object: ObjectId) -> Result<(), SurveyError> {
        let Some(Cargo { item, placed: Some(placed), retries, .. }) = self.cargo.remove(&object) else { return Ok(()) };
        self.tally.finished(item.target, &placed);
        let (source, destination) = self.urls(&item);
        if let Some(report) = &self.report {
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
                retries,
                ..ObjectVerdict::default()
            };
            report.add(verdict).await;
        }
        if let Some(Err(error)) = self.moved.as_ref().map(|moved| moved.push(0, &item.info)) {
            self.moved = None;
            self.notice(format!("sources are not deleted: {error}"));
        }
        let fingerprint = fingerprint(&item.info);
        let (target, target_key, size_bytes) = (item.target, item.target_key, item.info.size_bytes);
        Ok(self.journal.record(Entry::Closed { target, target_key, fingerprint, size_bytes }).await?)
    }

    pub(super) async fn object_failed(&mut self, item: &WorkItem, failure: &Failure, retries: u64) {
        let (source, destination) = self.urls(item);
        let Failure { kind, message, hint, .. } = failure.clone();
        self.tally.failed(Some(item.target));
        self.say_failed(FailedObject { source, destination, kind, message, hint }, retries).await;
        if failure.kind == "bucket_not_found" {
            let hint = failure.hint.clone();
            self.stop(Outcome::Failed, Some(failure.message.clone()), hint.as_deref());
        }
    }

    pub(super) async fn refused(&mut self, failed: FailedObject) {
        self.tally.failed(None);
        self.say_failed(failed, 0).await;
    }

    pub(super) async fn say_failed(&mut self, failed: FailedObject, retries: u64) {
        self.tally.failure_kind(&failed.kind);
        if let Some(report) = &self.report {
            report.add(ObjectVerdict { retries, ..ObjectVerdict::from(&failed) }).await;
        }
        self.setup.events.send(Event::ObjectFailed(failed));
    }

    pub(super) fn urls(&self, item: &WorkItem) -> (String, String) {
        let target = &self.setup.targets[usize::from(item.target)];
        (object_url(self.setup.source.as_ref(), &item.source_key), object_url(target.as_ref(), &item.target_key))
    }
}

//! Objects come from the survey, are looked at where that is needed, taken on, and let go as finished or failed.

use super::cargo::{self, Cargo, Prepared};
use super::causes::{Cause, Place};
use super::doubted::Copied;
use super::outdated::Fresh;
use super::{DRY_RUN_EVENTS_MAX, Running, Surveying, twins};
use crate::failure::{hint_for_named, object_url};
use crate::lead::copies::ProvenCopy;
use crate::lead::journal::{Entry, fingerprint};
use crate::lead::report::{ObjectVerdict, ProofRecord, Verdict};
use crate::lead::survey::{Found, SurveyError, Twin, WorkItem};
use crate::node::work::{Failure, Placed, Proof, Side};
use tokio::sync::mpsc;
use tradewind_contract::{Event, FailedObject, Outcome, Selection};
use tradewind_store::{ObjectInfo, PartTag};
use tradewind_wire::{Fault, ObjectId};

/// A look at an object, for which the lead waits. Dropped before its end (its task has panicked), the object failed.
struct Look {
    prepared: mpsc::Sender<Prepared>,
    item: Option<WorkItem>,
}

impl Look {
    fn begin(prepared: mpsc::Sender<Prepared>, item: &WorkItem) -> Self {
        Self { prepared, item: Some(item.clone()) }
    }

    fn end(mut self, looked: Prepared) {
        self.item = None;
        self.tell(looked);
    }

    /// The queue has a place for each look; if the lead is gone, so is the job.
    fn tell(&self, looked: Prepared) {
        self.prepared.try_send(looked).ok();
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            let failure = Failure::new(Fault::Unavailable, "unavailable", "internal error of the gateway; see its log");
            self.tell(Prepared::Failed(Box::new((item, failure))));
        }
    }
}

impl Running {
    pub(super) async fn found(&mut self, found: Option<Found>, surveying: &mut Surveying) -> Result<(), SurveyError> {
        match found {
            Some(Found::Item(item)) => self.item(item).await?,
            Some(Found::Skipped { target, objects, .. }) => self.tally.skipped(target, objects),
            Some(Found::AlreadyDone { target, objects, bytes }) => self.tally.already_done(target, objects, bytes),
            Some(Found::CopiedBefore { source, copy }) => self.copied(&source, copy).await,
            Some(Found::Refused { failed, target, bytes }) => self.refused(failed, target, bytes).await,
            Some(Found::NotListed(failed)) => {
                self.tally.not_deleted += 1;
                self.say_failed(failed, Place::Elsewhere, 0).await;
            }
            Some(Found::LinksSkipped(links)) => self.notice(links_skipped(links)),
            Some(Found::Listed) => {
                self.tally.listed = true;
                surveying.listed = true;
            }
            None => surveying.listed = true,
        }
        Ok(())
    }

    pub(super) async fn item(&mut self, item: WorkItem) -> Result<(), SurveyError> {
        match item.twin {
            Some(Twin::Same) if self.setup.job.dry_run => {
                self.tally.skipped(item.target, 1);
                return Ok(());
            }
            Some(Twin::Same) => return self.wait_for_twin(&item),
            Some(Twin::New) | None => self.tally.found(item.info.size_bytes),
        }
        if let Some(cause) = self.causes.closed(Place::Target(item.target)).cloned() {
            let Cause { kind, message, hint, .. } = cause;
            let failure =
                Failure { fault: Fault::Permanent, kind, message, hint, side: Some(Side::Target), leaves: None };
            self.object_failed(&item, &failure, 0).await;
            return Ok(());
        }
        if let Some(ceiling) = self.setup.job.listed_bytes_max()
            && self.tally.bytes_total() > ceiling
        {
            let least = if self.tally.listed { "" } else { "at least " };
            let total = self.tally.bytes_total();
            let option = if self.setup.job.ceiling_bytes == Some(ceiling) { "--max-bytes" } else { "--max-cost" };
            let message = format!("{least}{total} bytes are to be moved, and {option} allows {ceiling}");
            self.stop(Outcome::Ceiling, Some(message), Some("raise --max-bytes or --max-cost"));
            return Ok(());
        }
        match item.twin {
            _ if self.setup.job.dry_run => self.would_copy(&item),
            Some(_) => self.wait_for_twin(&item)?,
            None => self.load(item, false),
        }
        Ok(())
    }

    pub(super) fn would_copy(&mut self, item: &WorkItem) {
        if self.tally.objects_total() <= DRY_RUN_EVENTS_MAX {
            let (source, destination) = self.urls(item);
            self.setup.events.send(Event::WouldCopy { source, destination, size_bytes: item.info.size_bytes });
        }
    }

    /// Gives an object to the state machine, after a look at it where more must be known than a listing tells.
    pub(super) fn load(&mut self, item: WorkItem, restarted: bool) {
        if item.twin.is_some() {
            self.preparing += 1;
            let (setup, look) = (self.setup.clone(), Look::begin(self.prepared.0.clone(), &item));
            tokio::spawn(async move { look.end(twins::judge(item, &setup).await) });
            return;
        }
        let looks_at_target = self.outlook.wants_look(&item);
        if item.check.is_some() || !looks_at_target && !restarted && cargo::is_whole(&item, &self.setup) {
            return self.take_on(Cargo::whole(item, &self.setup));
        }
        self.preparing += 1;
        let (setup, look) = (self.setup.clone(), Look::begin(self.prepared.0.clone(), &item));
        // Gateways elsewhere look at each part themselves.
        let earlier = self.unfinished.get(&(item.target, item.target_key.clone())).filter(|_| self.local);
        let earlier = earlier.map(cargo::Extent::of);
        tokio::spawn(async move { look.end(cargo::look(item, restarted, earlier, looks_at_target, &setup).await) });
    }

    pub(super) async fn prepared(&mut self, prepared: Prepared) {
        self.preparing -= 1;
        match prepared {
            Prepared::Ready(cargo) => {
                if cargo.looked_at_target {
                    self.outlook.looked(cargo.item.target, cargo.item.expect.as_ref());
                }
                self.take_on(*cargo);
            }
            Prepared::Judged(judged) => self.judged(judged.0, judged.1),
            Prepared::Failed(failed) => {
                if failed.0.twin == Some(Twin::Same) {
                    self.tally.found(failed.0.info.size_bytes);
                }
                self.outlook.not_looked(failed.0.target);
                self.object_failed(&failed.0, &failed.1, 0).await;
            }
        }
    }

    pub(super) fn take_on(&mut self, mut cargo: Cargo) {
        let place = (cargo.item.target, cargo.item.target_key.clone());
        if cargo.item.check.is_none()
            && let Some(upload) = self.unfinished.get(&place)
            && cargo.resumes(upload)
            && let Some(upload) = self.unfinished.remove(&place)
        {
            let store = &self.setup.targets[usize::from(cargo.item.target)];
            let (boot, local) = (store.volatile_boot(), self.local);
            // Bytes that another program wrote into the temporary file meanwhile must not become the only copy.
            let is_doubtful = cargo.parts_are_doubtful || self.setup.job.delete_source;
            let survives = |part: &PartTag| boot.is_none() || local && !is_doubtful && boot == Some(&part.tag);
            cargo.go_on_with(upload, survives);
            self.tally.acked_earlier(cargo.item.target, cargo.acked_bytes());
        }
        if cargo.part_bytes.is_some() {
            cargo.remember_orphans();
        }
        if self.outlook.is_free(cargo.item.target) {
            cargo.guess_that_it_is_new();
        }
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        self.scheduler.add(id, cargo.new_object());
        self.cargo.insert(id, cargo);
    }

    /// Keeps the known uploads of an object after the object has ended.
    pub(super) fn remember_orphans(&mut self, cargo: &mut Cargo) {
        let known = cargo.item.orphans_since_unix_ms.is_some();
        let Some(intent) = cargo.intent_with_orphans().filter(|_| !known) else { return };
        cargo.item.orphans_since_unix_ms = Some(intent.intent_unix_ms);
        if let Err(error) = self.asked_again.push(&intent) {
            self.notice(format!("an unfinished upload of {} may be left behind: {error}", intent.target_key));
        }
    }

    pub(super) async fn ended_badly(&mut self, mut cargo: Cargo, fault: Fault) {
        self.remember_orphans(&mut cargo);
        if cargo.must_be_moved_again() {
            return self.load(WorkItem { check: None, ..cargo.item }, false);
        }
        if cargo.may_travel_instead() {
            self.tally.retried();
            return self.load(WorkItem { server_side: false, ..cargo.item }, true);
        }
        let lost = || Failure::new(fault, "unavailable", "the way was lost again and again");
        let failure = cargo.failure.unwrap_or_else(lost);
        self.object_failed(&cargo.item, &failure, cargo.retries).await;
    }

    pub(super) async fn finished(&mut self, object: ObjectId) -> Result<(), SurveyError> {
        let Some(mut cargo) = self.cargo.remove(&object) else { return Ok(()) };
        self.remember_orphans(&mut cargo);
        let (server_side, in_parts) = (cargo.item.server_side, cargo.part_bytes.is_some());
        let (acked_bytes, earlier_bytes) = (cargo.acked_bytes(), cargo.earlier_bytes);
        let Cargo { item, placed: Some(placed), retries, condition, may_restart, upload, .. } = cargo else {
            return Ok(());
        };
        if self.may_be_outdated(&item) {
            let acked_bytes = if in_parts { acked_bytes } else { placed.size_bytes };
            let written = Fresh { item, placed, retries, condition, may_restart, acked_bytes, earlier_bytes, upload };
            self.outdated.look(self.setup.clone(), written);
            return Ok(());
        }
        let is_doubtful = server_side && (in_parts || placed.target_proof == Proof::Length);
        let copied = Copied { item, placed, retries, source: is_doubtful.then_some(condition) };
        if is_doubtful || copied.item.may_land_late {
            return self.doubt(copied).await;
        }
        self.conclude(copied).await
    }

    /// The object is done: it is counted, reported and journalled.
    pub(super) async fn conclude(&mut self, copied: Copied) -> Result<(), SurveyError> {
        let Copied { item, placed, retries, .. } = copied;
        if item.check.is_some() {
            self.tally.survived(item.target);
        } else {
            self.tally.finished(item.target, &placed);
        }
        let (source, destination) = self.urls(&item);
        // The run that wrote it has reported it, or its line is added at the end.
        if let Some(report) = self.report.as_ref().filter(|_| item.check.is_none()) {
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
        let fingerprint = fingerprint(&item.info);
        let (target, target_key, size_bytes) = (item.target, item.target_key, item.info.size_bytes);
        let Placed { written, unsynced, .. } = placed;
        let written = self.setup.job.delete_source.then_some(written);
        if let Some(written) = written.clone() {
            let copy = ProvenCopy { target, key: target_key.clone(), size_bytes, written };
            self.copied(&item.info, copy).await;
        }
        let closed = Entry::Closed { target, target_key, fingerprint, size_bytes, unsynced, written };
        Ok(self.journal.record(closed).await?)
    }

    /// For `mv`: one more destination has the object.
    async fn copied(&mut self, source: &ObjectInfo, copy: ProvenCopy) {
        match self.moved.as_mut().map(|moved| moved.copied(source, copy)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => self.kept(source).await,
            Some(Err(error)) => {
                self.moved = None;
                self.notice(format!("sources are not deleted: {error}"));
            }
        }
    }

    /// A source was written again between the copies to two destinations.
    async fn kept(&mut self, source: &ObjectInfo) {
        self.tally.not_deleted += 1;
        let url = object_url(self.setup.source.as_ref(), &source.key);
        let message =
            "the object was written again while it was copied; destinations have different versions, so it stays";
        let failed = FailedObject {
            source: String::new(),
            destination: url.clone(),
            kind: "changed".to_owned(),
            message: format!("delete {url}: {message}"),
            hint: Some("resume the job to copy the latest version everywhere".to_owned()),
        };
        self.say_failed(failed, Place::Elsewhere, 0).await;
    }

    pub(super) async fn object_failed(&mut self, item: &WorkItem, failure: &Failure, retries: u64) {
        let (source, destination) = self.urls(item);
        let Failure { kind, message, hint, side, .. } = failure.clone();
        self.tally.failed(Some(item.target));
        let place = Place::of(side, Some(item.target));
        self.say_failed(FailedObject { source, destination, kind, message, hint }, place, retries).await;
    }

    /// What the survey found and cannot be moved is counted like what failed on its way.
    async fn refused(&mut self, failed: FailedObject, target: Option<u16>, bytes: u64) {
        self.tally.found(bytes);
        self.tally.failed(target);
        let place = target.map_or(Place::Source, Place::Target);
        self.say_failed(failed, place, 0).await;
    }

    pub(super) async fn say_failed(&mut self, failed: FailedObject, place: Place, retries: u64) {
        let failed = FailedObject { hint: failed.hint.map(|hint| self.fitting(hint)), ..failed };
        let FailedObject { kind, message, hint, .. } = failed.clone();
        if self.causes.failed(Cause { place: self.closable(place), kind, message, hint }) && self.nothing_is_open() {
            self.stop_closed();
        }
        if let Some(report) = &self.report {
            report.add(ObjectVerdict { retries, ..ObjectVerdict::from(&failed) }).await;
        }
        self.setup.events.send(Event::ObjectFailed(failed));
    }

    /// Advice without a filter where the job has one object, which was named.
    fn fitting(&self, hint: String) -> String {
        match self.setup.job.selection {
            Selection::Object { .. } => hint_for_named(&hint).to_owned(),
            _ => hint,
        }
    }

    /// Of files each has rights of its own: what is forbidden there says nothing of the others.
    pub(super) fn closable(&self, place: Place) -> Place {
        match place {
            _ if !self.place_url(place).starts_with("file:") => place,
            Place::Target(_) => Place::TargetFiles,
            _ => Place::Elsewhere,
        }
    }

    pub(super) fn nothing_is_open(&self) -> bool {
        let is_closed = |place| self.causes.closed(place).is_some();
        is_closed(Place::Source) || (0..self.setup.targets.len()).all(|target| is_closed(Place::Target(target as u16)))
    }

    /// The store's URL; empty for no store.
    pub(super) fn place_url(&self, place: Place) -> &str {
        match place {
            Place::Source => self.setup.source.url(),
            Place::Target(target) => self.setup.targets[usize::from(target)].url(),
            Place::TargetFiles | Place::Elsewhere => "",
        }
    }

    pub(super) fn urls(&self, item: &WorkItem) -> (String, String) {
        let target = &self.setup.targets[usize::from(item.target)];
        (object_url(self.setup.source.as_ref(), &item.source_key), object_url(target.as_ref(), &item.target_key))
    }
}

fn links_skipped(links: u64) -> String {
    let what = if links == 1 { "1 symbolic link".to_owned() } else { format!("{links} symbolic links") };
    format!("{what} skipped; --follow-symlinks copies what they point to")
}

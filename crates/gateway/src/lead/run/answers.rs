//! What came back from sources and sinks, told to the state machine and the journal.

use super::Running;
use crate::lead::journal::Entry;
use crate::lead::survey::SurveyError;
use crate::node::work::{Failure, Leaves, Placed, Side, SinkReply, parse_exactly};
use tradewind_wire::frame::{Reply, Verdict as ReplyVerdict};
use tradewind_wire::scheduler::Work;
use tradewind_wire::{Fault, ObjectId, RequestId};

impl Running {
    pub(super) async fn answer(&mut self, reply: Reply) -> Result<(), SurveyError> {
        let Reply { request, verdict } = reply;
        // Late: the request was given up, and another try of it is or was under way.
        let Some(work) = self.scheduler.work(request).cloned() else { return Ok(()) };
        let failure = match verdict {
            ReplyVerdict::Sink(words) => match parse_exactly::<SinkReply>(&words) {
                Some(SinkReply::Failed(failure)) => failure,
                Some(answer) => return self.sink_answer(request, work, answer).await,
                None => Failure::mismatch("a sink's answer does not parse"),
            },
            ReplyVerdict::Failed { fault, kind, message, unsent } => {
                if unsent {
                    self.scheduler.unsent(request);
                }
                Failure::new(fault, &kind, message)
            }
        };
        if self.is_as_good_as_down(&failure) {
            self.out_of_reach(request, &work, failure);
            return Ok(());
        }
        for object in work.objects() {
            self.note_trouble(object, &failure);
            if let Some(cargo) = self.cargo.get_mut(&object) {
                if let Work::Part { part, .. } = work
                    && failure.is_lost()
                    && cargo.unsynced.remove(&part).is_some()
                {
                    self.scheduler.must_carry(object, part);
                }
                if failure.is_unmet() && cargo.is_guess {
                    self.outlook.guessed_wrong(cargo.item.target);
                }
                cargo.failed(failure.clone());
                if matches!(failure.leaves.as_deref(), Some(Leaves::NoUpload))
                    && let Some(entry) = cargo.not_opened()
                {
                    self.journal.record(entry).await?;
                }
            }
        }
        self.scheduler.failed(request, failure.fault, self.clock.now_ms());
        Ok(())
    }

    pub(super) async fn sink_answer(
        &mut self,
        request: RequestId,
        work: Work,
        answer: SinkReply,
    ) -> Result<(), SurveyError> {
        match (work, answer) {
            (Work::Bundle(objects), SinkReply::Bundle(verdicts)) if objects.len() == verdicts.len() => {
                if let Some(Err(failure)) = verdicts.first()
                    && verdicts.iter().all(|verdict| self.is_as_good_as_down_by(verdict))
                {
                    self.out_of_reach(request, &Work::Bundle(objects), failure.clone());
                    return Ok(());
                }
                for (object, verdict) in objects.into_iter().zip(verdicts) {
                    self.member(request, object, verdict);
                }
            }
            (Work::Part { object, part, .. }, SinkReply::Part(tag)) if tag.part == part => {
                if let Some(cargo) = self.cargo.get_mut(&object) {
                    if cargo.unsynced.remove(&tag.part).is_some() {
                        cargo.earlier_bytes += tag.size_bytes;
                        self.tally.acked_earlier(cargo.item.target, tag.size_bytes);
                    } else {
                        self.tally.acked(cargo.item.target, tag.size_bytes);
                    }
                    self.causes.done(cargo.item.target);
                    let entry = Entry::Part {
                        target: cargo.item.target,
                        target_key: cargo.item.target_key.clone(),
                        part: tag.clone(),
                    };
                    cargo.tags.insert(tag.part, tag);
                    self.journal.record(entry).await?;
                }
                self.scheduler.done(request, object);
            }
            (Work::Open(object), SinkReply::Opened { upload, asked_again }) => {
                if let Some(cargo) = self.cargo.get_mut(&object) {
                    let (target, target_key) = (cargo.item.target, cargo.item.target_key.clone());
                    cargo.upload = Some(upload.clone());
                    if asked_again {
                        cargo.may_have_orphans();
                    }
                    let has_unnamed = cargo.sweep_since_unix_ms().is_some();
                    self.journal.record(Entry::Opened { target, target_key, upload, has_unnamed }).await?;
                }
                self.scheduler.done(request, object);
            }
            (Work::Close(object), SinkReply::Closed(placed)) => {
                if let Some(cargo) = self.cargo.get_mut(&object) {
                    cargo.placed = Some(placed);
                }
                self.scheduler.done(request, object);
            }
            (Work::Abort(object), SinkReply::Aborted) => {
                if let Some(cargo) = self.cargo.get(&object) {
                    let (target, target_key) = (cargo.item.target, cargo.item.target_key.clone());
                    let upload = cargo.upload.clone();
                    self.journal.record(Entry::Abandoned { target, target_key, upload }).await?;
                }
                self.scheduler.done(request, object);
            }
            _ => {
                self.scheduler.failed(request, Fault::Permanent, self.clock.now_ms());
                return Ok(());
            }
        }
        self.scheduler.answered(request, None, self.clock.now_ms());
        self.unreachable = None;
        Ok(())
    }

    fn is_as_good_as_down_by(&self, verdict: &Result<Placed, Failure>) -> bool {
        verdict.as_ref().is_err_and(|failure| self.is_as_good_as_down(failure))
    }

    /// Whether a route is of no use while this lasts: the one store at one of its ends is out of reach from there. Of
    /// several destinations the others can still be written.
    fn is_as_good_as_down(&self, failure: &Failure) -> bool {
        failure.is_out_of_reach() && (failure.side != Some(Side::Target) || self.setup.targets.len() == 1)
    }

    fn out_of_reach(&mut self, request: RequestId, work: &Work, failure: Failure) {
        for object in work.objects() {
            if let Some(cargo) = self.cargo.get_mut(&object) {
                cargo.failed(failure.clone());
            }
        }
        self.unreachable = Some(failure.message);
        self.scheduler.out_of_reach(request, self.clock.now_ms());
    }

    pub(super) fn member(&mut self, request: RequestId, object: ObjectId, verdict: Result<Placed, Failure>) {
        if let Err(failure) = &verdict {
            self.note_trouble(object, failure);
        }
        let Some(cargo) = self.cargo.get_mut(&object) else { return };
        let verdict = verdict.and_then(|placed| match placed.size_bytes == cargo.item.info.size_bytes {
            true => Ok(placed),
            false => Err(Failure::mismatch("a sink's answer speaks of another length than the object's")),
        });
        match verdict {
            Ok(placed) => {
                if cargo.item.check.is_some() {
                    self.tally.acked_earlier(cargo.item.target, placed.size_bytes);
                } else {
                    self.tally.acked(cargo.item.target, placed.size_bytes);
                }
                self.causes.done(cargo.item.target);
                cargo.placed = Some(placed);
                self.scheduler.done(request, object);
            }
            Err(failure) => {
                // To look at it again would show the same: it is moved instead.
                let fault = if failure.is_lost() { Fault::Permanent } else { failure.fault };
                if failure.is_unmet() && cargo.is_guess {
                    self.outlook.guessed_wrong(cargo.item.target);
                }
                cargo.failed(failure);
                self.scheduler.fault(request, object, fault);
            }
        }
    }
}

//! Handles the replies of sources and sinks: tells the scheduler what is done and what failed, and the recorder what to
//! keep.

use super::dispatcher::Dispatcher;
use super::outlook::Outlook;
use super::recorder::Recorder;
use crate::failure::read_hint;
use crate::lead::journal::Entry;
use crate::lead::survey::SurveyError;
use crate::node::hop_reports::HopReport;
use crate::node::load::{Answer, StageAt, StageLoad};
use crate::node::work::{Failure, Leaves, Placed, Side, SinkAnswer, SinkReply, parse_exactly};
use tokio::time::Instant;
use tradewind_contract::{Comparison, Event, Stage};
use tradewind_store::PartTag;
use tradewind_wire::frame::{Reply, Verdict as ReplyVerdict};
use tradewind_wire::scheduler::Work;
use tradewind_wire::{Fault, ObjectId, RequestId};

impl Dispatcher {
    pub(super) async fn answer(
        &mut self,
        reply: Reply,
        recorder: &mut Recorder,
        outlook: &mut Outlook,
    ) -> Result<(), SurveyError> {
        let Reply { request, verdict } = reply;
        // A late answer: the request has been abandoned, and another attempt at it is or was in progress.
        let Some(work) = self.scheduler.work(request).cloned() else { return Ok(()) };
        let is_unsent = matches!(verdict, ReplyVerdict::Failed { unsent: true, .. });
        let failure = match verdict {
            ReplyVerdict::Sink(words) => match parse_exactly::<Answer>(&words) {
                Some(Answer { mut sink, source }) => {
                    [sink.load.take(), source].into_iter().flatten().for_each(|load| self.heard_of_limits(load));
                    match sink.reply {
                        SinkReply::Failed(failure) => failure,
                        _ => return self.sink_answer(request, work, sink, recorder, outlook).await,
                    }
                }
                None => Failure::mismatch("a sink's answer does not parse"),
            },
            ReplyVerdict::Failed { fault, kind, message, .. } => {
                if is_unsent {
                    self.scheduler.unsent(request);
                    // A source that could read would have sent something.
                    if fault == Fault::Unavailable {
                        self.limits.answered(Some(Stage::Read));
                    }
                } else {
                    self.lost(request);
                }
                Failure { hint: read_hint(&kind).map(str::to_owned), ..Failure::new(fault, &kind, message) }
            }
        };
        if let Some(route) = self.scheduler.route_of(request) {
            self.down.failed(route, &failure, self.clock.now_ms());
        }
        if let Some(stage) = failing_stage(&failure) {
            self.limits.answered(Some(stage));
        }
        if self.makes_route_useless(&failure) {
            self.store_unreachable(request, &work, failure);
            return Ok(());
        }
        let never_replaces = self.context.job.compare == Some(Comparison::Existing);
        let failure = if never_replaces { failure.keeping_existing() } else { failure };
        self.objects_failed(request, &work, &failure, is_unsent, recorder, outlook).await?;
        self.scheduler.failed(request, failure.fault, self.clock.now_ms());
        Ok(())
    }

    /// Notes the failure of a request in each of its objects that no other request of the same work may still carry.
    async fn objects_failed(
        &mut self,
        request: RequestId,
        work: &Work,
        failure: &Failure,
        is_unsent: bool,
        recorder: &mut Recorder,
        outlook: &mut Outlook,
    ) -> Result<(), SurveyError> {
        for object in work.objects() {
            if !self.scheduler.is_last(request, object) {
                continue;
            }
            let Some(transfer) = self.transfers.get_mut(object) else { continue };
            recorder.note_trouble(transfer.item.target, failure, self.clock.now_ms());
            if let Work::Part { part, .. } = work
                && failure.is_lost()
                && transfer.unsynced.remove(part).is_some()
            {
                self.scheduler.must_carry(object, *part);
            }
            if failure.is_unmet() && transfer.is_guess {
                outlook.guessed_wrong(transfer.item.target);
            }
            if is_unsent {
                transfer.failed_unsent(failure.clone());
            } else {
                transfer.failed(failure.clone());
            }
            if matches!(failure.leaves.as_deref(), Some(Leaves::NoUpload))
                && let Some(entry) = transfer.not_opened()
            {
                recorder.record(entry).await?;
            }
        }
        Ok(())
    }

    fn heard_of_limits(&mut self, load: StageLoad) {
        let url_of = |at: &StageAt| match at {
            StageAt::Read => self.context.source.url().to_owned(),
            StageAt::Network { peer } => peer.clone(),
            StageAt::Write { target } => {
                self.context.targets.get(usize::from(*target)).map_or_else(String::new, |store| store.url().to_owned())
            }
        };
        for change in self.limits.heard(load, Instant::now(), url_of) {
            self.context.events.send(Event::LimitChanged(change));
        }
    }

    /// Keeps what relays report about their hops.
    pub(super) fn heard_of_hops(&mut self, reports: Vec<HopReport>) {
        for change in reports.into_iter().flat_map(|report| self.limits.heard_from_relay(report, Instant::now())) {
            self.context.events.send(Event::LimitChanged(change));
        }
    }

    async fn sink_answer(
        &mut self,
        request: RequestId,
        work: Work,
        answer: SinkAnswer,
        recorder: &mut Recorder,
        outlook: &mut Outlook,
    ) -> Result<(), SurveyError> {
        let SinkAnswer { reply, saved_bytes, deduplicated_bytes, .. } = answer;
        self.limits.answered(failing_bundle(&reply));
        if let Some(route) = self.scheduler.route_of(request) {
            self.down.intact(route);
        }
        match (work, reply) {
            (Work::Part { object, .. } | Work::Open(object) | Work::Close(object), _)
                if !self.scheduler.awaits(request, object) => {}
            (Work::Bundle(objects), SinkReply::Bundle(verdicts)) if objects.len() == verdicts.len() => {
                if let Some(Err(failure)) = verdicts.first()
                    && verdicts.iter().all(|verdict| self.makes_route_useless_by(verdict))
                {
                    self.store_unreachable(request, &Work::Bundle(objects), failure.clone());
                    return Ok(());
                }
                for (object, verdict) in objects.into_iter().zip(verdicts) {
                    self.member(request, object, verdict, recorder, outlook);
                }
            }
            (Work::Part { object, part, .. }, SinkReply::Part(tag)) if tag.part == part => {
                self.part_done(object, tag, recorder).await?;
                self.scheduler.done(request, object);
            }
            (Work::Open(object), SinkReply::Opened { upload, asked_again, tags_dropped }) => {
                if let Some(transfer) = self.transfers.get_mut(object) {
                    let (target, target_key) = (transfer.item.target, transfer.item.target_key.clone());
                    transfer.upload = Some(upload.clone());
                    if tags_dropped {
                        transfer.drop_tags();
                    }
                    if asked_again {
                        transfer.may_have_orphans();
                    }
                    let has_unnamed = transfer.sweep_since_unix_ms().is_some();
                    recorder.record(Entry::Opened { target, target_key, upload, has_unnamed }).await?;
                }
                self.scheduler.done(request, object);
            }
            (Work::Close(object), SinkReply::Closed(placed)) => {
                if let Some(transfer) = self.transfers.get_mut(object) {
                    transfer.placed = Some(placed);
                }
                self.scheduler.done(request, object);
            }
            (Work::Abort(object), SinkReply::Aborted) => {
                if let Some(transfer) = self.transfers.get(object) {
                    let (target, target_key) = (transfer.item.target, transfer.item.target_key.clone());
                    let upload = transfer.upload.clone();
                    recorder.record(Entry::Abandoned { target, target_key, upload }).await?;
                }
                self.scheduler.done(request, object);
            }
            _ => {
                self.scheduler.failed(request, Fault::Permanent, self.clock.now_ms());
                return Ok(());
            }
        }
        self.scheduler.saved(request, saved_bytes, deduplicated_bytes);
        self.scheduler.answered(request, None, self.clock.now_ms());
        self.unreachable = None;
        Ok(())
    }

    async fn part_done(&mut self, object: ObjectId, tag: PartTag, recorder: &mut Recorder) -> Result<(), SurveyError> {
        let Some(transfer) = self.transfers.get_mut(object) else { return Ok(()) };
        let (target, target_key) = (transfer.item.target, transfer.item.target_key.clone());
        if transfer.unsynced.remove(&tag.part).is_some() {
            transfer.earlier_bytes += tag.size_bytes;
            recorder.tally.acked_earlier(target, tag.size_bytes);
        } else {
            recorder.tally.acked(target, tag.size_bytes);
        }
        recorder.causes.done(target);
        transfer.parts.insert(tag.part, tag.clone());
        recorder.record(Entry::Part { target, target_key, part: tag }).await
    }

    fn makes_route_useless_by(&self, verdict: &Result<Placed, Failure>) -> bool {
        verdict.as_ref().is_err_and(|failure| self.makes_route_useless(failure))
    }

    /// Returns whether the failure makes its route useless while it lasts: the only store at one end of the route is
    /// unreachable from there. If one of several destinations is unreachable, the others can still be written.
    fn makes_route_useless(&self, failure: &Failure) -> bool {
        failure.is_out_of_reach() && (failure.side != Some(Side::Target) || self.context.targets.len() == 1)
    }

    fn store_unreachable(&mut self, request: RequestId, work: &Work, failure: Failure) {
        for object in work.objects() {
            if self.scheduler.is_last(request, object)
                && let Some(transfer) = self.transfers.get_mut(object)
            {
                transfer.failed(failure.clone());
            }
        }
        self.unreachable = Some(failure.message);
        self.scheduler.out_of_reach(request, self.clock.now_ms());
    }

    fn member(
        &mut self,
        request: RequestId,
        object: ObjectId,
        verdict: Result<Placed, Failure>,
        recorder: &mut Recorder,
        outlook: &mut Outlook,
    ) {
        if !self.scheduler.awaits(request, object) {
            return;
        }
        if verdict.is_err() && !self.scheduler.is_last(request, object) {
            return self.scheduler.fault(request, object, Fault::Unavailable);
        }
        let Some(transfer) = self.transfers.get_mut(object) else { return };
        if let Err(failure) = &verdict {
            recorder.note_trouble(transfer.item.target, failure, self.clock.now_ms());
        }
        let verdict = verdict.and_then(|placed| match placed.size_bytes == transfer.item.info.size_bytes {
            true => Ok(placed),
            false => Err(Failure::mismatch("a sink's answer states a different length than the object's")),
        });
        match verdict {
            Ok(placed) => {
                if transfer.item.check.is_some() {
                    recorder.tally.acked_earlier(transfer.item.target, placed.size_bytes);
                } else {
                    recorder.tally.acked(transfer.item.target, placed.size_bytes);
                }
                recorder.causes.done(transfer.item.target);
                transfer.placed = Some(Box::new(placed));
                self.scheduler.done(request, object);
            }
            Err(failure) => {
                let failure = if transfer.never_replaces { failure.keeping_existing() } else { failure };
                // Another check would have the same result, so the object is transferred again instead.
                let fault = if failure.is_lost() { Fault::Permanent } else { failure.fault };
                if failure.is_unmet() && transfer.is_guess {
                    outlook.guessed_wrong(transfer.item.target);
                }
                transfer.failed(failure);
                self.scheduler.fault(request, object, fault);
            }
        }
    }
}

/// The stage at whose store a request failed; `None` if it failed elsewhere, or the store only refused it.
fn failing_stage(failure: &Failure) -> Option<Stage> {
    let stage = match failure.side? {
        Side::Source => Stage::Read,
        Side::Target => Stage::Write,
    };
    (failure.fault == Fault::Unavailable && !failure.is_unmet()).then_some(stage)
}

/// The stage at which all objects of a bundle failed.
fn failing_bundle(reply: &SinkReply) -> Option<Stage> {
    let SinkReply::Bundle(verdicts) = reply else { return None };
    let is_failing = verdicts.iter().all(|verdict| verdict.as_ref().is_err_and(|why| failing_stage(why).is_some()));
    let first = verdicts.first().filter(|_| is_failing)?;
    first.as_ref().err().and_then(failing_stage)
}

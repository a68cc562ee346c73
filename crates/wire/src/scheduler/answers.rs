//! Answers: what a reply says of each object in its request, what a fault means, and requests that nobody answers.

use super::ready::{PartAgain, Tries};
use super::work::{Action, Work};
use super::{End, Flight, LOSSES_MAX, Phase, SLOWEST_BYTES_PER_S, Scheduler, TRIES_MAX};
use crate::{Fault, ObjectId, RequestId, RouteId};

/// One object's share of a request, removed from the scheduler's records when it is reported on.
struct Report {
    route: RouteId,
    bytes: u64,
    kind: Kind,
    tries: Tries,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Part(u32),
    Bundle,
    Close,
    Abort,
}

/// Consequence of a fault.
enum Next {
    Again(Tries),
    End(End),
}

impl Scheduler {
    /// Records `object`'s share of `request` as done (durable, opened, closed and proven, or aborted). Call it once per
    /// object of a bundle, then [`Scheduler::answered`]. A reply to a request that is no longer in flight is ignored.
    pub fn done(&mut self, request: RequestId, object: ObjectId) {
        let Some(report) = self.take_report(request, object, true) else { return };
        match report.kind {
            Kind::Open => self.begin_parts(object),
            Kind::Part(_) => self.part_done(object, report.bytes),
            Kind::Bundle | Kind::Close => {
                self.forget(object);
                self.out.push_back(Action::Finished(object));
            }
            Kind::Abort => self.upload_left(object),
        }
    }

    /// Records `object`'s share of `request` as not done. Call it once per object of a bundle, then
    /// [`Scheduler::answered`].
    pub fn fault(&mut self, request: RequestId, object: ObjectId, fault: Fault) {
        let Some(report) = self.take_report(request, object, false) else { return };
        if report.kind == Kind::Abort {
            return self.abort_failed(object, report.tries, fault);
        }
        if self.objects.get(object).is_some_and(|object| matches!(object.phase, Phase::Ending { .. })) {
            return self.settle(object);
        }
        match self.verdict(object, &report, fault) {
            Next::Again(tries) => {
                if let Some(flight) = self.flights.get_mut(&request) {
                    flight.again = true;
                }
                self.again(object, report.kind, tries);
            }
            Next::End(end) => self.begin_end(object, end),
        }
    }

    /// Records that `part` of `object` was checked and is not as an earlier run left it: its next attempt carries the
    /// bytes. Call it before the request's [`Scheduler::answered`] or [`Scheduler::failed`].
    pub fn must_carry(&mut self, object: ObjectId, part: u32) {
        let Some(object) = self.objects.get_mut(object) else { return };
        let bytes = object.new.must_carry(part);
        object.owed_bytes += bytes;
        self.shares.listed(bytes);
    }

    /// Records that no byte of `request` left its source for certain, and refunds its cost. Call it before the
    /// request's [`Scheduler::answered`] or [`Scheduler::failed`].
    pub fn unsent(&mut self, request: RequestId) {
        let Some(flight) = self.flights.get_mut(&request) else { return };
        self.shares.unsent(flight.route, std::mem::take(&mut flight.paid_bytes));
    }

    /// Records that `bytes` of `request`, at most all that it carries, did not have to be sent, and refunds their cost.
    /// Deduplication saved `deduplicated_bytes` of them, and compression the others. Call it before
    /// [`Scheduler::answered`] without a fault.
    pub fn saved(&mut self, request: RequestId, bytes: u64, deduplicated_bytes: u64) {
        let Some(flight) = self.flights.get(&request) else { return };
        let bytes = bytes.min(flight.paid_bytes);
        self.shares.saved(flight.route, bytes, deduplicated_bytes.min(bytes));
    }

    /// Ends the request after all its objects have been reported on: it is no longer in flight. An object that has not
    /// been reported on counts as not done.
    pub fn answered(&mut self, request: RequestId, fault: Option<Fault>, now_ms: u64) {
        let Some(flight) = self.flights.get(&request) else { return };
        for object in flight.work.objects() {
            self.fault(request, object, fault.unwrap_or(Fault::Unavailable));
        }
        let Some(flight) = self.flights.remove(&request) else { return };
        self.landed(&flight);
        self.count_retry(&flight, fault);
        if !matches!(fault, Some(Fault::Lost | Fault::RouteDown)) {
            self.shares.answered(flight.route, now_ms);
        }
        match fault {
            None => {
                self.done_ms = Some(now_ms);
                self.is_out_of_reach = false;
            }
            Some(Fault::Lost | Fault::RouteDown) => {}
            Some(_) => self.is_out_of_reach = false,
        }
        let recovered = match fault {
            None | Some(Fault::Permanent | Fault::Changed | Fault::UploadGone) => {
                self.shares.acked(flight.route, flight.bytes, flight.sent_ms, now_ms);
                match flight.superseded {
                    true => self.shares.refused(flight.route, flight.bytes),
                    false => self.shares.done(flight.route, flight.bytes),
                }
            }
            Some(Fault::Unavailable | Fault::Corrupt | Fault::Refused) => {
                self.shares.refused(flight.route, flight.bytes)
            }
            Some(Fault::Lost | Fault::RouteDown) => {
                self.shares.undone(flight.route, flight.bytes);
                if self.shares.rest(flight.route, now_ms) {
                    self.out.push_back(Action::RouteDown(flight.route));
                }
                return;
            }
        };
        self.moved_ms = now_ms;
        self.stuck_since_ms = None;
        if recovered {
            self.out.push_back(Action::RouteUp(flight.route));
        }
    }

    fn count_retry(&mut self, flight: &Flight, fault: Option<Fault>) {
        let is_losing = self.losing.contains(&flight.route);
        let is_lost = matches!(fault, Some(Fault::Lost | Fault::RouteDown));
        if flight.again && !(is_lost && is_losing) {
            self.retries += 1;
        }
        if is_lost && !is_losing {
            self.losing.push(flight.route);
        } else if !is_lost {
            self.losing.retain(|route| *route != flight.route);
        }
    }

    /// Handles a request of which nothing was done because a gateway at one end of its route could not reach the store.
    /// The route then counts as down: it rests, and when no route is left the job stalls and can be resumed later. If
    /// any work was done since the request was sent, the store is reachable, and the fault concerns the request's
    /// objects.
    pub fn out_of_reach(&mut self, request: RequestId, now_ms: u64) {
        let Some(flight) = self.flights.get(&request) else { return };
        let fault = match self.done_ms.is_some_and(|done_ms| done_ms >= flight.sent_ms) {
            true => Fault::Unavailable,
            false => Fault::Lost,
        };
        self.answered(request, Some(fault), now_ms);
        self.is_out_of_reach = fault == Fault::Lost;
    }

    /// Handles a request of which nothing was done: every object in it has the same fault.
    pub fn failed(&mut self, request: RequestId, fault: Fault, now_ms: u64) {
        self.answered(request, Some(fault), now_ms);
    }

    /// Returns the requests without an answer after `limit_ms` plus the time that the bytes in flight on their route
    /// take at [`SLOWEST_BYTES_PER_S`]. The caller ends each with [`Scheduler::give_up`].
    pub fn overdue(&self, now_ms: u64, limit_ms: u64) -> Vec<RequestId> {
        let is_overdue = |flight: &Flight| {
            let moving_ms = flight.queued_bytes.saturating_mul(1000) / SLOWEST_BYTES_PER_S;
            now_ms.saturating_sub(flight.sent_ms) > limit_ms.saturating_add(moving_ms)
        };
        let mut overdue: Vec<RequestId> =
            self.flights.iter().filter(|(_, flight)| is_overdue(flight)).map(|(request, _)| *request).collect();
        overdue.sort_unstable();
        overdue
    }

    /// Stops waiting for an overdue request. Its objects lose one attempt, as if a store had failed, so that a route
    /// that swallows requests cannot block a job forever. The route rests, as if the request were lost.
    pub fn give_up(&mut self, request: RequestId, now_ms: u64) {
        let Some(flight) = self.flights.get(&request) else { return };
        for object in flight.work.objects() {
            self.fault(request, object, Fault::Unavailable);
        }
        self.answered(request, Some(Fault::Lost), now_ms);
    }

    /// Takes the object's share of a request, once. Returns `None` if the request's answer does not count for it, or
    /// if the work is not done, but another request in flight may still do it.
    fn take_report(&mut self, request: RequestId, id: ObjectId, is_done: bool) -> Option<Report> {
        let flight = self.flights.get_mut(&request).filter(|flight| flight.awaited > 0)?;
        let object = self.objects.get_mut(id)?;
        let kind = match flight.work {
            Work::Open(_) => Kind::Open,
            Work::Part { part, .. } => Kind::Part(part),
            Work::Bundle(_) => Kind::Bundle,
            Work::Close(_) => Kind::Close,
            Work::Abort(_) => Kind::Abort,
        };
        let (tries, other) = if kind == Kind::Bundle {
            (object.tries, object.take_bundle(request)?)
        } else {
            let expected = !flight.reported && flight.work.members() == [id];
            flight.reported |= expected;
            expected.then_some((flight.tries, flight.twin))?
        };
        flight.awaited -= 1;
        object.flights -= 1;
        let report = Report { route: flight.route, bytes: flight.bytes, kind, tries };
        match other {
            Some(other) if is_done => self.done_elsewhere(other),
            Some(other) => {
                self.is_needed(id, kind, other);
                return None;
            }
            None => {}
        }
        Some(report)
    }

    /// Decides what a fault means for an object that has not ended yet.
    fn verdict(&mut self, id: ObjectId, report: &Report, fault: Fault) -> Next {
        let tries = report.tries.with(fault);
        let end_if = |ends: bool, end: End| if ends { Next::End(end) } else { Next::Again(tries) };
        let failed = End::Failed(fault);
        let may_restart = self.objects.get(id).is_some_and(|object| object.new.may_restart);
        let restart = if may_restart { End::Restart } else { failed };
        match fault {
            Fault::Changed | Fault::UploadGone => Next::End(restart),
            Fault::Corrupt if report.kind == Kind::Close => Next::End(restart),
            Fault::Permanent => Next::End(failed),
            Fault::Refused => end_if(self.refuse(id, report.route), failed),
            Fault::RouteDown => Next::Again(tries),
            Fault::Lost => end_if(tries.losses >= LOSSES_MAX, failed),
            Fault::Unavailable | Fault::Corrupt => end_if(tries.faults >= TRIES_MAX, failed),
        }
    }

    /// Excludes `route` for this object. Returns whether it was the last one.
    fn refuse(&mut self, id: ObjectId, route: RouteId) -> bool {
        let Some(object) = self.objects.get_mut(id) else { return false };
        if let Err(at) = object.refused_by.binary_search(&route) {
            object.refused_by.insert(at, route);
            let (parts_again, unsent) = self.ready.take_parts(id);
            let lane = self.ready.lane(&object.refused_by, object.new.travels);
            lane.parts_again.extend(parts_again);
            lane.sending.extend(unsent.then_some(id));
        }
        self.shares.ids().all(|route| object.refused_by.contains(&route))
    }

    pub(super) fn again(&mut self, id: ObjectId, kind: Kind, tries: Tries) {
        let Some(object) = self.objects.get_mut(id) else { return };
        let lane = self.ready.lane(&object.refused_by, object.new.travels);
        match kind {
            Kind::Part(part) => lane.parts_again.push_back(PartAgain { object: id, part, tries }),
            Kind::Bundle => {
                object.tries = tries;
                lane.whole.push_back(id);
            }
            Kind::Open => lane.control.push_back((Work::Open(id), tries)),
            Kind::Close => lane.control.push_back((Work::Close(id), tries)),
            Kind::Abort => lane.control.push_back((Work::Abort(id), tries)),
        }
    }
}

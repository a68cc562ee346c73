//! The scheduler's bookkeeping: what to send where, what to retry, when an object is finished or failed.
//!
//! An object is either **whole** (one write, many to a bundle) or in **parts** (open, parts in any order, close). The
//! scheduler learns of objects with [`Scheduler::add`] and of replies with [`Scheduler::done`] and [`Scheduler::fault`].
//! [`Scheduler::poll`] returns the next [`Action`] until there is nothing more to do now. It holds sizes and ids only;
//! the caller keeps keys, tags and messages.
//!
//! A reply names each object of its request with one `done` or `fault`, then `answered` ends the request. Replies come
//! from other machines, so the scheduler does not trust them: it ignores an object that is named twice or was not in
//! the request, and counts an object that the reply left out as not done.
//!
//! If a route stands still, its requests may also be sent over another route ([`duplicates`](self::duplicates)). The
//! first answer that the work is done counts. A failure counts only if no other request in flight may still do the work.

mod duplicates;
mod object;
mod ready;
#[cfg(test)]
mod route_tests;
mod send;
#[cfg(test)]
mod tests;
mod work;

pub use object::{Layout, NewObject};
pub use work::{Action, Config, Idle, Work};

use crate::shares::{Before, RoutePlan, Shares};
use crate::{Fault, ObjectId, RequestId, RouteId};
use duplicates::Rescue;
use ready::{PartAgain, Ready, Tries};
use send::Obstacles;
use std::collections::{HashMap, VecDeque};

/// Most attempts at one piece of work (a part, a whole object, an open or a close) that end in [`Fault::Unavailable`]
/// or [`Fault::Corrupt`]; after them its object fails.
pub const TRIES_MAX: u32 = 4;
/// Most attempts at one piece of work that are lost; after them its object fails.
pub const LOSSES_MAX: u32 = 64;
/// Most answered attempts to abort an upload; after them the upload is left to the cleanup by `jobs cancel`.
pub const ABORT_TRIES_MAX: u32 = 3;
/// Most objects in parts that may be open at once.
pub const OPEN_OBJECTS_MAX: usize = 64;
/// A further object is opened while fewer than this many open ones have parts to send.
pub const SENDING_OBJECTS_MIN: usize = 3;
/// A request that waits behind others of its route is not overdue before they could have passed at this rate.
pub const SLOWEST_BYTES_PER_S: u64 = 64 << 10;
/// Time for a route that went down to come back before the job stalls, however long nothing had moved before.
pub const REPAIR_MS: u64 = 5_000;
/// Longest time until a dead gateway is noticed. A gateway that was silent for longer was at work, so its silence is
/// not a stall.
pub const DEATH_NOTICED_MS: u64 = 60_000;
/// Most objects that the scheduler holds at once; [`Scheduler::wants_more`] is false beyond.
pub const OBJECTS_MAX: usize = 20_000;

#[derive(Debug)]
struct Object {
    new: NewObject,
    phase: Phase,
    /// Requests in flight that serve it.
    flights: usize,
    /// The bundle it is in, while in flight, and a second one that it is in as well.
    bundle: Option<RequestId>,
    second_bundle: Option<RequestId>,
    counted_open: bool,
    /// Bytes that a route still has to carry.
    owed_bytes: u64,
    /// Attempts at a whole object; parts and control requests carry their own counts.
    tries: Tries,
    /// Routes that refused the object, in ascending order.
    refused_by: Vec<RouteId>,
}

#[derive(Debug)]
enum Phase {
    Whole,
    Opening,
    Sending {
        next_part: u32,
        missing: u32,
    },
    Closing,
    /// Waits for its requests in flight, then aborts its upload if `opened`, then ends.
    Ending {
        end: End,
        opened: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum End {
    Restart,
    Failed(Fault),
}

#[derive(Debug)]
struct Flight {
    route: RouteId,
    bytes: u64,
    /// The bytes of `bytes` that are paid for.
    paid_bytes: u64,
    sent_ms: u64,
    /// Bytes in flight on its route when it was sent, including its own.
    queued_bytes: u64,
    work: Work,
    tries: Tries,
    /// True if the object of a single-object request has been reported on.
    reported: bool,
    /// True if some of its work must be sent again.
    again: bool,
    /// Objects for which its answer counts.
    awaited: usize,
    /// True if another request has done all its work.
    superseded: bool,
    /// The other request in flight with the same work.
    twin: Option<RequestId>,
    /// True if a duplicate of it was sent.
    duplicated: bool,
    /// Bytes of `bytes` that a twin carries as well, or has carried.
    surplus_bytes: u64,
}

/// The scheduler; see the module documentation.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    shares: Shares,
    objects: HashMap<ObjectId, Object>,
    flights: HashMap<RequestId, Flight>,
    ready: Ready,
    out: VecDeque<Action>,
    next_request: u64,
    paced_until_ms: f64,
    /// Time of the latest answer, or the latest time at which no answer was pending.
    moved_ms: u64,
    stuck_since_ms: Option<u64>,
    /// Time at which a piece of work was last completed.
    done_ms: Option<u64>,
    /// True if the latest fault was an unreachable store.
    is_out_of_reach: bool,
    retries: u64,
    /// Routes whose latest requests were lost; all of these losses count as one retry.
    losing: Vec<RouteId>,
    open_count: usize,
    draining: bool,
    /// Requests in flight whose answers count for nothing but their routes.
    superseded: usize,
    rescue: Rescue,
}

/// One object's share of a request, removed from the scheduler's records when it is reported on.
struct Report {
    route: RouteId,
    bytes: u64,
    kind: Kind,
    tries: Tries,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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
    /// Returns a scheduler without work.
    pub fn new(config: Config) -> Self {
        Self {
            shares: Shares::new(&config.routes, config.ceiling_usd_per_gb)
                .within(config.ceiling_usd)
                .within_bytes(config.ceiling_bytes)
                .with_duplicates(config.duplicate_fraction_max),
            next_request: config.first_request,
            config,
            objects: HashMap::new(),
            flights: HashMap::new(),
            ready: Ready::default(),
            out: VecDeque::new(),
            paced_until_ms: 0.0,
            moved_ms: 0,
            stuck_since_ms: None,
            done_ms: None,
            is_out_of_reach: false,
            retries: 0,
            losing: Vec::new(),
            open_count: 0,
            draining: false,
            superseded: 0,
            rescue: Rescue::default(),
        }
    }

    /// Adds the sums of earlier runs of the job, because ceilings cover all runs. Call it before the first
    /// [`Scheduler::add`].
    pub fn carried_before(&mut self, before: Before) {
        self.shares.carried_before(before);
    }

    /// Replaces the routes, and with them the price ceiling and the rate limit; see [`Shares::change`]. Work that a
    /// route refused may be tried on it again.
    pub fn change_routes(
        &mut self,
        routes: &[RoutePlan],
        ceiling_usd_per_gb: Option<f64>,
        rate_limit_bytes_per_s: Option<u64>,
    ) {
        self.config.rate_limit_bytes_per_s = rate_limit_bytes_per_s;
        self.shares.change(routes, ceiling_usd_per_gb);
        self.ready.join_lanes();
        for object in self.objects.values_mut() {
            object.refused_by.clear();
        }
    }

    /// Returns whether another object may be added. The caller stops reading its list while this is false.
    pub fn wants_more(&self) -> bool {
        !self.draining && self.objects.len() < OBJECTS_MAX
    }

    /// Adds an object. The scheduler must not hold an object of this id already.
    pub fn add(&mut self, id: ObjectId, mut new: NewObject) {
        debug_assert!(!self.objects.contains_key(&id), "{id:?} is held already");
        new.tidy();
        let owed_bytes = new.bytes_to_carry();
        self.shares.listed(owed_bytes);
        let opened = matches!(new.layout, Layout::Parts { opened: true, .. });
        let phase = match &new.layout {
            Layout::Whole => {
                self.ready.lane(&[], new.travels).whole.push_back(id);
                Phase::Whole
            }
            Layout::Parts { opened, .. } => {
                if !opened {
                    self.ready.to_open.push_back(id);
                }
                Phase::Opening
            }
        };
        self.objects.insert(
            id,
            Object {
                new,
                phase,
                flights: 0,
                bundle: None,
                second_bundle: None,
                counted_open: false,
                owed_bytes,
                tries: Tries::default(),
                refused_by: Vec::new(),
            },
        );
        if opened {
            self.count_open(id);
            self.begin_parts(id);
        }
    }

    /// Begins nothing from now on: no new part, bundle or upload. Still waits for requests in flight, closes uploads
    /// that have all their parts, and aborts those of ended objects (checkpoint, Ctrl-C).
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns the number of requests in flight.
    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    /// Returns the number of requests in flight whose answers count. The others repeat work that is done.
    pub fn awaited_flights(&self) -> usize {
        self.flights.len() - self.superseded
    }

    /// Returns the number of retries so far. All requests that a route loses until it answers again (for example those
    /// on one broken connection) count once.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Returns the shares and costs of the routes.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Returns what the request does, if it is in flight.
    pub fn work(&self, request: RequestId) -> Option<&Work> {
        self.flights.get(&request).map(|flight| &flight.work)
    }

    /// Returns the route of a request in flight.
    pub fn route_of(&self, request: RequestId) -> Option<RouteId> {
        self.flights.get(&request).map(|flight| flight.route)
    }

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
        if self.objects.get(&object).is_some_and(|object| matches!(object.phase, Phase::Ending { .. })) {
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
        let Some(object) = self.objects.get_mut(&object) else { return };
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

    /// Records that compression saved `bytes` of `request`, at most all that it carries, and refunds their cost. Call it
    /// before [`Scheduler::answered`] without a fault.
    pub fn saved(&mut self, request: RequestId, bytes: u64) {
        let Some(flight) = self.flights.get(&request) else { return };
        self.shares.saved(flight.route, bytes.min(flight.paid_bytes));
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

    /// Returns the next action, or why there is none.
    pub fn poll(&mut self, now_ms: u64) -> Result<Action, Idle> {
        if let Some(action) = self.out.pop_front() {
            return Ok(action);
        }
        let mut obstacles = Obstacles::default();
        self.next_send(now_ms, &mut obstacles).ok_or_else(|| self.idle(&obstacles, now_ms))
    }

    /// Takes the object's share of a request, once. Returns `None` if the request's answer does not count for it, or
    /// if the work is not done, but another request in flight may still do it.
    fn take_report(&mut self, request: RequestId, id: ObjectId, is_done: bool) -> Option<Report> {
        let flight = self.flights.get_mut(&request).filter(|flight| flight.awaited > 0)?;
        let object = self.objects.get_mut(&id)?;
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
        let may_restart = self.objects.get(&id).is_some_and(|object| object.new.may_restart);
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
        let Some(object) = self.objects.get_mut(&id) else { return false };
        if let Err(at) = object.refused_by.binary_search(&route) {
            object.refused_by.insert(at, route);
            let (parts_again, unsent) = self.ready.take_parts(id);
            let lane = self.ready.lane(&object.refused_by, object.new.travels);
            lane.parts_again.extend(parts_again);
            lane.sending.extend(unsent.then_some(id));
        }
        self.shares.ids().all(|route| object.refused_by.contains(&route))
    }

    fn again(&mut self, id: ObjectId, kind: Kind, tries: Tries) {
        let Some(object) = self.objects.get_mut(&id) else { return };
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

    fn begin_parts(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        let missing = object.new.parts() - object.new.parts_done().len() as u32;
        object.phase = Phase::Sending { next_part: 1, missing };
        if missing == 0 {
            self.begin_close(id);
        } else {
            self.ready.lane(&object.refused_by, object.new.travels).sending.push_back(id);
        }
    }

    fn part_done(&mut self, id: ObjectId, bytes: u64) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.owed_bytes -= bytes;
        self.shares.settled(bytes);
        match &mut object.phase {
            Phase::Sending { missing, .. } => {
                *missing -= 1;
                if *missing == 0 {
                    self.begin_close(id);
                }
            }
            _ => self.settle(id),
        }
    }

    fn begin_close(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.phase = Phase::Closing;
            self.push_control(Work::Close(id), Tries::default());
        }
    }

    fn begin_end(&mut self, id: ObjectId, end: End) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        let opened = matches!(object.phase, Phase::Sending { .. } | Phase::Closing);
        object.phase = Phase::Ending { end, opened };
        // A route that refused the bytes may still accept the abort; if all refused, one of them must take it.
        object.refused_by.clear();
        self.ready.take_parts(id);
        self.settle(id);
    }

    /// Advances an ending object by one step once none of its requests is in flight.
    fn settle(&mut self, id: ObjectId) {
        let Some(Object { phase: Phase::Ending { end, opened }, flights: 0, new, .. }) = self.objects.get(&id) else {
            return;
        };
        if *opened {
            return self.push_control(Work::Abort(id), Tries::default());
        }
        let (action, carried_bytes) = match *end {
            End::Restart => (Action::Restart(id), if new.travels { new.bytes } else { 0 }),
            End::Failed(fault) => (Action::Failed(id, fault), 0),
        };
        self.forget(id);
        self.shares.unlisted(carried_bytes);
        self.out.push_back(action);
    }

    fn abort_failed(&mut self, id: ObjectId, tries: Tries, fault: Fault) {
        let tries = tries.with(fault);
        if tries.faults + tries.refusals >= ABORT_TRIES_MAX || tries.losses >= LOSSES_MAX {
            self.upload_left(id);
        } else {
            self.again(id, Kind::Abort, tries);
        }
    }

    /// Records that the upload of an ending object is aborted, or is left behind after too many attempts.
    fn upload_left(&mut self, id: ObjectId) {
        if let Some(Object { phase: Phase::Ending { opened, .. }, .. }) = self.objects.get_mut(&id) {
            *opened = false;
            self.settle(id);
        }
    }

    fn push_control(&mut self, work: Work, tries: Tries) {
        if let Some(object) = self.objects.get(&work.members()[0]) {
            self.ready.lane(&object.refused_by, object.new.travels).control.push_back((work, tries));
        }
    }

    fn count_open(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.counted_open = true;
            self.open_count += 1;
        }
    }

    fn forget(&mut self, id: ObjectId) {
        let Some(object) = self.objects.remove(&id) else { return };
        self.shares.settled(object.owed_bytes);
        if object.counted_open {
            self.open_count -= 1;
        }
    }
}

impl Tries {
    fn with(self, fault: Fault) -> Self {
        match fault {
            // The request was never sent.
            Fault::RouteDown => self,
            Fault::Lost => Self { losses: self.losses + 1, ..self },
            // Objects count the routes that refused them; only aborts use this count.
            Fault::Refused => Self { refusals: self.refusals + 1, ..self },
            _ => Self { faults: self.faults + 1, ..self },
        }
    }
}

//! Duplicates: requests that are sent a second time, over another route, before the first one has been answered.
//!
//! A duplicate is sent only by a route that has nothing else to send: when all remaining work is in flight. Then
//!
//! - the requests of a route that is [silent](crate::shares) for too long are sent over the others, oldest first;
//! - if a route is idle and the slowest one still has much to do, the latest request of the slowest is sent over the idle
//!   one, so that the end of a job does not wait for its slowest route.
//!
//! Every request may be repeated (see the module `scheduler`), so the first answer counts, and the other request only
//! lands. An object whose upload must be aborted still waits for both.

use super::answers::Kind;
use super::{Action, Flight, Object, Phase, Scheduler, Work};
use crate::pace::PATIENCE_MS_MIN;
use crate::{ObjectId, RequestId};
use std::collections::VecDeque;

/// Shortest time between two searches for requests to duplicate, in ms.
const SEARCH_EVERY_MS: u64 = 100;

/// Most duplicates of a request, one after the other: one that fails may be sent again, because the route that stands
/// still may never answer.
const DUPLICATES_MAX: u8 = 3;

/// Requests that wait for a duplicate.
#[derive(Debug, Default)]
pub(super) struct Rescue {
    candidates: VecDeque<RequestId>,
    /// True if their route is silent, and not just slow.
    is_stall: bool,
    searched_ms: Option<u64>,
    /// The earliest time at which another route may be silent.
    wake_ms: u64,
}

impl Scheduler {
    /// Returns whether the answer of `request` counts for `object`.
    pub fn awaits(&self, request: RequestId, object: ObjectId) -> bool {
        let Some(flight) = self.flights.get(&request).filter(|flight| flight.awaited > 0) else { return false };
        match &flight.work {
            Work::Bundle(_) => self.objects.get(object).is_some_and(|object| object.is_in_bundle(request)),
            work => !flight.reported && work.members() == [object],
        }
    }

    /// Returns whether a failure of `request` counts for `object`: its answer does, and no other request in flight may
    /// still do the work.
    pub fn is_last(&self, request: RequestId, object: ObjectId) -> bool {
        self.awaits(request, object) && !self.has_twin(request, object)
    }

    /// Returns whether another request in flight may also do what `request` does for `object`.
    fn has_twin(&self, request: RequestId, object: ObjectId) -> bool {
        match self.flights.get(&request) {
            Some(Flight { work: Work::Bundle(_), .. }) => {
                self.objects.get(object).is_some_and(|object| object.second_bundle.is_some())
            }
            Some(flight) => flight.twin.is_some(),
            None => false,
        }
    }

    /// Returns whether `request` is a duplicate, or has one.
    pub fn is_duplicated(&self, request: RequestId) -> bool {
        self.flights.get(&request).is_some_and(|flight| flight.duplicates > 0 || flight.twin.is_some())
    }

    /// Sends a duplicate, if one is due and a route has room for it.
    pub(super) fn send_duplicate(&mut self, now_ms: u64) -> Option<Action> {
        if self.is_paced(now_ms) || self.awaited_flights() == 0 {
            return None;
        }
        self.search(now_ms);
        while let Some(&request) = self.rescue.candidates.front() {
            match self.duplicable(request) {
                Some((work, bytes)) => {
                    let action = self.duplicate(request, work, bytes, now_ms)?;
                    self.rescue.candidates.pop_front();
                    return Some(action);
                }
                None => drop(self.rescue.candidates.pop_front()),
            }
        }
        None
    }

    /// Returns when a route may next have been silent for too long.
    pub(super) fn next_rescue_ms(&self, now_ms: u64) -> Option<u64> {
        let may_help = self.may_duplicate() && !self.draining && self.awaited_flights() > 0;
        let searched_ms = self.rescue.searched_ms.filter(|_| may_help)?;
        Some(self.rescue.wake_ms.max(searched_ms + SEARCH_EVERY_MS).max(now_ms + 1))
    }

    fn may_duplicate(&self) -> bool {
        self.config.duplicate_fraction_max > 0.0 && self.shares.ids().nth(1).is_some()
    }

    /// Finds the requests to duplicate, at most every [`SEARCH_EVERY_MS`]: a search looks at all routes and requests.
    fn search(&mut self, now_ms: u64) {
        let is_due = self.rescue.searched_ms.is_none_or(|searched_ms| now_ms >= searched_ms + SEARCH_EVERY_MS);
        if !is_due || !self.may_duplicate() {
            return;
        }
        let silent = self.shares.silent(now_ms);
        let mut candidates: Vec<RequestId> = Vec::new();
        if !silent.is_empty() {
            let of_silent = self.flights.iter().filter(|(_, flight)| silent.contains(&flight.route));
            candidates.extend(of_silent.map(|(request, _)| *request));
            candidates.sort_unstable();
        } else if let Some(slowest) = self.shares.slowest(self.config.bundle_bytes_max, now_ms) {
            let of_slowest = self.flights.iter().filter(|(_, flight)| flight.route == slowest && flight.bytes > 0);
            let open = of_slowest.filter(|(_, flight)| flight.may_be_duplicated());
            candidates.extend(open.map(|(request, _)| *request).max());
        }
        // A request that is sent from now on is not late before then.
        let unknown_ms = now_ms + PATIENCE_MS_MIN;
        self.rescue = Rescue {
            candidates: candidates.into(),
            is_stall: !silent.is_empty(),
            searched_ms: Some(now_ms),
            wake_ms: self.shares.next_silence_ms(now_ms).map_or(unknown_ms, |at_ms| at_ms.min(unknown_ms)),
        };
    }

    /// Returns the work of `request` that may be duplicated, and the bytes that it carries.
    fn duplicable(&self, request: RequestId) -> Option<(Work, u64)> {
        let flight = self.flights.get(&request).filter(|flight| flight.may_be_duplicated())?;
        let has_work = |object: &ObjectId| {
            let object = self.objects.get(*object)?;
            let is_wanted = match (&flight.work, &object.phase) {
                (Work::Bundle(_), Phase::Whole) => object.bundle == Some(request),
                (Work::Open(_), Phase::Opening) | (Work::Part { .. }, Phase::Sending { .. }) => true,
                (Work::Close(_), Phase::Closing) => true,
                _ => false,
            };
            (is_wanted && object.new.travels).then_some(object.new.bytes)
        };
        match &flight.work {
            Work::Bundle(members) => {
                let members: Vec<ObjectId> = members.iter().filter(|id| has_work(id).is_some()).copied().collect();
                let bytes = members.iter().filter_map(has_work).sum();
                (!members.is_empty()).then_some((Work::Bundle(members), bytes))
            }
            work => has_work(work.members().first()?).map(|_| (work.clone(), flight.bytes)),
        }
    }

    fn duplicate(&mut self, request: RequestId, work: Work, bytes: u64, now_ms: u64) -> Option<Action> {
        let flight = self.flights.get(&request)?;
        let (stalled, tries) = (flight.route, flight.tries);
        let refused_by = &self.objects.get(*work.members().first()?)?.refused_by;
        let route = self.shares.pick_duplicate(bytes, stalled, refused_by, now_ms)?;
        let action = self.send(route, bytes, work, tries, now_ms);
        let Action::Send { request: twin, .. } = action else { return None };
        self.shares.duplicated(bytes);
        if self.rescue.is_stall {
            self.out.push_back(Action::RouteStalled(stalled));
        }
        for (one, other, surplus_bytes) in [(request, twin, 0), (twin, request, bytes)] {
            if let Some(flight) = self.flights.get_mut(&one) {
                flight.twin = Some(other);
                flight.surplus_bytes = surplus_bytes;
            }
        }
        if let Some(flight) = self.flights.get_mut(&request) {
            flight.duplicates += 1;
        }
        Some(action)
    }

    /// Records that a twin has done one object's share of `request`.
    pub(super) fn done_elsewhere(&mut self, request: RequestId) {
        let Some(flight) = self.flights.get_mut(&request) else { return };
        flight.awaited = flight.awaited.saturating_sub(1);
        flight.reported = true;
        if flight.awaited == 0 {
            flight.superseded = true;
            self.superseded += 1;
            self.shares.became_surplus(flight.bytes - flight.surplus_bytes);
            flight.surplus_bytes = flight.bytes;
        }
    }

    /// Records that `request` is the only one in flight that may still do the work for an object.
    pub(super) fn is_needed(&mut self, object: ObjectId, kind: Kind, request: RequestId) {
        if kind == Kind::Bundle
            && let Some(object) = self.objects.get_mut(object)
        {
            object.bundle = Some(request);
            object.second_bundle = None;
        }
        if let Some(flight) = self.flights.get_mut(&request) {
            self.shares.no_surplus(std::mem::take(&mut flight.surplus_bytes));
        }
    }

    /// Ends the bookkeeping of a request that is no longer in flight.
    pub(super) fn landed(&mut self, flight: &Flight) {
        self.shares.no_surplus(flight.surplus_bytes);
        if let Some(twin) = flight.twin.and_then(|twin| self.flights.get_mut(&twin)) {
            twin.twin = None;
        }
        if flight.superseded {
            self.superseded -= 1;
            if let [object] = flight.work.members()
                && !matches!(flight.work, Work::Bundle(_))
                && let Some(state) = self.objects.get_mut(*object)
            {
                state.flights -= 1;
                self.settle(*object);
            }
        }
    }
}

impl Flight {
    fn may_be_duplicated(&self) -> bool {
        self.duplicates < DUPLICATES_MAX && self.twin.is_none() && self.awaited > 0
    }
}

impl Object {
    pub(super) fn enter_bundle(&mut self, request: RequestId) {
        match self.bundle {
            None => self.bundle = Some(request),
            Some(_) => self.second_bundle = Some(request),
        }
    }

    fn is_in_bundle(&self, request: RequestId) -> bool {
        self.bundle == Some(request) || self.second_bundle == Some(request)
    }

    /// Takes the object out of its bundles, if `request` is one of them. Returns the other one.
    pub(super) fn take_bundle(&mut self, request: RequestId) -> Option<Option<RequestId>> {
        if !self.is_in_bundle(request) {
            return None;
        }
        let holders = [self.bundle.take(), self.second_bundle.take()];
        Some(holders.into_iter().flatten().find(|holder| *holder != request))
    }
}

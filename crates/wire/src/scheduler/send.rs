//! The sending half of the scheduler: which work goes out next, and why none does.

use super::ready::{PartAgain, Tries};
use super::work::Action;
use super::{
    DEATH_NOTICED_MS, Flight, Idle, OPEN_OBJECTS_MAX, Object, Phase, REPAIR_MS, SENDING_OBJECTS_MIN, Scheduler, Work,
};
use crate::RouteId;
use crate::frame::SEGMENT_BYTES;
use crate::shares::Blocked;

/// Longest delay of a wake-up, in ms, that a rate-limited sender may make up for afterwards.
const PACE_CREDIT_MS: f64 = 200.0;

/// Most object bytes in a bundle of more than its share of the queue: about one segment of a seal.
const GRAIN_BYTES: u64 = SEGMENT_BYTES as u64;

/// Why the lanes with work cannot send it.
#[derive(Default)]
pub(super) struct Obstacles {
    full: bool,
    down: bool,
    ceiling: bool,
    paced: bool,
    /// Earliest end of a rest that may unblock them.
    retry_ms: Option<u64>,
}

enum Obstacle {
    Paced,
    Blocked(Blocked),
}

impl Scheduler {
    pub(super) fn idle(&mut self, obstacles: &Obstacles, now_ms: u64) -> Idle {
        let grounded = self.awaited_flights() == 0;
        // Nothing to send, or an answer is still pending: not stuck. A probe in flight on a resting route proves
        // nothing.
        if (grounded && obstacles.none()) || self.shares.up_and_busy() {
            self.stuck_since_ms = None;
        }
        if grounded && (obstacles.none() || obstacles.paced && !self.shares.all_down()) {
            self.moved_ms = now_ms;
        }
        if obstacles.none() {
            let nothing_left = grounded && (self.draining || self.objects.is_empty());
            if nothing_left {
                return Idle::Empty;
            }
            // Only requests in flight are left. If their routes are down, do not wait for them forever.
            if self.draining || grounded || !self.shares.all_down() {
                return self.until(self.next_rescue_ms(now_ms));
            }
        }
        if self.draining && grounded {
            return Idle::Empty;
        }
        if grounded && obstacles.only_ceiling() {
            return Idle::Ceiling;
        }
        // Looking at every flight is worth it only where the answer matters.
        let matters = self.stuck_since_ms.is_some() || self.shares.all_down();
        let is_at_work = matters && self.is_probe_at_work(now_ms);
        if is_at_work {
            self.stuck_since_ms = None;
        }
        let hopeless = (self.shares.all_down() && !is_at_work) || (grounded && !obstacles.paced);
        let stalled_ms = hopeless.then(|| self.stalled_ms(now_ms));
        if stalled_ms.is_some_and(|at| at <= now_ms) {
            return Idle::Stalled;
        }
        let paced_ms = obstacles.paced.then(|| self.paced_until_ms.ceil() as u64);
        let rescue_ms = self.next_rescue_ms(now_ms);
        self.until([stalled_ms, paced_ms, obstacles.retry_ms, rescue_ms].into_iter().flatten().min())
    }

    fn until(&self, at_ms: Option<u64>) -> Idle {
        at_ms.map_or(Idle::Waiting, Idle::Until)
    }

    /// Returns whether a request has been in flight so long that a dead gateway on its route would have been noticed,
    /// so the gateway must be at work. This proves nothing after a store was unreachable, because a gateway then
    /// retries on its own for some time.
    fn is_probe_at_work(&self, now_ms: u64) -> bool {
        let noticed_ms = DEATH_NOTICED_MS.min(self.config.stall_ms / 2);
        let is_at_work = |flight: &Flight| now_ms.saturating_sub(flight.sent_ms) > noticed_ms;
        !self.is_out_of_reach && self.flights.values().any(is_at_work)
    }

    /// Returns the time at which a stuck job stalls. It counts from the last answer, not from the time at which the
    /// routes were found dead.
    fn stalled_ms(&mut self, now_ms: u64) -> u64 {
        let stuck_ms = *self.stuck_since_ms.get_or_insert(now_ms);
        let is_work = !self.is_out_of_reach && stuck_ms.saturating_sub(self.moved_ms) > DEATH_NOTICED_MS;
        let still_since_ms = if is_work { stuck_ms } else { self.moved_ms };
        let stall_ms = self.config.stall_ms;
        still_since_ms.saturating_add(stall_ms).max(stuck_ms.saturating_add(stall_ms.min(REPAIR_MS)))
    }

    pub(super) fn next_send(&mut self, now_ms: u64, obstacles: &mut Obstacles) -> Option<Action> {
        self.ready.drop_empty_lanes();
        if !self.draining {
            self.promote_opens();
        }
        for lane in 0..self.ready.lanes.len() {
            if let Some(action) = self.send_control(lane, now_ms, obstacles) {
                return Some(action);
            }
        }
        if self.draining {
            return None;
        }
        for lane in 0..self.ready.lanes.len() {
            let whole_turn = &mut self.ready.lanes[lane].whole_turn;
            *whole_turn = !*whole_turn;
            for whole in [*whole_turn, !*whole_turn] {
                let sent = match whole {
                    true => self.send_bundle(lane, now_ms, obstacles),
                    false => self.send_part(lane, now_ms, obstacles),
                };
                if sent.is_some() {
                    return sent;
                }
            }
        }
        self.send_duplicate(now_ms)
    }

    /// Opens at most [`OPEN_OBJECTS_MAX`] uploads, and each only shortly before its parts can be sent.
    fn promote_opens(&mut self) {
        while self.open_count < OPEN_OBJECTS_MAX
            && self.ready.sending() < SENDING_OBJECTS_MIN
            && let Some(object) = self.ready.to_open.pop_front()
        {
            self.count_open(object);
            self.push_control(Work::Open(object), Tries::default());
        }
    }

    fn send_control(&mut self, lane: usize, now_ms: u64, obstacles: &mut Obstacles) -> Option<Action> {
        let control = &mut self.ready.lanes[lane].control;
        while self.draining && control.front().is_some_and(|(work, _)| matches!(work, Work::Open(_))) {
            control.pop_front();
        }
        let (work, tries) = control.front()?.clone();
        let route = self.route(lane, 0, now_ms, obstacles)?;
        self.ready.lanes[lane].control.pop_front();
        Some(self.send(route, 0, work, tries, now_ms))
    }

    fn send_part(&mut self, lane: usize, now_ms: u64, obstacles: &mut Obstacles) -> Option<Action> {
        let again = self.ready.lanes[lane].parts_again.front().copied();
        let PartAgain { object, part, tries } = match again {
            Some(again) => again,
            None => self.next_unsent_part(lane)?,
        };
        let new = &self.objects.get(object)?.new;
        let (offset, bytes) = new.part_range(part);
        let carried_bytes = new.carried_bytes(part);
        let route = self.route(lane, carried_bytes, now_ms, obstacles)?;
        if again.is_some() {
            self.ready.lanes[lane].parts_again.pop_front();
        } else if let Some(Object { phase: Phase::Sending { next_part, .. }, .. }) = self.objects.get_mut(object) {
            *next_part = part + 1;
        }
        Some(self.send(route, carried_bytes, Work::Part { object, part, offset, bytes }, tries, now_ms))
    }

    /// Returns the first unsent part of the first object that has one; objects without unsent parts leave the lane's
    /// queue.
    fn next_unsent_part(&mut self, lane: usize) -> Option<PartAgain> {
        let sending = &mut self.ready.lanes[lane].sending;
        while let Some(&object) = sending.front() {
            if let Some(state) = self.objects.get_mut(object)
                && let Phase::Sending { next_part, .. } = &mut state.phase
            {
                let done = state.new.parts_done();
                while done.binary_search(next_part).is_ok() {
                    *next_part += 1;
                }
                if *next_part <= state.new.parts() {
                    return Some(PartAgain { object, part: *next_part, tries: Tries::default() });
                }
            }
            sending.pop_front();
        }
        None
    }

    fn send_bundle(&mut self, lane: usize, now_ms: u64, obstacles: &mut Obstacles) -> Option<Action> {
        let carried = |object: &Object| if object.new.travels { object.new.bytes } else { 0 };
        let whole = &self.ready.lanes[lane].whole;
        // Keep bundles small while the queue is short, so that all workers get some. The more requests are in flight, the
        // less another small one gains.
        let share = (whole.len() / 16).clamp(1, self.config.bundle_objects_max.max(1));
        let count_max = share.max(self.flights.len().min(self.config.grain_objects_max));
        let first_bytes = carried(self.objects.get(*whole.front()?)?);
        // Ask for a route first, so that a waiting lane does not cost a scan of a whole bundle.
        self.route(lane, first_bytes, now_ms, obstacles)?;
        let (mut members, mut carried_bytes, mut bytes) = (Vec::new(), 0, 0);
        for id in self.ready.lanes[lane].whole.iter().take(count_max) {
            let Some(object) = self.objects.get(*id) else { break };
            let bytes_max = if members.len() < share { u64::MAX } else { GRAIN_BYTES };
            let bytes_max = bytes_max.min(self.config.bundle_bytes_max);
            if !members.is_empty() && bytes + object.new.bytes > bytes_max {
                break;
            }
            members.push(*id);
            bytes += object.new.bytes;
            carried_bytes += carried(object);
        }
        let route = self.route(lane, carried_bytes, now_ms, obstacles)?;
        self.ready.lanes[lane].whole.drain(..members.len());
        Some(self.send(route, carried_bytes, Work::Bundle(members), Tries::default(), now_ms))
    }

    /// Returns whether the rate limit allows no bytes now.
    pub(super) fn is_paced(&self, now_ms: u64) -> bool {
        self.paced_until_ms > now_ms as f64
    }

    /// Returns a route for `bytes` of a lane; if there is none now, notes why.
    fn route(&self, lane: usize, bytes: u64, now_ms: u64, obstacles: &mut Obstacles) -> Option<RouteId> {
        if bytes > 0 && self.is_paced(now_ms) {
            obstacles.note(Obstacle::Paced, None);
            return None;
        }
        let avoid = &self.ready.lanes[lane].refused_by;
        let picked = self.shares.pick(bytes, avoid, now_ms);
        picked.inspect_err(|why| obstacles.note(Obstacle::Blocked(*why), self.shares.next_retry_ms(avoid, now_ms))).ok()
    }

    pub(super) fn send(&mut self, route: RouteId, bytes: u64, work: Work, tries: Tries, now_ms: u64) -> Action {
        self.shares.sent(route, bytes, now_ms);
        let queued_bytes = self.shares.in_flight_bytes(route);
        if let Some(rate) = self.config.rate_limit_bytes_per_s {
            let due_ms = self.paced_until_ms.max(now_ms as f64 - PACE_CREDIT_MS);
            self.paced_until_ms = due_ms + bytes as f64 * 1000.0 / rate.max(1) as f64;
        }
        let request = self.next_request();
        let is_bundle = matches!(work, Work::Bundle(_));
        for object in work.members() {
            if let Some(object) = self.objects.get_mut(*object) {
                object.flights += 1;
                if is_bundle {
                    object.enter_bundle(request);
                }
            }
        }
        let flight = Flight {
            route,
            bytes,
            paid_bytes: bytes,
            sent_ms: now_ms,
            queued_bytes,
            awaited: work.members().len(),
            work: work.clone(),
            tries,
            reported: false,
            again: false,
            superseded: false,
            twin: None,
            duplicates: 0,
            surplus_bytes: 0,
        };
        self.flights.insert(request, flight);
        Action::Send { request, route, work }
    }
}

impl Obstacles {
    fn note(&mut self, obstacle: Obstacle, retry_ms: Option<u64>) {
        match obstacle {
            Obstacle::Paced => self.paced = true,
            Obstacle::Blocked(Blocked::Full) => self.full = true,
            Obstacle::Blocked(Blocked::Down) => self.down = true,
            Obstacle::Blocked(Blocked::Ceiling) => self.ceiling = true,
        }
        self.retry_ms = [self.retry_ms, retry_ms].into_iter().flatten().min();
    }

    fn none(&self) -> bool {
        !(self.full || self.down || self.ceiling || self.paced)
    }

    fn only_ceiling(&self) -> bool {
        self.ceiling && !(self.full || self.down || self.paced) && self.retry_ms.is_none()
    }
}

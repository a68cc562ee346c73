//! Finds routes that stand still or are slow, and routes for duplicates of their requests, within their limit.

use super::{Health, Route, RouteId, Shares};
use crate::pace::PATIENCE_MS_MIN;

/// A route is slow if what it has in flight takes longer than this multiple of the time that an idle route would need
/// for the same request.
const SLOW_FACTOR: f64 = 2.0;

impl Shares {
    /// Returns the routes that have answered nothing for too long.
    pub(crate) fn silent(&self, now_ms: u64) -> Vec<RouteId> {
        self.routes.iter().filter(|route| self.is_silent(route, now_ms)).map(|route| route.plan.id).collect()
    }

    /// Returns for how long no route has answered anything, in ms, if all that carry something are silent for too long.
    pub fn silence_ms(&self, now_ms: u64) -> Option<u64> {
        let busy = || self.routes.iter().filter(|route| route.flight_requests > 0);
        let waits = busy().map(|route| self.is_silent(route, now_ms).then(|| route.pace.waited_ms(now_ms)));
        waits.collect::<Option<Vec<u64>>>()?.into_iter().min()
    }

    /// Returns when the next route will have been silent for too long; `None` if no answer is pending on another one.
    pub(crate) fn next_silence_ms(&self, now_ms: u64) -> Option<u64> {
        self.routes.iter().filter_map(|route| self.patient_until_ms(route)).filter(|at_ms| *at_ms > now_ms).min()
    }

    /// Returns the slowest route, if what it has in flight takes much longer than a request of `bytes` would take on an
    /// idle route.
    pub(crate) fn slowest(&self, bytes: u64, now_ms: u64) -> Option<RouteId> {
        let is_idle = |route: &&Route| route.flight_requests == 0 && route.health == Health::Up;
        let idle_ms = self.wanted().filter(is_idle).filter_map(|route| route.needs_ms(bytes)).min_by(f64::total_cmp)?;
        let left = |route: &Route| Some((route.plan.id, route.remaining_ms(now_ms)?));
        let busy = self.routes.iter().filter(|route| route.flight_bytes > 0);
        let (slowest, left_ms) = busy.filter_map(left).max_by(|one, other| one.1.total_cmp(&other.1))?;
        (left_ms > SLOW_FACTOR * idle_ms).then_some(slowest)
    }

    /// Returns the route for a duplicate of a request of `bytes` that is in flight on `stalled`, if one has room and
    /// limits and ceilings allow it.
    pub(crate) fn pick_duplicate(
        &self,
        bytes: u64,
        stalled: RouteId,
        avoid: &[RouteId],
        now_ms: u64,
    ) -> Option<RouteId> {
        let least_bytes = self.route(stalled).map_or(0, |route| route.plan.window_bytes);
        let by_volume = (self.duplicate_fraction_max * self.listed_bytes as f64) as u64;
        let may_send = self.duplicate_fraction_max > 0.0
            && self.duplicate_bytes.saturating_add(bytes) <= by_volume.max(least_bytes);
        let allowance = self.allowance(bytes, 0);
        let fits = |route: &&Route| {
            route.plan.id != stalled
                && !avoid.contains(&route.plan.id)
                && self.is_lively(route, now_ms)
                && route.has_room(bytes)
                && allowance.covers(bytes, route.plan.usd_per_gb)
        };
        let soon = |route: &Route| route.needs_ms(route.flight_bytes + bytes).unwrap_or(f64::INFINITY);
        let by_time = |one: &&Route, other: &&Route| soon(one).total_cmp(&soon(other));
        self.wanted().filter(|_| may_send).filter(fits).min_by(by_time).map(|route| route.plan.id)
    }

    /// Records that `bytes` of the bytes sent are a duplicate of others in flight.
    pub(crate) fn duplicated(&mut self, bytes: u64) {
        self.duplicate_bytes += bytes;
        self.surplus_bytes += bytes;
    }

    /// Records that `bytes` in flight are no longer needed, because a duplicate has arrived.
    pub(crate) fn became_surplus(&mut self, bytes: u64) {
        self.surplus_bytes += bytes;
    }

    /// Records that `bytes` are no surplus any more: they are needed after all, or no longer in flight.
    pub(crate) fn no_surplus(&mut self, bytes: u64) {
        self.surplus_bytes = self.surplus_bytes.saturating_sub(bytes);
    }

    /// Returns the bytes of this run that were sent a second time because the first route had not answered.
    pub fn duplicate_bytes(&self) -> u64 {
        self.duplicate_bytes
    }

    pub(super) fn is_silent(&self, route: &Route, now_ms: u64) -> bool {
        route.pace.waited_ms(now_ms) >= PATIENCE_MS_MIN
            && self.patient_until_ms(route).is_some_and(|until_ms| now_ms >= until_ms)
    }

    pub(super) fn is_lively(&self, route: &Route, now_ms: u64) -> bool {
        route.health == Health::Up && !self.is_silent(route, now_ms)
    }

    /// Returns when the route will have been silent for too long; `None` without a request in flight, or before any
    /// route has answered. A route that has not answered yet is expected to be like the slowest of the others.
    fn patient_until_ms(&self, route: &Route) -> Option<u64> {
        if route.flight_requests == 0 {
            return None;
        }
        let usual_ms = route.pace.usual_ms().or(self.usual_ms_max)?;
        Some(route.pace.patient_until_ms(usual_ms.max(route.mean_request_ms())))
    }
}

impl Route {
    /// Returns how long the route usually takes to send a request like those in flight, in ms.
    fn mean_request_ms(&self) -> f64 {
        let mean_bytes = self.flight_bytes as f64 / self.flight_requests.max(1) as f64;
        self.window.bytes_per_ms().map_or(0.0, |rate| mean_bytes / rate.max(f64::MIN_POSITIVE))
    }

    /// Returns how long a request of `bytes` takes on the idle route; `None` before its first ack.
    fn needs_ms(&self, bytes: u64) -> Option<f64> {
        Some(bytes as f64 / self.window.bytes_per_ms().filter(|rate| *rate > 0.0)? + self.pace.usual_ms()?)
    }

    /// Returns how long the route still takes for what it has in flight; `None` before its first ack.
    fn remaining_ms(&self, now_ms: u64) -> Option<f64> {
        Some(self.needs_ms(self.flight_bytes)? - self.pace.waited_ms(now_ms) as f64)
    }
}

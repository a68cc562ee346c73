//! Chooses the route for the next bytes: by deficit against the plan's shares, and never above the cost ceiling.
//!
//! **Shares.** Among the routes with room, the one furthest behind its share is next. A route that comes back from an
//! outage starts level with the others. It does not catch up on what it missed, because it would then carry everything
//! for a while.
//!
//! **Ceilings.** A job may cost its ceiling × all its bytes; lost and repeated bytes are paid from the same budget. A
//! route is allowed only if, after the bytes in question, the cheapest price still covers the rest of the job. A
//! ceiling in bytes counts every byte sent, including lost and repeated ones, and nothing is sent beyond it.
//!
//! **Silence.** A route that has not answered for much longer than usual ([`Pace`]) gets no new bytes while another
//! route works. Its requests may also be sent over other routes, up to a limit on such duplicates.

mod duplicates;

use crate::RouteId;
use crate::pace::Pace;
use crate::window::Window;

/// One route of the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutePlan {
    /// Id in the program.
    pub id: RouteId,
    /// Planned share; only the ratio to the others counts.
    pub share: f64,
    /// Egress price of all its hops.
    pub usd_per_gb: f64,
    /// Bytes that may always be in flight; beyond them the window follows what the route carried recently ([`Window`]).
    pub window_bytes_min: u64,
    /// Bytes that may be in flight before anything has arrived.
    pub window_bytes_start: u64,
    /// Most bytes in flight.
    pub window_bytes: u64,
    /// Most requests in flight.
    pub window_requests: usize,
}

/// First rest of a failed route; it doubles with each failure up to [`REST_MS_MAX`].
pub const REST_MS_MIN: u64 = 500;
/// Longest rest of a failed route between two attempts.
pub const REST_MS_MAX: u64 = 8_000;

/// Health of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Up,
    /// Not used until `retry_ms`; then one request at a time until one succeeds.
    Resting {
        retry_ms: u64,
        rest_ms: u64,
    },
}

#[derive(Debug)]
struct Route {
    plan: RoutePlan,
    /// True if the route gets no more work; what it carries still counts.
    retired: bool,
    window: Window,
    pace: Pace,
    health: Health,
    done_bytes: u64,
    /// The value that `done_bytes` would have if the route had never been down; used to compare shares.
    level_bytes: f64,
    flight_bytes: u64,
    flight_requests: usize,
    /// Bytes that are paid for: all bytes sent, except those that were certainly never sent.
    paid_bytes: u64,
    /// Part of `paid_bytes` that deduplication and compression saved: these bytes cost nothing.
    saved_bytes: u64,
    /// Part of `saved_bytes` that deduplication saved.
    deduplicated_bytes: u64,
}

/// Why nothing can be sent now. If several reasons apply, the last one in this list is returned: it passes soonest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocked {
    /// No route is up: wait for the earliest rest to end.
    Down,
    /// Routes that are up would break the cost ceiling.
    Ceiling,
    /// Windows are full: wait for replies.
    Full,
}

/// The routes of one job and what they carry.
#[derive(Debug)]
pub struct Shares {
    routes: Vec<Route>,
    ceiling_usd_per_gb: Option<f64>,
    ceiling_usd: Option<f64>,
    ceiling_bytes: Option<u64>,
    /// Bytes that earlier runs carried.
    carried_before_bytes: u64,
    sent_before_bytes: u64,
    spent_before_usd: f64,
    listed_bytes: u64,
    owed_bytes: u64,
    /// The longest usual time to answer that a route has had.
    usual_ms_max: Option<f64>,
    duplicate_fraction_max: f64,
    /// Bytes sent over a second route while the first one had not answered.
    duplicate_bytes: u64,
    /// Bytes in flight that another request in flight carries as well, or has already carried.
    surplus_bytes: u64,
}

const BYTES_PER_GB: f64 = 1e9;

/// The sums of earlier runs of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Before {
    /// Bytes that arrived.
    pub carried_bytes: u64,
    /// Bytes that may have been sent, lost ones included.
    pub sent_bytes: u64,
    /// Their possible cost.
    pub spent_usd: f64,
}

/// State and totals of one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Id in the program.
    pub route: RouteId,
    /// Bytes that arrived.
    pub done_bytes: u64,
    /// Part of `done_bytes` that deduplication and compression saved.
    pub saved_bytes: u64,
    /// Part of `saved_bytes` that deduplication saved.
    pub deduplicated_bytes: u64,
    /// Requests in flight.
    pub flight_requests: usize,
    /// True if the route works now.
    pub up: bool,
    /// True if the route gets no more work.
    pub retired: bool,
}

impl Shares {
    /// Returns the shares of `plans`. `ceiling_usd_per_gb` limits the job's average price: spent ≤ ceiling × bytes
    /// [listed](Shares::listed), always.
    pub fn new(plans: &[RoutePlan], ceiling_usd_per_gb: Option<f64>) -> Self {
        let routes = plans.iter().map(Route::new).collect();
        Self {
            routes,
            ceiling_usd_per_gb,
            ceiling_usd: None,
            ceiling_bytes: None,
            carried_before_bytes: 0,
            sent_before_bytes: 0,
            spent_before_usd: 0.0,
            listed_bytes: 0,
            owed_bytes: 0,
            usual_ms_max: None,
            duplicate_fraction_max: 0.0,
            duplicate_bytes: 0,
            surplus_bytes: 0,
        }
    }

    /// Also allows duplicates: up to this fraction of the bytes listed, or up to the largest window of the stalled
    /// route if that is more. None are sent if it is 0.
    pub fn with_duplicates(self, fraction_max: f64) -> Self {
        Self { duplicate_fraction_max: fraction_max, ..self }
    }

    /// Also limits the cost of the whole job: spent ≤ `ceiling_usd`, always. The remainder of this budget pays for lost
    /// bytes, and the average price is that of all other bytes.
    pub fn within(self, ceiling_usd: Option<f64>) -> Self {
        Self { ceiling_usd, ..self }
    }

    /// Also limits the bytes sent: [`Shares::sent_bytes`] ≤ `ceiling_bytes`, always.
    pub fn within_bytes(self, ceiling_bytes: Option<u64>) -> Self {
        Self { ceiling_bytes, ..self }
    }

    /// Replaces the routes; all start level. A route with a known id gets its new share and keeps its price. A route
    /// that `plans` leaves out gets no more work; its requests in flight still count.
    pub fn change(&mut self, plans: &[RoutePlan], ceiling_usd_per_gb: Option<f64>) {
        self.ceiling_usd_per_gb = ceiling_usd_per_gb;
        for route in &mut self.routes {
            route.retired = true;
            route.level_bytes = 0.0;
        }
        for plan in plans {
            match self.route_mut(plan.id) {
                Some(route) => {
                    route.retired = false;
                    route.plan.share = plan.share;
                }
                None => self.routes.push(Route::new(plan)),
            }
        }
    }

    /// Adds `bytes` to what the job has to carry.
    pub fn listed(&mut self, bytes: u64) {
        self.listed_bytes += bytes;
        self.owed_bytes += bytes;
    }

    /// Records that `bytes` of the listed bytes no longer need to be sent: they arrived, or their object ended.
    pub fn settled(&mut self, bytes: u64) {
        self.owed_bytes = self.owed_bytes.saturating_sub(bytes);
    }

    /// Records that `bytes` of the listed bytes, settled already, are to be listed again (their object restarts).
    pub fn unlisted(&mut self, bytes: u64) {
        self.listed_bytes = self.listed_bytes.saturating_sub(bytes);
    }

    /// Adds the sums of earlier runs of the same job, because ceilings cover all runs.
    pub fn carried_before(&mut self, before: Before) {
        self.listed_bytes += before.carried_bytes;
        self.carried_before_bytes += before.carried_bytes;
        self.sent_before_bytes += before.sent_bytes;
        self.spent_before_usd += before.spent_usd;
    }

    /// Returns the route for the next `bytes`, leaving out those in `avoid`: the one furthest behind its share that has
    /// room.
    pub fn pick(&self, bytes: u64, avoid: &[RouteId], now_ms: u64) -> Result<RouteId, Blocked> {
        let mut blocked = Blocked::Down;
        let mut best: Option<&Route> = None;
        let allowance = self.allowance(bytes, bytes);
        for route in self.wanted().filter(|route| route.is_usable(now_ms) && !avoid.contains(&route.plan.id)) {
            if self.is_silent(route, now_ms) && self.has_lively(avoid, now_ms) {
                blocked = Blocked::Full;
            } else if !allowance.covers(bytes, route.plan.usd_per_gb) {
                blocked = blocked.max(Blocked::Ceiling);
            } else if !route.has_room(bytes) {
                blocked = Blocked::Full;
            } else if best.is_none_or(|best| route.fill(bytes).total_cmp(&best.fill(bytes)).is_lt()) {
                best = Some(route);
            }
        }
        best.map(|route| route.plan.id).ok_or(blocked)
    }

    /// Records that `bytes` are sent on `route`.
    pub fn sent(&mut self, route: RouteId, bytes: u64, now_ms: u64) {
        let Some(route) = self.route_mut(route) else { return };
        if route.flight_requests == 0 {
            route.pace.begins(now_ms);
        }
        route.flight_bytes += bytes;
        route.flight_requests += 1;
        route.paid_bytes += bytes;
    }

    /// Records that `route` answered a request.
    pub fn answered(&mut self, route: RouteId, now_ms: u64) {
        if let Some(route) = self.route_mut(route) {
            route.pace.answered(now_ms);
            let usual_ms = route.pace.usual_ms();
            let longest = [self.usual_ms_max, usual_ms].into_iter().flatten().reduce(f64::max);
            self.usual_ms_max = longest;
        }
    }

    /// Returns the bytes in flight on `route`.
    pub fn in_flight_bytes(&self, route: RouteId) -> u64 {
        self.route(route).map_or(0, |route| route.flight_bytes)
    }

    /// Records that `bytes` meant for `route` were certainly not sent: they cost nothing. They stay in flight until
    /// their outcome is reported.
    pub fn unsent(&mut self, route: RouteId, bytes: u64) {
        if let Some(route) = self.route_mut(route) {
            route.paid_bytes -= bytes;
        }
    }

    /// Records that `bytes` of those sent on `route` were not needed, because the body was deduplicated (these are
    /// `deduplicated_bytes`) or compressed: they cost nothing. The caller reports the body as [done](Shares::done) too.
    /// Ceilings in bytes and shares count the bytes of the objects.
    pub fn saved(&mut self, route: RouteId, bytes: u64, deduplicated_bytes: u64) {
        if let Some(route) = self.route_mut(route) {
            route.saved_bytes += bytes;
            route.deduplicated_bytes += deduplicated_bytes;
        }
    }

    /// Records that `bytes` sent on `route` at `sent_ms` arrived, for the window. Call it before [`Shares::done`].
    pub fn acked(&mut self, route: RouteId, bytes: u64, sent_ms: u64, now_ms: u64) {
        if let Some(route) = self.route_mut(route) {
            route.window.acked(bytes, sent_ms, now_ms);
        }
    }

    /// Records that `bytes` in flight on `route` arrived. Returns whether the route was resting and is up again.
    pub fn done(&mut self, route: RouteId, bytes: u64) -> bool {
        if let Some(route) = self.route_mut(route) {
            route.land(bytes);
            route.done_bytes += bytes;
            route.level_bytes += bytes as f64;
        }
        self.answers(route)
    }

    /// Records that `bytes` in flight on `route` failed although the route answered. Returns the same as
    /// [`Shares::done`].
    pub fn refused(&mut self, route: RouteId, bytes: u64) -> bool {
        self.undone(route, bytes);
        self.answers(route)
    }

    /// Records that `bytes` in flight on `route` did not arrive.
    pub fn undone(&mut self, route: RouteId, bytes: u64) {
        if let Some(route) = self.route_mut(route) {
            route.land(bytes);
        }
    }

    /// Marks a resting route as up again, level with the others. Returns whether it was resting.
    fn answers(&mut self, id: RouteId) -> bool {
        if self.route_mut(id).is_none_or(|route| route.health == Health::Up) {
            return false;
        }
        let level = self
            .wanted()
            .filter(|route| route.plan.id != id && route.health == Health::Up)
            .map(|route| route.fill(0))
            .min_by(f64::total_cmp);
        let Some(route) = self.route_mut(id) else { return false };
        route.health = Health::Up;
        if let Some(level) = level.map(|level| level * route.plan.share).filter(|level| level.is_finite()) {
            route.level_bytes = route.level_bytes.max(level);
        }
        true
    }

    /// Records that the route failed: it rests. Returns whether it was up before.
    pub fn rest(&mut self, route: RouteId, now_ms: u64) -> bool {
        let Some(route) = self.route_mut(route) else { return false };
        match route.health {
            Health::Up => {
                route.health = Health::Resting { retry_ms: now_ms + REST_MS_MIN, rest_ms: REST_MS_MIN };
                true
            }
            // Several requests of one failure return together; only one that fails after the rest counts as a new
            // failure.
            Health::Resting { retry_ms, rest_ms } if now_ms >= retry_ms => {
                let rest_ms = (rest_ms * 2).min(REST_MS_MAX);
                route.health = Health::Resting { retry_ms: now_ms + rest_ms, rest_ms };
                false
            }
            Health::Resting { .. } => false,
        }
    }

    /// Returns whether a route that is not in `avoid` works.
    fn has_lively(&self, avoid: &[RouteId], now_ms: u64) -> bool {
        self.wanted().any(|route| !avoid.contains(&route.plan.id) && self.is_lively(route, now_ms))
    }

    /// Returns whether no route at all is up.
    pub fn all_down(&self) -> bool {
        self.wanted().all(|route| route.health != Health::Up)
    }

    /// Returns when the next resting route not in `avoid` may be tried; `None` if none of them still has to wait.
    pub fn next_retry_ms(&self, avoid: &[RouteId], now_ms: u64) -> Option<u64> {
        let retry = |route: &Route| match route.health {
            Health::Resting { retry_ms, .. } if retry_ms > now_ms && !avoid.contains(&route.plan.id) => Some(retry_ms),
            _ => None,
        };
        self.wanted().filter_map(retry).min()
    }

    /// Returns whether a route that is up carries anything.
    pub fn up_and_busy(&self) -> bool {
        self.routes.iter().any(|route| route.health == Health::Up && route.flight_requests > 0)
    }

    /// Returns what each route carries, in the program's order.
    pub fn activity(&self) -> impl Iterator<Item = Activity> + '_ {
        self.routes.iter().map(|route| Activity {
            route: route.plan.id,
            done_bytes: route.done_bytes,
            saved_bytes: route.saved_bytes,
            deduplicated_bytes: route.deduplicated_bytes,
            flight_requests: route.flight_requests,
            up: route.health == Health::Up,
            retired: route.retired,
        })
    }

    /// Returns the routes that get work.
    pub fn ids(&self) -> impl Iterator<Item = RouteId> + '_ {
        self.wanted().map(|route| route.plan.id)
    }

    fn wanted(&self) -> impl Iterator<Item = &Route> + '_ {
        self.routes.iter().filter(|route| !route.retired)
    }

    /// Returns the bytes sent over all runs, including lost ones and those that may or may not have been sent.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_before_bytes + self.routes.iter().map(|route| route.paid_bytes).sum::<u64>()
    }

    /// Returns whether the bytes still to be sent exceed what the ceiling in bytes leaves.
    pub fn lacks_bytes(&self) -> bool {
        let rest_bytes = self.owed_bytes.saturating_sub(self.useful_flight_bytes());
        self.ceiling_bytes.is_some_and(|most_bytes| self.sent_bytes() + rest_bytes > most_bytes)
    }

    /// Returns the cost of the bytes sent, at the plan's prices, including lost ones and those that may or may not have
    /// been sent. Until a body's savings are [recorded](Shares::saved), it costs its full length.
    pub fn spent_usd(&self) -> f64 {
        let cost = |route: &Route| cost_usd(route.paid_bytes - route.saved_bytes, route.plan.usd_per_gb);
        self.spent_before_usd + self.routes.iter().map(cost).sum::<f64>()
    }

    /// Returns whether anything limits what the job may send or spend.
    pub fn has_ceiling(&self) -> bool {
        self.ceiling_usd_per_gb.is_some() || self.ceiling_usd.is_some() || self.ceiling_bytes.is_some()
    }

    /// Returns the most that all bytes listed so far may cost under the lower of both ceilings; `None` without a
    /// ceiling.
    pub fn most_usd(&self) -> Option<f64> {
        let lost_usd = self.ceiling_usd.map_or(0.0, |_| self.lost_usd());
        let by_mean_price = self.ceiling_usd_per_gb.map(|ceiling| cost_usd(self.listed_bytes, ceiling) + lost_usd);
        by_mean_price.into_iter().chain(self.ceiling_usd).reduce(f64::min)
    }

    /// Returns the cost of bytes that did not arrive; for earlier runs, the cost above the ceiling on the average
    /// price.
    fn lost_usd(&self) -> f64 {
        let mean_usd = self.ceiling_usd_per_gb.map_or(0.0, |ceiling| cost_usd(self.carried_before_bytes, ceiling));
        let lost = |route: &Route| {
            let useful_bytes = route.done_bytes + route.flight_bytes;
            cost_usd(route.paid_bytes.saturating_sub(useful_bytes), route.plan.usd_per_gb)
        };
        (self.spent_before_usd - mean_usd).max(0.0) + self.routes.iter().map(lost).sum::<f64>()
    }

    /// Returns what the ceilings allow for the next `bytes`, of which `useful_bytes` are not in flight already. It is the
    /// same for all routes, and costs a look at each.
    fn allowance(&self, bytes: u64, useful_bytes: u64) -> Allowance {
        if bytes == 0 {
            return Allowance::Anything;
        }
        if self.ceiling_bytes.is_some_and(|most_bytes| self.sent_bytes() + bytes > most_bytes) {
            return Allowance::Nothing;
        }
        let Some(most_usd) = self.most_usd() else { return Allowance::Anything };
        let rest_bytes = self.owed_bytes.saturating_sub(self.useful_flight_bytes() + useful_bytes);
        let cheapest = self.wanted().map(|route| route.plan.usd_per_gb).fold(f64::INFINITY, f64::min);
        Allowance::Within { most_usd, spent_usd: self.spent_usd(), rest_usd: cost_usd(rest_bytes, cheapest) }
    }

    /// Returns the position of a route. Most programs number their routes from zero.
    fn position(&self, id: RouteId) -> Option<usize> {
        let is_it = |route: &Route| route.plan.id == id;
        let guess = id.0 as usize;
        if self.routes.get(guess).is_some_and(is_it) {
            return Some(guess);
        }
        self.routes.iter().position(is_it)
    }

    fn useful_flight_bytes(&self) -> u64 {
        let flight_bytes: u64 = self.routes.iter().map(|route| route.flight_bytes).sum();
        flight_bytes.saturating_sub(self.surplus_bytes)
    }

    fn route(&self, id: RouteId) -> Option<&Route> {
        self.position(id).map(|at| &self.routes[at])
    }

    fn route_mut(&mut self, id: RouteId) -> Option<&mut Route> {
        let at = self.position(id)?;
        self.routes.get_mut(at)
    }
}

/// Answer of the ceilings for the next bytes.
enum Allowance {
    Anything,
    Nothing,
    /// The cost of the bytes, added to what is spent and to the least that the rest costs, must stay within the most.
    Within {
        most_usd: f64,
        spent_usd: f64,
        rest_usd: f64,
    },
}

impl Allowance {
    fn covers(&self, bytes: u64, usd_per_gb: f64) -> bool {
        match self {
            Self::Anything => true,
            Self::Nothing => false,
            Self::Within { most_usd, spent_usd, rest_usd } => {
                let needed_usd = cost_usd(bytes, usd_per_gb) + rest_usd;
                // A relative 1e-9 absorbs the rounding of sums of prices that equal the ceiling exactly.
                spent_usd + needed_usd <= most_usd * (1.0 + 1e-9)
            }
        }
    }
}

impl Route {
    fn new(plan: &RoutePlan) -> Self {
        Self {
            // A window of no requests would make a route that is up but never has room.
            plan: RoutePlan { window_requests: plan.window_requests.max(1), ..*plan },
            retired: false,
            window: Window::new(plan.window_bytes_min, plan.window_bytes_start, plan.window_bytes),
            pace: Pace::default(),
            health: Health::Up,
            done_bytes: 0,
            level_bytes: 0.0,
            flight_bytes: 0,
            flight_requests: 0,
            paid_bytes: 0,
            saved_bytes: 0,
            deduplicated_bytes: 0,
        }
    }

    fn is_usable(&self, now_ms: u64) -> bool {
        match self.health {
            Health::Up => true,
            Health::Resting { retry_ms, .. } => now_ms >= retry_ms,
        }
    }

    fn has_room(&self, bytes: u64) -> bool {
        let fits = bytes == 0 || self.flight_bytes == 0 || self.flight_bytes + bytes <= self.window.bytes();
        match self.health {
            // A body longer than the window is still sent, alone.
            Health::Up => self.flight_requests < self.plan.window_requests && fits,
            Health::Resting { .. } => self.flight_requests == 0,
        }
    }

    /// Returns how full the route would be with `bytes` more, relative to its share. The smallest is furthest behind.
    fn fill(&self, bytes: u64) -> f64 {
        let level_bytes = self.level_bytes + (self.flight_bytes + bytes) as f64;
        // A route without a share is the last resort, even before anything has been sent.
        if self.plan.share > 0.0 { level_bytes / self.plan.share } else { f64::INFINITY }
    }

    fn land(&mut self, bytes: u64) {
        self.flight_bytes -= bytes;
        self.flight_requests -= 1;
    }
}

fn cost_usd(bytes: u64, usd_per_gb: f64) -> f64 {
    bytes as f64 / BYTES_PER_GB * usd_per_gb
}

#[cfg(test)]
mod tests;

//! Which route the next bytes take: by deficit against the plan's shares, never dearer than the ceiling allows.

use crate::RouteId;

/// One route as the plan wants it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutePlan {
    /// Number in the program.
    pub id: RouteId,
    /// Wanted share; only the ratio to the others counts.
    pub share: f64,
    /// Egress price of all its hops.
    pub usd_per_gb: f64,
    /// Most bytes in flight.
    pub window_bytes: u64,
    /// Most requests in flight.
    pub window_requests: usize,
}

/// A route that failed rests so long at first; doubled with each failure up to [`REST_MS_MAX`].
pub const REST_MS_MIN: u64 = 500;
/// Longest rest of a failed route between two tries.
pub const REST_MS_MAX: u64 = 8_000;

/// Whether a route is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Up,
    /// Not used until `retry_ms`; then one request at a time until one succeeds.
    Resting { since_ms: u64, retry_ms: u64, rest_ms: u64 },
}

#[derive(Debug)]
struct Route {
    plan: RoutePlan,
    health: Health,
    done_bytes: u64,
    flight_bytes: u64,
    flight_requests: usize,
}

/// Why nothing can be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Windows are full: wait for replies.
    Full,
    /// No route is up: wait for the earliest rest to end.
    Down,
    /// Routes that are up would break the cost ceiling.
    Ceiling,
}

/// The routes of one job and what they carry.
#[derive(Debug)]
pub struct Shares {
    routes: Vec<Route>,
    ceiling_usd_per_gb: Option<f64>,
    spent_usd: f64,
}

const BYTES_PER_GB: f64 = 1e9;

impl Shares {
    /// `ceiling_usd_per_gb` bounds the mean price of what is sent: at any time
    /// spent ≤ ceiling × (bytes done + bytes in flight), so the job never costs more than ceiling × its bytes.
    pub fn new(plans: &[RoutePlan], ceiling_usd_per_gb: Option<f64>) -> Self {
        let fresh = |plan: &RoutePlan| Route {
            plan: *plan,
            health: Health::Up,
            done_bytes: 0,
            flight_bytes: 0,
            flight_requests: 0,
        };
        Self { routes: plans.iter().map(fresh).collect(), ceiling_usd_per_gb, spent_usd: 0.0 }
    }

    /// The route for the next `bytes`, leaving out those in `avoid`: the one furthest behind its share that has room.
    pub fn pick(&self, bytes: u64, avoid: &[RouteId], now_ms: u64) -> Result<RouteId, Blocked> {
        let usable: Vec<&Route> =
            self.routes.iter().filter(|route| route.is_usable(now_ms) && !avoid.contains(&route.plan.id)).collect();
        if usable.is_empty() {
            return Err(Blocked::Down);
        }
        let affordable: Vec<&Route> = usable.into_iter().filter(|route| self.allows(route, bytes)).collect();
        if affordable.is_empty() {
            return Err(Blocked::Ceiling);
        }
        affordable
            .into_iter()
            .filter(|route| route.has_room(bytes, now_ms))
            .min_by(|a, b| a.fill(bytes).total_cmp(&b.fill(bytes)))
            .map(|route| route.plan.id)
            .ok_or(Blocked::Full)
    }

    /// `bytes` go out on `route`.
    pub fn sent(&mut self, route: RouteId, bytes: u64) {
        let Some(route) = self.routes.iter_mut().find(|candidate| candidate.plan.id == route) else { return };
        route.flight_bytes += bytes;
        route.flight_requests += 1;
        self.spent_usd += cost_usd(bytes, route.plan.usd_per_gb);
    }

    /// `bytes` that were in flight on `route` arrived. Returns whether the route was resting and is up again.
    pub fn done(&mut self, route: RouteId, bytes: u64) -> bool {
        let Some(route) = self.route_mut(route) else { return false };
        route.land(bytes);
        route.done_bytes += bytes;
        let recovered = route.health != Health::Up;
        route.health = Health::Up;
        recovered
    }

    /// `bytes` that were in flight on `route` did not arrive, through no fault of the route.
    pub fn undone(&mut self, route: RouteId, bytes: u64) {
        if let Some(route) = self.route_mut(route) {
            route.land(bytes);
        }
    }

    /// The route failed: it rests. Returns whether it was up before.
    pub fn rest(&mut self, route: RouteId, now_ms: u64) -> bool {
        let Some(route) = self.route_mut(route) else { return false };
        match route.health {
            Health::Up => {
                route.health = Health::Resting { since_ms: now_ms, retry_ms: now_ms + REST_MS_MIN, rest_ms: REST_MS_MIN };
                true
            }
            // Several requests of one failure come back together; only one after the rest counts as a new failure.
            Health::Resting { since_ms, retry_ms, rest_ms } if now_ms >= retry_ms => {
                let rest_ms = (rest_ms * 2).min(REST_MS_MAX);
                route.health = Health::Resting { since_ms, retry_ms: now_ms + rest_ms, rest_ms };
                false
            }
            Health::Resting { .. } => false,
        }
    }

    /// Since when no route at all has been up; `None` while one is.
    pub fn all_down_since_ms(&self) -> Option<u64> {
        let since = |route: &Route| match route.health {
            Health::Up => None,
            Health::Resting { since_ms, .. } => Some(since_ms),
        };
        self.routes.iter().map(since).collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max())
    }

    /// When the next resting route may be tried; `None` when none rests.
    pub fn next_retry_ms(&self) -> Option<u64> {
        self.routes
            .iter()
            .filter_map(|route| match route.health {
                Health::Resting { retry_ms, .. } => Some(retry_ms),
                Health::Up => None,
            })
            .min()
    }

    /// Bytes that arrived over each route, and whether it is up, in the program's order.
    pub fn activity(&self) -> impl Iterator<Item = (RouteId, u64, bool)> + '_ {
        self.routes.iter().map(|route| (route.plan.id, route.done_bytes, route.health == Health::Up))
    }

    /// Routes there are.
    pub fn ids(&self) -> impl Iterator<Item = RouteId> + '_ {
        self.routes.iter().map(|route| route.plan.id)
    }

    /// What was sent cost so much, at the plan's prices, lost bytes included.
    pub fn spent_usd(&self) -> f64 {
        self.spent_usd
    }

    fn allows(&self, route: &Route, bytes: u64) -> bool {
        let Some(ceiling) = self.ceiling_usd_per_gb.filter(|_| bytes > 0) else { return true };
        let counted: u64 = self.routes.iter().map(|route| route.done_bytes + route.flight_bytes).sum();
        // A relative 1e-9 absorbs the rounding of sums of prices that equal the ceiling exactly.
        let budget_usd = cost_usd(counted + bytes, ceiling) * (1.0 + 1e-9);
        self.spent_usd + cost_usd(bytes, route.plan.usd_per_gb) <= budget_usd
    }

    fn route_mut(&mut self, id: RouteId) -> Option<&mut Route> {
        self.routes.iter_mut().find(|route| route.plan.id == id)
    }
}

impl Route {
    fn is_usable(&self, now_ms: u64) -> bool {
        match self.health {
            Health::Up => true,
            Health::Resting { retry_ms, .. } => now_ms >= retry_ms,
        }
    }

    fn has_room(&self, bytes: u64, now_ms: u64) -> bool {
        match self.health {
            // A body longer than the window still goes, alone.
            Health::Up => {
                self.flight_requests < self.plan.window_requests
                    && (self.flight_bytes == 0 || self.flight_bytes + bytes <= self.plan.window_bytes)
            }
            Health::Resting { .. } => self.is_usable(now_ms) && self.flight_requests == 0,
        }
    }

    /// How full the route would be with `bytes` more, relative to its share. The smallest is furthest behind.
    fn fill(&self, bytes: u64) -> f64 {
        (self.done_bytes + self.flight_bytes + bytes) as f64 / self.plan.share
    }

    fn land(&mut self, bytes: u64) {
        self.flight_bytes -= bytes;
        self.flight_requests -= 1;
    }
}

fn cost_usd(bytes: u64, usd_per_gb: f64) -> f64 {
    bytes as f64 / BYTES_PER_GB * usd_per_gb
}

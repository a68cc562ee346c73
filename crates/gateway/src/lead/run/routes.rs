//! Keeps the routes: those of the plan, the changes of later plans, and which routes are down.

use super::order_queue::RouteSource;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tradewind_contract::RouteSpec;
use tradewind_wire::RouteId;
use tradewind_wire::shares::RoutePlan;

/// Bytes that may always be in flight on one route, in chunks. The route's recent throughput limits the bytes beyond
/// these, so that a link that slows down soon holds only seconds of work.
const WINDOW_CHUNKS_MIN: u64 = 8;
/// Bytes in flight before the first ack, in chunks: one for each connection of the widest hop, because a long link
/// needs them all from the start. The allowance shrinks as acks arrive.
const WINDOW_CHUNKS_START: u64 = 64;
/// Maximum bytes in flight on one route, in chunks: enough for the memory of source and sink and a long fat link
/// between them.
const WINDOW_CHUNKS_MAX: u64 = 24;
/// Lower limit of that maximum, however small the chunks.
const WINDOW_BYTES: u64 = 64 << 20;
/// Maximum requests in flight on one route.
const WINDOW_REQUESTS: usize = 256;
/// A route is reported if it is down for this long; one that comes back sooner is not.
const DOWN_REPORTED_AFTER: Duration = Duration::from_secs(1);

/// The new routes of a running job.
#[derive(Clone)]
pub struct Rerouted {
    /// All routes that get work.
    pub routes: Vec<RouteSpec>,
    /// The source of each route: where its orders go.
    pub sources: HashMap<RouteId, RouteSource>,
    /// As [`tradewind_contract::JobSpec::ceiling_usd_per_gb`].
    pub ceiling_usd_per_gb: Option<f64>,
    /// As [`tradewind_contract::JobSpec::rate_limit_bytes_per_s`].
    pub rate_limit_bytes_per_s: Option<u64>,
}

/// Maximum number of reasons in the message of a job that ends because no route works.
const REASONS_MAX: usize = 3;

/// Routes that are down.
#[derive(Debug, Default)]
pub(super) struct DownRoutes {
    /// The time since when (ms), and whether that was reported.
    since: HashMap<RouteId, (u64, bool)>,
    /// Why the latest lost request of each route was lost.
    reasons: HashMap<RouteId, String>,
}

impl DownRoutes {
    pub(super) fn went_down(&mut self, route: RouteId, now_ms: u64) {
        self.since.insert(route, (now_ms, false));
    }

    /// Notes why a request was lost on its route.
    pub(super) fn lost(&mut self, route: RouteId, why: &str) {
        self.reasons.insert(route, why.to_owned());
    }

    /// Returns why the routes that are down are down: each reason once, and only some of many.
    pub(super) fn reasons(&self) -> String {
        let down = self.reasons.iter().filter(|(route, _)| self.since.contains_key(*route));
        let reasons: BTreeSet<&str> = down.map(|(_, why)| why.as_str()).collect();
        reasons.into_iter().take(REASONS_MAX).collect::<Vec<_>>().join("; ")
    }

    /// Removes a route that is up again. Returns whether it had been reported as down.
    pub(super) fn is_up(&mut self, route: RouteId) -> bool {
        self.reasons.remove(&route);
        matches!(self.since.remove(&route), Some((_, true)))
    }

    /// Removes routes that get no more work.
    pub(super) fn keep(&mut self, plans: &[RoutePlan]) {
        let is_planned = |route: &RouteId| plans.iter().any(|plan| plan.id == *route);
        self.since.retain(|route, _| is_planned(route));
        self.reasons.retain(|route, _| is_planned(route));
    }

    /// Returns the routes that stay down and must be reported now. A route that loses one of several connections, or
    /// reconnects at once, is not reported.
    pub(super) fn take_unreported(&mut self, now_ms: u64) -> Vec<RouteId> {
        let stays = |(since_ms, is_reported): &(u64, bool)| {
            !is_reported && now_ms - since_ms >= DOWN_REPORTED_AFTER.as_millis() as u64
        };
        let routes: Vec<RouteId> = self.since.iter().filter(|(_, down)| stays(down)).map(|(route, _)| *route).collect();
        self.since.extend(routes.iter().map(|route| (*route, (now_ms, true))));
        routes
    }
}

pub(super) fn route_plan(route: &RouteSpec, chunk_bytes: u64) -> RoutePlan {
    RoutePlan {
        id: RouteId(route.id),
        share: route.share,
        usd_per_gb: route.usd_per_gb,
        window_bytes_min: WINDOW_CHUNKS_MIN * chunk_bytes,
        window_bytes_start: WINDOW_CHUNKS_START * chunk_bytes,
        window_bytes: (WINDOW_CHUNKS_MAX * chunk_bytes).max(WINDOW_BYTES),
        window_requests: WINDOW_REQUESTS,
    }
}

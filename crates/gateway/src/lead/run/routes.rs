//! Which routes there are: as the plan gave them, as a later plan changes them, and which of them are down.

use super::order_queue::RouteSource;
use std::collections::HashMap;
use std::time::Duration;
use tradewind_contract::RouteSpec;
use tradewind_wire::RouteId;
use tradewind_wire::shares::RoutePlan;

/// Bytes that may always be in flight on one route, in chunks. Beyond them it is given what it lately carried, so that a
/// link that slows down soon holds only seconds of work.
const WINDOW_CHUNKS_MIN: u64 = 8;
/// Bytes in flight before the first ack, in chunks: one for each connection of the widest hop, all of which a long link
/// needs from the start. It fades as acks come.
const WINDOW_CHUNKS_START: u64 = 64;
/// Most bytes in flight on one route, in chunks: enough for the memory of source and sink and a long fat link between them.
const WINDOW_CHUNKS_MAX: u64 = 24;
/// The most bytes in flight on one route are at least so many, however small the chunks.
const WINDOW_BYTES: u64 = 64 << 20;
/// Requests in flight on one route.
const WINDOW_REQUESTS: usize = 256;
/// A route that is down for this time is reported; one that comes back sooner is not.
const DOWN_REPORTED_AFTER: Duration = Duration::from_secs(1);

/// The routes of a running job from now on.
#[derive(Clone)]
pub struct Rerouted {
    /// All that are given work.
    pub routes: Vec<RouteSpec>,
    /// Where their orders go.
    pub sources: HashMap<RouteId, RouteSource>,
    /// As [`tradewind_contract::JobSpec::ceiling_usd_per_gb`].
    pub ceiling_usd_per_gb: Option<f64>,
    /// As [`tradewind_contract::JobSpec::rate_limit_bytes_per_s`].
    pub rate_limit_bytes_per_s: Option<u64>,
}

/// Routes that are down, since when (ms), and whether that was reported.
#[derive(Debug, Default)]
pub(super) struct DownRoutes(HashMap<RouteId, (u64, bool)>);

impl DownRoutes {
    pub(super) fn went_down(&mut self, route: RouteId, now_ms: u64) {
        self.0.insert(route, (now_ms, false));
    }

    /// Returns whether it was reported to be down.
    pub(super) fn is_up(&mut self, route: RouteId) -> bool {
        matches!(self.0.remove(&route), Some((_, true)))
    }

    /// Forgets routes that are given no more work.
    pub(super) fn keep(&mut self, plans: &[RoutePlan]) {
        self.0.retain(|route, _| plans.iter().any(|plan| plan.id == *route));
    }

    /// Routes that stay down and are to be reported now. One lost connection of several, or one that is made anew at
    /// once, is none.
    pub(super) fn take_unreported(&mut self, now_ms: u64) -> Vec<RouteId> {
        let stays =
            |(since_ms, told): &(u64, bool)| !told && now_ms - since_ms >= DOWN_REPORTED_AFTER.as_millis() as u64;
        let routes: Vec<RouteId> = self.0.iter().filter(|(_, down)| stays(down)).map(|(route, _)| *route).collect();
        self.0.extend(routes.iter().map(|route| (*route, (now_ms, true))));
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

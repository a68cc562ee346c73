//! Keeps the routes: those of the plan, the changes of later plans, and which routes are down.

use super::order_queue::RouteSource;
use crate::node::work::Failure;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tradewind_contract::RouteSpec;
use tradewind_wire::shares::RoutePlan;
use tradewind_wire::{Fault, RouteId};

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

/// A job ends if all its routes have damaged everything for this long, from the first damage to the last. A connection
/// that damages a few bodies, and a machine that is replaced, take less.
const DAMAGED: Duration = Duration::from_secs(10);
/// Requests that a route must have damaged in a row by then. While it rests, it gets one at a time.
const DAMAGED_REQUESTS_MIN: u32 = 4;

/// Maximum number of reasons in the message of a job that ends because no route works.
const REASONS_MAX: usize = 3;

/// Routes that are down.
#[derive(Debug, Default)]
pub(super) struct DownRoutes {
    /// The time since when (ms), and whether that was reported.
    since: HashMap<RouteId, (u64, bool)>,
    /// Why the latest lost request of each route was lost.
    reasons: HashMap<RouteId, String>,
    /// Routes on which messages were damaged since the last that was not.
    damage: HashMap<RouteId, Damage>,
    /// The way over each route, for messages about it.
    ways: HashMap<RouteId, String>,
}

#[derive(Clone, Copy, Debug)]
struct Damage {
    since_ms: u64,
    latest_ms: u64,
    requests: u32,
}

impl DownRoutes {
    /// Begins with the routes of a plan.
    pub(super) fn of(routes: &[RouteSpec]) -> Self {
        Self { ways: routes.iter().map(way).collect(), ..Self::default() }
    }

    pub(super) fn went_down(&mut self, route: RouteId, now_ms: u64) {
        self.since.insert(route, (now_ms, false));
    }

    /// Notes why a request failed that was sent over this route.
    pub(super) fn failed(&mut self, route: RouteId, failure: &Failure, now_ms: u64) {
        if failure.is_damaged() {
            let first = Damage { since_ms: now_ms, latest_ms: now_ms, requests: 0 };
            let damage = self.damage.entry(route).or_insert(first);
            damage.latest_ms = now_ms;
            damage.requests += 1;
            let way = self.ways.get(&route).map_or("a route", String::as_str);
            self.reasons.insert(route, format!("everything that came {way} was damaged"));
        } else if matches!(failure.fault, Fault::Lost | Fault::RouteDown) {
            self.reasons.insert(route, failure.message.clone());
        } else {
            self.intact(route);
        }
    }

    /// Notes an answer that has passed the route in both directions undamaged.
    pub(super) fn intact(&mut self, route: RouteId) {
        self.damage.remove(&route);
    }

    /// Returns why the job, which may stall for `stall`, must end because every route damages everything.
    pub(super) fn damaged_everywhere(&self, stall: Duration) -> Option<String> {
        let patience = DAMAGED.min(stall);
        let is_damaged = |route: &RouteId| {
            self.damage.get(route).is_some_and(|damage| {
                damage.requests >= DAMAGED_REQUESTS_MIN
                    && damage.latest_ms.saturating_sub(damage.since_ms) >= patience.as_millis() as u64
            })
        };
        let all = !self.ways.is_empty() && self.ways.keys().all(is_damaged);
        all.then(|| format!("{} for {} s", self.reasons(), patience.as_secs()))
    }

    /// Returns why everything on a route is damaged, if it is.
    pub(super) fn damage(&self, route: RouteId) -> Option<&str> {
        self.damage.get(&route).and_then(|_| self.reasons.get(&route)).map(String::as_str)
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
        self.intact(route);
        matches!(self.since.remove(&route), Some((_, true)))
    }

    /// Switches to the routes of another plan: the others get no more work.
    pub(super) fn keep(&mut self, routes: &[RouteSpec]) {
        self.ways = routes.iter().map(way).collect();
        self.since.retain(|route, _| self.ways.contains_key(route));
        self.reasons.retain(|route, _| self.ways.contains_key(route));
        self.damage.retain(|route, _| self.ways.contains_key(route));
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

/// The way over a route from its source to its sink, in words. The first two stations are lead and source.
fn way(route: &RouteSpec) -> (RouteId, String) {
    let words = match route.nodes.get(1..) {
        Some([source, relays @ .., sink]) => match relays {
            [] => format!("from {source} to {sink}"),
            [relay] => format!("over relay {relay}"),
            _ => format!("over relays {}", relays.join(", ")),
        },
        _ => "over a route".to_owned(),
    };
    (RouteId(route.id), words)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(all: &[&[&str]]) -> Vec<RouteSpec> {
        let route = |(id, nodes): (u16, &&[&str])| RouteSpec {
            id,
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            share: 1.0,
            usd_per_gb: 0.0,
        };
        (0..).zip(all).map(route).collect()
    }

    fn damage_all(down: &mut DownRoutes, route: RouteId, from_ms: u64, until_ms: u64) {
        for now_ms in (from_ms..=until_ms).step_by(1_000) {
            down.failed(route, &Failure::damaged("a chunk was damaged"), now_ms);
        }
        down.went_down(route, from_ms);
    }

    const STALL: Duration = Duration::from_secs(60);
    const ONE: RouteId = RouteId(0);
    const OTHER: RouteId = RouteId(1);

    #[test]
    fn a_job_ends_when_its_only_route_has_damaged_everything_for_ten_seconds() {
        let mut down = DownRoutes::of(&routes(&[&["home", "home", "relay-1", "sink"]]));
        damage_all(&mut down, ONE, 1_000, 10_000);
        assert_eq!(down.damaged_everywhere(STALL), None);
        assert!(down.damaged_everywhere(Duration::from_secs(9)).is_some());
        let why = "everything that came over relay relay-1 was damaged for 10 s";
        damage_all(&mut down, ONE, 11_000, 11_000);
        assert_eq!(down.damaged_everywhere(STALL).as_deref(), Some(why));
        down.failed(ONE, &Failure::new(Fault::Lost, "unavailable", "lost the connection"), 11_500);
        assert!(down.damaged_everywhere(STALL).is_some(), "other losses prove nothing");
        down.intact(ONE);
        assert_eq!(down.damaged_everywhere(STALL), None);
        for now_ms in [30_000, 45_000, 60_000] {
            damage_all(&mut down, ONE, now_ms, now_ms);
        }
        assert_eq!(down.damaged_everywhere(STALL), None, "three requests are few");
    }

    /// The next request may still travel over a slow link, or wait for a route that is down.
    #[test]
    fn requests_that_were_damaged_together_do_not_end_a_job() {
        let mut down = DownRoutes::of(&routes(&[&["home", "home", "relay-1", "sink"]]));
        for now_ms in [0, 0, 0, 0, 9_999] {
            damage_all(&mut down, ONE, now_ms, now_ms);
            assert_eq!(down.damaged_everywhere(STALL), None);
        }
        damage_all(&mut down, ONE, 40_000, 40_000);
        assert!(down.damaged_everywhere(STALL).is_some());
    }

    #[test]
    fn a_job_continues_while_one_route_does_not_damage_everything() {
        let mut down = DownRoutes::of(&routes(&[&["lead", "source", "r1", "r2", "sink"], &["lead", "source", "sink"]]));
        damage_all(&mut down, ONE, 0, 20_000);
        assert_eq!(down.damaged_everywhere(STALL), None);
        damage_all(&mut down, OTHER, 0, 20_000);
        let why = "everything that came from source to sink was damaged; \
            everything that came over relays r1, r2 was damaged for 10 s";
        assert_eq!(down.damaged_everywhere(STALL).as_deref(), Some(why));
        down.failed(OTHER, &Failure::new(Fault::Refused, "forbidden", "no"), 20_000);
        assert_eq!(down.damaged_everywhere(STALL), None, "the sink has read that request");
    }

    #[test]
    fn only_the_reason_of_the_latest_loss_is_named() {
        let mut down = DownRoutes::of(&routes(&[&["home", "home", "relay-1", "sink"]]));
        down.failed(ONE, &Failure::new(Fault::RouteDown, "unavailable", "relay-1 cannot be reached"), 0);
        damage_all(&mut down, ONE, 1_000, 2_000);
        assert_eq!(down.reasons(), "everything that came over relay relay-1 was damaged");
        assert_eq!(down.damage(ONE), Some("everything that came over relay relay-1 was damaged"));
        down.is_up(ONE);
        assert_eq!((down.damage(ONE), down.reasons().as_str()), (None, ""));
    }
}

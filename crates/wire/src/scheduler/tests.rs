//! Tests of the scheduler's guarantees, by subject; `tests/simulation.rs` simulates the network as a whole.

mod duplicates;
mod money;
mod objects;
mod replies;
mod routes;
mod stalls;
mod whatever;

use super::*;
use crate::shares::{REST_MS_MAX, REST_MS_MIN, RoutePlan};

const MIB: u64 = 1 << 20;
const STALL_MS: u64 = 60_000;

fn route(id: u16, usd_per_gb: f64) -> RoutePlan {
    RoutePlan {
        id: RouteId(id),
        share: 1.0,
        usd_per_gb,
        window_bytes_min: 64 * MIB,
        window_bytes_start: 64 * MIB,
        window_bytes: 64 * MIB,
        window_requests: 8,
    }
}

fn config(routes: usize) -> Config {
    Config {
        routes: (0..routes as u16).map(|id| route(id, 0.01)).collect(),
        ceiling_usd_per_gb: None,
        ceiling_usd: None,
        ceiling_bytes: None,
        bundle_bytes_max: 16 * MIB,
        bundle_objects_max: 100,
        grain_objects_max: 1,
        duplicate_fraction_max: 0.0,
        rate_limit_bytes_per_s: None,
        stall_ms: STALL_MS,
        first_request: 1,
    }
}

fn whole(bytes: u64) -> NewObject {
    NewObject { bytes, layout: Layout::Whole, may_restart: true, travels: true }
}

fn in_parts(parts: u32, opened: bool, done: Vec<u32>) -> NewObject {
    let layout = Layout::Parts { part_bytes: MIB, opened, done, to_check: Vec::new() };
    NewObject { bytes: u64::from(parts) * MIB, layout, may_restart: true, travels: true }
}

/// Returns all requests that the scheduler sends now, until it idles.
fn sends(scheduler: &mut Scheduler, now_ms: u64) -> Vec<(RequestId, RouteId, Work)> {
    let mut sent = Vec::new();
    while let Ok(action) = scheduler.poll(now_ms) {
        if let Action::Send { request, route, work } = action {
            sent.push((request, route, work));
        }
    }
    sent
}

fn other_actions(scheduler: &mut Scheduler, now_ms: u64) -> Vec<Action> {
    std::iter::from_fn(|| scheduler.poll(now_ms).ok()).filter(|action| !matches!(action, Action::Send { .. })).collect()
}

fn all_done(scheduler: &mut Scheduler, request: RequestId, now_ms: u64) {
    for object in scheduler.work(request).unwrap().objects() {
        scheduler.done(request, object);
    }
    scheduler.answered(request, None, now_ms);
}

fn idle(scheduler: &mut Scheduler, now_ms: u64) -> Idle {
    loop {
        if let Err(idle) = scheduler.poll(now_ms) {
            return idle;
        }
    }
}

fn part_of(work: &Work) -> u32 {
    match work {
        Work::Part { part, .. } => *part,
        other => panic!("{other:?} is not a part"),
    }
}

/// Answers every request with done until the scheduler has nothing left; returns its other actions.
fn deliver_all(scheduler: &mut Scheduler, now_ms: &mut u64) -> Vec<Action> {
    let mut others = Vec::new();
    for _ in 0..1_000_000 {
        match scheduler.poll(*now_ms) {
            Ok(Action::Send { request, .. }) => all_done(scheduler, request, *now_ms),
            Ok(other) => others.push(other),
            Err(Idle::Until(later)) => {
                assert!(later > *now_ms, "a busy loop");
                *now_ms = later;
            }
            Err(Idle::Empty) => return others,
            Err(other) => panic!("{other:?} although all is answered"),
        }
    }
    panic!("no end");
}

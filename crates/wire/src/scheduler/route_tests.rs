//! Changes of routes while the job runs.

use super::*;
use crate::shares::{REST_MS_MAX, RoutePlan};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

const MIB: u64 = 1 << 20;

fn route(id: u16, share: f64, usd_per_gb: f64) -> RoutePlan {
    RoutePlan {
        id: RouteId(id),
        share,
        usd_per_gb,
        window_bytes_min: 8 * MIB,
        window_bytes_start: 8 * MIB,
        window_bytes: 8 * MIB,
        window_requests: 4,
    }
}

fn scheduler(routes: Vec<RoutePlan>, ceiling_usd_per_gb: Option<f64>) -> Scheduler {
    Scheduler::new(Config {
        routes,
        ceiling_usd_per_gb,
        ceiling_usd: None,
        ceiling_bytes: None,
        bundle_bytes_max: MIB,
        bundle_objects_max: 100,
        grain_objects_max: 1,
        duplicate_fraction_max: 0.0,
        rate_limit_bytes_per_s: None,
        stall_ms: 60_000,
        first_request: 1,
    })
}

fn parts(count: u32) -> NewObject {
    let layout = Layout::Parts { part_bytes: MIB, opened: true, done: Vec::new(), to_check: Vec::new() };
    NewObject { bytes: u64::from(count) * MIB, layout, may_restart: true, travels: true }
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

fn done(scheduler: &mut Scheduler, request: RequestId, now_ms: u64) {
    let objects = scheduler.work(request).unwrap().objects();
    objects.into_iter().for_each(|object| scheduler.done(request, object));
    scheduler.answered(request, None, now_ms);
}

#[test]
fn a_retired_route_gets_no_more_work_but_its_requests_count() {
    let mut scheduler = scheduler(vec![route(0, 1.0, 0.01)], None);
    scheduler.add(ObjectId(1), parts(20));
    let before = sends(&mut scheduler, 0);
    assert!(before.iter().all(|(_, route, _)| *route == RouteId(0)));
    scheduler.change_routes(&[route(1, 1.0, 0.02)], None, None);
    let after = sends(&mut scheduler, 1);
    assert!(!after.is_empty() && after.iter().all(|(_, route, _)| *route == RouteId(1)));
    for (request, ..) in before {
        done(&mut scheduler, request, 2);
    }
    let of_old = scheduler.shares().activity().find(|of| of.route == RouteId(0)).unwrap();
    assert!(of_old.retired && of_old.flight_requests == 0 && of_old.done_bytes == 4 * MIB);
    assert!(sends(&mut scheduler, 3).is_empty(), "nothing goes again, and the new route's window is full");
}

#[test]
fn a_retired_route_comes_back_with_another_share_and_what_it_carried() {
    let mut scheduler = scheduler(vec![route(0, 1.0, 0.01), route(1, 1.0, 0.0)], None);
    scheduler.add(ObjectId(1), parts(1));
    let (request, ..) = sends(&mut scheduler, 0)[0];
    done(&mut scheduler, request, 1);
    let carried: u64 = scheduler.shares().activity().map(|of| of.done_bytes).sum();
    scheduler.change_routes(&[route(1, 1.0, 0.0)], None, None);
    scheduler.change_routes(&[route(0, 0.2, 0.9), route(1, 0.8, 0.0)], None, None);
    assert!(scheduler.shares().activity().all(|of| !of.retired));
    assert_eq!(scheduler.shares().activity().map(|of| of.done_bytes).sum::<u64>(), carried);
    assert!(
        scheduler.shares().spent_usd() <= 0.01 * MIB as f64 / 1e9 * 1.001,
        "its first price holds for what it carried"
    );
}

#[test]
fn a_new_route_may_take_work_that_every_old_one_refused() {
    let mut scheduler = scheduler(vec![route(0, 1.0, 0.0), route(1, 1.0, 0.0)], None);
    scheduler.add(ObjectId(1), parts(1));
    let (request, refusing, _) = sends(&mut scheduler, 0)[0].clone();
    scheduler.failed(request, Fault::Refused, 1);
    scheduler.change_routes(&[route(refusing.0, 1.0, 0.0), route(2, 1.0, 0.0)], None, None);
    let (request, ..) = sends(&mut scheduler, 2)[0].clone();
    done(&mut scheduler, request, 3);
    assert!(sends(&mut scheduler, 4).iter().any(|(.., work)| matches!(work, Work::Close(_))));
}

/// A scheduler whose requests are answered by the test.
struct Run {
    scheduler: Scheduler,
    all: Vec<RoutePlan>,
    wanted: HashSet<u16>,
    ceiling_usd_per_gb: Option<f64>,
    flying: Vec<(RequestId, Work)>,
    acked: HashMap<(ObjectId, u32), u32>,
    finished: usize,
    now_ms: u64,
}

impl Run {
    fn new(prices: &[f64], ceiling_usd_per_gb: Option<f64>) -> Self {
        let all: Vec<RoutePlan> = (0..4).map(|id| route(id, 0.25, prices[usize::from(id)])).collect();
        Self {
            scheduler: scheduler(all.clone(), ceiling_usd_per_gb),
            all,
            wanted: (0..4).collect(),
            ceiling_usd_per_gb,
            flying: Vec::new(),
            acked: HashMap::new(),
            finished: 0,
            now_ms: 0,
        }
    }

    fn change(&mut self, mask: u8) {
        let some: Vec<RoutePlan> = self.all.iter().filter(|plan| mask & (1 << plan.id.0) != 0).copied().collect();
        self.wanted = some.iter().map(|plan| plan.id.0).collect();
        self.scheduler.change_routes(&some, self.ceiling_usd_per_gb, None);
    }

    fn lose(&mut self, which: usize) {
        let (request, _) = self.flying.swap_remove(which);
        self.scheduler.failed(request, Fault::Lost, self.now_ms);
    }

    fn ack(&mut self, which: usize) {
        let (request, work) = self.flying.swap_remove(which);
        if let Work::Part { object, part, .. } = work {
            *self.acked.entry((object, part)).or_default() += 1;
        }
        done(&mut self.scheduler, request, self.now_ms);
    }

    fn act(&mut self) {
        while let Ok(action) = self.scheduler.poll(self.now_ms) {
            match action {
                Action::Send { request, route, work } => {
                    assert!(self.wanted.contains(&route.0), "{route:?} is retired");
                    self.flying.push((request, work));
                }
                Action::Finished(_) => self.finished += 1,
                _ => {}
            }
        }
    }
}

proptest! {
    /// Whatever changes and gets lost during the job, retired routes get no work, no part is acked twice, and the cost
    /// stays within the ceiling. Without a ceiling all objects end.
    #[test]
    fn changes_lose_nothing_and_send_nothing_twice(
        objects in prop::collection::vec(1u32..12, 1..6),
        steps in prop::collection::vec((0u8..8, any::<prop::sample::Index>(), 1u8..16), 1..300),
        prices in prop::collection::vec(0.0..0.1f64, 4),
        ceiling in prop::option::of(0.05..0.1f64),
    ) {
        let mut run = Run::new(&prices, ceiling);
        for (id, count) in objects.iter().enumerate() {
            run.scheduler.add(ObjectId(id as u64), parts(*count));
        }
        let total_gb = objects.iter().map(|count| u64::from(*count) * MIB).sum::<u64>() as f64 / 1e9;
        for (step, which, mask) in steps {
            run.now_ms += 500;
            match step {
                0 => run.change(mask),
                1 if !run.flying.is_empty() => run.lose(which.index(run.flying.len())),
                _ if !run.flying.is_empty() => run.ack(which.index(run.flying.len())),
                _ => {}
            }
            run.act();
            let most_usd = ceiling.map_or(f64::INFINITY, |price| price * total_gb);
            prop_assert!(run.scheduler.shares().spent_usd() <= most_usd * (1.0 + 1e-6));
        }
        // The only route may be resting after a loss.
        run.now_ms += REST_MS_MAX;
        run.act();
        while !run.flying.is_empty() {
            run.now_ms += REST_MS_MAX;
            run.ack(0);
            run.act();
        }
        prop_assert!(run.acked.values().all(|times| *times == 1), "{:?}", run.acked);
        if ceiling.is_none() {
            prop_assert_eq!(run.finished, objects.len());
        }
    }
}

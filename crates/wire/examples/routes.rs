//! Measures what routes cost the lead: the scheduler with some number of simulated routes, each with gateways that answer every
//! request in the order in which it was sent. Prints one line of JSON; `benchmarks/scale.py` runs it.
//!
//! `routes ROUTES bundles|parts free|ceiling REQUESTS`: bundles of 1 KiB objects or parts of 16 MiB; with `ceiling`,
//! every decision also looks at prices. A decision is a request that is chosen, routed, sent and answered.

use std::collections::VecDeque;
use std::time::Instant;
use tradewind_wire::scheduler::{Action, Config, Layout, NewObject, Scheduler, Work};
use tradewind_wire::shares::RoutePlan;
use tradewind_wire::{ObjectId, RequestId, RouteId};

const CHUNK_BYTES: u64 = 16 << 20;
const OBJECT_BYTES: u64 = 1 << 10;
const PARTS: u64 = 10_000;
/// Simulated time between two rounds of answers.
const ROUND_MS: u64 = 10;

struct Load {
    scheduler: Scheduler,
    in_parts: bool,
    next_object: u64,
    in_flight: VecDeque<(RequestId, Work)>,
    in_flight_max: usize,
    requests: u64,
    now_ms: u64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [routes, shape, prices, requests] = words.as_slice() else { return fail() };
    let (Ok(routes), Ok(requests)) = (routes.parse::<u16>(), requests.parse::<u64>()) else { return fail() };
    let mut load = Load::new(routes, shape == "parts", prices == "ceiling");
    load.run(requests / 10);
    let (before, began) = (load.requests, Instant::now());
    load.run(requests);
    let decisions = load.requests - before;
    let us = began.elapsed().as_secs_f64() * 1e6 / decisions as f64;
    println!(
        "{{\"routes\": {routes}, \"shape\": \"{shape}\", \"prices\": \"{prices}\", \"decisions\": {decisions}, \
         \"us_per_decision\": {us:.3}, \"in_flight_max\": {}, \"rss_bytes\": {}}}",
        load.in_flight_max,
        rss_bytes()
    );
}

fn fail() {
    eprintln!("usage: routes ROUTES bundles|parts free|ceiling REQUESTS");
    std::process::exit(2);
}

impl Load {
    fn new(routes: u16, in_parts: bool, has_ceiling: bool) -> Self {
        let plan = |id: u16| RoutePlan {
            id: RouteId(id),
            share: 1.0 + f64::from(id % 7),
            usd_per_gb: 0.01 * f64::from(1 + id % 5),
            window_bytes_min: 8 * CHUNK_BYTES,
            window_bytes_start: 64 * CHUNK_BYTES,
            window_bytes: 24 * CHUNK_BYTES,
            window_requests: 256,
        };
        let scheduler = Scheduler::new(Config {
            routes: (0..routes).map(plan).collect(),
            ceiling_usd_per_gb: has_ceiling.then_some(0.06),
            ceiling_usd: None,
            ceiling_bytes: None,
            bundle_bytes_max: 4 << 20,
            bundle_objects_max: 128,
            grain_objects_max: 32,
            duplicate_fraction_max: 0.02,
            rate_limit_bytes_per_s: None,
            stall_ms: 60_000,
            first_request: 1,
        });
        Self {
            scheduler,
            in_parts,
            next_object: 1,
            in_flight: VecDeque::new(),
            in_flight_max: 0,
            requests: 0,
            now_ms: 0,
        }
    }

    /// Sends and answers at least `requests` more requests.
    fn run(&mut self, requests: u64) {
        let last = self.requests + requests;
        while self.requests < last {
            self.now_ms += ROUND_MS;
            self.list();
            self.send();
            self.in_flight_max = self.in_flight_max.max(self.in_flight.len());
            // A hundredth of the requests is answered at a time, as replies come in batches.
            for _ in 0..self.in_flight.len().div_ceil(100) {
                self.answer_oldest();
            }
        }
    }

    fn list(&mut self) {
        while self.scheduler.wants_more() && !(self.in_parts && self.scheduler.flights() > 0) {
            let (bytes, layout) = match self.in_parts {
                false => (OBJECT_BYTES, Layout::Whole),
                true => {
                    let part_bytes = CHUNK_BYTES;
                    let layout = Layout::Parts { part_bytes, opened: false, done: Vec::new(), to_check: Vec::new() };
                    (PARTS * CHUNK_BYTES, layout)
                }
            };
            self.scheduler
                .add(ObjectId(self.next_object), NewObject { bytes, layout, may_restart: true, travels: true });
            self.next_object += 1;
        }
    }

    fn send(&mut self) {
        while let Ok(action) = self.scheduler.poll(self.now_ms) {
            if let Action::Send { request, work, .. } = action {
                self.requests += 1;
                self.in_flight.push_back((request, work));
            }
        }
    }

    fn answer_oldest(&mut self) {
        let Some((request, work)) = self.in_flight.pop_front() else { return };
        for object in work.objects() {
            self.scheduler.done(request, object);
        }
        self.scheduler.answered(request, None, self.now_ms);
        self.send();
    }
}

/// Resident memory of this process (Linux).
fn rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

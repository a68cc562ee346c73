//! Cost of a route that falls silent, in simulated time: a job ends soon after one without the fault, and sends
//! little twice.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SEEDS: u64 = 400;
/// Most time that a silent route may cost: the patience of 2 s, and the time in which another route carries what it held.
const LOST_MS_MAX: u64 = 3_000;
/// After this time a silent peer is dead, and the requests sent to it are lost.
const DEAD_MS: u64 = 15_000;
/// The lead asks again after this time, whatever the scheduler waits for.
const TICK_MS: u64 = 500;
const CHUNKS_MIN: u64 = 8;
const CHUNKS_MAX: u64 = 24;
const WHOLE_BYTES: u64 = 30_000;

/// A job and its routes, which are equally fast. Each alone can carry what the rate limit lets through.
#[derive(Clone, Copy, Debug)]
struct Case {
    routes: u16,
    parts: u32,
    wholes: u64,
    /// Time of a MiB on a route.
    chunk_ms: u64,
    latency_ms: u64,
    /// The last route answers nothing that would arrive from then on.
    silent_from_ms: u64,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let (chunk_ms, parts) = (random.random_range(10..=60), random.random_range(20..=400));
        let sending_ms = u64::from(parts) * 2 * chunk_ms;
        Self {
            routes: random.random_range(2..=4),
            parts,
            wholes: random.random_range(0..=100),
            chunk_ms,
            latency_ms: random.random_range(5..=250),
            silent_from_ms: random.random_range(0..=sending_ms),
        }
    }

    fn scheduler(self) -> Scheduler {
        let mut config = config(usize::from(self.routes));
        config.duplicate_fraction_max = 0.02;
        config.rate_limit_bytes_per_s = Some(MIB * 1_000 / (2 * self.chunk_ms));
        for route in &mut config.routes {
            route.window_requests = 256;
            route.window_bytes_min = CHUNKS_MIN * MIB;
            route.window_bytes = CHUNKS_MAX * MIB;
        }
        let mut scheduler = Scheduler::new(config);
        scheduler.add(ObjectId(0), in_parts(self.parts, true, vec![]));
        (1..=self.wholes).for_each(|id| scheduler.add(ObjectId(id), whole(WHOLE_BYTES)));
        scheduler
    }

    /// Runs the job.
    fn run(self, has_fault: bool) -> Ended {
        let (mut scheduler, mut answers) = (self.scheduler(), BinaryHeap::new());
        let (mut now_ms, mut free_ms) = (0, vec![0; usize::from(self.routes)]);
        let (dead_ms, mut held_bytes) = (self.silent_from_ms + DEAD_MS, 0);
        for _ in 0..100_000 {
            let idle = loop {
                match scheduler.poll(now_ms) {
                    Ok(Action::Send { request, route, work }) => {
                        let free_ms = &mut free_ms[usize::from(route.0)];
                        *free_ms = now_ms.max(*free_ms) + carried_bytes(&work) * self.chunk_ms / MIB;
                        let at_ms = *free_ms + self.latency_ms;
                        let is_silent = has_fault && route.0 + 1 == self.routes && at_ms >= self.silent_from_ms;
                        if is_silent && now_ms < dead_ms {
                            held_bytes += carried_bytes(&work);
                        }
                        let at_ms = if is_silent { dead_ms.max(now_ms + 1) } else { at_ms };
                        answers.push(Reverse((at_ms, request, is_silent)));
                    }
                    Ok(_) => {}
                    Err(idle) => break idle,
                }
            };
            let next_ms = match (idle, answers.peek()) {
                (Idle::Empty, _) => {
                    return Ended { ms: now_ms, duplicate_bytes: scheduler.shares().duplicate_bytes(), held_bytes };
                }
                (Idle::Until(later_ms), Some(Reverse((at_ms, ..)))) => later_ms.min(*at_ms),
                (Idle::Until(later_ms), None) => later_ms,
                (_, Some(Reverse((at_ms, ..)))) => *at_ms,
                (other, None) => panic!("{self:?}: {other:?}, and nothing comes any more"),
            };
            now_ms = next_ms.clamp(now_ms, now_ms + TICK_MS);
            while let Some(Reverse((at_ms, request, is_silent))) = answers.peek().copied()
                && at_ms <= now_ms
            {
                answers.pop();
                match (scheduler.work(request).is_some(), is_silent) {
                    (false, _) => {}
                    (true, true) => scheduler.failed(request, Fault::Lost, now_ms),
                    (true, false) => all_done(&mut scheduler, request, now_ms),
                }
            }
        }
        panic!("{self:?} has no end");
    }

    fn bytes(self) -> u64 {
        u64::from(self.parts) * MIB + self.wholes * WHOLE_BYTES
    }
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    ms: u64,
    duplicate_bytes: u64,
    /// Bytes that were sent over the silent route and never answered.
    held_bytes: u64,
}

fn carried_bytes(work: &Work) -> u64 {
    match work {
        Work::Part { bytes, .. } => *bytes,
        Work::Bundle(objects) => objects.len() as u64 * WHOLE_BYTES,
        _ => 0,
    }
}

#[test]
fn a_route_that_falls_silent_costs_at_most_three_seconds_if_what_it_holds_may_be_sent_twice() {
    let (mut worst_ms, mut rescued) = (0, 0);
    for seed in 0..SEEDS {
        let case = Case::of(seed);
        let (usual, ended) = (case.run(false), case.run(true));
        let lost_ms = ended.ms.saturating_sub(usual.ms);
        let limit_bytes = (CHUNKS_MAX * MIB).max(case.bytes() / 50);
        assert!(ended.duplicate_bytes <= limit_bytes, "seed {seed}, {case:?}: {ended:?}");
        if ended.held_bytes <= limit_bytes {
            assert!(lost_ms <= LOST_MS_MAX, "seed {seed}, {case:?}: {lost_ms} ms lost of {usual:?}: {ended:?}");
            worst_ms = worst_ms.max(lost_ms);
            rescued += u64::from(ended.duplicate_bytes > 0);
        } else {
            assert!(lost_ms <= DEAD_MS + LOST_MS_MAX, "seed {seed}, {case:?}: {lost_ms} ms lost: {ended:?}");
        }
    }
    assert!(rescued * 2 > SEEDS, "only {rescued} of {SEEDS} runs were rescued by duplicates");
    assert!(worst_ms > 1_000, "the worst run lost {worst_ms} ms: the faults are too mild to test anything");
}

//! Simulates whole networks in memory, in simulated time, with every kind of failure.
//!
//! Lead, sources, relays and sinks run the real state machines and speak the real frames. Their connections deliver
//! late, cut anywhere, break mid-body or fall silent. Nodes, including the lead, die, freeze and come back; stores fail
//! in every possible way, and source objects change during the job. In every run:
//!
//! - a reader of the destination sees exactly one whole version of the source object, at any time;
//! - every object is finished and exists, or is reported as failed; the job ends (or reports its cost ceiling);
//! - cost ≤ ceiling × bytes, counting lost bytes and all lives of the lead, and every byte sent was booked;
//! - no upload is left open except those that the journal marks as possible, and the cleanup finds those;
//! - requests in flight ≤ the routes' windows; afterwards no gateway holds any request;
//! - the lead never waits without a cause, and never asks to be woken immediately.
//!
//! A failure prints its seed. `TRADEWIND_SIMULATION_SEED=n` replays one, `TRADEWIND_SIMULATION_RUNS=n` runs more.

#[path = "simulation/gateway.rs"]
mod gateway;
#[path = "simulation/lead_node.rs"]
mod lead_node;
#[path = "simulation/message.rs"]
mod message;
#[path = "simulation/net.rs"]
mod net;
#[path = "simulation/store.rs"]
mod store;
#[path = "simulation/world.rs"]
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use world::{Summary, World};

const RUNS: u64 = 1_000;
/// Number of threads that share the runs.
const THREADS: usize = 2;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

fn run(seed: u64) -> Summary {
    std::panic::catch_unwind(|| World::new(seed).run())
        .unwrap_or_else(|_| panic!("seed {seed} failed; replay it with TRADEWIND_SIMULATION_SEED={seed}"))
}

#[test]
fn every_object_arrives_or_is_reported_whatever_happens() {
    if let Some(seed) = number("TRADEWIND_SIMULATION_SEED") {
        run(seed);
        return;
    }
    let runs = number("TRADEWIND_SIMULATION_RUNS").unwrap_or(RUNS);
    let next_seed = AtomicU64::new(0);
    let work = || {
        let mut sum = Summary::default();
        loop {
            let seed = next_seed.fetch_add(1, Ordering::Relaxed);
            if seed >= runs {
                return sum;
            }
            sum.add(&run(seed));
        }
    };
    let mut sum = Summary::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(part) => sum.add(&part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    println!("{runs} runs: {sum:?}");
    // A simulation in which nothing went wrong, or nothing went right, would prove nothing.
    assert!(sum.finished > sum.failed && sum.failed > 0 && sum.lead_lives > runs);
    assert!(sum.swept_uploads > 0 && sum.over_ceiling > 0);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

//! Whole networks in memory, in simulated time, with everything going wrong.
//!
//! Lead, sources, relays and sinks run the real state machines and speak the real frames over connections that deliver
//! late, cut anywhere, break mid-body or fall silent. Nodes die, freeze and come back, the lead among them; stores fail in
//! every way they can, and source objects change under way. Whatever happens, in every run:
//!
//! - what a reader of the destination sees is exactly one whole version of the source object, at any time;
//! - every object is finished, and there, or reported as failed; the job ends (or reports its cost ceiling);
//! - cost ≤ ceiling × bytes, counting lost bytes and all lives of the lead, and nothing is sent that was not booked;
//! - no upload is left open but those that the journal says may be, and the sweep finds those;
//! - requests in flight ≤ the routes' windows; afterwards no gateway remembers anything;
//! - the lead never waits for nothing, and never asks to be woken at once.
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

const RUNS: u64 = 2_000;
/// Threads that share the runs.
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
    // A simulation in which nothing went wrong, or nothing right, would prove nothing.
    assert!(sum.finished > sum.failed && sum.failed > 0 && sum.lead_lives > runs);
    assert!(sum.swept_uploads > 0 && sum.over_ceiling > 0);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

//! The real lead, source, relays and sinks in a deterministic simulation: see `docs/decisions/0015-simulator.md`.
//!
//! Each seed runs in its own process, because the standard library and tokio keep counters for each process. Replay
//! one with `SIMULATION_SEED=n`, run more with `SIMULATION_SEEDS=10000`, from `SIMULATION_FIRST=n` on.

mod buckets;
mod interpose;
mod network;
mod scenario;
mod state;
mod store;
mod world;

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that `cargo test` runs.
const SEEDS_DEFAULT: u64 = 100;
/// Environment variable that gives a child its seed.
const CHILD: &str = "SIMULATION_CHILD";

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Runs a seed in a child; returns its result line, or its whole output if it failed.
fn run_child(seed: u64, verbose: bool) -> Result<String, String> {
    let program = std::env::current_exe().expect("this program has a path");
    let mut child = Command::new(program);
    child.args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"]).env(CHILD, seed.to_string());
    child.stderr(if verbose { Stdio::inherit() } else { Stdio::piped() }).stdout(Stdio::piped());
    let output = child.output().map_err(|error| format!("seed {seed}: no child: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = text.lines().find_map(|line| line.split_once("result: ").map(|(_, result)| result.to_owned()));
    match result {
        Some(result) if output.status.success() => Ok(result),
        _ => Err(format!("seed {seed} failed\n{text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs seeds on all processors; returns the failures by seed.
fn run_seeds(seeds: std::ops::Range<u64>) -> Vec<(u64, String)> {
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(what) = run_child(seed, false) {
                        failed.lock().expect("no worker panics").push((seed, what));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().expect("no worker panics");
    failed.sort();
    failed
}

#[test]
fn whatever_breaks_every_job_ends_and_every_byte_is_right() {
    if let Some(seed) = number("SIMULATION_SEED") {
        match run_child(seed, true) {
            Ok(result) => return println!("{result}"),
            Err(what) => panic!("{what}"),
        }
    }
    let first = number("SIMULATION_FIRST").unwrap_or(0);
    let count = number("SIMULATION_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let failed = run_seeds(first..first + count);
    for (_, what) in failed.iter().take(3) {
        eprintln!("{what}");
    }
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(seeds.is_empty(), "{} of {count} seeds failed: {seeds:?}; replay one with SIMULATION_SEED=n", seeds.len());
}

#[test]
fn a_seed_runs_the_same_twice() {
    for seed in 0..5 {
        assert_eq!(run_child(seed, false), run_child(seed, false), "seed {seed}");
    }
}

/// Runs one seed in its own process. Does nothing unless a test above starts it.
#[test]
#[ignore = "started by the tests of this file, one process for each seed"]
fn child() {
    let Some(seed) = number(CHILD) else { return };
    let verbose = number("SIMULATION_SEED").is_some();
    let report = world::run(seed, verbose);
    println!(
        "\nresult: seed {seed} trace {:016x} simulated {} ms, runs {:?}",
        report.trace_hash, report.ms, report.outcomes
    );
    assert!(report.violations.is_empty(), "{}\nseed {seed}: {:#?}", report.trace, report.violations);
}

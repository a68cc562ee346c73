//! The state that all parts of a simulated world share: clock, random numbers, due events and trace.

use crate::buckets::Buckets;
use crate::network::Network;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Wall clock at the start of every simulation.
pub(crate) const EPOCH_UNIX_MS: i64 = 1_760_000_000_000;
/// Lines of the trace that are kept for a report.
const TRACE_LINES_MAX: usize = 400;

/// Index of a host.
pub(crate) type HostId = usize;
/// An event that happens at its time.
pub(crate) type Due = Box<dyn FnOnce(&mut State) + Send>;

/// State of the simulated world.
pub(crate) struct State {
    /// Simulated milliseconds since the start.
    pub(crate) now_ms: u64,
    /// Random numbers while the world runs.
    pub(crate) rng: SmallRng,
    /// Links between hosts.
    pub(crate) network: Network,
    /// The stores' contents.
    pub(crate) buckets: Buckets,
    /// Violations of an invariant.
    pub(crate) violations: Vec<String>,
    /// Grows with everything that hosts do to the outside: tells an idle world from a busy one.
    pub(crate) activity: u64,
    due: BTreeMap<(u64, u64), Due>,
    next_due: u64,
    trace_hash: u64,
    trace: VecDeque<String>,
    verbose: bool,
}

/// Shared by the world, the links and the stores.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    /// An empty world.
    pub(crate) fn new(seed: u64, network: Network, buckets: Buckets, verbose: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            now_ms: 0,
            rng: SmallRng::seed_from_u64(seed ^ 0x5EED),
            network,
            buckets,
            violations: Vec::new(),
            activity: 0,
            due: BTreeMap::new(),
            next_due: 0,
            trace_hash: 0xCBF2_9CE4_8422_2325,
            trace: VecDeque::new(),
            verbose,
        })))
    }

    /// Locks it. Everything runs on one thread, so nobody waits; never held across an await or while a link is dropped.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl State {
    /// Schedules `due` in `after_ms`.
    pub(crate) fn after(&mut self, after_ms: u64, due: Due) {
        self.next_due += 1;
        self.due.insert((self.now_ms + after_ms, self.next_due), due);
    }

    /// Returns the time of the next event.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.due.keys().next().map(|(due_ms, _)| *due_ms)
    }

    /// Runs the events that are due.
    pub(crate) fn run_due(&mut self) {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= self.now_ms) {
            entry.remove()(self);
        }
    }

    /// Returns true with probability `chance`.
    pub(crate) fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.rng.random_bool(chance)
    }

    /// Adds a line to the trace, whose hash tells two runs apart.
    pub(crate) fn trace(&mut self, line: String) {
        let line = format!("{:>7} {line}", self.now_ms);
        for byte in line.bytes() {
            self.trace_hash = (self.trace_hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        if self.verbose {
            eprintln!("{line}");
        }
        self.trace.push_back(line);
        if self.trace.len() > TRACE_LINES_MAX {
            self.trace.pop_front();
        }
    }

    /// Records a broken invariant.
    pub(crate) fn violation(&mut self, what: String) {
        self.trace(format!("VIOLATION {what}"));
        self.violations.push(what);
    }

    /// Hash of all trace lines.
    pub(crate) fn trace_hash(&self) -> u64 {
        self.trace_hash
    }

    /// The last trace lines.
    pub(crate) fn last_lines(&self) -> String {
        self.trace.iter().map(|line| format!("{line}\n")).collect()
    }
}

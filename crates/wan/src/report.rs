//! The JSON of the control socket and of the readiness line.

use crate::engine::{Engine, Lateness, MachineState};
use crate::network::Network;
use serde::Serialize;

/// The running emulator, and how to reach its machines.
#[derive(Debug, Serialize)]
pub struct Description {
    /// Process id of the emulator; its descriptors are reached through /proc.
    pub pid: u32,
    /// True if the thread that holds packets got real-time scheduling.
    pub realtime: bool,
    /// The machines, in the order of the network.
    pub machines: Vec<MachineDescription>,
}

/// One machine.
#[derive(Debug, Serialize)]
pub struct MachineDescription {
    /// Unique name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Its IPv4 address.
    pub address: String,
    /// True if machines of other regions can open connections to it.
    pub inbound: bool,
    /// Descriptor of its network namespace in the emulator.
    pub netns_fd: i32,
    /// `running`, `frozen` or `gone`.
    pub state: &'static str,
}

/// Counts of the emulator.
#[derive(Debug, Serialize)]
pub struct Stats {
    /// Time since the start or the last reset.
    pub elapsed_us: u64,
    /// Packets or super-packets that were delivered to their machine.
    pub delivered: u64,
    /// Average lateness.
    pub late_us_mean: f64,
    /// Greatest lateness.
    pub late_us_max: f64,
    /// Packets dropped because too many bytes were in transit.
    pub overflows: u64,
    /// Paths on which anything was sent.
    pub paths: Vec<PathStats>,
}

/// Counts of one path.
#[derive(Debug, Serialize)]
pub struct PathStats {
    src: String,
    dst: String,
    packets: u64,
    wire_bytes: u64,
    queue_drops: u64,
    lost: u64,
    cut: u64,
}

/// The present state of one path.
#[derive(Debug, Serialize)]
pub struct LinkReport {
    src: String,
    dst: String,
    rate_bps: u64,
    queue_bytes: u64,
    delay_us: u64,
    loss: f64,
    up: bool,
    /// Number of the pipe; paths with the same number share it.
    pipe: usize,
}

/// The name of a state.
pub fn state_word(state: MachineState) -> &'static str {
    match state {
        MachineState::Running => "running",
        MachineState::Frozen => "frozen",
        MachineState::Gone => "gone",
    }
}

/// Returns the counts of all paths that carried anything.
pub fn path_stats<P>(network: &Network, engine: &Engine<P>) -> Vec<PathStats> {
    let paths = network.paths.iter().filter_map(|path| {
        let counts = engine.path(path.src, path.dst)?.counts;
        let any = counts.packets + counts.queue_drops + counts.lost + counts.cut > 0;
        any.then(|| PathStats {
            src: network.machines[path.src].name.clone(),
            dst: network.machines[path.dst].name.clone(),
            packets: counts.packets,
            wire_bytes: counts.wire_bytes,
            queue_drops: counts.queue_drops,
            lost: counts.lost,
            cut: counts.cut,
        })
    });
    paths.collect()
}

/// Returns mean and greatest lateness in microseconds.
pub fn lateness_us(lateness: &Lateness) -> (f64, f64) {
    let mean = lateness.sum_ns as f64 / lateness.released.max(1) as f64;
    (mean / 1e3, lateness.max_ns as f64 / 1e3)
}

/// Returns all paths.
pub fn links<P>(network: &Network, engine: &Engine<P>) -> Vec<LinkReport> {
    let links = network.paths.iter().filter_map(|path| {
        let view = engine.path(path.src, path.dst)?;
        Some(LinkReport {
            src: network.machines[path.src].name.clone(),
            dst: network.machines[path.dst].name.clone(),
            rate_bps: view.spec.rate_bps,
            queue_bytes: view.spec.queue_bytes,
            delay_us: view.delay_ns / 1_000,
            loss: view.loss,
            up: view.up,
            pipe: view.pipe,
        })
    });
    links.collect()
}

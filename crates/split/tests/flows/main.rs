//! Real proxies on loopback: how flows start, move bytes and end, directly and over hops.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod changes;
mod endings;
mod harness;
mod hostile;
mod memory;
mod pool;
mod probes;
mod refusals;
mod transfer;
mod ways;

/// Chains that each test of a flow runs through: direct, one hop, two hops.
const CHAINS: [usize; 3] = [0, 1, 2];

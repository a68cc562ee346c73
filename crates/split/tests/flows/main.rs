//! Real proxies on loopback: how flows start, move bytes and end, directly and over hops.

mod endings;
mod harness;
mod refusals;
mod transfer;

/// Chains that each test of a flow runs through: direct, one hop, two hops.
const CHAINS: [usize; 3] = [0, 1, 2];

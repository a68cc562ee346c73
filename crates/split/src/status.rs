//! The state of a split proxy, as a document.

use crate::refusal::Cause;
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of a split proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Connections that are open now.
    pub open: usize,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Flows that both sides closed.
    pub closed: u64,
    /// Flows that were reset because one side broke.
    pub reset: u64,
    /// Flows that were reset because nothing moved.
    pub idle: u64,
    /// Refused connections by cause.
    pub refused: BTreeMap<Cause, u64>,
    /// Bytes from clients towards destinations.
    pub bytes_up: u64,
    /// Bytes from destinations towards clients.
    pub bytes_down: u64,
    /// Established flows by route and destination.
    pub traffic: Vec<Traffic>,
    /// The next proxies by name.
    pub hops: BTreeMap<String, Hop>,
}

/// The established flows of one route to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// The destination; `None` for all flows beyond the limit of pairs that are counted one by one.
    pub destination: Option<String>,
    /// The proxies after this one.
    pub through: Vec<String>,
    /// Flows that were established.
    pub connections: u64,
    /// Bytes towards the destination.
    pub bytes_up: u64,
    /// Bytes towards the client.
    pub bytes_down: u64,
}

/// The knowledge of a proxy about one of its next proxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hop {
    /// Connections opened to it.
    pub dialed: u64,
    /// Shortest and latest time of a TCP handshake with it, in milliseconds: about one round trip.
    pub connect_ms_min: f64,
    /// See `connect_ms_min`.
    pub connect_ms_last: f64,
}

impl Hop {
    pub(crate) fn connected(&mut self, ms: f64) {
        self.connect_ms_min = if self.dialed == 0 { ms } else { self.connect_ms_min.min(ms) };
        self.connect_ms_last = ms;
        self.dialed += 1;
    }
}

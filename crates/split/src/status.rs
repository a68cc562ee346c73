//! The state of a split proxy, as a document.

use crate::refusal::Cause;
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of a split proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Connections that are open now, without those that are `waiting`.
    pub open: usize,
    /// Connections that other proxies keep ready for their next flows.
    pub waiting: usize,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Flows that both sides closed.
    pub closed: u64,
    /// Flows that were reset because one side broke.
    pub reset: u64,
    /// Flows that were reset because nothing moved.
    pub idle: u64,
    /// Connections that another proxy kept ready and that ended without a flow.
    pub unused: u64,
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

/// The established flows of one listener and route to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// The name of the listener, if it has one.
    pub listener: Option<String>,
    /// The destination; `None` for the flows over one next proxy that are beyond the limit of pairs counted one by one.
    pub destination: Option<String>,
    /// The proxies after this one.
    pub through: Vec<String>,
    /// Flows that were established.
    pub connections: u64,
    /// Flows that were not, although their destination did not refuse them.
    pub failed: u64,
    /// Bytes towards the destination.
    pub bytes_up: u64,
    /// Bytes towards the client.
    pub bytes_down: u64,
}

/// The knowledge of a proxy about one of its next proxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hop {
    /// Connections opened to it, those that were kept ready included.
    pub dialed: u64,
    /// Shortest and latest time of a TCP handshake with it, in milliseconds: about one round trip.
    pub connect_ms_min: f64,
    /// See `connect_ms_min`.
    pub connect_ms_last: f64,
    /// Connections that are ready for flows now.
    pub ready: usize,
    /// Flows that took a connection that was ready.
    pub taken: u64,
    /// Flows that opened a connection themselves.
    pub missed: u64,
    /// Connections that broke while they were ready, or before the answer to their first request.
    pub dead: u64,
    /// Connections that could not be opened, TLS included, since one was.
    pub failures: u64,
    /// Why the last of them could not.
    pub failure: Option<String>,
    /// Median time from the request of a client to the first byte from its destination, over the latest flows that took
    /// a ready connection, in milliseconds.
    pub first_byte_ms_taken: Option<f64>,
    /// The same over the latest flows that opened their connection.
    pub first_byte_ms_missed: Option<f64>,
}

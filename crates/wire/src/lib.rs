//! The protocol of the data plane, without sockets, clock or threads.
//!
//! A **lead** gives *requests* to sources. A source, relays and a sink pass each request down a route, and its *reply*
//! back up the same route. Only the lead, the source and the sink read a request's body; a relay sees the header.
//!
//! - [`frame`] defines the format on a connection: fixed headers, with limits checked before anything is allocated.
//! - [`intake`] follows the frames of one connection and reports when a body begins, continues, ends or is abandoned.
//! - [`flights`] records requests forwarded and not yet answered; [`liveness`] decides when a peer counts as dead.
//! - [`window`] limits what a route has in flight, [`pace`] notices a route that stands still, and [`shares`] picks the
//!   route for the next bytes.
//! - [`by_number`] is a table of objects by their numbers.
//! - [`scheduler`] decides for the lead what to send where, what to retry, and when an object is finished or failed.
//!
//! Goals: only the lead records work as done, and only when a reply confirms it; nothing grows without a named limit.
//! Not goals: exactly-once delivery of a *request* (writes are idempotent instead), order between requests, and secrecy
//! (the gateway's TLS and sealing provide it).

pub mod by_number;
pub mod fault;
pub mod flights;
pub mod frame;
pub mod ids;
pub mod intake;
pub mod liveness;
pub mod pace;
pub mod scheduler;
pub mod shares;
pub mod window;

pub use fault::Fault;
pub use ids::{ConnectionId, ObjectId, RequestId, RouteId};

/// Version of the frames. A peer of another major version is refused at Hello.
pub const WIRE_VERSION_MAJOR: u8 = 12;

//! The language of the data plane, without sockets, clock or threads.
//!
//! Participants: a **lead** gives *requests* to sources; a source, relays and a sink pass each request down a route and
//! its *reply* back up the same way. Only the lead and the two ends read a request's body; a relay sees the header.
//!
//! - [`frame`] is what lies on a connection: fixed headers, limits checked before anything is allocated.
//! - [`intake`] follows the frames of one connection and says when a body begins, goes on, ends or is given up.
//! - [`flights`] remembers what was passed on and not yet answered, and [`liveness`] when a peer counts as dead.
//! - [`scheduler`] decides for the lead what to send where, what to try again, and when an object is finished or failed.
//!
//! Goals: nobody but the lead believes that work is done, and the lead believes it only when a reply says so; nothing
//! grows without a named limit. Not goals: exactly-once delivery of a *request* (writes are idempotent instead), order
//! between requests, secrecy (TLS and sealing are the gateway's).

pub mod fault;
pub mod flights;
pub mod frame;
pub mod ids;
pub mod intake;
pub mod liveness;
pub mod scheduler;
pub mod shares;
pub mod window;

pub use fault::Fault;
pub use ids::{ConnectionId, ObjectId, RequestId, RouteId};

/// Version of the frames. A peer of another major version is refused at Hello.
pub const WIRE_VERSION_MAJOR: u8 = 5;

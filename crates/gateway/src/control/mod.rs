//! The control API of a gateway: its program, its events and its metrics.
//!
//! ```text
//!  client ── server (sockets, TLS, limits) ── routes (HTTP) ── gateway (one program's life) ── runner (the node)
//!                                                │                  │
//!                                              probe            validate · events · metrics
//! ```
//!
//! Who may do what: over a Unix socket whoever may open it (its owner); over TCP a peer of the fleet may read the
//! version and the metrics, and only the identities named as controllers may do the rest. A gateway takes one program in
//! its life. `docs/reference/control-api.md` is the description for users.

pub(crate) mod answer;
mod connections;
#[cfg(test)]
mod drops;
pub mod events;
pub mod gateway;
pub mod lease;
mod load;
pub mod metrics;
mod probe;
mod routes;
pub mod runner;
pub mod server;
pub mod validate;

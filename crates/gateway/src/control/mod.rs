//! The control API of a gateway: its program, its events and its metrics.
//!
//! ```text
//!  client ── server (sockets, TLS, limits) ── routes (HTTP) ── gateway (one program's life) ── runner (the node)
//!                                                │                  │
//!                                              probe            validate · events · metrics
//! ```
//!
//! Access: over a Unix socket, whoever may open it (its owner) may do everything. Over TCP any peer of the fleet may
//! read version and metrics, and only the identities named as controllers may do the rest. A gateway runs at most one
//! program in its life. Beside it, or instead, it runs one split proxy (`split`). `docs/reference/control-api.md` describes the API for users.

pub(crate) mod answer;
mod connections;
#[cfg(test)]
mod drops;
pub mod events;
pub mod gateway;
pub mod lease;
mod load;
pub mod metrics;
pub mod notice;
mod probe;
mod routes;
pub mod runner;
pub mod server;
mod split;
mod split_program;
pub mod validate;

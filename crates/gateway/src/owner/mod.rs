//! `tradewind-gateway owner`: the process beside the client that lets gateways into a fleet and carries control to them.
//!
//! ```text
//!  client ── control/NAME (Unix socket) ── tunnel ── reach ──mutual TLS──▶ gateway that is dialled
//!         ── owner.sock (Unix socket) ── admin        │
//!                                          │           └── idle connections ◀── home ◀── gateway that calls
//!                                        fleet ── enrolling, renewal, credentials
//! ```
//!
//! [`fleet`] knows the gateways and is the only one that does. The client speaks HTTP over a Unix socket per gateway
//! and knows nothing of directions, TLS or identities. `docs/decisions/0020-owner.md` says why this is a process of its
//! own. It keeps the CA's key in memory, unless the fleet is to outlive it (`--keep-ca`).

mod admin;
mod credentials;
mod enrolling;
mod exchange;
mod fleet;
mod home;
mod reach;
mod renewal;
mod run;
mod tunnel;

pub use run::{BoundOwner, OwnerArgs, OwnerError};

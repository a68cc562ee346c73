//! `tradewind-gateway owner`: the process beside the client that enrols a fleet's gateways and carries control to them.
//!
//! ```text
//!  client ── control/NAME (Unix socket) ── tunnel ── reach ──mutual TLS──▶ gateway that is dialled
//!         ── owner.sock (Unix socket) ── admin        │
//!                                          │           └── idle connections ◀── home ◀── gateway that calls
//!                                        fleet ── enrolling, renewal, credentials, notices
//! ```
//!
//! Only [`fleet`] keeps the state of gateways. The client speaks HTTP over a Unix socket per gateway and knows nothing
//! of dial directions, TLS or identities. `docs/decisions/0020-owner.md` explains why this is a separate process. It
//! keeps the CA's key in memory, unless the fleet must be able to outlive it (`--keep-ca`).

mod admin;
mod credentials;
mod enrolling;
mod exchange;
mod fleet;
mod home;
mod notices;
mod reach;
mod renewal;
mod run;
mod tunnel;

pub use run::{BoundOwner, OwnerArgs, OwnerError};

//! One process of the data plane, as a library that the binary and the tests share.
//!
//! [`lead`] finds the objects to transfer and records which are done; [`node`] transfers them over the connections of
//! [`net`]; [`program`] combines lead and node. [`task`] is work that needs no gateways (`ls`, `cat`, `check`, …).
//! [`stores`] opens the stores that the contract describes. [`control`] is the API that controls all of it;
//! [`identity`] and [`tls`] admit only one fleet. [`enrol`] gives a gateway its identity; [`owner`] is the process
//! beside the client that grants it and carries control. [`failure`] maps errors to names, outcomes and exit codes.
//! [`retry`] limits requests to stores, and [`drain`] limits how long work continues after a stop.

mod alive;
pub mod attributes;
pub mod background;
pub mod command_line;
pub mod control;
mod dial;
#[cfg(test)]
mod directory_tree;
pub mod drain;
#[cfg(test)]
mod drop_after;
pub mod endings;
pub mod enrol;
pub mod failure;
pub mod home;
pub mod identity;
mod join;
mod join_again;
pub mod lead;
pub mod limits;
pub mod names;
pub mod net;
pub mod node;
pub mod owner;
#[cfg(test)]
mod pipes;
pub mod program;
mod reading;
pub mod retry;
pub mod schema;
pub mod serve;
mod split;
#[cfg(test)]
mod stepped;
pub mod stores;
pub mod tags;
pub mod task;
mod tcp_buffers;
pub mod tls;

//! One process of the data plane, as a library that the binary and the tests share.
//!
//! Participants: the [`lead`] finds what is to be moved and remembers what has been; [`task`] is work that needs no
//! gateways (`ls`, `cat`, `check`, …); [`stores`] turns the contract's description of a store into an open one.
//! [`control`] is the API by which all of it is told what to do; [`identity`] and [`tls`] let only one fleet in. [`enrol`]
//! is how a gateway gets its identity, and [`owner`] the process beside the client that gives it and carries control.
//! [`node`] does the work, over the connections of [`net`]; [`program`] puts lead and node together. [`failure`] gives errors
//! their names, outcomes and exit codes. [`retry`] limits how often stores are asked, and [`drain`] how long work goes on
//! after a wish to stop.

pub mod background;
pub mod control;
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
#[cfg(test)]
mod stepped;
pub mod stores;
pub mod task;
pub mod tls;

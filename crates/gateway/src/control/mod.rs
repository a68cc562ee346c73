//! The control API of a gateway: what it is told to do, and what it tells.
//!
//! [`validate`] holds a program against the rules before anything starts; [`events`] carries the job's story to its
//! readers; [`metrics`] words the figures.

pub mod events;
pub mod metrics;
pub mod validate;

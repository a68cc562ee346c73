//! Runs a gateway's program: builds its roles, hops and stores, and changes them when the routes change. Only this
//! module depends on both the [`lead`](crate::lead) and the [`node`](crate::node).

pub mod environment;
mod reroute;
mod run;

pub use environment::Environment;
pub use run::NodeRunner;

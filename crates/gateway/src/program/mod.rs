//! A gateway's program at work: its roles, hops and stores, put together as the program says, and put together anew when
//! the routes change. The only place that knows both the [`lead`](crate::lead) and the [`node`](crate::node).

pub mod environment;
mod reroute;
mod run;

pub use environment::Environment;
pub use run::NodeRunner;

//! The clock, network and files that a node uses.

use crate::background::Background;
use crate::net::{Network, Tcp};
use crate::stores::{RealStores, Stores};
use std::fmt::Debug;
use std::sync::Arc;

/// Network, stores and threads: those of the machine, or those of the simulator (`tests/simulation`).
#[derive(Clone, Debug)]
pub struct Environment {
    /// Connects to other gateways.
    pub network: Arc<dyn Network>,
    /// Opens stores.
    pub stores: Arc<dyn Stores>,
    /// Where the lead's blocking work runs.
    pub background: Background,
}

impl Default for Environment {
    fn default() -> Self {
        Self { network: Arc::new(Tcp), stores: Arc::new(RealStores), background: Background::Threads }
    }
}

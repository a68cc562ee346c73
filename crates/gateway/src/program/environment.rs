//! The clock, network and files that a node uses.

use crate::background::Background;
use crate::net::{Network, Tcp};
use std::fmt::Debug;
use std::sync::Arc;
use tradewind_contract::StoreSpec;
use tradewind_store::{Result, Store};

/// Opens stores.
pub trait Stores: Debug + Send + Sync {
    /// Opens the store that `spec` describes. Makes no request.
    ///
    /// # Errors
    /// The description is not usable.
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>>;
}

/// The stores that the contract names.
#[derive(Clone, Copy, Debug)]
pub struct RealStores;

impl Stores for RealStores {
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>> {
        crate::stores::open(spec)
    }
}

/// Network, stores and threads: the machine's own, or those of the simulator (`tests/simulation`).
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

//! What the control API needs from the data plane.

use super::events::EventSender;
use super::metrics::MetricsSnapshot;
use crate::net::DataPort;
use crate::tls::Security;
use async_trait::async_trait;
use tradewind_contract::{Program, Refusal};

/// Starts nodes.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Starts the node of a program that has passed [`super::validate`]. Returns when it runs, not when it is done.
    ///
    /// # Errors
    /// The program cannot be run here; nothing is left running, and another program may be tried.
    async fn start(
        &self,
        program: Program,
        security: Security,
        data_listener: Option<Box<dyn DataPort>>,
        events: EventSender,
    ) -> Result<Box<dyn Running>, Refusal>;
}

/// A node that runs.
#[async_trait]
pub trait Running: Send + Sync {
    /// Checkpoints and stops; returns when that is done. Every call after the first only waits for the first.
    async fn drain(&self);

    /// Other routes from now on: `program` is the one it runs, with them in it, and has passed [`super::validate`]. Waits
    /// for nothing, for nobody else can control the gateway meanwhile.
    ///
    /// # Errors
    /// They cannot be taken; of the hops some may have been added.
    fn reroute(&self, program: &Program) -> Result<(), Refusal>;

    /// The node's figures now.
    fn metrics(&self) -> MetricsSnapshot;
}

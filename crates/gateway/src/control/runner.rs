//! The interface that the control API needs from the data plane.

use super::events::EventSender;
use super::metrics::MetricsSnapshot;
use crate::net::DataPort;
use crate::tls::Security;
use async_trait::async_trait;
use tradewind_contract::{Program, Refusal};

/// Starts nodes.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Starts the node of a program that has passed [`super::validate`]. Returns once the node runs, not when it is
    /// done.
    ///
    /// # Errors
    /// The program cannot run here; nothing is left running, and another program may be tried.
    async fn start(
        &self,
        program: Program,
        security: Security,
        data_listener: Option<Box<dyn DataPort>>,
        events: EventSender,
    ) -> Result<Box<dyn Running>, Refusal>;
}

/// A running node.
#[async_trait]
pub trait Running: Send + Sync {
    /// Checkpoints and stops the node; returns when that is done. Further calls only wait for the first one.
    async fn drain(&self);

    /// Changes the routes. `program` is the running program with the new routes, and has passed [`super::validate`].
    /// Must not wait, because it blocks every other control request.
    ///
    /// # Errors
    /// The routes cannot be used; some of the hops may have been added.
    fn reroute(&self, program: &Program) -> Result<(), Refusal>;

    /// The node's present metrics.
    fn metrics(&self) -> MetricsSnapshot;
}

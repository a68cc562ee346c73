//! The cloud's notice that it takes the machine back: the gateway says so, works on, and drains shortly before.
//!
//! The machine's boot script sends SIGUSR1 when the cloud announces it.

use crate::limits::DRAIN_BEFORE_TAKEN_BACK;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;
use tradewind_contract::TakingBack;

/// Waits for the notice.
pub struct Notice {
    announced: Mutex<Signal>,
    /// Time that the gateway works after the notice.
    works: Duration,
    /// When it drains.
    leaves: OnceCell<Instant>,
}

impl Notice {
    /// Watches for the notice of a cloud that gives a machine this time.
    ///
    /// # Errors
    /// The system refused a signal handler.
    pub fn new(given: Duration) -> io::Result<Self> {
        let announced = Mutex::new(signal(SignalKind::user_defined1())?);
        Ok(Self { announced, works: given.saturating_sub(DRAIN_BEFORE_TAKEN_BACK), leaves: OnceCell::new() })
    }

    /// Waits until the gateway must drain.
    pub async fn is_due(&self) {
        let announced = async || {
            self.announced.lock().await.recv().await;
            tracing::info!(works_s = self.works.as_secs(), "the cloud takes the machine back");
            Instant::now() + self.works
        };
        tokio::time::sleep_until(*self.leaves.get_or_init(announced).await).await;
    }

    /// The notice as `GET /v1/version` has it.
    pub(super) fn document(&self) -> TakingBack {
        let left = |leaves: &Instant| leaves.saturating_duration_since(Instant::now()).as_secs();
        TakingBack { leaves_in_s: self.leaves.get().map(left) }
    }
}

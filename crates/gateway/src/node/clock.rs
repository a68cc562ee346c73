//! Milliseconds of a monotonic clock, and fresh connection ids.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tradewind_wire::ConnectionId;

/// Milliseconds since it was started; the state machines of the wire want plain numbers.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at zero.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}

/// Never given before in this process.
pub fn next_connection_id() -> ConnectionId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed))
}

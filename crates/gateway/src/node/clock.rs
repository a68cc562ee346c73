//! A monotonic clock in milliseconds, the detection of process freezes, and unique connection ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tradewind_wire::ConnectionId;

/// Milliseconds since the clock was started. The state machines of the wire need plain numbers.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts the clock at zero.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}

/// Interval at which the detector reads the clock.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Detects whether this process was frozen (SIGSTOP, a paused machine) for longer than its peers wait for it.
#[derive(Debug)]
pub struct FreezeDetector {
    clock: Clock,
    silence_ms_max: u64,
    heartbeat_ms: AtomicU64,
    thawed_ms: AtomicU64,
}

impl FreezeDetector {
    /// Starts to watch the clock, until `stop` is cancelled.
    pub fn start(silence_max: Duration, stop: CancellationToken) -> Arc<Self> {
        let silence_ms_max = silence_max.as_millis() as u64;
        let freezes = Arc::new(Self {
            clock: Clock::start(),
            silence_ms_max,
            heartbeat_ms: AtomicU64::new(0),
            thawed_ms: AtomicU64::new(0),
        });
        let watching = freezes.clone();
        tokio::spawn(async move {
            while stop.run_until_cancelled(tokio::time::sleep(HEARTBEAT)).await.is_some() {
                watching.heartbeat();
            }
        });
        freezes
    }

    /// The clock of all times here.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns whether the process was frozen at any time since `since_ms`.
    pub fn was_frozen_since(&self, since_ms: u64) -> bool {
        let missed_ms = self.clock.now_ms().saturating_sub(self.heartbeat_ms.load(Ordering::Relaxed));
        let thawed_ms = self.thawed_ms.load(Ordering::Relaxed);
        missed_ms > self.silence_ms_max || (thawed_ms > 0 && thawed_ms >= since_ms)
    }

    fn heartbeat(&self) {
        let now_ms = self.clock.now_ms();
        let missed_ms = now_ms.saturating_sub(self.heartbeat_ms.swap(now_ms, Ordering::Relaxed));
        if missed_ms > self.silence_ms_max {
            self.thawed_ms.store(now_ms, Ordering::Relaxed);
        }
    }
}

/// Returns an id that has not been used before in this process.
pub fn next_connection_id() -> ConnectionId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_heartbeat_is_a_freeze_from_then_on() {
        let freezes = FreezeDetector {
            clock: Clock(Instant::now() - Duration::from_secs(60)),
            silence_ms_max: 15_000,
            heartbeat_ms: AtomicU64::new(1_000),
            thawed_ms: AtomicU64::new(0),
        };
        assert!(freezes.was_frozen_since(59_000), "before the heartbeat that notices it");
        freezes.heartbeat();
        assert!(freezes.was_frozen_since(1_000), "after it");
        assert!(!freezes.was_frozen_since(freezes.clock.now_ms() + 1), "what comes later is fresh");
    }
}

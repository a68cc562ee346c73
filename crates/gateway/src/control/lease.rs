//! The lease of a gateway: the gateway ends by itself unless somebody renews the lease.
//!
//! A machine that is paid by the hour must not outlive its users, however they ended. The clock is monotonic: setting
//! the machine's time neither ends a gateway nor keeps it alive.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time until which a gateway runs without a renewal.
pub struct Lease {
    until: watch::Sender<Instant>,
}

impl Lease {
    /// Creates a lease that starts now.
    pub fn new(length: Duration) -> Self {
        Self { until: watch::Sender::new(Instant::now() + length) }
    }

    /// Extends or shortens the lease: it now expires after `length`.
    pub(super) fn renew(&self, length: Duration) {
        self.until.send_replace(Instant::now() + length);
    }

    /// Waits until the lease has expired.
    pub async fn lapsed(&self) {
        let mut until = self.until.subscribe();
        loop {
            let end = *until.borrow_and_update();
            tokio::select! {
                () = tokio::time::sleep_until(end) => return,
                // The sender lives as long as `self`.
                _ = until.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_expires_after_the_last_renewal() {
        let lease = Lease::new(Duration::from_secs(10));
        let start = Instant::now();
        let renewals = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                lease.renew(Duration::from_secs(10));
            }
        };
        tokio::join!(lease.lapsed(), renewals);
        assert_eq!(start.elapsed().as_secs(), 34);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_can_shorten_it() {
        let lease = Lease::new(Duration::from_secs(1000));
        let start = Instant::now();
        lease.renew(Duration::from_secs(5));
        lease.lapsed().await;
        assert_eq!(start.elapsed().as_secs(), 5);
    }
}

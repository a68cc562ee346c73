//! The lease of a gateway: the gateway ends by itself unless somebody renews the lease.
//!
//! A machine that is paid by the hour must not outlive its users, however they ended. The clock is monotonic: setting
//! the machine's time neither ends a gateway nor keeps it alive.
//!
//! A gateway that is frozen cannot end by itself. Its machine can: it reads the end of the lease from a file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time until which a gateway runs without a renewal.
pub struct Lease {
    until: watch::Sender<Instant>,
    /// File with the end of the lease, for the machine's own timer.
    file: Option<PathBuf>,
}

impl Lease {
    /// Creates a lease that starts now.
    pub fn new(length: Duration) -> Self {
        Self { until: watch::Sender::new(Instant::now() + length), file: None }
    }

    /// Creates a lease that starts now, and writes its end to a file, now and with each renewal: the machine's uptime
    /// at that moment, in whole seconds.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn with_file(length: Duration, file: PathBuf) -> io::Result<Self> {
        write_end(&file, length)?;
        Ok(Self { file: Some(file), ..Self::new(length) })
    }

    /// Extends or shortens the lease: it now expires after `length`.
    pub(super) fn renew(&self, length: Duration) {
        self.until.send_replace(Instant::now() + length);
        if let Some(file) = &self.file
            && let Err(error) = write_end(file, length)
        {
            tracing::warn!(%error, path = %file.display(), "the machine's own timer still has the earlier end of the lease");
        }
    }

    /// The time until it expires.
    pub(crate) fn left(&self) -> Duration {
        self.until.borrow().saturating_duration_since(Instant::now())
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

/// Replaces the file as a whole, because the machine's timer may read it at any moment.
fn write_end(file: &Path, length: Duration) -> io::Result<()> {
    let end_s = uptime()? + length;
    let next = file.with_extension("new");
    std::fs::write(&next, format!("{}\n", end_s.as_secs()))?;
    std::fs::rename(next, file)
}

/// The time since the machine booted, including the time for which it was suspended.
pub(crate) fn uptime() -> io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    let seconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| io::Error::other("/proc/uptime has no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_has_the_end_of_the_lease() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lease");
        let left_s = || {
            let end_s: u64 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
            end_s - uptime().unwrap().as_secs()
        };
        let lease = Lease::with_file(Duration::from_secs(1000), file.clone()).unwrap();
        assert!((995..=1001).contains(&left_s()));
        lease.renew(Duration::from_secs(5000));
        assert!((4995..=5001).contains(&left_s()));
        lease.renew(Duration::from_secs(10));
        assert!((5..=11).contains(&left_s()));
        assert!(Lease::with_file(Duration::from_secs(1), folder.path().join("no/lease")).is_err());
    }

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

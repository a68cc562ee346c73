//! How a job ends once it must stop: it starts nothing new, and waits a few seconds for requests in flight.

use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest time that a stopped job waits for requests in flight.
pub const DRAIN_MAX: Duration = Duration::from_secs(4);

/// Runs `work`, but at most [`DRAIN_MAX`] after `stop`. Returns `None` if `work` was dropped before its end.
pub async fn drained<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    let over = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN_MAX).await;
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = over => None,
    }
}

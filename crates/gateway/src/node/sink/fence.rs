//! Withdraws requests that nobody waits for any more.

use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{RwLock, RwLockReadGuard};
use tradewind_wire::RequestId;

/// Before the lead looks for uploads that no run will finish, it withdraws its earlier requests: one that was lost on
/// the way, or that a sink still retries, could open an upload after that look, and nobody would ever find it.
#[derive(Debug, Default)]
pub struct Fence {
    /// Requests with lower ids are withdrawn.
    below: AtomicU64,
    /// Each request that opens an upload holds it for reading meanwhile.
    opening: RwLock<()>,
}

impl Fence {
    /// Returns whether the request is withdrawn.
    pub(super) fn withdraws(&self, request: RequestId) -> bool {
        request.0 < self.below.load(Ordering::Acquire)
    }

    /// Notes that an upload is being opened, until the returned value is dropped.
    pub(super) async fn opening(&self) -> RwLockReadGuard<'_, ()> {
        self.opening.read().await
    }

    /// Withdraws all requests with lower ids, and returns when none of them opens an upload any more.
    pub(super) async fn raise(&self, request: RequestId) {
        self.below.fetch_max(request.0, Ordering::AcqRel);
        drop(self.opening.write().await);
    }
}

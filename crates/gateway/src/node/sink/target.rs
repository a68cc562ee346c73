//! A destination store, and how it is asked: each request is tried as often, and for as long, as its limits say.

use crate::node::attempts::{Attempts, Describe, Patience};
use crate::node::work::{Failure, Side, Unsynced};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tradewind_store::{Checksums, Payload, PutOptions, Store};

/// A system call in progress counts as progress this often; well under the least patience with a store.
const SYSTEM_CALL_TICK: Duration = Duration::from_millis(500);

/// One destination store.
pub struct Target {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Tries and pace towards it.
    pub attempts: Attempts,
}

impl Target {
    /// Tries a request. `payload` is the body it sends, whose progress says whether it still moves.
    pub(in crate::node) async fn run<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        payload: Option<&Payload>,
        request: impl FnMut(Payload) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = tradewind_store::Result<T>>,
    {
        self.run_with(operation, key, Patience::Transfer, payload, request).await
    }

    /// Tries a request that lets the store work by itself, on so many bytes.
    pub(super) async fn working<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        bytes: u64,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = tradewind_store::Result<T>>,
    {
        self.run_with(operation, key, Patience::Work { bytes }, None, |_| request()).await
    }

    async fn run_with<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        patience: Patience,
        payload: Option<&Payload>,
        mut request: impl FnMut(Payload) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = tradewind_store::Result<T>>,
    {
        let url = format!("{}/{key}", self.store.url());
        let progress = Arc::new(AtomicU64::new(0));
        let body = payload.map(|payload| payload.clone().with_progress(progress.clone())).unwrap_or_default();
        let is_local = self.store.volatile_boot().is_some();
        let once = || {
            let request = request(body.clone());
            async { if is_local { waited_for(&progress, request).await } else { request.await } }
        };
        self.attempts
            .run(Describe { operation, url: &url }, patience, &progress, once)
            .await
            .map_err(|error| Failure::of_store(&error, Side::Target))
    }

    /// The part of a successful write that a power loss could undo.
    pub(super) fn unsynced(&self, options: &PutOptions, checksums: &Checksums) -> Option<Unsynced> {
        let boot = self.store.volatile_boot().filter(|_| !options.durable)?;
        Some(Unsynced { boot: boot.to_owned(), checksums: *checksums })
    }
}

/// Counts a wait as progress: a system call cannot be taken back, so it is never given up and made a second time. A sync
/// of a large file may take minutes.
async fn waited_for<T>(progress: &AtomicU64, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(SYSTEM_CALL_TICK, &mut work).await {
            return done;
        }
        progress.fetch_add(1, Ordering::Relaxed);
    }
}

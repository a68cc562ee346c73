//! A store that awaits before and after each request, for tests that drop futures. So a test can drop a request before
//! it is made, or after it is done but before anybody sees the answer. After a number of such steps the store can block
//! forever, as in a process that dies, or panic once.

use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;
use tradewind_store::{
    Checksums, Download, Identity, ListPage, ListRequest, ObjectDeletion, ObjectInfo, PartSource, PartTag, Payload,
    PendingUpload, Precondition, PutOptions, Result, Store, StoreLimits, UploadId, Written,
};

/// The steps that all stores of one process share.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    left: Arc<AtomicUsize>,
    panics: bool,
    over: CancellationToken,
}

impl Steps {
    /// Allows this many steps; then every store blocks.
    pub(crate) fn new(steps: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(steps)), panics: false, over: CancellationToken::new() }
    }

    /// Allows this many steps; the next one panics, and all later ones continue.
    pub(crate) fn panicking(steps: usize) -> Self {
        Self { panics: true, ..Self::new(steps) }
    }

    /// Returns whether no steps are left.
    pub(crate) fn are_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Returns once no steps are left.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    async fn step(&self) {
        yield_now().await;
        if self.panics && self.are_over() {
            return;
        }
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            self.over.cancel();
            if self.panics {
                // Unwinds like a panic, but prints nothing to stderr.
                std::panic::resume_unwind(Box::new("as told"));
            }
            std::future::pending::<()>().await;
        }
    }
}

/// A store that takes steps; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Stepped {
    store: Arc<dyn Store>,
    steps: Steps,
}

impl Stepped {
    /// Wraps a store that never blocks.
    pub(crate) fn new(store: &Arc<dyn Store>) -> Arc<Self> {
        Self::with(store, &Steps::new(usize::MAX))
    }

    /// Wraps a store that shares `steps` with others.
    pub(crate) fn with(store: &Arc<dyn Store>, steps: &Steps) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), steps: steps.clone() })
    }

    async fn step<T>(&self, request: impl Future<Output = T>) -> T {
        self.steps.step().await;
        let done = request.await;
        self.steps.step().await;
        done
    }
}

#[async_trait]
impl Store for Stepped {
    fn url(&self) -> &str {
        self.store.url()
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn makes_root(&self) -> bool {
        self.store.makes_root()
    }

    async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        self.step(self.store.list_page(request)).await
    }

    async fn head(&self, key: &str) -> Result<ObjectInfo> {
        self.step(self.store.head(key)).await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>, condition: &Precondition) -> Result<Download> {
        self.step(self.store.get(key, range, condition)).await
    }

    async fn put(&self, key: &str, payload: Payload, checksums: &Checksums, options: &PutOptions) -> Result<Written> {
        self.step(self.store.put(key, payload, checksums, options)).await
    }

    async fn open_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        self.step(self.store.open_upload(key, options)).await
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        offset: u64,
        payload: Payload,
        checksums: &Checksums,
    ) -> Result<PartTag> {
        self.step(self.store.put_part(key, upload, part, offset, payload, checksums)).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        self.step(self.store.complete_upload(key, upload, parts, checksums, options)).await
    }

    fn volatile_boot(&self) -> Option<&str> {
        self.store.volatile_boot()
    }

    async fn has_part(&self, key: &str, upload: &UploadId, offset: u64, part: &PartTag) -> Result<bool> {
        self.step(self.store.has_part(key, upload, offset, part)).await
    }

    async fn may_hold_parts(&self, key: &str, upload: &UploadId, end: u64, bytes: u64) -> bool {
        self.step(self.store.may_hold_parts(key, upload, end, bytes)).await
    }

    fn time_grain_ns(&self) -> u64 {
        self.store.time_grain_ns()
    }

    async fn changed_unix_ms(&self, key: &str) -> Option<i64> {
        self.step(self.store.changed_unix_ms(key)).await
    }

    async fn sync(&self, key: &str) -> Result<()> {
        self.step(self.store.sync(key)).await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        self.step(self.store.abort_upload(key, upload)).await
    }

    async fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        self.step(self.store.pending_uploads(key)).await
    }

    fn can_copy_from(&self, _source: &dyn Store) -> bool {
        false
    }

    async fn copy(&self, key: &str, source: &PartSource, options: &PutOptions) -> Result<Written> {
        self.step(self.store.copy(key, source, options)).await
    }

    async fn copy_part(&self, key: &str, upload: &UploadId, part: u32, source: &PartSource) -> Result<PartTag> {
        self.step(self.store.copy_part(key, upload, part, source)).await
    }

    async fn delete(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>> {
        self.step(self.store.delete(objects)).await
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.store.as_any()
    }
}

//! A destination store, with the retries and time limits of its requests.

use crate::attributes::ignores_metadata;
use crate::failure::{ObjectUrl, object_url};
use crate::node::attempts::{Attempts, Describe, Patience};
use crate::node::load::{StageAt, StageMeter};
use crate::node::work::{Failure, Placed, Proof, Side, Unsynced, WholePlace};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tradewind_contract::Limits;
use tradewind_store::{Checksums, Crcs, Error, Payload, PutOptions, Store, Written};

/// A system call in progress counts as progress this often. It is well below the shortest time limit for a store.
const SYSTEM_CALL_TICK: Duration = Duration::from_millis(500);

/// Errors of one destination whose words are logged.
const LOGGED_MAX: u32 = 100;

/// One destination store.
pub struct Target {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The retries and throttle for its requests.
    pub attempts: Attempts,
    /// What the lead is told of its writing.
    pub meter: Arc<StageMeter>,
    /// True if failures have no words of the store, see [`tradewind_contract::StoreSpec::hides_words`].
    hides_words: bool,
    /// Errors whose words were logged instead.
    logged: AtomicU32,
}

impl Target {
    /// The destination with this index in the job.
    pub fn new(gateway: &str, target: u16, store: Arc<dyn Store>, limits: &Limits) -> Self {
        let attempts = Attempts::of_writing(limits);
        let meter = StageMeter::new(gateway, StageAt::Write { target }, attempts.throttle().clone());
        Self { store, attempts, meter, hides_words: false, logged: AtomicU32::new(0) }
    }

    /// The same destination; its failures have no words of the store if `hides_words`.
    pub fn hiding_words(self, hides_words: bool) -> Self {
        Self { hides_words, ..self }
    }

    /// The failure for an error of the store. Words that it leaves out are in this gateway's log, those of the first
    /// errors: a job may have millions.
    pub(super) fn failure(&self, error: &Error) -> Failure {
        if !self.hides_words {
            return Failure::of_store(error, Side::Target);
        }
        if self.logged.fetch_add(1, Ordering::Relaxed) < LOGGED_MAX {
            tracing::warn!("{error}");
        }
        Failure::of_store(&error.without_words(), Side::Target)
    }

    /// Adds the CRC-32C to a source's checksums where the store may need it.
    ///
    /// # Errors
    /// The bytes are not those that the source read.
    pub(super) fn completed(&self, key: &str, payload: &Payload, given: Checksums) -> Result<Checksums, Failure> {
        if self.store.wanted_crcs() != Some(Crcs::Both) {
            return Ok(given);
        }
        payload.with_crc32c(&given).ok_or_else(|| {
            let url = object_url(self.store.as_ref(), key);
            Failure::mismatch(format!("{url}: the bytes that arrived are not those that were read"))
        })
    }

    /// Runs a request with retries. `payload` is the request's body, whose progress shows whether it is still moving.
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

    /// Runs a request, with retries, that makes the store itself work on this many bytes.
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
        let progress = Arc::new(AtomicU64::new(0));
        let body = payload.map(|payload| payload.clone().with_progress(progress.clone())).unwrap_or_default();
        let is_local = self.store.volatile_boot().is_some();
        let once = || {
            let request = request(body.clone());
            async { if is_local { waited_for(&progress, request).await } else { request.await } }
        };
        let describe = Describe { operation, url: ObjectUrl::of(self.store.as_ref(), key) };
        self.attempts.run(describe, patience, &progress, once).await.map_err(|error| self.failure(&error))
    }

    /// Describes an object that is written and proven. `proofs`: of its source, and of what is here.
    pub(super) fn placed(
        &self,
        place: &WholePlace,
        written: Written,
        proofs: (Proof, Proof),
        size_bytes: u64,
        sent: Checksums,
    ) -> Placed {
        let (source_proof, target_proof) = proofs;
        Placed {
            written,
            source_proof,
            target_proof,
            size_bytes,
            sent,
            tags_dropped: place.tags_dropped,
            attributes_ignored: ignores_metadata(&place.options, self.store.as_ref()),
            unsynced: self.unsynced(&place.options, &sent),
        }
    }

    /// The record of a successful write that a power loss could undo; `None` if it could not.
    fn unsynced(&self, options: &PutOptions, checksums: &Checksums) -> Option<Unsynced> {
        let boot = self.store.volatile_boot().filter(|_| !options.durable)?;
        Some(Unsynced { boot: boot.to_owned(), checksums: *checksums })
    }
}

/// Counts a wait as progress: a system call cannot be cancelled, so it is never abandoned and made a second time. A
/// sync of a large file may take minutes.
async fn waited_for<T>(progress: &AtomicU64, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(SYSTEM_CALL_TICK, &mut work).await {
            return done;
        }
        progress.fetch_add(1, Ordering::Relaxed);
    }
}

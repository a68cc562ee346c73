//! Counts of what a sink has written, for the metrics. They do not depend on what a lead says.

use super::Saved;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes since the start of the sink. What arrives twice and is written twice counts twice.
#[derive(Debug, Default)]
pub struct Counts {
    written: AtomicU64,
    saved: AtomicU64,
    deduplicated: AtomicU64,
}

impl Counts {
    /// Object bytes that were written.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes that bodies did not have to carry: those that deduplication and compression saved, and of them those that
    /// deduplication did.
    pub fn saved_bytes(&self) -> (u64, u64) {
        (self.saved.load(Ordering::Relaxed), self.deduplicated.load(Ordering::Relaxed))
    }

    pub(super) fn add_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_saved(&self, saved: Saved) {
        self.saved.fetch_add(saved.bytes, Ordering::Relaxed);
        self.deduplicated.fetch_add(saved.deduplicated_bytes, Ordering::Relaxed);
    }
}

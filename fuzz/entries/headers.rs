//! The heads of answers of object stores.

/// Reads `data` as the head of an answer of S3, GCS and Azure; the store crate asserts the invariants of each.
pub(crate) fn run(data: &[u8]) {
    tradewind_store::fuzz::headers(data);
}

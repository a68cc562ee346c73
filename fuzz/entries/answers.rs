//! The XML that object stores answer with.

/// Parses `data` as every answer of S3, GCS and Azure; the store crate asserts the invariants of each.
pub(crate) fn run(data: &[u8]) {
    tradewind_store::fuzz::answers(data);
}

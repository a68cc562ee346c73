//! The XML that object stores answer with.

/// Parses `data` as every answer of S3, GCS and Azure; the store crate asserts what must hold of each.
pub(crate) fn run(data: &[u8]) {
    tradewind_store::fuzz::answers(data);
}

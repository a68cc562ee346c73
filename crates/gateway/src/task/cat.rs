//! `cat`: writes objects to stdout, one after the other.

use super::{Streams, TaskError, TaskResult};
use crate::failure::{counted, object_url};
use crate::reading::{Summing, windows};
use crate::retry::RetryPolicy;
use futures::TryStreamExt;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use tradewind_contract::{ByteRange, Outcome};
use tradewind_store::{ObjectInfo, Store};

/// Most windows of one object that are read concurrently.
const WINDOWS_MAX: usize = 8;

/// Writes the objects in the order of `keys`. The bytes of each are compared with the store's checksum after they have been
/// written: a mismatch is an error with its own exit code, but the bytes are already out. A range of an object has no
/// checksum to compare with.
pub(super) async fn cat(
    store: Arc<dyn Store>,
    keys: &[String],
    range: Option<ByteRange>,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    for key in keys {
        let info = policy.run("head", store.url(), || store.head(key)).await?;
        let mut summing = Summing::against(&info.checksums);
        let bytes = chosen(store.as_ref(), &info, range)?;
        let is_whole = bytes == (0..info.size_bytes);
        let mut windows = std::pin::pin!(windows(store.as_ref(), &info, bytes, WINDOWS_MAX, policy));
        while let Some(segments) = windows.try_next().await? {
            for segment in segments {
                summing.update(&segment);
                streams.data.write_all(&segment)?;
            }
        }
        if is_whole && summing.finish().agrees_with(&info.checksums) == Some(false) {
            let url = object_url(store.as_ref(), key);
            let message = format!("the bytes read from {url} do not have the checksum that the store states");
            return Err(TaskError::ended(Outcome::Mismatch, message, Some("do not use the output")));
        }
    }
    Ok(())
}

/// The bytes of an object that a range means: what is beyond the end is left out.
///
/// # Errors
/// The range begins after the end of the object.
fn chosen(store: &dyn Store, info: &ObjectInfo, range: Option<ByteRange>) -> Result<Range<u64>, TaskError> {
    let size = info.size_bytes;
    let Some(ByteRange { start: from, bytes }) = range else { return Ok(0..size) };
    let start = match u64::try_from(from) {
        Ok(start) => start,
        Err(_) => size.saturating_sub(from.unsigned_abs()),
    };
    if start > size || start == size && from > 0 {
        let url = object_url(store, &info.key);
        let message = format!("the range begins after the end of {url}, which has {}", counted(size, "byte", "bytes"));
        return Err(TaskError::ended(Outcome::Failed, message, None));
    }
    Ok(start..bytes.map_or(size, |bytes| start.saturating_add(bytes).min(size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory_tree::DirectoryTree;

    #[test]
    fn a_range_is_cut_at_the_end_and_may_count_from_it() {
        let tree = DirectoryTree::with(&[]);
        let info = ObjectInfo { size_bytes: 10, ..ObjectInfo::default() };
        let of = |start, bytes| chosen(tree.store.as_ref(), &info, Some(ByteRange { start, bytes })).ok();
        assert_eq!(of(0, Some(4)), Some(0..4));
        assert_eq!(of(4, None), Some(4..10));
        assert_eq!(of(4, Some(u64::MAX)), Some(4..10));
        assert_eq!(of(-3, None), Some(7..10));
        assert_eq!(of(i64::MIN, None), Some(0..10));
        assert_eq!(of(10, None), None);
        assert_eq!(chosen(tree.store.as_ref(), &ObjectInfo::default(), None).ok(), Some(0..0));
    }
}

//! `cat`: writes objects to stdout, one after the other.

use super::error::{TaskError, TaskResult};
use super::folders::is_folder;
use super::refused::Refused;
use super::streams::Streams;
use crate::failure::{counted, object_url};
use crate::lead::pages::Listing;
use crate::lead::select::Selector;
use crate::reading::{Summing, windows};
use crate::retry::RetryPolicy;
use futures::{StreamExt, TryStreamExt};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use tradewind_contract::{ByteRange, ObjectFilter, Outcome};
use tradewind_store::{Error, ErrorKind, ObjectInfo, Store};

/// Most windows of one object that are read concurrently.
const WINDOWS_MAX: usize = 8;

/// Writes objects of one store. The bytes of each are compared with the store's checksum after they have been written: a
/// mismatch is an error with its own exit code, but the bytes are already out. A range of an object has no checksum to
/// compare with.
pub(super) struct Cat {
    pub(super) store: Arc<dyn Store>,
    pub(super) range: Option<ByteRange>,
    pub(super) policy: RetryPolicy,
}

impl Cat {
    /// Writes the objects in the order of `keys`.
    pub(super) async fn named(&self, keys: &[String], streams: &mut Streams) -> TaskResult {
        for key in keys {
            match self.write(key, streams).await {
                Err(TaskError::Store(error)) if error.kind == ErrorKind::NotFound => {
                    return Err(self.why_missing(key, error).await);
                }
                done => done?,
            }
        }
        Ok(())
    }

    async fn why_missing(&self, key: &str, missing: Error) -> TaskError {
        if !is_folder(&self.store, key, self.policy).await {
            return missing.into();
        }
        let url = object_url(self.store.as_ref(), key);
        let hint = format!("to print the objects in it: tradewind cat '{url}/*'");
        TaskError::ended(Outcome::SourceNotFound, format!("{url} is a directory, not an object"), Some(&hint))
    }

    /// Writes what the filter selects below a folder, in the order of keys.
    ///
    /// # Errors
    /// Nothing is selected, or, after all others were written, an entry cannot be listed.
    pub(super) async fn matching(&self, folder: &str, filter: &ObjectFilter, streams: &mut Streams) -> TaskResult {
        let selector = Selector::new(filter)?;
        let (store, policy) = (self.store.clone(), self.policy);
        let (prefix, skips) = (folder.to_owned(), selector.skips(folder, ""));
        let listing = Listing::new(store, prefix, policy, selector.span(), skips);
        let root = object_url(self.store.as_ref(), folder);
        let (mut refused, mut written, mut excluded) = (Refused::default(), 0_u64, 0);
        let mut pages = std::pin::pin!(listing.in_order().await?);
        while let Some(page) = pages.next().await {
            let page = page?;
            for object in page.objects.iter().filter(|object| !object.key.ends_with('/')) {
                let name = object.key.strip_prefix(folder).unwrap_or(&object.key);
                if selector.takes(name, object.size_bytes, object.modified_unix_ms) {
                    self.write(&object.key, streams).await?;
                    written += 1;
                } else {
                    excluded += 1;
                }
            }
            excluded += page.skipped;
            refused.take_selected(&page.refused, &root, &selector, streams);
        }
        refused.say_links("skipped", streams);
        if written == 0 && !refused.has_unseen() {
            let (url, excluded) = selector.missing(&root, excluded);
            return Err(TaskError::nothing_selected(&url, excluded));
        }
        refused.end()
    }

    async fn write(&self, key: &str, streams: &mut Streams) -> TaskResult {
        let (store, policy) = (self.store.as_ref(), self.policy);
        let info = policy.run("head", store.url(), || store.head(key)).await?;
        let mut summing = Summing::against(&info.checksums);
        let bytes = chosen(store, &info, self.range)?;
        let is_whole = bytes == (0..info.size_bytes);
        let mut windows = std::pin::pin!(windows(store, &info, bytes, WINDOWS_MAX, policy));
        while let Some(segments) = windows.try_next().await? {
            for segment in segments {
                summing.update(&segment);
                streams.data.write_all(&segment)?;
            }
        }
        if is_whole && summing.finish().agrees_with(&info.checksums) == Some(false) {
            let url = object_url(store, key);
            let message = format!("the bytes read from {url} do not have the checksum that the store states");
            return Err(TaskError::ended(Outcome::Mismatch, message, Some("do not use the output")));
        }
        Ok(())
    }
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

//! Checks the copies of an object right before its source is deleted.
//!
//! The answer to a write says that a copy was there once. Before `mv` deletes the source, perhaps in another run, the
//! copy may have been removed or replaced; and a store may have confirmed a write without storing anything. So every
//! copy is checked with `HEAD`, and its source is deleted only if the copy is the object that was written, or has the
//! same bytes.

use crate::failure::object_url;
use crate::node::work::Failure;
use crate::retry::RetryPolicy;
use serde::{Deserialize, Serialize};
use tradewind_store::{Error, ErrorKind, FileIdentity, ObjectInfo, Precondition, Store, Written};

/// One copy of an object, in the state in which it was proven.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenCopy {
    /// Index of the destination.
    pub target: u16,
    /// Key at the destination.
    pub key: String,
    /// Its length.
    pub size_bytes: u64,
    /// The store's answer to the write. If it states nothing, only the length is compared.
    pub written: Written,
}

/// Why a source must stay after a check of its copy.
#[derive(Clone, Debug)]
pub enum NotThere {
    /// The copy was removed or replaced, or was never stored.
    Lost(Failure),
    /// The store does not answer the check.
    Unknown(Error),
}

impl ProvenCopy {
    /// Checks the copy at `store`, which must be the destination, and returns the store's description of it.
    ///
    /// # Errors
    /// The copy is missing, has changed, or cannot be checked.
    pub async fn look(&self, store: &dyn Store, policy: RetryPolicy) -> Result<ObjectInfo, NotThere> {
        let url = || object_url(store, &self.key);
        match policy.run("head", store.url(), || store.head(&self.key)).await {
            Ok(now) if is_as_written(self.size_bytes, &self.written, &now) => Ok(now),
            Ok(now) if self.differs_in_etag_alone(&now) => Err(NotThere::Lost(of_another_etag(&url()))),
            Ok(_) => Err(NotThere::Lost(replaced(&url()))),
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BucketNotFound) => {
                Err(NotThere::Lost(lost(&url(), "does not exist")))
            }
            Err(error) => Err(NotThere::Unknown(error)),
        }
    }

    /// Returns whether only the ETag differs: another program replaced the copy, or the store's ETags are not stable.
    fn differs_in_etag_alone(&self, now: &ObjectInfo) -> bool {
        let state = Precondition { etag: None, ..Precondition::written(&self.written) };
        now.size_bytes == self.size_bytes
            && state.difference(now).is_none()
            && self.written.checksums.agrees_with(&now.checksums).is_none()
    }
}

/// The failure of an object whose copy at `url` may be the object itself.
pub fn not_told_apart(url: &str) -> Failure {
    lost(
        url,
        "may be the source under another name: both have the same ETag and version, and were written in the same second",
    )
}

/// The failure of a copy replaced by another program, or by this job under a name that the store treats as the same.
fn replaced(url: &str) -> Failure {
    let hint =
        "resume the job to copy it again; if the destination treats two names as one, copy it under another name";
    Failure { hint: Some(hint.to_owned()), ..lost(url, "has been replaced") }
}

fn of_another_etag(url: &str) -> Failure {
    let why = "has a different ETag than when it was written, and no checksum shows whether it was replaced";
    let hint = "resume the job to copy it again; where the store's ETags are not stable, move with --verify read";
    Failure { hint: Some(hint.to_owned()), ..lost(url, why) }
}

fn lost(url: &str, why: &str) -> Failure {
    let message = format!("its copy {url} {why}, so the source was kept");
    let hint = "resume the job to copy it again";
    let failure = Failure::new(tradewind_wire::Fault::Permanent, "overwritten", message);
    Failure { hint: Some(hint.to_owned()), ..failure }
}

/// Returns whether `now` is the object of `size_bytes` that was `written`, or another one with the same bytes. A store
/// may carry out a repeated request twice, and a new version with the same bytes is as good.
pub fn is_as_written(size_bytes: u64, written: &Written, now: &ObjectInfo) -> bool {
    let stated = (written.checksums.plausible(size_bytes), now.checksums.plausible(size_bytes));
    let same_bytes = stated.0.agrees_with(&stated.1) == Some(true);
    // A file system may have another device number after it was mounted again.
    let device = |file: FileIdentity| FileIdentity { device: now.file.map_or(file.device, |now| now.device), ..file };
    let state = Precondition::written(&Written { file: written.file.map(device), ..written.clone() });
    now.size_bytes == size_bytes && (same_bytes || state.difference(now).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_store::Checksums;

    fn written(version: &str, crc32c: Option<u32>) -> Written {
        let checksums = Checksums { crc32c, ..Checksums::default() };
        Written { version: Some(version.to_owned()), checksums, ..Written::default() }
    }

    fn now(version: &str, size_bytes: u64, crc32c: Option<u32>) -> ObjectInfo {
        let checksums = Checksums { crc32c, ..Checksums::default() };
        ObjectInfo { version: Some(version.to_owned()), size_bytes, checksums, ..ObjectInfo::default() }
    }

    #[test]
    fn only_the_object_that_was_written_or_its_bytes_will_do() {
        assert!(is_as_written(5, &written("2", Some(7)), &now("2", 5, Some(7))));
        assert!(is_as_written(5, &written("2", Some(7)), &now("1", 5, Some(7))), "the same bytes, late");
        assert!(!is_as_written(5, &written("2", Some(7)), &now("1", 5, Some(8))));
        assert!(!is_as_written(5, &written("2", None), &now("1", 5, None)));
        assert!(!is_as_written(5, &written("2", None), &now("2", 6, None)));
    }

    #[test]
    fn a_file_is_known_again_on_another_device_number() {
        let file = FileIdentity { device: 1, inode: 2, modified_unix_ns: 3, changed_unix_ns: 4, links: 1 };
        let written = Written { file: Some(file), ..Written::default() };
        let now = |file| ObjectInfo { size_bytes: 5, file: Some(file), ..ObjectInfo::default() };
        assert!(is_as_written(5, &written, &now(FileIdentity { device: 9, ..file })));
        assert!(!is_as_written(5, &written, &now(FileIdentity { inode: 9, ..file })));
        assert!(!is_as_written(5, &written, &now(FileIdentity { changed_unix_ns: 9, ..file })));
    }
}

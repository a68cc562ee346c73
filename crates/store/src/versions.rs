//! Versions of objects in a bucket that keeps them, and the delete markers between them.

use crate::error::PARSE;
use crate::open::{Remote, open_remote};
use crate::s3::Bucket;
use crate::{Error, ErrorKind, Result, StoreConfig};
use std::sync::Arc;

/// One version of an object, or a delete marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Key.
    pub key: String,
    /// Id. `null` is the version that was written while the bucket kept no versions.
    pub version: String,
    /// A delete marker, which has no bytes, and not a version.
    pub is_marker: bool,
    /// A reader who names no version gets this one.
    pub is_latest: bool,
    /// Length in bytes; 0 for a delete marker.
    pub size_bytes: u64,
    /// Milliseconds since the Unix epoch.
    pub modified_unix_ms: i64,
}

/// One page of a listing of versions.
#[derive(Clone, Debug, Default)]
pub struct VersionPage {
    /// Versions in the server's order.
    pub versions: Vec<ObjectVersion>,
    /// The start of the next page; `None` at the end.
    pub next: Option<VersionMarker>,
}

/// Where a page of versions starts: after this version of this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionMarker {
    /// Key.
    pub key: String,
    /// Id of the version; empty for after all versions of the key.
    pub version: String,
}

/// The versions in one bucket.
#[derive(Clone, Debug)]
pub struct Versions(Arc<Bucket>);

impl Versions {
    /// Opens the versions of a store. Makes no request.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for stores whose versions cannot be listed here: only those of S3 can.
    pub fn open(config: &StoreConfig) -> Result<Self> {
        let refused = |why: &str| Err(Error::new(ErrorKind::Unsupported, PARSE, config.url.clone(), why));
        if !config.is_remote() {
            return refused("a file has no versions");
        }
        match open_remote(config)? {
            Remote::Bucket(bucket) if bucket.is_s3() => Ok(Self(bucket)),
            Remote::Bucket(_) => {
                refused("only versions in S3 are supported, not the generations of Google Cloud Storage")
            }
            Remote::Azure(_) => refused("only versions in S3 are supported, not those of Azure"),
        }
    }

    /// Most versions in one call of [`Versions::delete`].
    pub fn delete_max(&self) -> usize {
        self.0.versions_per_delete_max()
    }

    /// Returns one page of the versions of all keys that begin with `prefix`: keys in ascending order, and of each key
    /// the newest version first.
    ///
    /// # Errors
    /// Of the store; [`ErrorKind::Unsupported`] if the server does not list versions.
    pub async fn list(&self, prefix: &str, after: Option<&VersionMarker>) -> Result<VersionPage> {
        self.0.list_versions(prefix, after).await
    }

    /// Deletes versions for good and returns one verdict per version, in the same order. A missing version is not an
    /// error.
    ///
    /// # Errors
    /// Of the whole request.
    pub async fn delete(&self, versions: &[ObjectVersion]) -> Result<Vec<Result<()>>> {
        self.0.delete_versions(versions).await
    }
}

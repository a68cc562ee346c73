//! Versions of objects in a bucket that keeps them, and the delete markers between them.

use crate::error::PARSE;
use crate::model::{ObjectVersion, VersionMarker, VersionPage};
use crate::open::{Remote, open_remote};
use crate::s3::Bucket;
use crate::{Error, ErrorKind, Result, StoreConfig};
use std::sync::Arc;

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
    /// Errors of the store; [`ErrorKind::Unsupported`] if the server does not list versions.
    pub async fn list(&self, prefix: &str, after: Option<&VersionMarker>) -> Result<VersionPage> {
        self.0.list_versions(prefix, after).await
    }

    /// Deletes versions for good and returns one verdict per version, in the same order. A missing version is not an
    /// error.
    ///
    /// # Errors
    /// Errors of the whole request.
    pub async fn delete(&self, versions: &[ObjectVersion]) -> Result<Vec<Result<()>>> {
        self.0.delete_versions(versions).await
    }
}

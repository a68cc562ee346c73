//! Opens a store of any kind by its URL.

use crate::azure::AzureStore;
use crate::error::PARSE;
use crate::file::{Disk, FileStore, Kernel};
use crate::mem::MemStore;
use crate::s3::{Bucket, open_gcs, open_r2, open_s3};
use crate::{Error, ErrorKind, Result, Store, StoreConfig};
use std::path::Path;
use std::sync::Arc;

/// Opens a store. Makes no request: a wrong configuration fails here, a wrong bucket at the first call.
pub fn open(config: &StoreConfig) -> Result<Arc<dyn Store>> {
    if config.url == "mem:" {
        return Ok(Arc::new(MemStore::new(config)?));
    }
    if config.url.starts_with("file://") {
        return open_on(config, Arc::new(Kernel));
    }
    Ok(match open_remote(config)? {
        Remote::Bucket(bucket) => bucket,
        Remote::Azure(container) => container,
    })
}

/// A store that is reached over a network.
#[derive(Debug)]
pub(crate) enum Remote {
    /// A bucket of S3 or of a service that speaks its protocol.
    Bucket(Arc<Bucket>),
    /// An Azure container.
    Azure(Arc<AzureStore>),
}

/// Opens a store that is reached over a network. Makes no request.
pub(crate) fn open_remote(config: &StoreConfig) -> Result<Remote> {
    let wrong = |why: String| Error::new(ErrorKind::Configuration, PARSE, config.url.clone(), why);
    let (scheme, rest) = config.url.split_once("://").ok_or_else(|| wrong("the URL has no scheme".to_owned()))?;
    let name = rest.strip_suffix('/').unwrap_or(rest);
    let pair = || name.split_once('/').ok_or_else(|| wrong(format!("the URL must be {scheme}://account/bucket")));
    Ok(match scheme {
        "s3" => Remote::Bucket(Arc::new(open_s3(config, name)?)),
        "gs" => Remote::Bucket(Arc::new(open_gcs(config, name)?)),
        "r2" => {
            let (account, bucket) = pair()?;
            Remote::Bucket(Arc::new(open_r2(config, account, bucket)?))
        }
        "az" => {
            let (account, container) = pair()?;
            Remote::Azure(Arc::new(AzureStore::open(config, account, container)?))
        }
        other => return Err(wrong(format!("the scheme `{other}` is unknown"))),
    })
}

/// Opens a store of files whose changes pass through `disk`. For tests that simulate a power loss.
///
/// # Errors
/// As [`open`], also for a URL that is not `file:`.
pub fn open_on(config: &StoreConfig, disk: Arc<dyn Disk>) -> Result<Arc<dyn Store>> {
    let Some(root) = config.url.strip_prefix("file://") else {
        return Err(Error::new(ErrorKind::Configuration, "open", config.url.clone(), "not a directory tree"));
    };
    Ok(Arc::new(FileStore::new(Path::new(root), config, disk)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_roots_are_configuration_errors() {
        for url in ["", "b", "ftp://b", "s3://", "s3://b/key", "r2://b", "az://a", "file://relative"] {
            let config = StoreConfig { url: url.to_owned(), anonymous: true, ..StoreConfig::default() };
            assert_eq!(open(&config).unwrap_err().kind, ErrorKind::Configuration, "{url}");
        }
    }
}

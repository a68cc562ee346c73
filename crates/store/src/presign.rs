//! Signed addresses: anybody who has one may read the object until it expires, without credentials.

use crate::error::PARSE;
use crate::open::{Remote, open_remote};
use crate::{Error, ErrorKind, Result, StoreConfig};

/// Returns an address that reads `key` for `expires_s` seconds from now. Whether the object exists is not checked.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the store has no such addresses, or these credentials cannot sign one.
pub async fn presign(config: &StoreConfig, key: &str, expires_s: u32) -> Result<String> {
    if !config.is_remote() {
        let why = "only objects in S3, R2 and Azure have signed addresses";
        return Err(Error::new(ErrorKind::Unsupported, PARSE, config.url.clone(), why));
    }
    match open_remote(config)? {
        Remote::Bucket(bucket) => bucket.presign(key, expires_s).await,
        Remote::Azure(container) => container.presign(key, expires_s).await,
    }
}

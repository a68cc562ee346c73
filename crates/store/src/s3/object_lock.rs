//! Asks whether a bucket can lock objects.

use super::Bucket;
use crate::{ErrorKind, Result};
use http::Method;

/// Part of the answer of a bucket with Object Lock, and of no other answer.
const ENABLED: &[u8] = b"<ObjectLockEnabled>Enabled</ObjectLockEnabled>";
/// Error code of a bucket without Object Lock, which some servers send with the status of a missing bucket.
const NOT_CONFIGURED: &str = "ObjectLockConfigurationNotFoundError";

impl Bucket {
    /// Returns an error unless the bucket has Object Lock. Servers that do not know the request answer another one,
    /// such as a listing. Where it is not allowed, AWS refuses the first write to a bucket without Object Lock.
    pub(super) async fn check_object_lock(&self) -> Result<()> {
        let call = self.call("lock", Method::GET, "", &[("object-lock", "")]);
        let missing = || call.error(ErrorKind::Unsupported, "cannot lock objects: the bucket has no S3 Object Lock");
        if !self.dialect.amz_checksums {
            return Err(missing());
        }
        match self.send_small(call.clone()).await {
            Ok((_, body)) if body.windows(ENABLED.len()).any(|text| text == ENABLED) => Ok(()),
            Ok(_) => Err(missing()),
            Err(refusal) if refusal.code == NOT_CONFIGURED => Err(missing()),
            Err(refusal) => match refusal.error.kind {
                ErrorKind::Forbidden if self.at_aws => Ok(()),
                kind if kind.is_transient() => Err(refusal.into()),
                ErrorKind::BucketNotFound | ErrorKind::Unauthenticated | ErrorKind::Forbidden => Err(refusal.into()),
                _ => Err(missing()),
            },
        }
    }
}

//! Finds the region of a bucket.

use super::Bucket;
use super::address::BucketAddress;
use super::xml::parse_location;
use crate::rest::header;
use crate::{ErrorKind, Result, StoreLocation};
use http::Method;
use std::sync::{Arc, PoisonError};

/// The region that an empty answer of `GetBucketLocation` means.
const AWS_FIRST_REGION: &str = "us-east-1";
/// The one region for which `GetBucketLocation` uses an old name.
const AWS_OLD_IRELAND: &str = "eu";
const AWS_IRELAND: &str = "eu-west-1";

impl Bucket {
    /// Switches to the bucket's region. Without an answer, the first real request will report what is wrong.
    pub(super) async fn follow_bucket(&self) {
        if let Some(region) = self.hinted_region().await {
            let address = Arc::new(BucketAddress::aws(&self.bucket, &region, self.path_style));
            *self.address.write().unwrap_or_else(PoisonError::into_inner) = address;
        }
    }

    /// The region of the bucket: at AWS from the hint that needs no credentials, else from `GetBucketLocation`.
    pub(super) async fn bucket_location(&self) -> Result<Option<StoreLocation>> {
        let provider = match self.dialect.scheme {
            "gs" => Some("gcp"),
            "s3" if self.at_aws => Some("aws"),
            _ => None,
        };
        if self.at_aws
            && let Some(name) = self.hinted_region().await
        {
            return Ok(Some(StoreLocation { provider, name }));
        }
        let call = self.call("location", Method::GET, "", &[("location", "")]);
        let (_, body) = self.send_small(call.clone()).await?;
        let told = parse_location(&body).map_err(|error| call.error(ErrorKind::Server, error))?;
        let name = match told.to_ascii_lowercase() {
            empty if empty.is_empty() && provider == Some("gcp") => return Ok(None),
            empty if empty.is_empty() => AWS_FIRST_REGION.to_owned(),
            old if old == AWS_OLD_IRELAND && provider == Some("aws") => AWS_IRELAND.to_owned(),
            name => name,
        };
        Ok(Some(StoreLocation { provider, name }))
    }

    /// The region that S3 names in its answer to an unsigned HEAD, whatever its status.
    async fn hinted_region(&self) -> Option<String> {
        let address = self.address();
        let mut call = self.call("head", Method::HEAD, "", &[]);
        call.origin.clone_from(&address.origin);
        call.path.insert_str(0, &address.root);
        let response = self.http.send(call).await.ok()?;
        header(response.headers(), "x-amz-bucket-region").map(str::to_owned)
    }
}

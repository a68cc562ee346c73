//! The buckets of an account: lists, makes and removes them.

use super::Bucket;
use super::address::BucketAddress;
use super::open::known;
use super::send::Refusal;
use crate::rest::parse_rfc3339;
use crate::xml::{Walk, XmlError, escape_into, walk};
use crate::{BucketInfo, BucketPage, Error, ErrorKind, Payload, Result};
use http::Method;
use std::sync::{Arc, RwLock};

/// Buckets per page. AWS returns no pages, and only for small accounts all buckets, if this is not given.
const PAGE_BUCKETS: &str = "1000";
/// The region whose buckets are made without naming it.
const DEFAULT_REGION: &str = "us-east-1";

impl Bucket {
    /// Turns a bucket with a path-style address into its account.
    pub(crate) fn of_account(self, url: &str) -> Self {
        let address = self.address();
        let root = address.root.strip_suffix(&format!("/{}", self.bucket)).unwrap_or(&address.root).to_owned();
        let address = Arc::new(BucketAddress { root, ..(*address).clone() });
        // Accounts have no region to follow: each region lists all buckets.
        Self {
            url: url.to_owned(),
            bucket: String::new(),
            address: RwLock::new(address),
            at_aws: false,
            region_known: known(true),
            ..self
        }
    }

    pub(crate) async fn list_buckets(&self, project: Option<&str>, continuation: Option<&str>) -> Result<BucketPage> {
        let mut query = Vec::new();
        if self.dialect.amz_checksums {
            query.push(("max-buckets", PAGE_BUCKETS));
            query.extend(continuation.map(|token| ("continuation-token", token)));
        } else {
            query.extend(continuation.map(|marker| ("marker", marker)));
        }
        let mut call = self.call("list buckets of", Method::GET, "", &query);
        self.add_project(&mut call, project)?;
        let (_, body) = self.send_small(call.clone()).await?;
        let page = parse_buckets(&body).map_err(|error| self.late_refusal(&call, &body, error))?;
        match (&page.continuation, continuation) {
            (Some(next), Some(before)) if next == before => {
                Err(call.error(ErrorKind::Protocol, "bad listing: the server repeats its continuation"))
            }
            _ => Ok(page),
        }
    }

    pub(crate) async fn create(&self, project: Option<&str>) -> Result<()> {
        let mut call = self.call("make", Method::PUT, "", &[]);
        self.add_project(&mut call, project)?;
        let region = self.address().region.clone();
        if self.dialect.amz_checksums && ![DEFAULT_REGION, "auto"].contains(&region.as_str()) {
            let mut body = "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                            <LocationConstraint>"
                .to_owned();
            escape_into(&mut body, &region);
            body.push_str("</LocationConstraint></CreateBucketConfiguration>");
            call.body = Payload::new(vec![body.into()]);
        }
        self.send_small(call).await.map(drop).map_err(in_the_way)
    }

    pub(crate) async fn remove(&self) -> Result<()> {
        let call = self.call("remove", Method::DELETE, "", &[]);
        self.send_small(call).await.map(drop).map_err(in_the_way)
    }

    /// Names the Google Cloud project, which the listing and the making of buckets need.
    fn add_project(&self, call: &mut crate::rest::Call, project: Option<&str>) -> Result<()> {
        match project {
            Some(project) if !self.dialect.amz_checksums => call.set("x-goog-project-id", project),
            _ => Ok(()),
        }
    }
}

/// Explains a conflict about the bucket itself.
fn in_the_way(refusal: Refusal) -> Error {
    let why = match refusal.code.as_str() {
        "BucketAlreadyOwnedByYou" => "the bucket exists, and it is yours",
        "BucketAlreadyExists" => "a bucket of this name exists",
        "BucketNotEmpty" => "the bucket is not empty",
        _ => return refusal.error,
    };
    Error { kind: ErrorKind::Occupied, message: format!("{why}: {}", refusal.error.message), ..refusal.error }
}

/// Reads `ListAllMyBucketsResult` of S3 and of Google's XML API.
fn parse_buckets(xml: &[u8]) -> Result<BucketPage, XmlError> {
    let (mut page, mut bucket) = (BucketPage::default(), BucketInfo::default());
    walk(xml, "ListAllMyBucketsResult", |at: Walk<'_>| {
        match (at.parent, at.name) {
            ("Bucket", "Name") => at.text.clone_into(&mut bucket.name),
            ("Bucket", "CreationDate") => bucket.created_unix_ms = parse_rfc3339(at.text),
            ("Bucket", "BucketRegion") => bucket.region = filled(at.text),
            (_, "Bucket") if bucket.name.is_empty() => return Err(XmlError("a bucket has no name".to_owned())),
            (_, "Bucket") => page.buckets.push(std::mem::take(&mut bucket)),
            ("ListAllMyBucketsResult", "ContinuationToken" | "NextMarker") => page.continuation = filled(at.text),
            _ => {}
        }
        Ok(())
    })?;
    Ok(page)
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_read_with_what_is_stated() {
        let xml =
            b"<ListAllMyBucketsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Owner><ID>o</ID></Owner>\
            <Buckets><Bucket><Name>a</Name><CreationDate>1970-01-01T00:00:01.000Z</CreationDate>\
            <BucketRegion>eu-west-1</BucketRegion></Bucket><Bucket><Name>b</Name></Bucket></Buckets>\
            <ContinuationToken>next</ContinuationToken></ListAllMyBucketsResult>";
        let page = parse_buckets(xml).unwrap();
        let region = Some("eu-west-1".to_owned());
        assert_eq!(page.buckets[0], BucketInfo { name: "a".to_owned(), created_unix_ms: Some(1000), region });
        assert_eq!(page.buckets[1], BucketInfo { name: "b".to_owned(), ..BucketInfo::default() });
        assert_eq!(page.continuation.as_deref(), Some("next"));
        assert!(
            parse_buckets(b"<ListAllMyBucketsResult><Buckets><Bucket/></Buckets></ListAllMyBucketsResult>").is_err()
        );
        assert!(parse_buckets(b"<ListBucketResult/>").is_err());
    }
}

//! Amazon S3, compatible servers (R2, MinIO, …) and Google Cloud Storage's XML API: one wire format, two dialects.
//!
//! A [`Bucket`] sends each call once, with three exceptions that are not retries of failures. It follows the server's
//! first hint at the bucket's region. It sends a write again without a checksum, or with another one, if the server
//! does not support the kind. It repeats a listing in version 1 if the server supports no other. It remembers what it
//! learns.

mod account;
mod address;
mod credentials;
mod delete;
pub(crate) mod dialect;
mod errors;
mod expectation;
pub(crate) mod headers;
mod listing;
mod location;
mod object_lock;
mod open;
mod presign;
mod profile;
mod read;
mod rewrite;
mod send;
mod session;
mod sigv4;
mod source;
mod versions;
mod write;
pub(crate) mod xml;

pub(crate) use credentials::Authority;
pub(crate) use open::{open_gcs, open_r2, open_s3, with_environment};
pub(crate) use session::TokenService;

use crate::key_order::KeyOrder;
use crate::rest::{Http, Unreachable};
use crate::{
    BucketIdentity, Checksums, Crcs, Download, Identity, ListPage, ListRequest, ObjectDeletion, ObjectInfo, PartSource,
    PartTag, Payload, PendingUpload, Precondition, PutOptions, Result, Store, StoreDescription, StoreLimits,
    StoreLocation, TagSupport, Tags, UploadId, Written,
};
use address::BucketAddress;
use async_trait::async_trait;
use credentials::Credentials;
use dialect::Dialect;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, RwLock};
use tokio::sync::OnceCell;

/// A bucket behind an XML API.
#[derive(Debug)]
pub(crate) struct Bucket {
    dialect: &'static Dialect,
    /// `s3://bucket`, as the user writes it.
    url: String,
    bucket: String,
    http: Http,
    credentials: Credentials,
    signer: sigv4::Signer,
    /// The present address of requests; a region hint from the server replaces it.
    address: RwLock<Arc<BucketAddress>>,
    /// Set once the region is known: given, not needed, or requested.
    region_known: OnceCell<()>,
    /// Whether the bucket is at AWS, where the region determines the host name.
    at_aws: bool,
    path_style: Option<bool>,
    requester_pays: bool,
    /// The profile of this side; a copy needs both sides to use one identity.
    identity: (Option<String>, bool),
    limits: StoreLimits,
    /// Index of the first kind of checksum in [`write::CHECKSUM_KINDS`] that the server is not known to refuse.
    checksum_kind: AtomicU8,
    /// The server has stated a CRC-64/NVME of what was written.
    states_crc64: AtomicBool,
    /// The server is known to support only version 1 of the listing.
    lists_v1_only: AtomicBool,
    /// The server is known to ignore the key after which a listing shall begin, or to leave out keys after it.
    must_list_from_start: AtomicBool,
    key_order: KeyOrder,
    /// The server answered a conditional delete as if it did not support conditions.
    refuses_delete_conditions: AtomicBool,
    /// Conditions on writes that the server has refused so far.
    write_conditions: expectation::Taken,
}

#[async_trait]
impl Store for Bucket {
    fn url(&self) -> &str {
        &self.url
    }

    fn identity(&self) -> Identity {
        let address = self.address();
        Identity::Bucket(match self.at_aws {
            true => BucketIdentity::of_aws(&address.region, &self.bucket),
            false => BucketIdentity::of_address(self.dialect.scheme, &address.origin, &address.root, &self.bucket),
        })
    }

    /// Only for servers other than the clouds': they may know one object by several names, and state its ETag but no
    /// version.
    fn writes_from_unix_ms(&self) -> Option<i64> {
        let is_undecided = matches!(self.identity(), Identity::Bucket(bucket) if !bucket.decisive);
        // Without a date only 0 is certain.
        (is_undecided && self.dialect.if_version.is_none()).then(|| self.http.date_unix_ms().unwrap_or(0))
    }

    fn limits(&self) -> StoreLimits {
        self.limits
    }

    /// R2 refuses tags, and it is the only store with equal parts.
    fn tag_support(&self) -> TagSupport {
        let has_tags = self.dialect.tagging.is_some() && !self.limits.equal_parts;
        if has_tags { TagSupport::Copied } else { TagSupport::Missing }
    }

    fn wanted_crcs(&self) -> Option<Crcs> {
        self.wants_crc32c().then_some(Crcs::Both)
    }

    async fn tags(&self, key: &str, condition: &Precondition) -> Result<Tags> {
        self.object_tags(key, condition).await
    }

    async fn check_lock(&self) -> Result<()> {
        self.check_object_lock().await
    }

    fn lists_from_any_key(&self) -> bool {
        !self.must_list_from_start.load(Ordering::Relaxed)
    }

    fn lists_in_key_order(&self) -> bool {
        self.key_order.is_by_bytes()
    }

    fn unreachable(&self) -> Option<Unreachable> {
        self.http.unreachable()
    }

    fn was_reached(&self) -> bool {
        self.http.was_reached()
    }

    fn clock_ahead_s(&self) -> i64 {
        self.http.clock_ahead_s().unwrap_or_default()
    }

    async fn describe(&self) -> StoreDescription {
        let address = self.address();
        StoreDescription {
            endpoint: Some(format!("{}{}", address.origin, address.root)),
            // Requests of the other dialect are not signed, so they have no region.
            region: self.dialect.amz_checksums.then(|| address.region.clone()),
            credentials: Some(self.credentials.source().await),
            clock_ahead_s: self.http.clock_ahead_s(),
        }
    }

    async fn location(&self) -> Result<Option<StoreLocation>> {
        self.bucket_location().await
    }

    async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        self.list_objects(request).await
    }

    async fn head(&self, key: &str) -> Result<ObjectInfo> {
        self.head_object(key, &Precondition::default()).await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>, condition: &Precondition) -> Result<Download> {
        self.get_object(key, range, condition).await
    }

    async fn put(&self, key: &str, payload: Payload, checksums: &Checksums, options: &PutOptions) -> Result<Written> {
        self.put_object(key, payload, checksums, options).await
    }

    async fn open_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        self.create_upload(key, options).await
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        _offset: u64,
        payload: Payload,
        checksums: &Checksums,
    ) -> Result<PartTag> {
        self.upload_part(key, upload, part, payload, checksums).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        self.finish_upload(key, upload, parts, checksums, options).await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        self.forget_upload(key, upload).await
    }

    async fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        self.list_uploads(key).await
    }

    fn can_copy_from(&self, source: &dyn Store) -> bool {
        let Some(source) = source.as_any().downcast_ref::<Self>() else { return false };
        let same_service = self.at_aws && source.at_aws || self.address().origin == source.address().origin;
        self.dialect.scheme == source.dialect.scheme && same_service && self.identity == source.identity
    }

    async fn copy(&self, key: &str, source: &PartSource, options: &PutOptions) -> Result<Written> {
        self.copy_object(key, source, options).await
    }

    async fn copy_part(&self, key: &str, upload: &UploadId, part: u32, source: &PartSource) -> Result<PartTag> {
        self.upload_part_copy(key, upload, part, source).await
    }

    async fn delete(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>> {
        self.delete_objects(objects).await
    }

    fn checks_listed_deletes(&self) -> bool {
        self.is_delete_checked_by_cloud()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Bucket {
    /// The scheme and host of requests. With path-style addresses they do not contain the bucket.
    pub(crate) fn origin(&self) -> String {
        self.address().origin.clone()
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    /// The credentials that authorise requests now.
    pub(crate) async fn authority(&self) -> Result<Authority, String> {
        self.credentials.authority().await
    }

    /// Returns whether anything on this machine configures credentials. Credentials that the cloud gives each of its
    /// machines do not count.
    pub(crate) fn credentials_are_set_up(&self) -> bool {
        self.credentials.are_set_up()
    }

    /// Queries the credential chain; false if requests are sent unsigned.
    pub(crate) async fn has_credentials(&self) -> Result<bool, String> {
        Ok(!matches!(self.credentials.authority().await?, credentials::Authority::Nobody))
    }

    /// The link of the chain that gives credentials, for messages.
    pub(crate) async fn credential_source(&self) -> String {
        self.credentials.source().await
    }
}

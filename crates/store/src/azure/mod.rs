//! Azure Blob Storage: block blobs of one container.
//!
//! Decisions that users notice:
//! - An upload is only a name: its id is random and part of each block's id. So any process can write blocks, and two
//!   uploads of one key do not mix. Azure discards uncommitted blocks after a week; until then they are not listed as
//!   objects and cannot be removed alone, so aborting an upload does nothing.
//! - Azure's `x-ms-content-crc64` is CRC-64/NVME, least significant byte first. Each PUT and each block carries it, and
//!   Azure refuses bytes that do not match. For an object made of blocks Azure states no checksum of its own; the proof
//!   covers every block and the list of blocks.
//! - The writer of a blob may have set its `Content-MD5`; it counts as stated by the store. That of a page or append blob
//!   does not: later writes of pages and appended blocks do not change it.
//! - Each write gives a blob a new ETag, and Azure checks it during a delete.
//! - A copy from another account is made by Azure too, if it is given the right to read the source: in one request up to 256
//!   MiB, else by blocks.
//! - Keys with `.` or `..` segments or a backslash are refused: Azure folds the segments and treats a backslash as `/`.

mod account;
mod copy_source;
mod errors;
pub(crate) mod headers;
mod open;
mod presign;
mod read;
mod send;
mod signature;
mod source;
mod write;
pub(crate) mod xml;

pub(crate) use open::with_environment;

use crate::key_order::KeyOrder;
use crate::rest::{Http, Unreachable};
use crate::{
    BucketIdentity, Checksums, Delegated, Download, Identity, ListPage, ListRequest, ObjectDeletion, ObjectInfo,
    PartSource, PartTag, Payload, PendingUpload, Precondition, PutOptions, Result, Store, StoreDescription,
    StoreLimits, TagSupport, Tags, UploadId, Written,
};
use async_trait::async_trait;
use object_store::azure::{AzureCredential, AzureCredentialProvider};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const MIB: u64 = 1024 * 1024;

/// Limits of block blobs since service version 2019-12-12.
const LIMITS: StoreLimits = StoreLimits {
    part_bytes_min: 1,
    part_bytes_max: 4000 * MIB,
    parts_max: 50_000,
    put_bytes_max: 5000 * MIB,
    copy_bytes_max: 50_000 * 4000 * MIB,
    object_bytes_max: 50_000 * 4000 * MIB,
    key_bytes_max: 1024,
    delete_keys_max: 100,
    equal_parts: false,
};

/// A container.
pub(crate) struct AzureStore {
    url: String,
    account: String,
    http: Http,
    /// `None` for anonymous access.
    credentials: Option<AzureCredentialProvider>,
    /// The same, if another process gives and renews them.
    delegated: Option<Arc<Delegated>>,
    /// Where the credentials come from, for messages.
    credential_source: &'static str,
    origin: String,
    /// Path of the account: empty, or `/account` for an emulator.
    account_root: String,
    container: String,
    /// The server answered a conditional write as if it did not support conditions.
    refuses_write_conditions: AtomicBool,
    key_order: KeyOrder,
    /// The server ignored the start of a listing, as old ones do.
    ignores_start: AtomicBool,
    /// The container of another account that copies are read from.
    foreign_source: OnceLock<Arc<dyn Store>>,
}

/// Omits the credentials: `object_store` would print keys and tokens.
impl std::fmt::Debug for AzureStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("AzureStore");
        shown.field("url", &self.url).field("origin", &self.origin).field("credentials", &self.credential_source);
        shown.finish_non_exhaustive()
    }
}

impl AzureStore {
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    /// The account's key from this machine's environment.
    pub(crate) fn account_key(&self) -> Option<String> {
        open::account_key(&self.account)
    }

    /// Returns whether anything on this machine configures credentials; managed identity alone does not count.
    pub(crate) fn credentials_are_set_up(&self) -> bool {
        self.credentials.is_some() && self.credential_source != source::MANAGED_IDENTITY
    }

    /// The credential that authorises requests now; `None` if they are sent unsigned.
    pub(crate) async fn credential(&self) -> Result<Option<Arc<AzureCredential>>, String> {
        let Some(provider) = &self.credentials else { return Ok(None) };
        provider.get_credential().await.map(Some).map_err(|error| crate::error::innermost(&error))
    }

    /// Queries the credential chain; false if requests are sent unsigned.
    pub(crate) async fn has_credentials(&self) -> Result<bool, String> {
        Ok(self.credential().await?.is_some())
    }

    /// The link of the chain that gives credentials, for messages.
    pub(crate) fn credential_source(&self) -> &'static str {
        self.credential_source
    }
}

#[async_trait]
impl Store for AzureStore {
    fn url(&self) -> &str {
        &self.url
    }

    fn identity(&self) -> Identity {
        let root = format!("{}/{}", self.account_root, self.container);
        Identity::Bucket(BucketIdentity::of_address("az", &self.origin, &root, &self.container))
    }

    fn limits(&self) -> StoreLimits {
        self.limits_now()
    }

    fn tag_support(&self) -> TagSupport {
        TagSupport::Kept
    }

    async fn tags(&self, key: &str, _condition: &Precondition) -> Result<Tags> {
        self.blob_tags(key).await
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
        StoreDescription {
            endpoint: Some(format!("{}{}/{}", self.origin, self.account_root, self.container)),
            region: None,
            credentials: Some(self.credential_source.to_owned()),
            clock_ahead_s: self.http.clock_ahead_s(),
        }
    }

    fn lists_in_key_order(&self) -> bool {
        self.key_order.is_by_bytes() && !self.ignores_start.load(Ordering::Relaxed)
    }

    async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        self.list_blobs(request).await
    }

    async fn head(&self, key: &str) -> Result<ObjectInfo> {
        self.head_blob(key, &Precondition::default()).await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>, condition: &Precondition) -> Result<Download> {
        self.get_blob(key, range, condition).await
    }

    async fn put(&self, key: &str, payload: Payload, checksums: &Checksums, options: &PutOptions) -> Result<Written> {
        self.put_blob(key, payload, checksums, options).await
    }

    async fn open_upload(&self, key: &str, _options: &PutOptions) -> Result<UploadId> {
        self.check_key("open upload", key)?;
        Ok(write::new_upload())
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
        self.put_block(key, upload, part, payload, checksums).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        _upload: &UploadId,
        parts: &[PartTag],
        _checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        self.put_block_list(key, parts, options).await
    }

    /// Does nothing; see the module's documentation.
    async fn abort_upload(&self, _key: &str, _upload: &UploadId) -> Result<()> {
        Ok(())
    }

    async fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        self.uncommitted(key).await
    }

    fn can_copy_from(&self, source: &dyn Store) -> bool {
        source.as_any().downcast_ref::<Self>().is_some_and(|source| self.can_be_copied_from(source))
    }

    fn copy_from(&self, source: &Arc<dyn Store>) {
        self.remember_source(source);
    }

    async fn copy(&self, key: &str, source: &PartSource, options: &PutOptions) -> Result<Written> {
        self.copy_blob(key, source, options).await
    }

    async fn copy_part(&self, key: &str, upload: &UploadId, part: u32, source: &PartSource) -> Result<PartTag> {
        self.copy_block(key, upload, part, source).await
    }

    async fn delete(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>> {
        self.delete_blobs(objects).await
    }

    fn checks_listed_deletes(&self) -> bool {
        self.is_azure_itself()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

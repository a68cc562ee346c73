//! Object stores behind one trait.
//!
//! A [`Store`] is one bucket, container or directory tree on one side of a job, with that side's own credentials,
//! endpoint and region. Keys are exact byte strings (UTF-8): `a//b`, `/a` and `a/../b` are three different keys. A back
//! end that cannot hold a key returns [`ErrorKind::InvalidKey`].
//!
//! Goals: exact keys, the store's own checksums made visible, errors classified by meaning, memory bounded by the
//! caller. Not goals: caching; retries and pacing, which belong to the gateway because it knows the job.

mod account;
mod azure;
mod checksum;
mod cloud;
mod config;
mod delegated;
mod delegation;
mod error;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod hint;
mod identity;
mod kept_time;
mod key_order;
mod key_range;
mod listing;
mod mem;
mod model;
mod name_rules;
mod open;
mod page_check;
mod place;
mod presign;
mod rest;
mod restored;
mod rounds;
mod s3;
mod scope;
mod spelling;
mod token;
mod versions;
mod written;
mod xml;

pub use account::{Account, make_bucket, remove_bucket};
pub use checksum::{
    Checksums, Crc32c, Crc64Nvme, Crcs, PassingChecksums, combine_crc32c, combine_crc64nvme, may_be_md5,
};
pub use cloud::{CloudReport, CredentialState, look_at_cloud};
pub use config::StoreConfig;
pub use delegated::{Delegated, StoreAuthority};
pub use delegation::Delegation;
pub use error::{Error, ErrorKind, Result, UNORDERED};
pub use file::{Disk, Kernel};
pub use identity::{BucketIdentity, Identity, Kinship, Likeness, Relation};
pub use kept_time::{KEPT_TIME, kept_time_ns, kept_time_text};
pub use key_range::KeyRange;
pub use listing::{Split, list_range, split_ranges};
pub use model::{
    Attributes, BucketInfo, BucketPage, Download, Expect, FileIdentity, KEPT_GROUP, KEPT_MODE, KEPT_USER, ListPage,
    ListRequest, ObjectDeletion, ObjectInfo, ObjectLock, ObjectVersion, PartSource, PartTag, Payload, PendingUpload,
    Permissions, Precondition, Preserve, PutOptions, Rare, Retention, SharedDefault, Skips, StoreDescription,
    StoreLimits, StoreLocation, TagSupport, Tags, UploadId, VersionMarker, VersionPage, Written, stays,
};
pub use name_rules::{NameChanges, NameRule, goes_by_another_name};
pub use open::{open, open_on};
pub use place::{
    compare_objects, entry_of, follow_no_directories, keep_out_of, kinship, loose_form, name_form, object_kinship,
    respelled,
};
pub use presign::presign;
pub use rest::{Unreachable, WORK_BYTES_PER_S_MIN, WorkLimits, with_progress};
pub use restored::Restored;
pub use rounds::Rounds;
pub use scope::{Keys, Lent, NotLent, Scope};
pub use versions::Versions;
pub use written::look_at_written;

use async_trait::async_trait;
use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

/// One bucket, container or directory tree.
///
/// All methods may run concurrently, and their futures may be dropped at any time (a dropped call leaves nothing
/// visible). Errors carry the operation, the key and a meaning. No method retries.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The URL of the root of this store as a user would write it, e.g. `s3://bucket`. Never holds a secret.
    fn url(&self) -> &str;

    /// The identity of this store, independent of its name. Makes no request.
    fn identity(&self) -> Identity;

    /// Limits of this store: sizes, counts, and how parts must be cut.
    fn limits(&self) -> StoreLimits;

    /// The way in which this store treats the tags of objects. A compatible server may do less, and then refuses them.
    fn tag_support(&self) -> TagSupport {
        TagSupport::Missing
    }

    /// Returns the tags of an object. A store that states the version of the tags is checked against `condition`
    /// ([`ErrorKind::PreconditionFailed`]); others may return those of a newer object.
    async fn tags(&self, key: &str, _condition: &Precondition) -> Result<Tags> {
        let url = format!("{}/{key}", self.url());
        Err(Error::new(ErrorKind::Unsupported, "get tags", url, "this store keeps no tags of objects"))
    }

    /// Returns whether the first write creates the root. A missing root then counts as an empty one for a writer.
    fn makes_root(&self) -> bool {
        false
    }

    /// Returns whether objects that are put can be found again.
    fn keeps_objects(&self) -> bool {
        true
    }

    /// Returns the CRCs of a write's bytes that the store works with. A caller that has the bytes in the cache may compute
    /// them then ([`Payload::with_checksums`]). Both are wanted where the store may take or state a CRC-32C and no
    /// CRC-64/NVME: the checksums given to it shall have the CRC-32C, too ([`Payload::with_crc32c`]).
    fn wanted_crcs(&self) -> Option<Crcs> {
        None
    }

    /// Describes how this store is reached. Facts that are not known yet are left out.
    async fn describe(&self) -> StoreDescription {
        StoreDescription::default()
    }

    /// Returns a time that no later write to this store can be older than: whole seconds, as milliseconds since the
    /// Unix epoch. `None` where it does not matter: either two writes of the same bytes differ in more than their
    /// times, or no other name can lead to the same object.
    fn writes_from_unix_ms(&self) -> Option<i64> {
        None
    }

    /// Asks the store where it keeps its objects; `None` for stores that do not tell (Azure, files).
    async fn location(&self) -> Result<Option<StoreLocation>> {
        Ok(None)
    }

    /// Set while no connection to the store can be made. A store without a network is always reachable.
    fn unreachable(&self) -> Option<Unreachable> {
        None
    }

    /// Returns whether any request since this was opened may have reached the store.
    fn was_reached(&self) -> bool {
        true
    }

    /// This machine's clock minus the store's, in seconds: the smallest difference that explains the `Date` of its
    /// latest answer. 0 where it is unknown, and for stores without a clock of their own.
    fn clock_ahead_s(&self) -> i64 {
        0
    }

    /// Returns one page of keys, strictly after `start_after`. Each page is checked against the request; a page that
    /// does not fit the request fails the listing with [`ErrorKind::Protocol`].
    ///
    /// With `start_after` or `end_at`, keys come in ascending byte order. Without a bound only some stores keep that
    /// order; a caller that needs it must check.
    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        page_check::list(self, request).await
    }

    /// Returns one page as the store gives it. Only [`Store::list`] calls this. The page may hold keys beyond `end_at`.
    async fn list_page(&self, request: &ListRequest) -> Result<ListPage>;

    /// Returns size, version, checksums and attributes of one object.
    async fn head(&self, key: &str) -> Result<ObjectInfo>;

    /// Reads the bytes in `range` (all when `None`) if the object still matches `condition`; otherwise
    /// [`ErrorKind::PreconditionFailed`]. The store is asked to check the condition, and its answer is checked again
    /// here because some servers ignore conditions. A body that ends early is an error on the stream
    /// ([`ErrorKind::Truncated`]), never a short success.
    async fn get(&self, key: &str, range: Option<Range<u64>>, condition: &Precondition) -> Result<Download>;

    /// Writes a whole object in one request and returns what the store then states about it. A store that can check a
    /// condition while it writes is asked to check [`PutOptions::expect`]; the same holds for completions and copies.
    /// `checksums` of the payload are passed to a store that takes them, so that it refuses damaged bytes.
    async fn put(&self, key: &str, payload: Payload, checksums: &Checksums, options: &PutOptions) -> Result<Written>;

    /// Opens a multipart upload. Nothing is visible under `key` until [`Store::complete_upload`].
    async fn open_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId>;

    /// Writes one part; any process with the upload id may do so. `part` counts from 1; `offset` is the part's position
    /// in the object. Idempotent: writing a part again replaces it.
    async fn put_part(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        offset: u64,
        payload: Payload,
        checksums: &Checksums,
    ) -> Result<PartTag>;

    /// Assembles the parts (ascending, complete) into the object. `checksums` are those of the whole object; they are
    /// passed to a store that takes them. `options` are those that the upload was opened with (Azure needs them here).
    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written>;

    /// For a store that acks before the bytes are on disk: the boot id of the machine that holds them until then. If
    /// the id changes later, acked bytes may be lost, unless they were written with [`PutOptions::durable`]. `None` for
    /// stores whose acks survive a power loss.
    fn volatile_boot(&self) -> Option<&str> {
        None
    }

    /// Returns whether the store still has `part` of an upload, at `offset`, with the checksums of `part`. May read the
    /// part. [`ErrorKind::UploadNotFound`] when the whole upload is gone.
    async fn has_part(&self, _key: &str, _upload: &UploadId, _offset: u64, _part: &PartTag) -> Result<bool> {
        Ok(true)
    }

    /// Returns whether an upload can still hold `bytes` bytes in parts, the last of which ends at `end`. Reads no data:
    /// false means that the parts must be [checked](Store::has_part), true that nothing suggests a loss.
    async fn may_hold_parts(&self, _key: &str, _upload: &UploadId, _end: u64, _bytes: u64) -> bool {
        true
    }

    /// The resolution, in nanoseconds, at which the store keeps the modification times given to it, as far as it is
    /// known after the first listing or [`Store::head`].
    fn time_grain_ns(&self) -> u64 {
        1
    }

    /// When the object's bytes or attributes were last changed, by this machine's clock, in milliseconds since the Unix
    /// epoch. `None` where the store does not tell.
    async fn changed_unix_ms(&self, _key: &str) -> Option<i64> {
        None
    }

    /// Waits until the object would survive a power loss.
    async fn sync(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    /// Aborts an upload and frees its parts. An upload that is already gone is not an error.
    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()>;

    /// Returns the unfinished uploads of exactly `key`, for the cleanup after a crash.
    async fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>>;

    /// Notes in the file `path`, from now on, which whole objects are being written, so that what they leave if the
    /// process is killed can be [removed](Store::remove_listed_writes). A store in which an unfinished write of a whole
    /// object leaves nothing does not create the file.
    async fn list_writes(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    /// Removes what unfinished writes of whole objects have left, by the list of a process that has ended, and then the
    /// list. Returns how many were removed. If one cannot be removed, the list stays.
    async fn remove_listed_writes(&self, _path: &Path) -> Result<u64> {
        Ok(0)
    }

    /// Returns whether [`Store::copy`] and [`Store::copy_part`] can read from `source` without the bytes passing
    /// through this process.
    fn can_copy_from(&self, source: &dyn Store) -> bool;

    /// Names the store that all copies will be read from. A store may then use its credentials, and have other limits.
    fn copy_from(&self, _source: &std::sync::Arc<dyn Store>) {}

    /// Copies a whole object of at most `limits().copy_bytes_max` bytes on the server. Its attributes are copied too
    /// unless `options.attributes` is set; for its tags see [`TagSupport`].
    async fn copy(&self, key: &str, source: &PartSource, options: &PutOptions) -> Result<Written>;

    /// Copies `source.range` on the server, as part `part` of an upload.
    async fn copy_part(&self, key: &str, upload: &UploadId, part: u32, source: &PartSource) -> Result<PartTag>;

    /// Deletes the objects (at most `limits().delete_keys_max`) and returns one verdict per object, in the same order.
    /// A missing key is not an error.
    ///
    /// An object that does not match its condition is kept: [`ErrorKind::PreconditionFailed`]. Stores that can check
    /// the condition while they delete are asked to. The others read the object's state right before they delete it; a
    /// write between the two steps is lost. Each back end documents which of the two it does.
    async fn delete(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>>;

    /// Returns an error unless new objects can have an [`ObjectLock`]. A server that ignores the headers of one must not
    /// be sent any: the objects would only seem to be protected.
    async fn check_lock(&self) -> Result<()> {
        let message = "cannot lock objects: this kind of store has no S3 Object Lock";
        Err(Error::new(ErrorKind::Unsupported, "lock", self.url(), message))
    }

    /// Returns whether a listing that begins after a key needs no requests for the keys before it. Known after the first
    /// page.
    fn lists_from_any_key(&self) -> bool {
        true
    }

    /// Returns whether the store is known to list in the byte order of the keys, so that a listing may skip keys by its
    /// start. Known after a page, at some servers.
    fn lists_in_key_order(&self) -> bool {
        false
    }

    /// Returns whether [`Store::delete`] checks the state that a listing describes without an extra request.
    fn checks_listed_deletes(&self) -> bool {
        false
    }

    /// Supports downcasting in [`Store::can_copy_from`].
    fn as_any(&self) -> &dyn std::any::Any;
}

//! Object stores behind one trait.
//!
//! Participants: a [`Store`] is one bucket, container or directory tree on one side of a job, with that side's own
//! credentials, endpoint and region. Keys are exact byte strings (UTF-8): `a//b`, `/a` and `a/../b` are keys like any
//! other, and a back end that cannot hold one says [`ErrorKind::InvalidKey`].
//!
//! Goals: exact keys, the store's own checksums made visible, errors by meaning, memory bounded by the caller.
//! Not goals: retries and pacing (the gateway's, which knows the job), caching.

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
mod identity;
mod key_range;
mod listing;
mod mem;
mod model;
mod open;
mod page_check;
mod place;
mod rest;
mod s3;
mod token;
mod written;
mod xml;

pub use checksum::{Checksums, Crc32c, Crc64Nvme, combine_crc32c, combine_crc64nvme, may_be_md5};
pub use cloud::{CloudReport, CredentialState, look_at_cloud};
pub use config::StoreConfig;
pub use delegated::{Delegated, StoreAuthority};
pub use delegation::Delegation;
pub use error::{Error, ErrorKind, Result};
pub use file::{Disk, Kernel};
pub use identity::{BucketIdentity, Identity, Kinship, Likeness, Relation};
pub use key_range::KeyRange;
pub use listing::{list_range, split_ranges};
pub use model::{
    Attributes, Download, Expect, FileIdentity, ListPage, ListRequest, ObjectDeletion, ObjectInfo, PartSource, PartTag,
    Payload, PendingUpload, Precondition, PutOptions, StoreDescription, StoreLimits, StoreLocation, UploadId, Written,
    stays,
};
pub use open::{open, open_on};
pub use place::{
    compare_objects, follow_no_directories, goes_by_another_name, keep_out_of, kinship, name_form, object_kinship,
    respelled,
};
pub use rest::{Unreachable, WORK_BYTES_PER_S_MIN, WorkLimits, with_progress};
pub use written::look_at_written;

use async_trait::async_trait;
use std::fmt::Debug;
use std::ops::Range;

/// One bucket, container or directory tree.
///
/// All methods are safe to call many times at once and to drop half-way (a dropped call leaves nothing visible).
/// Errors carry the operation, the key and a meaning; none is retried inside.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The URL of the root of this store as a user would write it, e.g. `s3://bucket`. Never holds a secret.
    fn url(&self) -> &str;

    /// The identity of this store, independent of its name. Makes no request.
    fn identity(&self) -> Identity;

    /// What this store can hold and how parts must be cut.
    fn limits(&self) -> StoreLimits;

    /// Returns whether the first write makes the root, so that a root that is not there is an empty one to who writes.
    fn makes_root(&self) -> bool {
        false
    }

    /// What there is to tell of how this store is reached; what is not known yet is left out.
    async fn describe(&self) -> StoreDescription {
        StoreDescription::default()
    }

    /// A time that no later write to this store can be older than, whole seconds as milliseconds since the Unix epoch.
    /// `None` where it does not matter: two writes of the same bytes differ in more than their times, or no other name can
    /// lead to the same object.
    fn writes_from_unix_ms(&self) -> Option<i64> {
        None
    }

    /// Where the objects are kept, asked of the store; `None` for stores that do not tell (Azure, files).
    async fn location(&self) -> Result<Option<StoreLocation>> {
        Ok(None)
    }

    /// Set while no connection to the store can be made; what goes over no network always can be reached.
    fn unreachable(&self) -> Option<Unreachable> {
        None
    }

    /// Returns whether any request since this was opened may have come to the store.
    fn was_reached(&self) -> bool {
        true
    }

    /// This machine's clock minus the store's, seconds: the least that explains the `Date` of its latest answer. 0 where it
    /// is not known, and for what has no clock of its own.
    fn clock_ahead_s(&self) -> i64 {
        0
    }

    /// One page of keys, strictly after `start_after`. Each page is checked against the request; a server that answers
    /// another question fails the listing with [`ErrorKind::Protocol`].
    ///
    /// With `start_after` or `end_at` keys come in ascending byte order. Without a bound that is so for all stores that
    /// keep the order; who needs it must check.
    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        page_check::list(self, request).await
    }

    /// One page as the store gives it, for [`Store::list`], which all others call. It may hold keys beyond `end_at`.
    async fn list_page(&self, request: &ListRequest) -> Result<ListPage>;

    /// Size, version, checksums and attributes of one object.
    async fn head(&self, key: &str) -> Result<ObjectInfo>;

    /// Reads bytes `range` (all when `None`) provided the object is still the one `condition` names;
    /// otherwise [`ErrorKind::PreconditionFailed`]. The store is asked to check the condition, and its answer is
    /// checked again here, because some servers ignore conditions. A body that ends early is an error on the stream
    /// ([`ErrorKind::Truncated`]), never a short success.
    async fn get(&self, key: &str, range: Option<Range<u64>>, condition: &Precondition) -> Result<Download>;

    /// Writes a whole object in one request and returns what the store now says of it. Where the store can check a
    /// condition while it writes, it is asked to check [`PutOptions::expect`]; so with completions and copies.
    /// `checksums` of the payload are passed to the store where it takes one, so that it refuses damaged bytes.
    async fn put(&self, key: &str, payload: Payload, checksums: &Checksums, options: &PutOptions) -> Result<Written>;

    /// Opens a multipart upload. Nothing is visible under `key` until [`Store::complete_upload`].
    async fn open_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId>;

    /// Writes one part; any process with the upload id may. `part` counts from 1; `offset` is where it lies in the
    /// object. Idempotent: writing the same part again replaces it.
    async fn put_part(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        offset: u64,
        payload: Payload,
        checksums: &Checksums,
    ) -> Result<PartTag>;

    /// Makes the parts (ascending, complete) the object. `checksums` are those of the whole object, passed to the
    /// store where it takes them. `options` are those the upload was opened with (Azure wants them here).
    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written>;

    /// For a store that acks before the bytes are on its disk: the boot of the machine that holds them until then. When it
    /// is another one later, what was acked may be lost, unless it was written with [`PutOptions::durable`]. `None` for
    /// stores whose acks survive a power loss.
    fn volatile_boot(&self) -> Option<&str> {
        None
    }

    /// Returns whether the store still has `part` of an upload, which lies at `offset`, as its checksums say. May read
    /// the part.
    /// [`ErrorKind::UploadNotFound`] when the whole upload is gone.
    async fn has_part(&self, _key: &str, _upload: &UploadId, _offset: u64, _part: &PartTag) -> Result<bool> {
        Ok(true)
    }

    /// Returns whether an upload can still hold parts of `bytes` in all, the last of which ends at `end`. Looks at no
    /// byte: false says that the parts must be [looked at](Store::has_part), true that nothing speaks against them.
    async fn may_hold_parts(&self, _key: &str, _upload: &UploadId, _end: u64, _bytes: u64) -> bool {
        true
    }

    /// How finely the times of modification that this store was given are kept, in nanoseconds, as far as is known after
    /// the first listing or [`Store::head`].
    fn time_grain_ns(&self) -> u64 {
        1
    }

    /// When anything of the object, its bytes or its attributes, was last changed by this machine's clock, milliseconds
    /// since the Unix epoch. `None` where the store does not tell.
    async fn changed_unix_ms(&self, _key: &str) -> Option<i64> {
        None
    }

    /// Waits until the object would survive a power loss.
    async fn sync(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    /// Forgets an upload and frees its parts. An upload that is already gone is no error.
    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()>;

    /// Unfinished uploads of exactly `key`, for the sweep after a crash.
    async fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>>;

    /// Returns whether [`Store::copy`] and [`Store::copy_part`] can read from `source` without the bytes passing
    /// through us.
    fn can_copy_from(&self, source: &dyn Store) -> bool;

    /// Server-side copy of a whole object that is at most `limits().copy_bytes_max` long.
    /// Attributes travel with it unless `options.attributes` is set.
    async fn copy(&self, key: &str, source: &PartSource, options: &PutOptions) -> Result<Written>;

    /// Server-side copy of `source.range` as part `part` of an upload.
    async fn copy_part(&self, key: &str, upload: &UploadId, part: u32, source: &PartSource) -> Result<PartTag>;

    /// Deletes the objects (at most `limits().delete_keys_max`), one verdict per object in the same order.
    /// A key that is not there is no error.
    ///
    /// An object that is not in the state of its condition stays: [`ErrorKind::PreconditionFailed`]. Stores that can
    /// check the condition while they delete are asked to. The others look at the object right before they delete it;
    /// a write between the two is lost. Each back end documents which it is.
    async fn delete(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>>;

    /// Returns whether [`Store::delete`] checks the state that a listing describes without a request of its own.
    fn checks_listed_deletes(&self) -> bool {
        false
    }

    /// For downcasting in [`Store::can_copy_from`].
    fn as_any(&self) -> &dyn std::any::Any;
}

//! The data types of a store.

mod bucket;
mod expect;
mod file_identity;
mod permissions;
mod precondition;
mod rare;
mod skips;
mod version;

pub use bucket::{BucketInfo, BucketPage};
pub use expect::Expect;
pub use file_identity::FileIdentity;
pub(crate) use file_identity::{OwnUnlinkings, own_unlinkings};
pub use permissions::{KEPT_GROUP, KEPT_MODE, KEPT_USER, Permissions, Preserve};
pub(crate) use precondition::another_state;
pub use precondition::{Precondition, stays};
pub use rare::{Rare, SharedDefault};
pub use skips::Skips;
pub use version::{ObjectVersion, VersionMarker, VersionPage};

use crate::{Checksums, Crcs, Error, Result};
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in order, as segments that are shared and never copied. A clone is cheap, so a write can be retried.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    segments: Vec<Bytes>,
    bytes: u64,
    progress: Option<Arc<AtomicU64>>,
    /// Those of exactly these bytes, if they were computed when the bytes arrived.
    checksums: Option<Checksums>,
}

impl Payload {
    /// Creates a payload from segments in order; empty ones are dropped.
    pub fn new(segments: Vec<Bytes>) -> Self {
        let segments: Vec<Bytes> = segments.into_iter().filter(|segment| !segment.is_empty()).collect();
        let bytes = segments.iter().map(|segment| segment.len() as u64).sum();
        Self { segments, bytes, progress: None, checksums: None }
    }

    /// The same bytes. The sender counts sent bytes in `progress`, so that a watchdog sees whether they move.
    pub fn with_progress(self, progress: Arc<AtomicU64>) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// The same bytes, whose checksums were computed here when they arrived, and were in the cache.
    pub fn with_checksums(self, checksums: Option<Checksums>) -> Self {
        Self { checksums, ..self }
    }

    /// Returns at least these CRCs of the bytes.
    pub fn checksums(&self, crcs: Crcs) -> Checksums {
        let known = self.checksums.filter(|known| crcs == Crcs::Crc64 || known.crc32c.is_some());
        known.unwrap_or_else(|| Checksums::computed(&self.segments, crcs))
    }

    /// Adds the CRC-32C of these bytes to checksums that were computed elsewhere. Returns `None` if they are not of these
    /// bytes: a CRC-32C computed here would vouch for bytes that were damaged before.
    pub fn with_crc32c(&self, given: &Checksums) -> Option<Checksums> {
        if given.crc32c.is_some() {
            return Some(*given);
        }
        let here = self.checksums(Crcs::Both);
        let is_of_these = given.crc64nvme.is_none_or(|crc| here.crc64nvme == Some(crc));
        is_of_these.then_some(Checksums { crc32c: here.crc32c, ..*given })
    }

    /// Notes that `bytes` were handed to the connection or the disk.
    pub(crate) fn sent(&self, bytes: u64) {
        if let Some(progress) = &self.progress {
            progress.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Total length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The segments in order.
    pub fn segments(&self) -> &[Bytes] {
        &self.segments
    }

    /// The segments in order.
    pub fn into_segments(self) -> Vec<Bytes> {
        self.segments
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::new(vec![bytes])
    }
}

/// Tags of an object: values by name.
pub type Tags = BTreeMap<String, String>;

/// The way in which a store treats the tags of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagSupport {
    /// It has none.
    Missing,
    /// It writes and reads them. [`Store::copy`](crate::Store::copy) copies none.
    Kept,
    /// It writes and reads them, and [`Store::copy`](crate::Store::copy) copies them too.
    Copied,
}

/// Headers that a reader of the object sees and that a transfer keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Encoding`.
    pub content_encoding: Option<String>,
    /// `Content-Language`.
    pub content_language: Option<String>,
    /// `Content-Disposition`.
    pub content_disposition: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// User metadata (`x-amz-meta-*`, `x-goog-meta-*`, `x-ms-meta-*`), names in lower case without the prefix.
    pub metadata: BTreeMap<String, String>,
}

impl SharedDefault for Attributes {
    const SHARED_DEFAULT: &'static Self = &Self {
        content_type: None,
        content_encoding: None,
        content_language: None,
        content_disposition: None,
        cache_control: None,
        metadata: BTreeMap::new(),
    };
}

/// Facts that a store reports about one object. A listing leaves `attributes` empty, and often `checksums` too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Full key, not relative to any prefix.
    pub key: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Entity tag without quotes.
    pub etag: Option<String>,
    /// Generation or version id, where the store has versions.
    pub version: Option<String>,
    /// Last modification, milliseconds since the Unix epoch.
    pub modified_unix_ms: i64,
    /// Checksums of the whole object that the store vouches for. An ETag counts as `md5` only where it is known to be
    /// one.
    pub checksums: Checksums,
    /// Attributes, where the request returned them.
    pub attributes: Rare<Attributes>,
    /// Number of the object's tags, where the request returned it.
    #[serde(default)]
    pub tag_count: Option<u32>,
    /// Storage class as the store names it.
    pub storage_class: Option<String>,
    /// Only for files.
    pub file: Option<FileIdentity>,
    /// Only for files, in listings and heads.
    #[serde(default)]
    pub permissions: Option<Permissions>,
}

/// A started read.
pub struct Download {
    /// Facts from the answer's headers (the size is that of the whole object).
    pub info: ObjectInfo,
    /// The bytes of the requested range, in order. If the body is cut, it ends with an error, not early.
    pub body: BoxStream<'static, Result<Bytes>>,
}

/// The request for one page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Only keys that begin with this, byte for byte.
    pub prefix: String,
    /// Only keys strictly greater.
    pub start_after: Option<String>,
    /// Only keys less than or equal; a back end whose store has no such option cuts the page.
    pub end_at: Option<String>,
    /// Fold keys that have another `/` after the prefix into `ListPage::prefixes`.
    pub delimited: bool,
    /// At most this many entries; `None` for the store's page size (1,000 for S3).
    pub max_keys: Option<u32>,
    /// Opaque continuation from the previous page of the same request.
    pub continuation: Option<String>,
    /// Directories that need not be listed. A store without directories lists keys of theirs up to the end of a page, and
    /// all of them unless it [lists in the order of keys](crate::Store::lists_in_key_order).
    pub skips: Skips,
}

/// One page of a listing.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// Objects in ascending byte order of their keys.
    pub objects: Vec<ObjectInfo>,
    /// Folded prefixes, each ending in `/`, when the request was delimited.
    pub prefixes: Vec<String>,
    /// Entries that exist but cannot be transferred (a key that is not UTF-8, a socket, an unreadable directory), each
    /// with the reason. The rest of the listing continues.
    pub refused: Vec<Error>,
    /// Pass this to get the next page; `None` at the end.
    pub continuation: Option<String>,
    /// Number of directories that were not listed, or not to their ends, because of [`ListRequest::skips`].
    pub skipped: u64,
}

impl ListPage {
    /// Removes what comes after `until`, and returns whether the listing ends there: it has reached `until`.
    pub fn cut(&mut self, until: &str) -> bool {
        let before = self.objects.len() + self.prefixes.len();
        self.objects.retain(|object| object.key.as_str() <= until);
        self.prefixes.retain(|prefix| prefix.as_str() <= until);
        let is_last = self.objects.last().is_some_and(|object| object.key == until);
        is_last || self.objects.len() + self.prefixes.len() < before
    }
}

/// The id of an open multipart upload. For files: the name of the temporary file, and its inode after a `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UploadId(pub String);

/// Answer of a store to a part, to be passed back at completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartTag {
    /// Counts from 1.
    pub part: u32,
    /// Length in bytes.
    pub size_bytes: u64,
    /// ETag or block id. For files: the boot in which the part was written.
    pub tag: String,
    /// Checksums of the part's bytes that were passed to, or returned by, the store.
    pub checksums: Checksums,
}

/// Answer of a store after a write became visible.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// ETag of the new object, without quotes.
    pub etag: Option<String>,
    /// Version or generation of the new object.
    pub version: Option<String>,
    /// Checksums of the whole object that the **store** states (or a file system that was read back), never our own
    /// values.
    pub checksums: Checksums,
    /// Identity of the new file. Files only.
    pub file: Option<FileIdentity>,
    /// Length in bytes, where the store was asked for the object after the write ([`look_at_written`]). Never sent or
    /// journalled: the writer compares it at once.
    ///
    /// [`look_at_written`]: crate::look_at_written
    #[serde(skip)]
    pub size_bytes: Option<u64>,
}

/// An unfinished upload found in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingUpload {
    /// Its id.
    pub upload: UploadId,
    /// When it was opened by the store's clock, milliseconds since the Unix epoch.
    pub opened_unix_ms: i64,
}

/// Protection of an object against deletion and replacement, as S3 Object Lock has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLock {
    /// Until when the object is kept; `None` for the default of the bucket.
    pub retention: Option<Retention>,
    /// Kept until somebody removes the hold.
    pub legal_hold: bool,
}

/// The time for which an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// True if nobody may shorten it. Otherwise users with a permission of their own may.
    pub is_compliance: bool,
    /// Its end, seconds since the Unix epoch.
    pub until_unix_s: i64,
}

/// Options of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutOptions {
    /// Attributes to set.
    pub attributes: Rare<Attributes>,
    /// Storage class; `None` for the bucket's default.
    pub storage_class: Option<String>,
    /// Protection against deletion; only where [`crate::Store::check_lock`] allows it.
    #[serde(default)]
    pub lock: ObjectLock,
    /// Object tags.
    pub tags: Tags,
    /// True if the object is also right without `tags`, should the store refuse them.
    #[serde(default)]
    pub tags_are_optional: bool,
    /// True if a copy by the store must not keep the tags of its source. It never does if `tags` are set.
    #[serde(default)]
    pub drops_source_tags: bool,
    /// The attributes that a file gets by the metadata in `attributes`; object stores ignore them.
    #[serde(default)]
    pub preserve: Preserve,
    /// Modification time to give a file if its metadata states none, milliseconds since the Unix epoch; object stores
    /// ignore it.
    pub modified_unix_ms: Option<i64>,
    /// Expected length of the whole object, where known.
    pub size_bytes: Option<u64>,
    /// Files: flush the object and all its directory entries to the disk before it counts as written.
    #[serde(default)]
    pub durable: bool,
    /// The state that the write may replace; `None` for whatever is there. It changes between attempts, so it is never journalled
    /// and is passed separately from the options.
    #[serde(skip)]
    pub expect: Option<Expect>,
}

/// Where a server-side copy reads from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSource {
    /// Bucket or container.
    pub bucket: String,
    /// Key.
    pub key: String,
    /// State the object must be in.
    pub condition: Precondition,
    /// Bytes to copy; `None` for all.
    pub range: Option<Range<u64>>,
}

/// A request to delete one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectDeletion {
    /// Its key.
    pub key: String,
    /// State the object must be in; the default deletes whatever is there.
    pub condition: Precondition,
}

impl ObjectDeletion {
    /// Deletes the object with this key, whatever its state.
    pub fn any(key: impl Into<String>) -> Self {
        Self { key: key.into(), condition: Precondition::default() }
    }
}

/// Limits of the names and objects of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Smallest part, except the last.
    pub part_bytes_min: u64,
    /// Largest part.
    pub part_bytes_max: u64,
    /// Most parts of one object.
    pub parts_max: u32,
    /// Largest object written by one request.
    pub put_bytes_max: u64,
    /// Largest object copied by one request.
    pub copy_bytes_max: u64,
    /// Largest object.
    pub object_bytes_max: u64,
    /// Longest key in bytes.
    pub key_bytes_max: usize,
    /// Most keys in one delete request.
    pub delete_keys_max: usize,
    /// All parts but the last must have one size (R2).
    pub equal_parts: bool,
}

/// Where a store keeps its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocation {
    /// The cloud whose region `name` is: `aws` or `gcp`. `None` for a compatible server: it names regions too, often
    /// one of a cloud's, but the name does not say where the server stands.
    pub provider: Option<&'static str>,
    /// The region in lower case; for objects kept in several regions, the provider's name for the group (`us`, `nam4`).
    pub name: String,
}

/// The findings of `doctor` about a store. Names and places, never a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreDescription {
    /// Where requests go: a URL up to the bucket, or a directory.
    pub endpoint: Option<String>,
    /// Region that requests are made for, where the store has one.
    pub region: Option<String>,
    /// The link of the credential chain that provides the credentials, e.g. `profile backup` or `environment`.
    pub credentials: Option<String>,
    /// This machine's clock minus that of the store, in seconds: the smallest difference that explains the `Date` of
    /// its latest answer.
    pub clock_ahead_s: Option<i64>,
}

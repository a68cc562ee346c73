//! Versions of objects, and listings of them.

/// Id of the version that was written while the bucket kept no versions.
const NULL_VERSION: &str = "null";

/// One version of an object, or a delete marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Key.
    pub key: String,
    /// Id. `null` is the version that was written while the bucket kept no versions.
    pub version: String,
    /// A delete marker, which has no bytes, and not a version.
    pub is_marker: bool,
    /// A reader who names no version gets this one.
    pub is_latest: bool,
    /// Length in bytes; 0 for a delete marker.
    pub size_bytes: u64,
    /// ETag without quotes, if the server states one.
    pub etag: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub modified_unix_ms: i64,
}

impl ObjectVersion {
    /// Returns whether a later write may have replaced this version under the same id.
    #[must_use]
    pub fn may_be_replaced(&self) -> bool {
        self.version == NULL_VERSION
    }
}

/// One page of a listing of versions.
#[derive(Clone, Debug, Default)]
pub struct VersionPage {
    /// Versions in the server's order.
    pub versions: Vec<ObjectVersion>,
    /// The start of the next page; `None` at the end.
    pub next: Option<VersionMarker>,
}

/// Where a page of versions starts: after this version of this key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VersionMarker {
    /// Key.
    pub key: String,
    /// Id of the version; empty for after all versions of the key.
    pub version: String,
}

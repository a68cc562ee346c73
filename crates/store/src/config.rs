//! How to reach one store.

use crate::Delegated;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Everything needed to reach one side of a job. Holds the name of a credential profile, or credentials from another
/// process, which are never printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreConfig {
    /// Root of the store: `s3://bucket`, `gs://bucket`, `az://account/container`, `r2://account/bucket`, `file:///dir`
    /// or `mem:`. A path behind the bucket is not allowed here: keys are given to each call.
    pub url: String,
    /// Endpoint of a compatible server, e.g. `http://127.0.0.1:7070`.
    pub endpoint: Option<String>,
    /// Region; asked from the store or its default chain when `None`.
    pub region: Option<String>,
    /// Credential profile of this side.
    pub profile: Option<String>,
    /// Bucket in the path rather than in the host name; `None` decides by endpoint (custom endpoint: path).
    pub path_style: Option<bool>,
    /// Send no credentials (public buckets).
    pub anonymous: bool,
    /// Agree to pay for requests and egress of someone else's bucket.
    pub requester_pays: bool,
    /// PEM file with a private CA for HTTPS endpoints.
    pub ca_file: Option<PathBuf>,
    /// The private CA's certificates themselves, in PEM, where its file is on another machine.
    pub ca_pem: Option<String>,
    /// Credentials to use in place of this machine's own.
    pub delegated: Option<Arc<Delegated>>,
    /// For `file:`: also flush data and directory entries to the disk before a write counts as done.
    pub fsync: bool,
    /// For `file:`: follow symbolic links (otherwise they are reported and left out).
    pub follow_symlinks: bool,
    /// Options of one kind of store only (`mem:` objects and sizes).
    pub extra: BTreeMap<String, String>,
}

impl StoreConfig {
    /// Returns whether the store is reached over a network, so that it may want credentials.
    pub fn is_remote(&self) -> bool {
        self.url != "mem:" && !self.url.starts_with("file:")
    }
}

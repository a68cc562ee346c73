//! The settings of one store.

use crate::Delegated;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Everything needed to reach one side of a job. Holds the name of a credential profile, or credentials from another
/// process; credentials are never printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreConfig {
    /// Root of the store: `s3://bucket`, `gs://bucket`, `az://account/container`, `r2://account/bucket`, `file:///dir`
    /// or `mem:`. A path after the bucket is refused: each call gets its own key.
    pub url: String,
    /// Endpoint of a compatible server, e.g. `http://127.0.0.1:7070`.
    pub endpoint: Option<String>,
    /// Region; if `None`, it comes from the store or from the cloud's defaults.
    pub region: Option<String>,
    /// Credential profile of this store.
    pub profile: Option<String>,
    /// Put the bucket into the path rather than the host name; `None` lets the endpoint decide (custom endpoint: path).
    pub path_style: Option<bool>,
    /// Send no credentials (public buckets).
    pub anonymous: bool,
    /// Agree to pay for requests and egress of another owner's bucket.
    pub requester_pays: bool,
    /// PEM file with a private CA for HTTPS endpoints.
    pub ca_file: Option<PathBuf>,
    /// The private CA's certificates in PEM, if the file is on another machine.
    pub ca_pem: Option<String>,
    /// Credentials to use in place of this machine's own.
    pub delegated: Option<Arc<Delegated>>,
    /// `file:` only: also flush data and directory entries to the disk before a write counts as done.
    pub fsync: bool,
    /// `file:` only: follow symbolic links (otherwise they are reported and left out).
    pub follow_symlinks: bool,
    /// `file:` only: the root's path was resolved before. A symbolic link that has become a part of it is an error.
    pub resolved_root: bool,
    /// Options of a single kind of store (`mem:` objects and sizes).
    pub extra: BTreeMap<String, String>,
}

impl StoreConfig {
    /// Returns whether the store is reached over a network and so may need credentials.
    pub fn is_remote(&self) -> bool {
        self.url != "mem:" && !self.url.starts_with("file:")
    }
}

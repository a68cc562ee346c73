//! How to reach one store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One side of a job. Holds the name of a credential profile, never a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreSpec {
    /// Root: `s3://bucket`, `gs://bucket`, `az://account/container`, `r2://account/bucket`, `file:///dir` or `mem:`.
    pub url: String,
    /// Endpoint of a compatible server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Region; the store is asked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Credential profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Bucket in the path (true) or in the host name (false).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_style: Option<bool>,
    /// Send no credentials.
    #[serde(default)]
    pub anonymous: bool,
    /// Agree to pay for requests to, and egress from, someone else's bucket.
    #[serde(default)]
    pub requester_pays: bool,
    /// PEM file with a private CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// Files: flush to disk before a write counts as done.
    #[serde(default)]
    pub fsync: bool,
    /// Files: follow symbolic links. Those at a destination are never followed.
    #[serde(default)]
    pub follow_symlinks: bool,
    /// Files: the path of the root was resolved before. If a part of it is a symbolic link, that is an error.
    #[serde(default)]
    pub resolved_root: bool,
    /// A sink tells its lead only code and status of what the store answers: the store's words may name the account of
    /// the credentials, and the lead may be on the host of somebody else.
    #[serde(default)]
    pub hides_words: bool,
    /// Credentials for this store that a gateway on a rented machine gets.
    #[serde(default)]
    pub lending: Lending,
    /// S3: role whose sessions are lent; without one, sessions of the user are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Options for one kind of store (`mem:`: `objects`, `size_bytes`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
}

/// Credentials that a gateway on a rented machine gets for a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lending {
    /// Temporary ones, limited to the keys and actions of its program.
    #[default]
    Scoped,
    /// Those of the owner's machine, as they are.
    Whole,
    /// None: the machine has an identity of its own.
    Machine,
}

impl StoreSpec {
    /// Returns the bucket or container: the last segment of the URL (`s3://bucket`, `az://account/container`).
    pub fn bucket(&self) -> &str {
        let path = self.url.split_once("://").map_or(self.url.as_str(), |(_, path)| path);
        path.rsplit('/').next().unwrap_or(path)
    }
}

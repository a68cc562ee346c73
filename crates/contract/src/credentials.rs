//! Credentials of stores, from a fleet's owner to a gateway. They travel over the control channel only, and are kept in
//! memory only.

use crate::{CopyScope, KeyScope, StoreSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Body of `PUT /v1/gateways/NAME/stores` on the owner's admin socket: the stores whose credentials the gateway gets, now
/// and whenever they are renewed. They replace those of an earlier request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayStores {
    /// Each store once. Stores of files and memory need no credentials; they are allowed here too.
    pub stores: Vec<StoreUse>,
    /// True if the gateway runs on the owner's machine. It then gets credentials as they are, in place of limited ones.
    #[serde(default)]
    pub on_this_host: bool,
}

/// A store of a gateway's program, with the keys that the gateway may access there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreUse {
    /// The store as the program names it.
    pub store: StoreSpec,
    /// Keys to read.
    #[serde(default)]
    pub reads: Vec<KeyScope>,
    /// Keys to write.
    #[serde(default)]
    pub writes: Vec<KeyScope>,
    /// Objects that the store may be asked to copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopyScope>,
}

/// Body of `PUT /v1/stores`: all stores that the gateway may open. Only a gateway without its own credentials accepts
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreCredentials {
    /// Each store once.
    pub stores: Vec<StoreAccess>,
}

/// How to open one store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreAccess {
    /// The store as the program names it.
    pub store: StoreSpec,
    /// Its endpoint, where the owner's environment names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Its region, where the owner's environment names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Certificates of a private CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// Its credentials.
    pub authority: Authority,
    /// When they expire, in seconds since the Unix epoch; absent if they do not, or if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
}

/// Credentials that authorise the requests to a store. Secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Authority {
    /// None: requests are sent unsigned.
    Nobody,
    /// An access key of AWS, which signs requests.
    Aws {
        /// Id of the key.
        key_id: String,
        /// The key.
        secret_key: String,
        /// Session token of a temporary key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
    /// An OAuth token of Google or Azure.
    Bearer {
        /// The token.
        token: String,
    },
    /// The account key of Azure, in Base64.
    AzureKey {
        /// The key.
        key: String,
    },
    /// A shared access signature of Azure.
    AzureSas {
        /// The names and values of its query.
        query: Vec<(String, String)>,
    },
    /// The identity of the gateway's own machine, as its cloud provides it.
    Machine,
    /// No credentials were found.
    Missing {
        /// The reason, in one line without secrets.
        reason: String,
    },
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "Nobody",
            Self::Aws { .. } => "Aws",
            Self::Bearer { .. } => "Bearer",
            Self::AzureKey { .. } => "AzureKey",
            Self::AzureSas { .. } => "AzureSas",
            Self::Machine => "Machine",
            Self::Missing { .. } => "Missing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_printed() {
        let secret = || "the-secret".to_owned();
        for authority in [
            Authority::Aws { key_id: "id".to_owned(), secret_key: secret(), token: Some(secret()) },
            Authority::Bearer { token: secret() },
            Authority::AzureKey { key: secret() },
            Authority::AzureSas { query: vec![("sig".to_owned(), secret())] },
        ] {
            let access = StoreAccess {
                store: StoreSpec::default(),
                endpoint: None,
                region: None,
                ca_pem: None,
                authority,
                expires_unix_s: None,
            };
            assert!(!format!("{:?}", StoreCredentials { stores: vec![access] }).contains("the-secret"));
        }
    }
}

//! Signed addresses of blobs: a shared access signature for one blob, made with the account's key or, for a sign-in to
//! Entra ID, with a user delegation key.

use super::AzureStore;
use super::signature::{Grant, SigningKey, UserKey, refusal};
use super::source::describe_missing;
use crate::error::NO_CREDENTIALS;
use crate::rest::{Call, encode_query, iso_date, unix_now_ms};
use crate::{ErrorKind, Result};
use http::Method;
use object_store::azure::AzureCredential;

/// The key that signs an address.
enum Signer {
    Account(String),
    /// The key, and the end of its life in Unix seconds.
    User(UserKey, i64),
}

impl AzureStore {
    /// See [`crate::presign`]. Makes one request if the credentials are a sign-in, to get a key that signs.
    pub(crate) async fn presign(&self, key: &str, expires_s: u32) -> Result<String> {
        self.check_key("presign", key)?;
        let call = self.call("presign", Method::GET, key, &[]);
        let wanted = unix_now_ms() / 1000 + i64::from(expires_s);
        let signer = self.signer(&call, i64::from(expires_s)).await?;
        let (signing_key, expiry) = match &signer {
            Signer::Account(key) => (SigningKey::Account(key), wanted),
            Signer::User(key, until) => (SigningKey::User(key), wanted.min(*until)),
        };
        let grant = Grant { permissions: "r", key: Some(key), expiry: iso_date(expiry), protocol: "" };
        let signed = signing_key.sign(&self.account, &self.container, &grant);
        let signed = signed.map_err(|why| call.error(ErrorKind::Configuration, why))?;
        let query =
            encode_query(&signed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>());
        Ok(format!("{}{}?{query}", call.origin, call.path))
    }

    async fn signer(&self, call: &Call, life_s: i64) -> Result<Signer> {
        let missing = |why: String| {
            let why = describe_missing(self.credential_source, &why);
            call.error(ErrorKind::Unauthenticated, format!("no credentials: {why}"))
        };
        match self.credential().await.map_err(missing)?.as_deref() {
            None => Err(call.error(ErrorKind::Unsupported, NO_CREDENTIALS)),
            Some(AzureCredential::SASToken(_)) => {
                Err(call.error(ErrorKind::Unsupported, "a shared access signature cannot sign an address"))
            }
            Some(AzureCredential::AccessKey(_)) => {
                let key = self.account_key();
                key.map(Signer::Account).ok_or_else(|| missing("no account key in the environment".to_owned()))
            }
            Some(AzureCredential::BearerToken(_)) => {
                let (key, until) =
                    self.user_key(life_s).await.map_err(|error| call.error(error.kind, refusal(&error)))?;
                Ok(Signer::User(key, until))
            }
        }
    }
}

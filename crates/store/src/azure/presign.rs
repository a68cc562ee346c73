//! Signed addresses of blobs: a service SAS, signed with the account's key.

use super::AzureStore;
use super::signature::{Grant, SigningKey};
use crate::rest::{encode_query, iso_date, unix_now_ms};
use crate::{ErrorKind, Result};
use http::Method;

impl AzureStore {
    /// See [`crate::presign`]. Makes no request.
    pub(crate) fn presign(&self, key: &str, expires_s: u32) -> Result<String> {
        self.check_key("presign", key)?;
        let call = self.call("presign", Method::GET, key, &[]);
        let key_text = self.account_key().filter(|_| self.credentials.is_some()).ok_or_else(|| {
            call.error(ErrorKind::Unsupported, "an address is signed with the account's key, and none is set")
        })?;
        let expiry = iso_date(unix_now_ms() / 1000 + i64::from(expires_s));
        let grant = Grant { permissions: "r", key: Some(key), expiry, protocol: "" };
        let signed = SigningKey::Account(&key_text).sign(&self.account, &self.container, &grant);
        let signed = signed.map_err(|why| call.error(ErrorKind::Configuration, why))?;
        let query =
            encode_query(&signed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>());
        Ok(format!("{}{}?{query}", call.origin, call.path))
    }
}

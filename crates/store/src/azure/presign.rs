//! Signed addresses of blobs: a service SAS, signed with the account's key.

use super::AzureStore;
use super::open::account_key;
use crate::rest::{encode_query, iso_date, unix_now_ms};
use crate::{ErrorKind, Result};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;

/// Version of the string that is signed; see "Create a service SAS" in Microsoft's documentation.
const SAS_VERSION: &str = "2020-12-06";

impl AzureStore {
    /// See [`crate::presign`]. Makes no request.
    pub(crate) fn presign(&self, key: &str, expires_s: u32) -> Result<String> {
        self.check_key("presign", key)?;
        let call = self.call("presign", Method::GET, key, &[]);
        let key_text = account_key().filter(|_| self.credentials.is_some()).ok_or_else(|| {
            call.error(ErrorKind::Unsupported, "an address is signed with the account's key, and none is set")
        })?;
        let secret = BASE64_STANDARD
            .decode(key_text.trim())
            .map_err(|_| call.error(ErrorKind::Configuration, "the account's key is not Base64"))?;
        let expiry = iso_date(unix_now_ms() / 1000 + i64::from(expires_s));
        let resource = format!("/blob/{}/{}/{key}", self.account, self.container);
        // Permissions, start, expiry, resource, identifier, address, protocol, version, kind, snapshot, encryption scope,
        // and five headers of the answer.
        let to_sign = format!("r\n\n{expiry}\n{resource}\n\n\n\n{SAS_VERSION}\nb\n\n\n\n\n\n\n");
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), to_sign.as_bytes());
        let signature = BASE64_STANDARD.encode(signature);
        let query =
            encode_query(&[("sv", SAS_VERSION), ("se", &expiry), ("sr", "b"), ("sp", "r"), ("sig", &signature)]);
        Ok(format!("{}{}?{query}", call.origin, call.path))
    }
}

//! Sources of copies: the containers that Azure can read for a copy, and the right to read them.
//!
//! `Copy Blob` reads a blob of the same account with the authorisation of the request. Every other copy needs a public
//! blob, a shared access signature in its address, or a token in a header of its own. A signature is made for one blob, in
//! memory, for reading only. It is never logged.
//!
//! See "Put Block From URL" and "Copy Blob From URL" in Microsoft's documentation.

use super::signature::{Grant, SigningKey};
use super::{AzureStore, LIMITS, MIB};
use crate::rest::{Call, encode_path, encode_query, iso_date, unix_now_ms};
use crate::{ErrorKind, PartSource, Result, Store, StoreAuthority, StoreLimits};
use http::HeaderValue;
use object_store::azure::AzureCredential;
use std::sync::Arc;

/// Largest blob of another account that is copied in one request, by `Copy Blob From URL`.
const WHOLE_BYTES_MAX: u64 = 256 * MIB;
/// Life of the signature for one copy: Azure checks it when it begins to read.
const SIGNATURE_LIFE_S: i64 = 3600;

/// Address of the blob that Azure copies, with the right to read it. Secret.
pub(super) struct Readable {
    address: HeaderValue,
    /// `x-ms-copy-source-authorization`.
    token: Option<HeaderValue>,
}

impl Readable {
    fn new(call: &Call, address: String, token: Option<String>) -> Result<Self> {
        let secret = |text: String| -> Result<HeaderValue> {
            let mut value = HeaderValue::try_from(text).map_err(|error| call.error(ErrorKind::InvalidKey, error))?;
            value.set_sensitive(true);
            Ok(value)
        };
        Ok(Self { address: secret(address)?, token: token.map(secret).transpose()? })
    }

    /// Adds the blob and the state that it must be in to the request for a copy.
    pub(super) fn put_into(self, call: &mut Call, source: &PartSource) -> Result<()> {
        call.headers.insert("x-ms-copy-source", self.address);
        if let Some(token) = self.token {
            call.headers.insert("x-ms-copy-source-authorization", token);
        }
        match &source.condition.etag {
            Some(etag) => call.set("x-ms-source-if-match", &format!("\"{etag}\"")),
            None => Ok(()),
        }
    }
}

impl AzureStore {
    /// Returns whether both containers are in one account, whose credentials this process has.
    fn shares_account_with(&self, source: &Self) -> bool {
        source.origin == self.origin && source.account == self.account && source.credentials.is_some()
    }

    /// Returns whether Azure can read `source` for a copy to this container. A container of another account must have been
    /// named by [`Store::copy_from`], because its credentials are needed.
    pub(super) fn can_be_copied_from(&self, source: &Self) -> bool {
        let is_named = |from: &Self| (&from.origin, &from.url) == (&source.origin, &source.url);
        self.shares_account_with(source) || self.foreign_source().is_some_and(is_named)
    }

    /// Reads copies from this container, if it is one of another account at Azure, or at the same server.
    pub(super) fn remember_source(&self, source: &Arc<dyn Store>) {
        let is_in_reach =
            |from: &Self| from.origin == self.origin || (from.is_azure_itself() && self.is_azure_itself());
        let is_foreign = |from: &Self| is_in_reach(from) && !self.shares_account_with(from);
        if source.as_any().downcast_ref::<Self>().is_some_and(is_foreign) {
            // A container is the destination of one job, which has one source.
            self.foreign_source.set(Arc::clone(source)).ok();
        }
    }

    /// The container of another account from which this one gets its copies.
    pub(super) fn foreign_source(&self) -> Option<&Self> {
        self.foreign_source.get()?.as_any().downcast_ref::<Self>()
    }

    pub(super) fn limits_now(&self) -> StoreLimits {
        match self.foreign_source() {
            Some(_) => StoreLimits { copy_bytes_max: WHOLE_BYTES_MAX, ..LIMITS },
            None => LIMITS,
        }
    }

    /// The address of a blob of the same account. Azure reads it with the account's key or the token of the request; a
    /// shared access signature must be in the address too.
    pub(super) async fn own_readable(&self, call: &Call, source: &PartSource) -> Result<Readable> {
        let credential = self.credential().await.map_err(|why| call.error(ErrorKind::Unauthenticated, why))?;
        let query = match credential.as_deref() {
            Some(AzureCredential::SASToken(parameters)) => parameters.clone(),
            _ => Vec::new(),
        };
        Readable::new(call, self.address_of(source, &query), None)
    }

    /// The address of a blob with the right to read it, whatever the account of the request.
    pub(super) async fn granted_readable(&self, call: &Call, source: &PartSource) -> Result<Readable> {
        let from = self.foreign_source().unwrap_or(self);
        let missing = |why: String| call.error(ErrorKind::Unauthenticated, format!("source of the copy: {why}"));
        let (query, token) = match from.credential().await.map_err(missing)?.as_deref() {
            None => (Vec::new(), None),
            Some(AzureCredential::SASToken(parameters)) => (parameters.clone(), None),
            Some(AzureCredential::BearerToken(token)) => (Vec::new(), Some(format!("Bearer {token}"))),
            Some(AzureCredential::AccessKey(_)) => (from.signature_for(call, source)?, None),
        };
        Readable::new(call, from.address_of(source, &query), token)
    }

    /// A signature that permits reading one blob.
    fn signature_for(&self, call: &Call, source: &PartSource) -> Result<Vec<(String, String)>> {
        let delegated = self.delegated.as_ref().and_then(|delegated| delegated.now().ok());
        let key = match delegated {
            Some(StoreAuthority::AzureKey(key)) => Some(key),
            _ => self.account_key(),
        };
        let key = key.ok_or_else(|| call.error(ErrorKind::Unsupported, "there is no key to sign the source with"))?;
        let now_unix_s = unix_now_ms() / 1000 - self.http.clock_ahead_s().unwrap_or_default();
        let grant = Grant {
            permissions: "r",
            key: Some(&source.key),
            expiry: iso_date(now_unix_s + SIGNATURE_LIFE_S),
            protocol: if self.origin.starts_with("https:") { "https" } else { "" },
        };
        let signed = SigningKey::Account(&key).sign(&self.account, &source.bucket, &grant);
        signed.map_err(|why| call.error(ErrorKind::Configuration, why))
    }

    fn address_of(&self, source: &PartSource, query: &[(String, String)]) -> String {
        let root = format!("{}{}/{}", self.origin, self.account_root, source.bucket);
        let address = encode_path(&root, &source.key);
        if query.is_empty() {
            return address;
        }
        let query: Vec<_> = query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        format!("{address}?{}", encode_query(&query))
    }
}

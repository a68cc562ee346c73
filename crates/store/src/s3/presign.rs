//! Signed addresses of objects: Signature Version 4 in the query.

use super::Bucket;
use super::credentials::Authority;
use crate::error::NO_CREDENTIALS;
use crate::rest::unix_now_ms;
use crate::{ErrorKind, Result};
use http::Method;

impl Bucket {
    /// See [`crate::presign`]. One request may be needed, to find the bucket's region.
    pub(crate) async fn presign(&self, key: &str, expires_s: u32) -> Result<String> {
        self.check_key("presign", key)?;
        let mut call = self.call("presign", Method::GET, key, &[]);
        let authority = self.credentials.authority().await;
        let credential =
            match authority.map_err(|why| call.error(ErrorKind::Unauthenticated, format!("no credentials: {why}")))? {
                Authority::Aws(credential) => credential,
                Authority::Nobody => return Err(call.error(ErrorKind::Unsupported, NO_CREDENTIALS)),
                Authority::Bearer(_) => {
                    return Err(call.error(ErrorKind::Unsupported, "a token of Google Cloud cannot sign an address"));
                }
            };
        self.region_known.get_or_init(|| self.follow_bucket()).await;
        let address = self.address();
        call.origin.clone_from(&address.origin);
        call.path.insert_str(0, &address.root);
        let now_s = unix_now_ms() / 1000;
        self.signer.presign(&mut call, &credential, &address.region, now_s, expires_s);
        Ok(format!("{}{}?{}", call.origin, call.path, call.query))
    }
}

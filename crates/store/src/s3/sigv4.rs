//! AWS Signature Version 4 in the `Authorization` header, or in the query of an address.
//!
//! Replaces `object_store::aws::AwsAuthorizer`, which parses the URL with `url::Url` and so removes `.` and `..`
//! segments of keys. It also derives the signing key (four HMACs) again for each request.

use crate::rest::{Call, amz_date, encode_query};
use aws_lc_rs::{digest, hmac};
use http::HeaderValue;
use object_store::aws::AwsCredential;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A signing key with its inputs. It is valid for one day, one region and one credential.
struct DerivedKey {
    day: String,
    region: String,
    key_id: String,
    key: hmac::Key,
}

/// Signs calls to one service, and keeps the day's derived key.
pub(crate) struct Signer {
    service: &'static str,
    derived: Mutex<Option<Arc<DerivedKey>>>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Default for Signer {
    /// Signs calls to S3.
    fn default() -> Self {
        Self::of("s3")
    }
}

impl Signer {
    /// Signs calls to another service of AWS.
    pub(crate) fn of(service: &'static str) -> Self {
        Self { service, derived: Mutex::default() }
    }

    /// Adds the headers that sign `call` with `credential` at `now_s` (seconds since the Unix epoch).
    ///
    /// Bodies of PUT stay unsigned: SHA-256 costs 0.5 CPU-s per GB, and a CRC protects their bytes.
    pub(crate) fn sign(&self, call: &mut Call, credential: &AwsCredential, region: &str, now_s: i64) {
        let date = amz_date(now_s);
        let day = &date[..8];
        let payload_hash = if call.method == http::Method::POST {
            hex_sha256(call.body.segments().iter().map(AsRef::as_ref))
        } else {
            UNSIGNED_PAYLOAD.to_owned()
        };
        let plain = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""));
        call.headers.insert("x-amz-date", plain(&date));
        call.headers.insert("x-amz-content-sha256", plain(&payload_hash));
        if let Some(token) = &credential.token {
            let mut token = plain(token);
            token.set_sensitive(true);
            call.headers.insert("x-amz-security-token", token);
        }
        let (canonical, signed_headers) = canonical_request(call, &payload_hash);
        let scope = format!("{day}/{region}/{}/aws4_request", self.service);
        let to_sign = format!("{ALGORITHM}\n{date}\n{scope}\n{}", hex_sha256([canonical.as_bytes()].into_iter()));
        let derived = self.derived_key(credential, day, region);
        let signature = hex(hmac::sign(&derived.key, to_sign.as_bytes()).as_ref());
        let mut authorization = plain(&format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={signed_headers}, Signature={signature}",
            credential.key_id
        ));
        authorization.set_sensitive(true);
        call.headers.insert(http::header::AUTHORIZATION, authorization);
    }

    /// Replaces the query of `call` by one that signs it for `expires_s` seconds from `now_s`. No header but the host is
    /// signed, so that any client can send it.
    pub(crate) fn presign(
        &self,
        call: &mut Call,
        credential: &AwsCredential,
        region: &str,
        now_s: i64,
        expires_s: u32,
    ) {
        let date = amz_date(now_s);
        let day = &date[..8];
        let scope = format!("{day}/{region}/{}/aws4_request", self.service);
        let (owner, expires) = (format!("{}/{scope}", credential.key_id), expires_s.to_string());
        let mut query = vec![
            ("X-Amz-Algorithm", ALGORITHM),
            ("X-Amz-Credential", &owner),
            ("X-Amz-Date", &date),
            ("X-Amz-Expires", &expires),
            ("X-Amz-SignedHeaders", "host"),
        ];
        query.extend(credential.token.as_deref().map(|token| ("X-Amz-Security-Token", token)));
        call.query = encode_query(&query);
        let (canonical, _) = canonical_request(call, UNSIGNED_PAYLOAD);
        let to_sign = format!("{ALGORITHM}\n{date}\n{scope}\n{}", hex_sha256([canonical.as_bytes()].into_iter()));
        let derived = self.derived_key(credential, day, region);
        let signature = hex(hmac::sign(&derived.key, to_sign.as_bytes()).as_ref());
        let _ = write!(call.query, "&X-Amz-Signature={signature}");
    }

    fn derived_key(&self, credential: &AwsCredential, day: &str, region: &str) -> Arc<DerivedKey> {
        let mut cached = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(derived) = cached.as_ref()
            && derived.day == day
            && derived.region == region
            && derived.key_id == credential.key_id
        {
            return Arc::clone(derived);
        }
        let mut key = hmac_key(format!("AWS4{}", credential.secret_key).as_bytes());
        for part in [day, region, self.service, "aws4_request"] {
            key = hmac_key(hmac::sign(&key, part.as_bytes()).as_ref());
        }
        let (day, region, key_id) = (day.to_owned(), region.to_owned(), credential.key_id.clone());
        let derived = Arc::new(DerivedKey { day, region, key_id, key });
        *cached = Some(Arc::clone(&derived));
        derived
    }
}

/// The canonical request and the list of signed headers. All headers of the call are signed.
fn canonical_request(call: &Call, payload_hash: &str) -> (String, String) {
    let host = call.origin.split_once("://").map_or(call.origin.as_str(), |(_, host)| host);
    let mut headers: Vec<(&str, &[u8])> = vec![("host", host.as_bytes())];
    headers.extend(call.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    headers.sort_unstable();
    let mut canonical = format!("{}\n{}\n{}\n", call.method, call.path, call.query);
    let mut signed = String::new();
    for (name, value) in headers {
        canonical.push_str(name);
        canonical.push(':');
        push_folded(&mut canonical, value);
        canonical.push('\n');
        if !signed.is_empty() {
            signed.push(';');
        }
        signed.push_str(name);
    }
    let _ = write!(canonical, "\n{signed}\n{payload_hash}");
    (canonical, signed)
}

/// Header values are signed trimmed, with runs of spaces folded to one.
fn push_folded(out: &mut String, value: &[u8]) {
    let value = String::from_utf8_lossy(value);
    for (index, word) in value.split_ascii_whitespace().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(word);
    }
}

fn hmac_key(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes)
}

fn hex_sha256<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.for_each(|part| context.update(part));
    hex(context.finish().as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;
    use http::{HeaderMap, Method};

    /// The example of "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)".
    #[test]
    fn an_address_is_signed_as_amazon_does() {
        let (mut call, credential) = example();
        call.headers.clear();
        Signer::default().presign(&mut call, &credential, "us-east-1", 1_369_353_600, 86_400);
        let signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        assert!(call.query.ends_with(&format!("&X-Amz-Signature={signature}")), "{}", call.query);
        assert!(
            call.query.contains("X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request")
        );
    }

    /// The GET Object example of "Authenticating Requests (AWS Signature Version 4)", with the payload hash replaced by
    /// what this signer sends; the derived key is checked against the published one.
    fn example() -> (Call, AwsCredential) {
        let call = Call {
            operation: "get",
            url: String::new(),
            method: Method::GET,
            origin: "https://examplebucket.s3.amazonaws.com".to_owned(),
            path: "/test.txt".to_owned(),
            query: String::new(),
            headers: HeaderMap::from_iter([(http::header::RANGE, HeaderValue::from_static("bytes=0-9"))]),
            body: Payload::default(),
            patient: true,
        };
        let credential = AwsCredential {
            key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        };
        (call, credential)
    }

    #[test]
    fn canonical_request_is_the_published_one() {
        let (mut call, _) = example();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        call.headers.insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
        call.headers.insert("x-amz-content-sha256", HeaderValue::from_static(empty));
        let (canonical, signed) = canonical_request(&call, empty);
        assert_eq!(signed, "host;range;x-amz-content-sha256;x-amz-date");
        let hash = hex_sha256([canonical.as_bytes()].into_iter());
        assert_eq!(hash, "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");
        let to_sign = format!("{ALGORITHM}\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n{hash}");
        let (_, credential) = example();
        let derived = Signer::default().derived_key(&credential, "20130524", "us-east-1");
        let signature = hex(hmac::sign(&derived.key, to_sign.as_bytes()).as_ref());
        assert_eq!(signature, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    }

    #[test]
    fn a_new_credential_or_day_gets_a_new_key() {
        let (mut call, mut credential) = example();
        let signer = Signer::default();
        signer.sign(&mut call, &credential, "us-east-1", 1_369_353_600);
        let first = call.headers["authorization"].clone();
        assert!(first.to_str().unwrap().contains("20130524/us-east-1/s3/aws4_request"));
        call.headers.remove("authorization");
        credential.key_id = "other".to_owned();
        signer.sign(&mut call, &credential, "us-east-1", 1_369_353_600 + 86_400);
        let second = call.headers["authorization"].to_str().unwrap().to_owned();
        assert!(second.contains("other/20130525/"));
    }
}

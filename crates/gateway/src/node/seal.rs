//! `--seal`: what source and sink say to each other is closed to the relays between them.
//!
//! AES-256-GCM with a random 96-bit nonce per message (NIST SP 800-38D §8.2.2: up to 2^32 messages a key) and the
//! request id as associated data, so that a relay can neither read, nor change, nor swap what passes.
//! Sealed form: nonce, ciphertext, tag.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use bytes::Bytes;
use rand::RngCore;
use std::fmt;
use tradewind_wire::RequestId;

const TAG_BYTES: usize = 16;

/// The job's key. Never printed.
pub struct SealKey(LessSafeKey);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

impl SealKey {
    /// From 64 hex digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let key: Vec<u8> = digits.chunks(2).map(byte).collect::<Option<_>>()?;
        UnboundKey::new(&AES_256_GCM, &key).ok().map(|key| Self(LessSafeKey::new(key)))
    }

    /// Seals the segments as one message.
    pub fn seal(&self, request: RequestId, segments: &[Bytes]) -> Result<Vec<u8>, String> {
        let length: usize = segments.iter().map(Bytes::len).sum();
        let mut sealed = Vec::with_capacity(NONCE_LEN + length + TAG_BYTES);
        let mut nonce = [0; NONCE_LEN];
        rand::rng().fill_bytes(&mut nonce);
        sealed.extend_from_slice(&nonce);
        for segment in segments {
            sealed.extend_from_slice(segment);
        }
        let tag = self
            .0
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad(request), &mut sealed[NONCE_LEN..])
            .map_err(|_| "cannot seal".to_owned())?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Opens a message.
    ///
    /// # Errors
    /// It was changed on the way, or sealed for another request or with another key.
    pub fn open(&self, request: RequestId, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let broken = || "a sealed message was changed on the way".to_owned();
        let (nonce, body) = sealed.split_at_checked(NONCE_LEN).ok_or_else(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let mut body = body.to_vec();
        let length = self.0.open_in_place(nonce, aad(request), &mut body).map_err(|_| broken())?.len();
        body.truncate(length);
        Ok(body)
    }
}

fn aad(request: RequestId) -> Aad<[u8; 8]> {
    Aad::from(request.0.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_only_unchanged_and_for_its_request() {
        let key = SealKey::from_hex(&"7f".repeat(32)).expect("64 digits");
        let mut sealed =
            key.seal(RequestId(7), &[Bytes::from_static(b"trade"), Bytes::from_static(b"wind")]).expect("seals");
        assert_eq!(key.open(RequestId(7), &sealed).expect("opens"), b"tradewind");
        assert!(key.open(RequestId(8), &sealed).is_err());
        sealed[NONCE_LEN] ^= 1;
        assert!(key.open(RequestId(7), &sealed).is_err());
        assert!(key.open(RequestId(7), b"short").is_err());
    }

    #[test]
    fn a_bad_key_is_refused() {
        assert!(SealKey::from_hex("abc").is_none());
        assert!(SealKey::from_hex(&"zz".repeat(32)).is_none());
    }
}

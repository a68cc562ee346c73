//! Implements `--seal`: hides the messages between source and sink from the relays between them.
//!
//! The cipher is AES-256-GCM with a random 96-bit nonce per message (NIST SP 800-38D §8.2.2: up to 2^32 messages per
//! key). One message is one whole body, so no part of it can be omitted or moved. The associated data ([`Context`]) are
//! the direction and every field of the head, or the request that a sink answers. So a relay can neither read, change,
//! swap nor reflect messages. Sealed form: nonce, ciphertext, tag.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use bytes::Bytes;
use rand::RngCore;
use std::fmt;
use tradewind_wire::RequestId;
use tradewind_wire::frame::Head;

const TAG_BYTES: usize = 16;
/// The difference in length between a sealed message and its content.
pub const SEAL_BYTES: usize = NONCE_LEN + TAG_BYTES;

/// The purpose of a sealed message. The message opens only with the same context.
#[derive(Clone, Copy, Debug)]
pub enum Context<'a> {
    /// The body below this head. All its fields count except the hash, which a sealed body does not need.
    Request(&'a Head),
    /// A sink's answer to this request.
    Answer(RequestId),
}

impl Context<'_> {
    fn associated_data(self) -> Vec<u8> {
        match self {
            Self::Request(head) => [b"tradewind request\0", head_bytes(head).as_slice()].concat(),
            Self::Answer(request) => [b"tradewind answer\0".as_slice(), &request.0.to_le_bytes()].concat(),
        }
    }
}

/// All fields of a head but its hash, in a fixed encoding.
pub fn head_bytes(head: &Head) -> Vec<u8> {
    // Serializing our own types into memory cannot fail; if it did, the seal would only fail to open.
    postcard::to_stdvec(&Head { blake3: [0; 32], ..head.clone() }).unwrap_or_default()
}

/// The job's key. It is never printed.
pub struct SealKey(LessSafeKey);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

impl SealKey {
    /// Parses a key of 64 hex digits.
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
    pub fn seal(&self, context: Context<'_>, segments: &[Bytes]) -> Result<Vec<u8>, String> {
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
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad(context), &mut sealed[NONCE_LEN..])
            .map_err(|_| "cannot seal".to_owned())?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Opens a message.
    ///
    /// # Errors
    /// It was changed on the way, or sealed for another purpose or with another key.
    pub fn open(&self, context: Context<'_>, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let broken = || "a sealed message was changed in transit".to_owned();
        let (nonce, body) = sealed.split_at_checked(NONCE_LEN).ok_or_else(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let mut body = body.to_vec();
        let length = self.0.open_in_place(nonce, aad(context), &mut body).map_err(|_| broken())?.len();
        body.truncate(length);
        Ok(body)
    }
}

fn aad(context: Context<'_>) -> Aad<Vec<u8>> {
    Aad::from(context.associated_data())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_only_unchanged_and_for_its_request() {
        let key = SealKey::from_hex(&"7f".repeat(32)).expect("64 digits");
        let (seven, eight) = (Context::Answer(RequestId(7)), Context::Answer(RequestId(8)));
        let mut sealed = key.seal(seven, &[Bytes::from_static(b"trade"), Bytes::from_static(b"wind")]).expect("seals");
        assert_eq!(sealed.len(), b"tradewind".len() + SEAL_BYTES);
        assert_eq!(key.open(seven, &sealed).expect("opens"), b"tradewind");
        assert!(key.open(eight, &sealed).is_err());
        sealed[NONCE_LEN] ^= 1;
        assert!(key.open(seven, &sealed).is_err());
        assert!(key.open(seven, b"short").is_err());
    }

    #[test]
    fn a_bad_key_is_refused() {
        assert!(SealKey::from_hex("abc").is_none());
        assert!(SealKey::from_hex(&"zz".repeat(32)).is_none());
    }
}

//! A gateway's new key, and the request to certify it.

use super::hex;
use super::roll::Refused;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tradewind_contract::KeyRequest;

/// Bytes of an uncompressed point of P-256.
const POINT_BYTES: usize = 65;

/// A key that was made in this process and is not certified yet.
pub struct NewKey {
    key: KeyPair,
    request: KeyRequest,
}

impl NewKey {
    /// Makes a new key for the gateway `name`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate(name: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let point = key.public_key_raw();
        let signature = key.sign(&signed_bytes(name, point))?;
        let request = KeyRequest {
            name: name.to_owned(),
            public_key_hex: hex::encode(point),
            signature_hex: hex::encode(&signature),
        };
        Ok(Self { key, request })
    }

    /// The request to certify this key.
    pub fn request(&self) -> &KeyRequest {
        &self.request
    }

    /// The key in the form that TLS needs.
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    pub(super) fn pair(&self) -> &KeyPair {
        &self.key
    }
}

/// A public key whose holder has proved possession of the private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldKey([u8; POINT_BYTES]);

impl HeldKey {
    /// Checks a request's signature.
    ///
    /// # Errors
    /// [`Refused::Key`].
    pub fn check(request: &KeyRequest) -> Result<Self, Refused> {
        let point = hex::decode(&request.public_key_hex).and_then(|point| <[u8; POINT_BYTES]>::try_from(point).ok());
        let (Some(point), Some(signature)) = (point, hex::decode(&request.signature_hex)) else {
            return Err(Refused::Key);
        };
        let verified = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
            .verify(&signed_bytes(&request.name, &point), &signature);
        verified.map(|()| Self(point)).map_err(|_| Refused::Key)
    }
}

impl PublicKeyData for HeldKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

fn signed_bytes(name: &str, point: &[u8]) -> Vec<u8> {
    [b"tradewind key request 1\0", name.as_bytes(), b"\0", point].concat()
}

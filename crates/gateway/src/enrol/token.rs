//! The join token, and how a peer proves that it knows the token without revealing it.
//!
//! A proof is `HMAC-SHA256(token, step ‖ fleet ‖ name ‖ exporter ‖ payload)`, each part preceded by its length. The
//! exporter is that of TLS (RFC 8446, section 7.5): only the two ends of a connection can compute its 32 bytes. Each
//! step of each direction has its own label, so a proof cannot be sent back to its author.

use super::hex;
use aws_lc_rs::hmac;
use std::fmt;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 32;

/// The secret that a gateway and its owner share until the gateway has enrolled. Never printed.
#[derive(Clone)]
pub struct JoinToken([u8; TOKEN_BYTES]);

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(…)")
    }
}

impl JoinToken {
    /// Parses 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        hex::decode(text)?.try_into().ok().map(Self)
    }

    /// Returns whether both are the same, in constant time.
    pub fn is_same(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

/// A step of an enrolment that carries a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The owner dials: its first message.
    DialledOpening,
    /// The owner dials: the gateway's answer. Its payload is the new public key.
    DialledClaim,
    /// The owner dials: the certificate, which is the payload.
    DialledGrant,
    /// The gateway calls home: its first message. Its payload is the new public key.
    CallingClaim,
    /// The gateway calls home: the certificate, which is the payload.
    CallingGrant,
}

impl Step {
    fn label(self) -> &'static [u8] {
        match self {
            Self::DialledOpening => b"tradewind enrolment 1: owner dials: opening of the owner",
            Self::DialledClaim => b"tradewind enrolment 1: owner dials: claim of the gateway",
            Self::DialledGrant => b"tradewind enrolment 1: owner dials: grant of the owner",
            Self::CallingClaim => b"tradewind enrolment 1: gateway calls: claim of the gateway",
            Self::CallingGrant => b"tradewind enrolment 1: gateway calls: grant of the owner",
        }
    }
}

/// The TLS exporter of one connection, the same at both ends.
pub type Exporter = [u8; 32];

/// The statement that a proof is about.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    /// The step of the enrolment.
    pub step: Step,
    /// Id of the fleet.
    pub fleet: &'a str,
    /// Name of the gateway.
    pub name: &'a str,
    /// Exporter of this connection.
    pub exporter: &'a Exporter,
    /// Contents of the message.
    pub payload: &'a [u8],
}

impl Statement<'_> {
    /// Returns the proof that the author of this statement knows the token, in hexadecimal.
    pub fn prove(&self, token: &JoinToken) -> String {
        hex::encode(hmac::sign(&key(token), &self.bytes()).as_ref())
    }

    /// Returns whether `proof_hex` proves this statement; compares in constant time.
    pub fn is_proved_by(&self, proof_hex: &str, token: &JoinToken) -> bool {
        let proof = hex::decode(proof_hex);
        proof.is_some_and(|proof| hmac::verify(&key(token), &self.bytes(), &proof).is_ok())
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { step, fleet, name, exporter, payload } = self;
        let parts = [step.label(), fleet.as_bytes(), name.as_bytes(), exporter.as_slice(), payload];
        parts.iter().flat_map(|part| [&(part.len() as u64).to_be_bytes()[..], part].concat()).collect()
    }
}

fn key(token: &JoinToken) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &token.0)
}

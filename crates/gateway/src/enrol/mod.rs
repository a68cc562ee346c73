//! Enrolment: how a gateway that has nothing but a join document gets an identity of its fleet.
//!
//! Participants: the [`Candidate`] is a gateway without an identity. The [`Registrar`] is the owner's side: it holds the
//! fleet's CA and a [`Roll`] of tokens. They meet on one TLS 1.3 connection, which either of them opens:
//!
//! ```text
//!  the owner dials                                  the gateway calls home
//!  owner ── opening: proof ──────────▶ gateway      gateway ── claim: proof, key ─────────▶ owner
//!        ◀─ claim: proof, key ────────                      ◀─ grant: proof, certificate ──
//!        ── grant: proof, certificate ▶                     ── done ─────────────────────▶
//!        ◀─ done ─────────────────────
//! ```
//!
//! A proof is an HMAC with the token over what only the two ends of this connection know ([`token`]). So it cannot be
//! used on another connection, and somebody between the two, with a certificate of his own, has nothing to pass on. The
//! side that opened the connection proves first; a peer that has not proved the token gets no answer.
//!
//! The gateway's key never leaves it. It asks for a name and a key and for nothing else ([`key`]), so the owner has
//! nothing to look for in the request; the certificate says what all identities of the fleet say.
//!
//! Not guaranteed: that a token which leaked is not used by the thief before the gateway. The gateway then fails to
//! enrol, and the owner logs the refusal.

mod candidate;
mod channel;
mod hex;
pub mod key;
pub mod messages;
mod registrar;
mod roll;
pub mod token;

#[cfg(test)]
mod tests;

pub use candidate::{Candidate, JoinError, confirm};
pub use key::NewKey;
pub use registrar::{Granted, Registrar};
pub use roll::{Refused, Roll};
pub use token::JoinToken;

use crate::limits::ENROL_TIMEOUT;
use crate::tls::TlsError;
use std::io;

/// Why an enrolment failed.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// TLS failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The connection broke.
    #[error("connection: {0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection instead of an answer: it tells nobody why.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer took too long.
    #[error("not finished within {} s", ENROL_TIMEOUT.as_secs())]
    TooSlow,
    /// The peer sent something else than the message that is due.
    #[error("not an enrolment: {0}")]
    Message(String),
    /// The peer did not prove what it must.
    #[error("refused: {0}")]
    Refused(#[from] Refused),
    /// The certificate library refused.
    #[error(transparent)]
    Certificate(#[from] crate::identity::IdentityError),
}

/// Bounds a whole enrolment after its TLS handshake.
async fn in_time<T>(work: impl Future<Output = Result<T, EnrolError>>) -> Result<T, EnrolError> {
    tokio::time::timeout(ENROL_TIMEOUT, work).await.unwrap_or(Err(EnrolError::TooSlow))
}

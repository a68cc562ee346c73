//! Enrolment: how a gateway that has only a join document gets an identity of its fleet.
//!
//! The [`Candidate`] is a gateway without an identity. The [`Registrar`] is the owner's side: it holds the fleet's CA
//! and a [`Roll`] of tokens. They meet on one TLS 1.3 connection, which either of them opens:
//!
//! ```text
//!  the owner dials                                  the gateway calls home
//!  owner ── opening: proof ──────────▶ gateway      gateway ── claim: proof, key ─────────▶ owner
//!        ◀─ claim: proof, key ────────                      ◀─ grant: proof, certificate ──
//!        ── grant: proof, certificate ▶                     ── done ─────────────────────▶
//!        ◀─ done ─────────────────────
//! ```
//!
//! A proof is an HMAC, keyed with the token, over values that only the two ends of this connection know ([`token`]). So
//! it is useless on another connection, and a man in the middle with his own certificate has nothing to pass on. The
//! side that opened the connection proves first; a peer that has not proved the token gets no answer.
//!
//! The gateway's key never leaves it. The request holds only a name and a key ([`key`]), so the owner has nothing else
//! to check. The certificate has the same contents as all identities of the fleet.
//!
//! Not prevented: a thief may use a leaked token before the gateway does. The gateway then fails to enrol, and the
//! owner logs the refusal.

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
    /// The peer closed the connection instead of answering: it gives nobody a reason.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer took too long.
    #[error("did not finish within {} s", ENROL_TIMEOUT.as_secs())]
    TooSlow,
    /// The peer sent something other than the expected message.
    #[error("not an enrolment: {0}")]
    Message(String),
    /// The peer failed to prove the token, name or key.
    #[error("refused: {0}")]
    Refused(#[from] Refused),
    /// The certificate library failed.
    #[error(transparent)]
    Certificate(#[from] crate::identity::IdentityError),
}

/// Limits the time of a whole enrolment after its TLS handshake.
async fn in_time<T>(work: impl Future<Output = Result<T, EnrolError>>) -> Result<T, EnrolError> {
    tokio::time::timeout(ENROL_TIMEOUT, work).await.unwrap_or(Err(EnrolError::TooSlow))
}

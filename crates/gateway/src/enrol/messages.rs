//! The messages of an enrolment: one line of JSON each, of limited length, one at a time.

use super::EnrolError;
use crate::limits::ENROL_LINE_BYTES_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tradewind_contract::KeyRequest;

/// The owner's first message when it dials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// Id of the fleet.
    pub fleet: String,
    /// Name of the gateway that it wants.
    pub name: String,
    /// Proof that it knows the gateway's token.
    pub proof_hex: String,
}

/// A gateway's request for its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Id of the fleet.
    pub fleet: String,
    /// Proof that the gateway knows its token.
    pub proof_hex: String,
    /// Its name and its new key.
    pub key: KeyRequest,
}

/// The owner's answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Proof that the owner knows the token, over the certificate.
    pub proof_hex: String,
    /// Certificate of the identity.
    pub certificate_pem: String,
}

/// The gateway has installed its identity, and from now on requires one of its peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {}

/// Sends one message.
pub(super) async fn send<S: AsyncWrite + Unpin>(stream: &mut S, message: &impl Serialize) -> Result<(), EnrolError> {
    let mut line = serde_json::to_vec(message).map_err(|error| EnrolError::Message(error.to_string()))?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    Ok(stream.flush().await?)
}

/// Waits for one message. The caller must limit the time.
pub(super) async fn receive<S: AsyncRead + Unpin, M: DeserializeOwned>(stream: &mut S) -> Result<M, EnrolError> {
    let mut line = Vec::new();
    let mut piece = [0; 1024];
    while line.last() != Some(&b'\n') {
        let read = stream.read(&mut piece).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => EnrolError::Closed,
            _ => crate::tls::TlsError::explain(error).into(),
        })?;
        if read == 0 {
            return Err(EnrolError::Closed);
        }
        line.extend_from_slice(&piece[..read]);
        if line.len() > ENROL_LINE_BYTES_MAX {
            return Err(EnrolError::Message(format!("longer than {ENROL_LINE_BYTES_MAX} bytes")));
        }
    }
    parse(&line)
}

/// Parses one line. Nobody sends a second message before the first is answered, so a line break inside is an error too.
///
/// # Errors
/// [`EnrolError::Message`].
pub fn parse<M: DeserializeOwned>(line: &[u8]) -> Result<M, EnrolError> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    if text.contains(&b'\n') {
        return Err(EnrolError::Message("more than one line".to_owned()));
    }
    // The error's text could repeat what the peer sent.
    serde_json::from_slice(text)
        .map_err(|error| EnrolError::Message(format!("{:?} error in the JSON", error.classify())))
}

//! Joins a gateway to its fleet: reads the join document, and retries over real sockets until the gateway has an
//! identity.

use crate::dial::dial;
use crate::enrol::{Candidate, EnrolError, JoinError, confirm};
use crate::limits::{
    CONTROL_HANDSHAKES_MAX, CONTROL_HANDSHAKES_PER_ADDRESS_MAX, ENROL_PAUSE, ENROL_PAUSE_MAX, JOIN_BYTES_MAX,
};
use crate::net::gate::{Gate, GateLimits};
use crate::net::refusals::Refusals;
use crate::tls::Identity;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tradewind_contract::Join;

/// The gateway has no identity, and its token has expired.
#[derive(Debug, thiserror::Error)]
#[error("the gateway did not join its fleet in time: {0}")]
pub struct NotJoined(String);

/// Reads the document from a file, or with `-` from the first line of standard input.
pub(crate) fn read_document(path: &Path) -> Result<Join, JoinError> {
    let fault = |error: &dyn std::fmt::Display| JoinError::Document(format!("{}: {error}", path.display()));
    let text = read_text(path).map_err(|error| fault(&error))?;
    if text.len() as u64 > JOIN_BYTES_MAX {
        return Err(fault(&format_args!("longer than {JOIN_BYTES_MAX} bytes")));
    }
    // The error's text could repeat the token.
    serde_json::from_slice(&text)
        .map_err(|error| fault(&format_args!("not understood: {:?} error in line {}", error.classify(), error.line())))
}

fn read_text(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(JOIN_BYTES_MAX + 1).read_until(b'\n', &mut text)?;
    } else {
        std::fs::File::open(path)?.take(JOIN_BYTES_MAX + 1).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// Waits until the owner has dialled. Other peers get no answer.
pub(crate) async fn by_owner(candidate: Candidate, listener: &TcpListener) -> Result<Identity, NotJoined> {
    let candidate = Arc::new(candidate);
    let gate = Gate::new(GateLimits {
        handshakes_max: CONTROL_HANDSHAKES_MAX,
        per_address_max: CONTROL_HANDSHAKES_PER_ADDRESS_MAX,
    });
    let refusals = Refusals::default();
    let mut last = "no owner connected".to_owned();
    // Once one has succeeded, the others are dropped, and so is any peer accepted meanwhile.
    let mut answers = JoinSet::new();
    let joined = tokio::time::timeout(candidate.patience(), async {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((tcp, from)) => {
                        let (candidate, place) = (candidate.clone(), gate.enter(from.ip()));
                        answers.spawn(async move { (from, place.hold(candidate.answer(tcp)).await) });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        gate.evict();
                        tokio::time::sleep(ENROL_PAUSE).await;
                    }
                },
                Some(Ok((from, answered))) = answers.join_next() => match answered {
                    Ok(Ok(joined)) => return joined,
                    Ok(Err(error)) => {
                        if refusals.may_log() {
                            tracing::warn!(%from, %error, "enrolment refused");
                        }
                        last = error.to_string();
                    }
                    Err(evicted) => tracing::debug!(%from, %evicted, "enrolment refused"),
                },
            }
        }
    });
    match joined.await {
        Ok((identity, stream)) => {
            say_done(stream).await;
            Ok(identity)
        }
        Err(_elapsed) => Err(NotJoined(last)),
    }
}

/// Calls the owner until it has granted an identity.
pub(crate) async fn by_call(candidate: &Candidate, owner: &str) -> Result<Identity, NotJoined> {
    let mut last = String::new();
    let mut pause = ENROL_PAUSE;
    let joined = tokio::time::timeout(candidate.patience(), async {
        loop {
            match call_once(candidate, owner).await {
                Ok(joined) => return joined,
                Err(error) => {
                    let error = error.to_string();
                    if error != last {
                        tracing::warn!(owner, error, "not enrolled yet");
                    }
                    last = error;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(ENROL_PAUSE_MAX);
        }
    });
    match joined.await {
        Ok((identity, stream)) => {
            say_done(stream).await;
            Ok(identity)
        }
        Err(_elapsed) => Err(NotJoined(last)),
    }
}

async fn call_once(
    candidate: &Candidate,
    owner: &str,
) -> Result<(Identity, tokio_rustls::client::TlsStream<TcpStream>), EnrolError> {
    candidate.call(dial(owner).await?).await
}

async fn say_done(stream: impl AsyncRead + AsyncWrite + Unpin) {
    if let Err(error) = confirm(stream).await {
        tracing::info!(%error, "the owner could not be informed that the gateway has joined");
    }
}

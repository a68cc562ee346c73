//! The request and the answer between two proxies, after their TLS handshake and before the bytes of the flow.
//!
//! Each is one frame: the version, the kind, the length of the body (two bytes, big-endian), and the body (postcard).

use crate::destination::Destination;
use crate::limits::{HEADER_BYTES_MAX, HOPS_MAX};
use crate::refusal::Cause;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Version of the protocol between proxies. Another version is refused.
pub const VERSION: u8 = 1;
const KIND_REQUEST: u8 = 1;
const KIND_ANSWER: u8 = 2;

/// The request of a proxy to the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Where the flow goes.
    pub destination: Destination,
    /// Names of the proxies after the one that gets this request.
    pub route: Vec<String>,
    /// The client's address, as the entry saw it.
    pub client: SocketAddr,
    /// The address that the client connected to.
    pub entry: SocketAddr,
    /// Time in which the proxy that gets this request may establish the flow, in milliseconds.
    pub within_ms: u32,
}

/// The answer: the flow is established up to the destination, or was refused.
pub type Answer = Result<(), Cause>;

fn malformed(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn encode(kind: u8, body: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = postcard::to_stdvec(body).map_err(io::Error::other)?;
    if body.len() > HEADER_BYTES_MAX {
        return Err(malformed("the header is too large"));
    }
    let mut frame = vec![VERSION, kind];
    frame.extend_from_slice(&(body.len() as u16).to_be_bytes());
    frame.extend_from_slice(&body);
    Ok(frame)
}

async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin), wanted: u8) -> io::Result<T> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, kind, high, low] = head;
    if version != VERSION || kind != wanted {
        return Err(malformed("not a header of this version"));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > HEADER_BYTES_MAX {
        return Err(malformed("the header is too large"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    decode(&body)
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(malformed("the header cannot be read")),
    }
}

impl Request {
    /// Sends the request.
    ///
    /// # Errors
    /// The connection broke, or the request is too large.
    pub async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&encode(KIND_REQUEST, self)?).await?;
        stream.flush().await
    }

    /// Receives a request.
    ///
    /// # Errors
    /// The connection broke, or the request is malformed, too large, or has too many proxies.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let request: Self = read(stream, KIND_REQUEST).await?;
        if request.route.len() >= HOPS_MAX {
            return Err(malformed("the route is too long"));
        }
        Ok(request)
    }
}

/// Sends an answer.
///
/// # Errors
/// The connection broke.
pub async fn write_answer(stream: &mut (impl AsyncWrite + Unpin), answer: Answer) -> io::Result<()> {
    stream.write_all(&encode(KIND_ANSWER, &answer)?).await?;
    stream.flush().await
}

/// Receives an answer.
///
/// # Errors
/// The connection broke, or the answer is malformed.
pub async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    read(stream, KIND_ANSWER).await
}

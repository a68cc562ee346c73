//! HTTP requests that the owner itself sends to a gateway.

use super::fleet::{Fleet, Member};
use super::reach::reach;
use crate::limits::RENEWAL_ANSWER_BYTES_MAX;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use std::error::Error;

/// Why a request failed or was refused.
pub(super) type Failure = Box<dyn Error + Send + Sync>;
/// Sends requests over one connection.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// Opens a connection to a gateway, sends `requests` over it, and closes it.
pub(super) async fn exchange<T>(
    fleet: &Fleet,
    member: &Member,
    requests: impl AsyncFnOnce(Sender) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let stream = reach(fleet, member).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    let (answered, ended) = tokio::join!(requests(sender), connection);
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to a gateway ended");
    }
    answered
}

/// Sends one request with a JSON body and returns the body of the answer.
///
/// # Errors
/// The connection ended, or the gateway refused.
pub(super) async fn ask(sender: &mut Sender, method: Method, path: &str, body: Bytes) -> Result<Bytes, Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "gateway")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let bytes = Limited::new(answer.into_body(), RENEWAL_ANSWER_BYTES_MAX).collect().await?.to_bytes();
    if status.is_success() {
        return Ok(bytes);
    }
    Err(format!("the gateway answered {status}: {}", String::from_utf8_lossy(&bytes)).into())
}

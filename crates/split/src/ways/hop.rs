//! The way in from another proxy: mutual TLS, then its request. The other proxy may keep the connection ready for long
//! before it sends one.

use super::Opened;
use crate::conn::Conn;
use crate::handshake;
use crate::header::Request;
use crate::limits::KEPT_READY_MAX;
use crate::proxy::Shared;
use crate::refusal::{Cause, Refusal};
use crate::sealed::Sealed;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A proxy that has shown who it is.
pub(crate) struct Known {
    stream: Box<Sealed>,
    name: String,
}

/// Finds out which proxy connects, within the request timeout.
pub(crate) async fn identify(shared: &Shared, tcp: TcpStream) -> Result<Known, Refusal> {
    let stranger = |detail: String| Refusal::new(Cause::Unauthenticated, detail);
    let tls = shared.tls.as_ref().ok_or_else(|| stranger("this proxy has no identity".to_owned()))?;
    let accepted = within(shared.config.limits.request_timeout(), async {
        handshake::accept(tls.server(), tcp).await.map_err(|error| stranger(error.to_string()))
    });
    let (stream, certificates) = accepted.await?;
    let name = tls.peer_name(&certificates).ok_or_else(|| stranger("a proxy without a name".to_owned()))?;
    Ok(Known { stream: Box::new(stream), name })
}

impl Known {
    /// Waits until the proxy sends a request, and returns its first byte. `None`: it closed the connection, kept it ready
    /// for too long, or this listener closes.
    pub(crate) async fn first_byte(&mut self, closing: &CancellationToken) -> Option<u8> {
        let mut byte = [0];
        let read = timeout(KEPT_READY_MAX, self.stream.read(&mut byte));
        let read = tokio::select! {
            () = closing.cancelled() => return None,
            read = read => read,
        };
        matches!(read, Ok(Ok(1))).then_some(byte[0])
    }

    /// Reads the rest of the request, within the request timeout.
    pub(crate) async fn request(self, first: u8, request_timeout: Duration) -> Result<Opened, Refusal> {
        let Self { mut stream, name } = self;
        let first = [first];
        let mut bytes = (&first[..]).chain(&mut stream);
        let request = Request::read(&mut bytes);
        let request = within(request_timeout, async { request.await.map_err(|error| Refusal::of_read(&error)) });
        let request = request.await?;
        Ok(Opened { client: Conn::Tls(stream), request, prefix: Vec::new(), proxy: Some(name) })
    }
}

async fn within<T>(time: Duration, work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let late = || Refusal::new(Cause::TimedOut, "no request from a proxy");
    timeout(time, work).await.unwrap_or_else(|_elapsed| Err(late()))
}

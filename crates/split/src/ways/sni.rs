//! TLS clients that name their server (SNI, RFC 6066). The handshake is read without taking part in it, and passed on.
//!
//! A client can name any server, so the name decides only where the flow goes: the allow-list applies to it, and to the
//! addresses that it has. The destination itself verifies who the client is.

use crate::destination::Host;
use crate::limits::HELLO_BYTES_MAX;
use crate::refusal::{Cause, Refusal};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The server name in the start of a TLS connection. `None`: the start is not complete.
///
/// # Errors
/// It is not TLS, or names no server.
pub fn server_name(bytes: &[u8]) -> Result<Option<Host>, String> {
    let mut acceptor = Acceptor::default();
    let mut unread = bytes;
    while !unread.is_empty() {
        acceptor.read_tls(&mut unread).map_err(|error| error.to_string())?;
        let Some(accepted) = acceptor.accept().map_err(|(error, _alert)| error.to_string())? else { continue };
        let hello = accepted.client_hello();
        let name = hello.server_name().ok_or("the client names no server")?;
        return name.parse().map(Some);
    }
    Ok(None)
}

/// Reads up to the server name. Returns it with all that was read, which the destination gets first.
pub(super) async fn open(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Host, Vec<u8>), Refusal> {
    let mut bytes = Vec::with_capacity(HELLO_BYTES_MAX);
    loop {
        let malformed = |text| Refusal::new(Cause::Malformed, text);
        let room = HELLO_BYTES_MAX.saturating_sub(bytes.len()) as u64;
        let count = stream.take(room).read_buf(&mut bytes).await.map_err(|error| Refusal::of_read(&error))?;
        if let Some(host) = server_name(&bytes).map_err(malformed)? {
            return Ok((host, bytes));
        }
        if count == 0 {
            return Err(malformed("the handshake ends early or is too large".to_owned()));
        }
    }
}

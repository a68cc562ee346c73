//! TLS clients that name their server (SNI, RFC 6066). The handshake is read without taking part in it, and passed on.
//!
//! A client can name any server, so the name decides only where the flow goes: the allow-list applies to it, and to the
//! addresses that it has. The destination itself verifies who the client is.

use crate::destination::Host;
use crate::limits::HELLO_BYTES_MAX;
use crate::refusal::{Cause, Refusal};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The start of a TLS connection, as it arrives. Each byte is parsed once, however small the pieces are.
#[derive(Default)]
struct Start(Acceptor);

impl Start {
    /// Takes the next bytes. Returns the server name if the start is complete.
    fn push(&mut self, mut unread: &[u8]) -> Result<Option<Host>, String> {
        while !unread.is_empty() {
            self.0.read_tls(&mut unread).map_err(|error| error.to_string())?;
            let Some(accepted) = self.0.accept().map_err(|(error, _alert)| error.to_string())? else { continue };
            let hello = accepted.client_hello();
            let name = hello.server_name().ok_or("the client names no server")?;
            return name.parse().map(Some);
        }
        Ok(None)
    }
}

/// The server name in the start of a TLS connection. `None`: the start is not complete.
///
/// # Errors
/// It is not TLS, or names no server.
pub fn server_name(bytes: &[u8]) -> Result<Option<Host>, String> {
    Start::default().push(bytes)
}

/// Reads up to the server name. Returns it with all that was read, which the destination gets first.
pub(super) async fn open(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Host, Vec<u8>), Refusal> {
    let (mut bytes, mut start) = (Vec::with_capacity(HELLO_BYTES_MAX), Start::default());
    loop {
        let malformed = |text| Refusal::new(Cause::Malformed, text);
        let room = HELLO_BYTES_MAX.saturating_sub(bytes.len()) as u64;
        let count = stream.take(room).read_buf(&mut bytes).await.map_err(|error| Refusal::of_read(&error))?;
        if let Some(host) = start.push(&bytes[bytes.len() - count..]).map_err(malformed)? {
            return Ok((host, bytes));
        }
        if count == 0 {
            return Err(malformed("the handshake ends early or is too large".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Parsing all bytes again for each piece took 10 s of CPU time for the bytes of one connection.
    #[test]
    fn a_start_in_the_smallest_pieces_costs_little() {
        let mut bytes = b"\x16\x03\x01\x00\x04\x01\x00\xff\xff".to_vec();
        while bytes.len() < HELLO_BYTES_MAX {
            bytes.extend(b"\x16\x03\x01\x00\x01\x01");
        }
        let (mut start, began) = (Start::default(), Instant::now());
        for byte in &bytes {
            assert_eq!(start.push(&[*byte]), Ok(None));
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

//! Connections that a firewall on this machine redirected here (`nft … redirect`). The kernel knows where they went.

use crate::destination::Destination;
use crate::refusal::{Cause, Refusal};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// The destination that the client dialed.
pub(super) fn destination(tcp: &TcpStream) -> Result<Destination, Refusal> {
    let direct = |detail: String| Refusal::new(Cause::Malformed, format!("not redirected: {detail}"));
    let original = original(tcp).map_err(|error| direct(error.to_string()))?;
    let own = tcp.local_addr().map_err(|error| Refusal::of_read(&error))?;
    // Without a redirection, the proxy would dial itself, over and over.
    if own == original {
        return Err(direct(original.to_string()));
    }
    Destination::try_from(original.to_string()).map_err(direct)
}

#[cfg(target_os = "linux")]
fn original(tcp: &TcpStream) -> io::Result<SocketAddr> {
    let socket = socket2::SockRef::from(tcp);
    let address = if tcp.local_addr()?.is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() }?;
    address.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(not(target_os = "linux"))]
fn original(_tcp: &TcpStream) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

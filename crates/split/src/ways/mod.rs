//! The ways in: how a listener learns the destination of a connection, and how it answers the client.

pub mod connect;
pub(crate) mod hop;
pub mod sni;
pub mod socks5;
mod transparent;

use crate::config::{Listener, Way};
use crate::conn::Conn;
use crate::destination::Destination;
use crate::header::{self, Request};
use crate::proxy::Shared;
use crate::proxy_protocol;
use crate::refusal::{Cause, Refusal};
use crate::token::Tokens;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// Port of `sni`'s destinations, unless the configuration says otherwise.
const SNI_PORT: u16 = 443;

/// A client whose request was read.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) client: Conn,
    pub(crate) request: Request,
    /// Bytes of the flow that arrived with the request.
    pub(crate) prefix: Vec<u8>,
    /// The proxy that sent the request, if it is not from a client.
    pub(crate) proxy: Option<String>,
}

/// Reads a client's request, within the request timeout. A refused client has got its answer. Proxies are [`hop`]'s.
pub(crate) async fn open(
    shared: &Shared,
    listener: &Listener,
    tokens: Option<&Tokens>,
    tcp: TcpStream,
    peer: SocketAddr,
) -> Result<Opened, Refusal> {
    tokio::time::timeout(shared.config.limits.request_timeout(), open_client(shared, listener, tokens, tcp, peer))
        .await
        .unwrap_or_else(|_elapsed| Err(Refusal::new(Cause::TimedOut, format!("no request from {peer}"))))
}

async fn open_client(
    shared: &Shared,
    listener: &Listener,
    tokens: Option<&Tokens>,
    mut tcp: TcpStream,
    peer: SocketAddr,
) -> Result<Opened, Refusal> {
    let unreadable = |error: io::Error| Refusal::of_read(&error);
    let (mut client, mut entry) = (peer, tcp.local_addr().map_err(unreadable)?);
    if listener.proxy_protocol
        && let Some(ends) = proxy_protocol::read(&mut tcp).await.map_err(unreadable)?
    {
        (client, entry) = (ends.client, ends.entry);
    }
    let (mut destination, prefix) = destination(listener, tokens, &mut tcp).await?;
    if listener.way == Way::Transparent {
        destination = shared.config.named(destination);
    }
    let (route, within) = (shared.config.route(listener, &destination), shared.config.limits.dial_timeout());
    let within_ms = within.as_millis().try_into().unwrap_or(u32::MAX);
    let request = Request { destination, route, client, entry, within_ms };
    Ok(Opened { client: Conn::Plain(tcp), request, prefix, proxy: None })
}

/// The destination, and the bytes of the flow that were read with it.
async fn destination(
    listener: &Listener,
    tokens: Option<&Tokens>,
    tcp: &mut TcpStream,
) -> Result<(Destination, Vec<u8>), Refusal> {
    match listener.way {
        Way::Socks5 => Ok((socks5::open(tcp, tokens).await?, Vec::new())),
        Way::Connect => connect::open(tcp, tokens).await,
        Way::Sni => {
            let (host, prefix) = sni::open(tcp).await?;
            Ok((Destination { host, port: listener.port.unwrap_or(SNI_PORT) }, prefix))
        }
        Way::Transparent => Ok((transparent::destination(tcp)?, Vec::new())),
        Way::Forward | Way::Hop => {
            let no_destination = || Refusal::new(Cause::Route, "the listener has no destination");
            Ok((listener.destination.clone().ok_or_else(no_destination)?, Vec::new()))
        }
    }
}

/// True if a client learns from an answer that its flow is established. Without one, only bytes and the end of the connection
/// tell.
pub(crate) fn answers(way: Way) -> bool {
    match way {
        Way::Forward | Way::Sni | Way::Transparent => false,
        Way::Socks5 | Way::Connect | Way::Hop => true,
    }
}

/// Tells the client that its flow is established.
pub(crate) async fn accepted(way: Way, client: &mut Conn) -> io::Result<()> {
    match way {
        Way::Forward | Way::Sni | Way::Transparent => Ok(()),
        Way::Socks5 => socks5::answer(client, Ok(())).await,
        Way::Connect => connect::answer(client, Ok(())).await,
        Way::Hop => header::write_answer(client, Ok(())).await,
    }
}

/// Tells the client that its flow is refused: in its protocol where that has an answer, otherwise by a reset.
pub(crate) async fn refused(way: Way, mut client: Conn, cause: Cause) {
    // The client may be gone already; there is nobody else to tell.
    let _ = match way {
        Way::Forward | Way::Sni | Way::Transparent => return client.reset(),
        Way::Socks5 => socks5::answer(&mut client, Err(cause)).await,
        Way::Connect => connect::answer(&mut client, Err(cause)).await,
        Way::Hop => header::write_answer(&mut client, Err(cause)).await,
    };
}

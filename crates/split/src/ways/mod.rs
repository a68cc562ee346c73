//! The ways in: how a listener learns the destination of a connection, and how it answers the client.

mod hop;

use crate::config::{Listener, Way};
use crate::conn::Conn;
use crate::header::{self, Request};
use crate::proxy::Shared;
use crate::refusal::{Cause, Refusal};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;

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

/// Reads a client's request, within the request timeout.
pub(crate) async fn open(
    shared: &Shared,
    listener: &Listener,
    tcp: TcpStream,
    client: SocketAddr,
) -> Result<Opened, Refusal> {
    let opened = async {
        match listener.way {
            Way::Forward => forward(shared, listener, tcp, client),
            Way::Hop => hop::open(shared, tcp).await,
        }
    };
    tokio::time::timeout(shared.config.limits.request_timeout(), opened)
        .await
        .unwrap_or_else(|_elapsed| Err(Refusal::new(Cause::TimedOut, format!("no request from {client}"))))
}

fn forward(shared: &Shared, listener: &Listener, tcp: TcpStream, client: SocketAddr) -> Result<Opened, Refusal> {
    let entry = tcp.local_addr().map_err(|error| Refusal::of_read(&error))?;
    let no_destination = || Refusal::new(Cause::Route, "the listener has no destination");
    let destination = listener.destination.clone().ok_or_else(no_destination)?;
    let route = shared.config.route(&destination);
    let request = Request { destination, route, client, entry };
    Ok(Opened { client: Conn::Plain(tcp), request, prefix: Vec::new(), proxy: None })
}

/// Tells the client that its flow is established.
pub(crate) async fn accepted(way: Way, client: &mut Conn) -> io::Result<()> {
    match way {
        Way::Forward => Ok(()),
        Way::Hop => header::write_answer(client, Ok(())).await,
    }
}

/// Tells the client that its flow is refused: in its protocol where that has an answer, otherwise by a reset.
pub(crate) async fn refused(way: Way, mut client: Conn, cause: Cause) {
    match way {
        Way::Forward => client.reset(),
        // The peer may be gone already; there is nobody else to tell.
        Way::Hop => drop(header::write_answer(&mut client, Err(cause)).await),
    }
}

//! Connects to one gateway, whichever side opens the connection.

use super::fleet::{Fleet, Member, UNIX};
use crate::limits::REACH_TIMEOUT;
use crate::tls::{self, TlsError};
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A connection that carries HTTP to a gateway.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens a connection to a gateway, or takes an idle one. Waits up to [`REACH_TIMEOUT`], including for its enrolment.
///
/// # Errors
/// The gateway has not enrolled, cannot be reached, or is another one. The failure is recorded.
pub(super) async fn reach(fleet: &Fleet, member: &Member) -> Result<Box<dyn Stream>, TlsError> {
    let reached = tokio::time::timeout(REACH_TIMEOUT, open(fleet, member)).await;
    let reached = reached.unwrap_or_else(|_elapsed| Err(late(member)));
    match &reached {
        Ok(_) => member.heard(),
        Err(error) => member.failed("not reached", error),
    }
    reached
}

async fn open(fleet: &Fleet, member: &Member) -> Result<Box<dyn Stream>, TlsError> {
    let gone = || TlsError::Peer("it was removed".to_owned());
    member.expires_unix_s.subscribe().wait_for(Option::is_some).await.map_err(|_| gone())?;
    let socket = member.dial.borrow().as_deref().and_then(|dial| dial.strip_prefix(UNIX)).map(str::to_owned);
    if let Some(path) = socket {
        return Ok(Box::new(UnixStream::connect(path).await?));
    }
    if member.calls_home {
        return Ok(Box::new(member.calls.take().await.ok_or_else(gone)?));
    }
    let address = dialled_address(member).await.ok_or_else(gone)?;
    let tcp = TcpStream::connect(&address).await?;
    drop(tcp.set_nodelay(true));
    let stream = tls::connect(&fleet.identity, &member.name, tcp).await?;
    fleet.check_current(&member.name, stream.get_ref().1)?;
    Ok(Box::new(stream))
}

/// Returns the address of a gateway that the owner dials; waits until it is known.
pub(super) async fn dialled_address(member: &Member) -> Option<String> {
    member.dial.subscribe().wait_for(Option::is_some).await.ok()?.clone()
}

fn late(member: &Member) -> TlsError {
    let waits = match (member.expires_unix_s.borrow().is_some(), member.calls_home) {
        (false, _) => "it has not enrolled",
        (true, true) => "it has not called",
        (true, false) => "no answer in time",
    };
    TlsError::Io(io::Error::new(io::ErrorKind::TimedOut, waits))
}

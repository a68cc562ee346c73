//! The byte stream under a connection: TCP in production, in-memory pipes in the simulator.

use async_trait::async_trait;
use socket2::SockRef;
use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Congestion controls for connections inside this host, the best first. All kernels have the second.
///
/// Where BBR is the default and the queueing discipline `fq` is missing, TCP paces each connection with a timer. That
/// costs more CPU time than all else that TCP does, and between processes of one host it gains nothing.
const LOOPBACK_CONGESTION_CONTROLS: [&[u8]; 2] = [b"cubic", b"reno"];

/// The reading half of a [`Link`].
pub enum LinkReader {
    /// A half of a TCP connection.
    Tcp(OwnedReadHalf),
    /// A half of any other stream.
    Other(Box<dyn AsyncRead + Send + Unpin>),
}

/// The writing half of a [`Link`]. Dropping it ends the stream for the peer.
pub enum LinkWriter {
    /// A half of a TCP connection.
    Tcp(OwnedWriteHalf),
    /// A half of any other stream.
    Other(Box<dyn AsyncWrite + Send + Unpin>),
}

/// A byte stream in both directions.
pub struct Link {
    reader: LinkReader,
    writer: LinkWriter,
    peer: String,
}

impl Link {
    /// Joins two halves. `peer` is the address of the other end, for log lines.
    pub fn new(
        reader: Box<dyn AsyncRead + Send + Unpin>,
        writer: Box<dyn AsyncWrite + Send + Unpin>,
        peer: String,
    ) -> Self {
        Self { reader: LinkReader::Other(reader), writer: LinkWriter::Other(writer), peer }
    }

    /// Address of the other end.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Splits the link into its halves.
    pub fn into_halves(self) -> (LinkReader, LinkWriter) {
        (self.reader, self.writer)
    }
}

impl From<TcpStream> for Link {
    fn from(tcp: TcpStream) -> Self {
        // A socket without the option still works, but delays small frames.
        drop(tcp.set_nodelay(true));
        let peer = tcp.peer_addr().map(|address| address.to_string()).unwrap_or_default();
        let (reader, writer) = tcp.into_split();
        Self { reader: LinkReader::Tcp(reader), writer: LinkWriter::Tcp(writer), peer }
    }
}

impl LinkReader {
    /// Returns the socket, if the link is one.
    pub(super) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(half) => Some(half.as_ref()),
            Self::Other(_) => None,
        }
    }
}

impl LinkWriter {
    /// Returns the socket, if the link is one.
    pub(super) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(half) => Some(half.as_ref()),
            Self::Other(_) => None,
        }
    }

    /// As `write_vectored`, for bytes that others follow at once: TCP may wait for them before it sends a short packet.
    pub(super) async fn write_with_more(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        use tokio::io::AsyncWriteExt;
        match self {
            Self::Tcp(half) => {
                let tcp: &TcpStream = half.as_ref();
                let send = || SockRef::from(tcp).send_vectored_with_flags(bytes, libc::MSG_MORE);
                tcp.async_io(Interest::WRITABLE, send).await
            }
            Self::Other(other) => other.write_vectored(bytes).await,
        }
    }
}

impl AsyncRead for LinkReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_read(cx, buffer),
            Self::Other(other) => Pin::new(other).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for LinkWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_write(cx, bytes),
            Self::Other(other) => Pin::new(other).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_flush(cx),
            Self::Other(other) => Pin::new(other).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_shutdown(cx),
            Self::Other(other) => Pin::new(other).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_write_vectored(cx, bytes),
            Self::Other(other) => Pin::new(other).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(half) => half.is_write_vectored(),
            Self::Other(other) => other.is_write_vectored(),
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.writer.is_write_vectored()
    }
}

/// Opens links to other gateways.
#[async_trait]
pub trait Network: Debug + Send + Sync {
    /// Connects to the data port at `address` (`ip:port`). The caller must limit the time.
    ///
    /// # Errors
    /// Nobody answers at that address.
    async fn connect(&self, address: &str) -> io::Result<Link>;
}

/// A data port.
#[async_trait]
pub trait DataPort: Send + Sync {
    /// Returns the next link that another gateway opened. Cancel-safe.
    ///
    /// # Errors
    /// The system refused the link; the next one may succeed.
    async fn accept(&self) -> io::Result<Link>;
}

/// The network of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

#[async_trait]
impl Network for Tcp {
    async fn connect(&self, address: &str) -> io::Result<Link> {
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in tokio::net::lookup_host(address).await? {
            match connect_to(address).await {
                Ok(tcp) => return Ok(tcp.into()),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    never_pace_loopback(SockRef::from(&socket), address.ip());
    socket.connect(address).await
}

/// Chooses the congestion control of a socket whose other end is at `ip`, if that is in this host. The kernel begins to
/// pace when a connection is made, and does not stop, so call this before connecting.
pub(crate) fn never_pace_loopback(socket: SockRef<'_>, ip: IpAddr) {
    if ip.is_loopback() {
        // With none of them, the default remains, which also works.
        let _ = LOOPBACK_CONGESTION_CONTROLS.iter().any(|name| socket.set_tcp_congestion(name).is_ok());
    }
}

#[async_trait]
impl DataPort for TcpListener {
    async fn accept(&self) -> io::Result<Link> {
        Ok(TcpListener::accept(self).await?.0.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_inside_this_host_are_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        never_pace_loopback(SockRef::from(&listener), IpAddr::from([127, 0, 0, 1]));
        let address = listener.local_addr().unwrap().to_string();
        let (connected, accepted) = tokio::join!(Tcp.connect(&address), listener.accept());
        let (connected, _) = connected.unwrap().into_halves();
        for tcp in [connected.tcp().unwrap(), &accepted.unwrap().0] {
            let name = SockRef::from(tcp).tcp_congestion().unwrap();
            let name = name.split(|byte| *byte == 0).next().unwrap();
            assert!(LOOPBACK_CONGESTION_CONTROLS.contains(&name), "{name:?}");
        }
    }
}

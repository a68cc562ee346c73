//! The byte stream under a connection: TCP in production, in-memory pipes in the simulator.

use async_trait::async_trait;
use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The reading half of a [`Link`].
pub type LinkReader = Box<dyn AsyncRead + Send + Unpin>;
/// The writing half of a [`Link`]. Dropping it ends the stream for the peer.
pub type LinkWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// A byte stream in both directions. The halves are trait objects: one virtual call per system call of up to 512 KiB.
pub struct Link {
    reader: LinkReader,
    writer: LinkWriter,
    peer: String,
}

impl Link {
    /// Joins two halves. `peer` is the address of the other end, for log lines.
    pub fn new(reader: LinkReader, writer: LinkWriter, peer: String) -> Self {
        Self { reader, writer, peer }
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
        Self::new(Box::new(reader), Box::new(writer), peer)
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
        Ok(TcpStream::connect(address).await?.into())
    }
}

#[async_trait]
impl DataPort for TcpListener {
    async fn accept(&self) -> io::Result<Link> {
        Ok(TcpListener::accept(self).await?.0.into())
    }
}

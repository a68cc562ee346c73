//! One connection: plain TCP or TLS, with the options of its socket.

use crate::limits::{KEEPALIVE_INTERVAL, KEEPALIVE_RETRIES, KEEPALIVE_TIME, NOTSENT_LOWAT_BYTES};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A connection to a client, a proxy or a destination.
#[derive(Debug)]
pub(crate) enum Conn {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Conn {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Resets the connection instead of closing it.
    pub(crate) fn reset(self) {
        self.reset_when_dropped(true);
    }

    /// Lets the kernel send a reset, or an orderly end, when this connection is dropped, even if the whole process is
    /// killed.
    pub(crate) fn reset_when_dropped(&self, reset: bool) {
        // If this fails, the socket is already closed.
        let _ = SockRef::from(self.tcp()).set_linger(reset.then_some(Duration::ZERO));
    }
}

/// Sets the options that every connection has. Buffer sizes are left to the kernel, which tunes them.
pub(crate) fn set_options(tcp: &TcpStream, congestion_control: Option<&str>) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    socket.set_tcp_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES)?;
        if let Some(name) = congestion_control
            && let Err(error) = socket.set_tcp_congestion(name.as_bytes())
        {
            tracing::debug!(%error, name, "the congestion control stays the default");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (congestion_control, NOTSENT_LOWAT_BYTES);
    Ok(())
}

impl AsyncRead for Conn {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Conn {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

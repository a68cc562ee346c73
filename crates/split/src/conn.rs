//! One connection: plain TCP or TLS, with the options of its socket.

use crate::buffers::take_buffer;
use crate::limits::{
    KEEPALIVE_INTERVAL, KEEPALIVE_RETRIES, KEEPALIVE_TIME, NOTSENT_LOWAT_BYTES, PLAIN_READ_BYTES, RELAY_BUFFER_BYTES,
};
use crate::pending::{Filled, Pending};
use crate::sealed::Sealed;
#[cfg(target_os = "linux")]
use rustix::ioctl::{Getter, Opcode, ioctl};
#[cfg(target_os = "linux")]
use rustix::net::{SendFlags, send};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
#[cfg(target_os = "linux")]
use std::task::ready;
use std::task::{Context, Poll};
use std::time::Duration;
#[cfg(target_os = "linux")]
use tokio::io::Interest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most parts of a buffer that are written at once.
const PARTS_PER_WRITE: usize = 16;

/// A connection to a client, a proxy or a destination.
#[derive(Debug)]
pub(crate) enum Conn {
    Plain(TcpStream),
    Tls(Box<Sealed>),
}

impl Conn {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.tcp(),
        }
    }

    /// Most bytes of one read.
    pub(crate) fn read_bytes_max(&self) -> usize {
        match self {
            Self::Plain(_) => PLAIN_READ_BYTES,
            Self::Tls(_) => RELAY_BUFFER_BYTES,
        }
    }

    /// Reads what is there, about `most` bytes, and the end if it is there, too: then both can be passed on in one packet.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Filled> {
        match self {
            Self::Plain(tcp) => poll_fill_plain(tcp, cx, most),
            Self::Tls(tls) => tls.poll_fill(cx, most),
        }
    }

    /// Bytes that were read and cannot be opened yet.
    pub(crate) fn partial_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(tls) => tls.partial_bytes(),
        }
    }

    /// True if TLS has sealed bytes that wait for the kernel.
    pub(crate) fn has_sealed(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.has_sealed(),
        }
    }

    /// True if dropping it ends it as `poll_shutdown` does.
    pub(crate) fn ends_when_dropped(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Lets the kernel ask a silent peer whether it is still there.
    pub(crate) fn keep_alive(&self) {
        // If this fails, the socket is already closed.
        let _ = set_keepalive(self.tcp());
    }

    /// True if the peer has reset it, or no longer answers keepalive probes. Such an error is reported once.
    pub(crate) fn is_broken(&self) -> bool {
        !matches!(SockRef::from(self.tcp()).take_error(), Ok(None))
    }

    /// True if the peer has not acknowledged all bytes yet, and their end if it was sent.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        unacknowledged_bytes(self.tcp()) > 0
    }

    /// Resets the connection instead of closing it.
    pub(crate) fn reset(self) {
        self.reset_when_dropped(true);
    }

    /// Writes the first bytes that wait. `last`: `poll_shutdown` follows them, so the kernel may send both in one packet.
    pub(crate) fn poll_write_pending(
        &mut self,
        cx: &mut Context<'_>,
        pending: &Pending,
        last: bool,
    ) -> Poll<io::Result<usize>> {
        if last && let Some(bytes) = pending.slices().next() {
            return self.poll_write_last(cx, bytes);
        }
        let mut slices = [IoSlice::new(&[]); PARTS_PER_WRITE];
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(pending.slices()) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, &slices[..count]),
            Self::Tls(tls) => tls.poll_write_slices(cx, &slices[..count]),
        }
    }

    /// As `poll_write`, of the last bytes before `poll_shutdown`.
    fn poll_write_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        #[cfg(target_os = "linux")]
        if let Self::Plain(tcp) = self {
            loop {
                ready!(tcp.poll_write_ready(cx))?;
                let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
                let written = tcp.try_io(Interest::WRITABLE, || Ok(send(&*tcp, bytes, flags)?));
                match written {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return Poll::Ready(written),
                }
            }
        }
        Pin::new(self).poll_write(cx, bytes)
    }

    /// Lets the kernel send a reset, or an orderly end, when this connection is dropped, even if the whole process is
    /// killed.
    pub(crate) fn reset_when_dropped(&self, reset: bool) {
        reset_when_dropped(self.tcp(), reset);
    }
}

fn poll_fill_plain(tcp: &mut TcpStream, cx: &mut Context<'_>, most: usize) -> Poll<Filled> {
    let mut buffer = take_buffer(most);
    let mut room = ReadBuf::new(&mut buffer[..most]);
    let end = loop {
        let before = room.filled().len();
        match Pin::new(&mut *tcp).poll_read(cx, &mut room) {
            Poll::Ready(Ok(())) if room.filled().len() == before => break Some(Ok(())),
            Poll::Ready(Ok(())) if room.remaining() == 0 => break None,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => break Some(Err(error)),
            Poll::Pending => break None,
        }
    };
    let filled = room.filled().len();
    let data = Pending::start_of(buffer, filled);
    match (&data, &end) {
        (None, None) => Poll::Pending,
        _ => Poll::Ready(Filled { data, end }),
    }
}

/// The bytes that the kernel holds until the peer acknowledges them; an end counts as one.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe wrapper asks for the length of a send queue")]
fn unacknowledged_bytes(tcp: &TcpStream) -> i32 {
    /// `SIOCOUTQ` of `tcp(7)`.
    const SEND_QUEUE: Opcode = 0x5411;
    // SAFETY: this request writes one `int`, and changes nothing.
    let bytes = unsafe { ioctl(tcp, Getter::<SEND_QUEUE, i32>::new()) };
    // If this fails, the socket is already closed.
    bytes.unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn unacknowledged_bytes(_tcp: &TcpStream) -> i32 {
    0
}

/// See [`Conn::reset_when_dropped`].
pub(crate) fn reset_when_dropped(tcp: &TcpStream, reset: bool) {
    // If this fails, the socket is already closed.
    let _ = SockRef::from(tcp).set_linger(reset.then_some(Duration::ZERO));
}

/// True if an accepted connection has the options of its listener.
const INHERITS: bool = cfg!(target_os = "linux");

/// Sets the options that every connection has, on a connection or on a listener, from which its connections inherit them.
/// Buffer sizes are left to the kernel, which tunes them.
pub(crate) fn set_options<S: AsFd>(socket: &S) -> io::Result<()> {
    set_options_from_start(socket)?;
    set_keepalive(socket)
}

fn set_keepalive<S: AsFd>(socket: &S) -> io::Result<()> {
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

fn set_options_from_start<S: AsFd>(socket: &S) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES)?;
    #[cfg(not(target_os = "linux"))]
    let _ = NOTSENT_LOWAT_BYTES;
    Ok(())
}

/// Sets the options of a connection from `peer` that was accepted from a listener with [`set_options`].
pub(crate) fn set_accepted_options(tcp: &TcpStream, peer: IpAddr, congestion_control: Option<&str>) -> io::Result<()> {
    if !INHERITS {
        set_options(tcp)?;
    }
    set_congestion_control(tcp, peer, congestion_control);
    Ok(())
}

/// Sets the options of a connection that was dialed to `peer`. Those of keepalive take four system calls, so a flow sets them when it
/// is no longer short ([`Conn::keep_alive`]).
pub(crate) fn set_dialed_options(tcp: &TcpStream, peer: IpAddr, congestion_control: Option<&str>) -> io::Result<()> {
    set_options_from_start(tcp)?;
    set_congestion_control(tcp, peer, congestion_control);
    Ok(())
}

/// Connections within this machine keep the default: there is nothing to gain, and bbr would pace them, which takes CPU time.
#[cfg(target_os = "linux")]
fn set_congestion_control(tcp: &TcpStream, peer: IpAddr, wanted: Option<&str>) {
    if let Some(name) = wanted
        && !peer.to_canonical().is_loopback()
        && let Err(error) = SockRef::from(tcp).set_tcp_congestion(name.as_bytes())
    {
        tracing::debug!(%error, name, "the congestion control stays the default");
    }
}

#[cfg(not(target_os = "linux"))]
fn set_congestion_control(_tcp: &TcpStream, _peer: IpAddr, _wanted: Option<&str>) {}

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

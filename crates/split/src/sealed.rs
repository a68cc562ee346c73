//! A connection to another proxy: TCP that carries TLS records.
//!
//! A read fills one large buffer, in which records are opened in place, and the relay writes their data from there. The
//! buffer is held only while bytes move: an idle connection keeps at most the start of one record.

use crate::buffers::take_buffer;
use crate::limits::{RELAY_BUFFER_BYTES, TLS_BUFFER_BYTES};
use crate::pending::{Filled, Pending};
use crate::records::{Fault, RECORD_BYTES_MAX, Records};
use socket2::SockRef;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most records that one system call writes.
const RECORDS_PER_WRITE: usize = 16;
/// Bytes that are read to find out whether a connection without traffic is alive.
const ALIVE_READ_BYTES: usize = 4 << 10;

/// Sealed records that wait for the kernel.
#[derive(Debug, Default)]
struct Waiting {
    records: VecDeque<Vec<u8>>,
    /// Bytes of the first record that the kernel has.
    written: usize,
}

impl Waiting {
    fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        while let Some(first) = self.records.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            self.records.pop_front();
        }
    }

    /// Hands the records to the kernel.
    fn poll_write(&mut self, cx: &mut Context<'_>, tcp: &mut TcpStream) -> Poll<io::Result<()>> {
        while !self.records.is_empty() {
            let mut slices = [IoSlice::new(&[]); RECORDS_PER_WRITE];
            let mut skip = self.written;
            for (slice, record) in slices.iter_mut().zip(&self.records) {
                *slice = IoSlice::new(&record[std::mem::take(&mut skip)..]);
            }
            let count = self.records.len().min(RECORDS_PER_WRITE);
            match ready!(Pin::new(&mut *tcp).poll_write_vectored(cx, &slices[..count]))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => self.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// A connection to another proxy.
pub(crate) struct Sealed {
    tcp: TcpStream,
    records: Records,
    waiting: Waiting,
    /// The start of a record whose end has not arrived.
    partial: Vec<u8>,
    /// Data that nobody has taken yet.
    opened: Option<Pending>,
    /// Why nothing more is read.
    ended: Option<io::Result<()>>,
    sent_close: bool,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

impl Sealed {
    /// A connection whose handshake is over. `received` are the bytes that came with its end.
    ///
    /// # Errors
    /// The bytes are not what may follow.
    pub(crate) fn new(tcp: TcpStream, mut records: Records, mut received: Vec<u8>) -> Result<Self, Fault> {
        let (mut parts, mut data) = (Vec::new(), Vec::new());
        let opened = records.open(&mut received, &mut parts)?;
        parts.into_iter().for_each(|part| data.extend_from_slice(&received[part]));
        let (partial, opened) = (received[opened..].to_vec(), Pending::all(data));
        let (waiting, ended) = (Waiting::default(), records.is_closed().then_some(Ok(())));
        Ok(Self { tcp, records, waiting, partial, opened, ended, sent_close: false })
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Bytes that were read and cannot be opened yet.
    pub(crate) fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    /// True if sealed bytes wait for the kernel.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.waiting.records.is_empty()
    }

    /// Reads about `most` bytes, and at least one record.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Filled> {
        let most = most.clamp(RECORD_BYTES_MAX, RELAY_BUFFER_BYTES);
        while self.opened.is_none() && self.ended.is_none() {
            if let Err(error) = ready!(self.tcp.poll_read_ready(cx)) {
                self.ended = Some(Err(error));
                break;
            }
            let mut buffer = take_buffer(most);
            let (filled, ended) = self.read_more(cx, &mut buffer[..most]);
            self.open(cx, buffer, filled);
            self.ended = self.ended.take().or(ended.map(Err));
        }
        let end = match &mut self.ended {
            Some(Err(error)) => Some(Err(std::mem::replace(error, ErrorKind::ConnectionAborted.into()))),
            Some(Ok(())) => Some(Ok(())),
            None => None,
        };
        Poll::Ready(Filled { data: self.opened.take(), end })
    }

    /// Opens the records in a buffer.
    fn open(&mut self, cx: &mut Context<'_>, mut buffer: Box<[u8]>, filled: usize) {
        let mut parts = Vec::new();
        match self.records.open(&mut buffer[..filled], &mut parts) {
            Ok(opened) => self.partial = buffer[opened..filled].to_vec(),
            Err(fault) => self.ended = Some(Err(self.refuse(cx, &fault))),
        }
        if self.records.is_closed() {
            self.ended = Some(Ok(()));
        }
        let opened = Pending::new(buffer, parts);
        self.opened = Some(opened).filter(|opened| !opened.is_empty());
    }

    /// Reads after the partial record. Returns the bytes in the buffer, and why there will be no more.
    fn read_more(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
        let mut filled = self.partial.len();
        buffer[..filled].copy_from_slice(&self.partial);
        while filled < buffer.len() {
            let mut room = ReadBuf::new(&mut buffer[filled..]);
            match Pin::new(&mut self.tcp).poll_read(cx, &mut room) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return (filled, Some(error)),
                Poll::Ready(Ok(())) if room.filled().is_empty() => return (filled, Some(truncated())),
                Poll::Ready(Ok(())) => filled += room.filled().len(),
            }
        }
        (filled, None)
    }

    /// Tells the peer why this side ends the connection, if the kernel takes it at once.
    fn refuse(&mut self, cx: &mut Context<'_>, fault: &Fault) -> io::Error {
        if let Some(Ok(alert)) = fault.alert().map(|alert| self.records.seal_fatal(alert)) {
            self.waiting.records.push_back(alert);
            let _ = self.waiting.poll_write(cx, &mut self.tcp);
        }
        self.sent_close = true;
        io::Error::new(ErrorKind::InvalidData, fault.to_string())
    }

    /// Seals bytes of `slices`, and returns how many.
    pub(crate) fn poll_write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.sent_close {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        ready!(self.waiting.poll_write(cx, &mut self.tcp))?;
        let (mut taken, mut room) = (0, TLS_BUFFER_BYTES);
        for slice in slices {
            let data = &slice[..slice.len().min(room)];
            self.records.seal(data, |record| self.waiting.records.push_back(record)).map_err(io::Error::other)?;
            taken += data.len();
            room -= data.len();
        }
        if let Poll::Ready(written) = self.waiting.poll_write(cx, &mut self.tcp) {
            written?;
        }
        Poll::Ready(Ok(taken))
    }

    /// True if the peer has neither closed it nor sent data. Asks the kernel, because Tokio may learn later of an end.
    pub(crate) fn is_alive(&mut self) -> bool {
        let mut bytes = [0; ALIVE_READ_BYTES];
        while self.opened.is_none() && self.ended.is_none() {
            match (&*SockRef::from(&self.tcp)).read(&mut bytes) {
                Ok(0) => return false,
                Ok(read) => {
                    self.partial.extend_from_slice(&bytes[..read]);
                    let mut parts = Vec::new();
                    match self.records.open(&mut self.partial, &mut parts) {
                        Ok(opened) if parts.is_empty() && !self.records.is_closed() => {
                            self.partial.drain(..opened);
                        }
                        _ended => return false,
                    }
                }
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        false
    }
}

fn truncated() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the connection ended without the close of TLS")
}

impl AsyncRead for Sealed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Filled { data, end } = ready!(self.poll_fill(cx, RECORD_BYTES_MAX));
        let Some(mut opened) = data else { return Poll::Ready(end.unwrap_or(Ok(()))) };
        if let Some(Err(error)) = end {
            self.ended = Some(Err(error));
        }
        let bytes = opened.slices().next().unwrap_or_default();
        let taken = bytes.len().min(buf.remaining());
        buf.put_slice(&bytes[..taken]);
        opened.advance(taken);
        self.opened = Some(opened).filter(|opened| !opened.is_empty());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sealed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { waiting, tcp, .. } = &mut *self;
        waiting.poll_write(cx, tcp)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.sent_close {
            let close = self.records.seal_close().map_err(io::Error::other)?;
            self.waiting.records.push_back(close);
            self.sent_close = true;
        }
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;

//! The two halves of a connection, secured by TLS or plain.
//!
//! Over TLS, only control frames are in records. The payload of a `Data` frame is already sealed, so it is sent as it
//! is, after the record that ends with the frame's header. The header has its length, and is protected by the record.

use super::link::{LinkReader, LinkWriter};
use super::record::{Opener, RECORD_PLAIN_BYTES_MAX, RECORD_WIRE_BYTES_MAX, Sealer};
use super::splice::Pipe;
use bytes::{Buf, BufMut, BytesMut};
use std::io::{self, IoSlice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tradewind_wire::frame::{DATA_BYTES_MAX, HEADER_BYTES};

/// Length of the longest `Data` frame, with the record that has its header.
const DATA_WIRE_BYTES_MAX: usize = Sealer::wire_bytes(HEADER_BYTES) + DATA_BYTES_MAX;
/// Size of buffers for bodies: two of the longest `Data` frames, and some control frames. A buffer stays allocated as
/// long as any piece of a chunk in it is in use.
const READ_BUFFER_BYTES: usize = 2 * DATA_WIRE_BYTES_MAX + (4 << 10);
/// Size of buffers of connections on which no body has come.
const CONTROL_BUFFER_BYTES: usize = 2 * RECORD_WIRE_BYTES_MAX;
/// Inside of a frame, a buffer with less room than this is replaced (or reclaimed if no piece of it is in use).
const READ_ROOM_BYTES_MIN: usize = 64 << 10;
/// Most bytes that a relay reads outside of a frame: a head and a header. It must copy those of a body that it reads.
const SPLICING_READ_BYTES_MAX: usize = 4 << 10;
/// Shorter remainders of a frame are copied, which costs less than two further system calls.
const SPLICE_BYTES_MIN: usize = 32 << 10;
/// Most records collected before they are written to the socket.
const WRITE_BUFFER_BYTES: usize = 256 << 10;

/// The reading half.
pub(super) struct ReadSide {
    socket: LinkReader,
    /// Opens the records; `None` if the connection is plain.
    opener: Option<Opener>,
    /// Bytes from the socket that nobody has taken yet: records, and bodies between them.
    arrived: BytesMut,
    carries_bodies: bool,
    is_closed: bool,
    /// Where bodies pass on their way to another socket; `None` if they are read.
    pipe: Option<Pipe>,
    /// False once the kernel has refused a pipe for this connection, so that not every body asks it again.
    may_splice: bool,
}

impl ReadSide {
    pub(super) fn new(socket: LinkReader, opener: Option<Opener>) -> Self {
        let may_splice = socket.tcp().is_some();
        Self {
            socket,
            opener,
            arrived: BytesMut::new(),
            carries_bodies: false,
            is_closed: false,
            pipe: None,
            may_splice,
        }
    }

    /// Returns whether control frames are in records.
    pub(super) fn is_secure(&self) -> bool {
        self.opener.is_some()
    }

    /// Appends control frames, at least one byte, to `plain`; returns false at the end of the stream. On a plain
    /// connection bytes of a body may follow them. Cancel-safe: bytes already read stay in the buffers.
    pub(super) async fn control(&mut self, plain: &mut BytesMut) -> io::Result<bool> {
        let before = plain.len();
        while plain.len() == before && !self.is_closed {
            let taken = match &mut self.opener {
                Some(opener) => {
                    let opened = opener.open_next(&self.arrived, plain)?;
                    self.arrived.advance(opened.consumed);
                    self.is_closed = opened.closed;
                    opened.consumed
                }
                None => {
                    let all = self.arrived.split();
                    let length = all.len();
                    plain.unsplit(all);
                    length
                }
            };
            if taken == 0 && !self.read(0).await? {
                return Ok(false);
            }
        }
        Ok(plain.len() > before)
    }

    /// Returns the next bytes of a body, at least one and at most `bytes_left`, which the current `Data` frame still
    /// lacks; `None` at the end of the stream. Cancel-safe.
    pub(super) async fn body(&mut self, bytes_left: usize) -> io::Result<Option<BytesMut>> {
        self.carries_bodies = true;
        if self.arrived.is_empty() && !self.read(bytes_left).await? {
            return Ok(None);
        }
        Ok(Some(self.arrived.split_to(bytes_left.min(self.arrived.len()))))
    }

    /// Lets bodies pass through a pipe from now on, if this is a socket and there is a pipe.
    pub(super) fn begin_splicing(&mut self) {
        let has_pipe = self.pipe.as_ref().is_some_and(|pipe| pipe.held() == 0);
        if self.may_splice && !has_pipe {
            self.pipe = Pipe::new().ok();
            self.may_splice = self.pipe.is_some();
        }
    }

    /// Reads bodies from now on. Bytes in the pipe are lost.
    pub(super) fn end_splicing(&mut self) {
        self.pipe = None;
    }

    /// Returns the pipe, if bodies pass through one.
    pub(super) fn pipe(&mut self) -> Option<&mut Pipe> {
        self.pipe.as_mut()
    }

    /// Moves the next bytes of a body into the pipe, if that is the way for the `bytes_left` that the current `Data`
    /// frame still lacks. Returns how many, 0 at the end of the stream; `None` if they must be read. Cancel-safe.
    pub(super) async fn splice(&mut self, bytes_left: usize) -> io::Result<Option<usize>> {
        let moved = match (&mut self.pipe, self.socket.tcp()) {
            (Some(pipe), Some(tcp)) if self.arrived.is_empty() && bytes_left >= SPLICE_BYTES_MIN => {
                pipe.fill(tcp, bytes_left).await
            }
            _ => return Ok(None),
        };
        match moved {
            // This kernel cannot do it.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                self.may_splice = false;
                self.end_splicing();
                Ok(None)
            }
            moved => moved.map(Some),
        }
    }

    /// Reads from the socket; returns false at the end of the stream. `frame_bytes` is what the current `Data` frame
    /// lacks, 0 outside of one.
    ///
    /// A frame whose beginning is in a buffer should end there, because a sink must copy a segment that continues in
    /// another buffer. So whole frames are read.
    async fn read(&mut self, frame_bytes: usize) -> io::Result<bool> {
        let room = self.make_room(frame_bytes);
        let frames = room.saturating_sub(frame_bytes) / DATA_WIRE_BYTES_MAX * DATA_WIRE_BYTES_MAX;
        let limit = match frame_bytes + frames {
            _ if self.pipe.is_some() => (frame_bytes + SPLICING_READ_BYTES_MAX).min(room),
            0 => room,
            whole => whole.min(room),
        };
        Ok(self.socket.read_buf(&mut (&mut self.arrived).limit(limit)).await? > 0)
    }

    /// Returns the room in the buffer, which is replaced if it has too little.
    fn make_room(&mut self, frame_bytes: usize) -> usize {
        let (size, room_min) = match (self.carries_bodies && self.pipe.is_none(), frame_bytes) {
            (false, _) => (CONTROL_BUFFER_BYTES, RECORD_WIRE_BYTES_MAX),
            (true, 0) => (READ_BUFFER_BYTES, DATA_WIRE_BYTES_MAX),
            (true, _) => (READ_BUFFER_BYTES, frame_bytes.min(READ_ROOM_BYTES_MIN)),
        };
        let arrived = &mut self.arrived;
        let length = arrived.len();
        // A buffer that nobody uses any more is filled from its beginning, because that is still in the cache.
        let is_reclaimed = arrived.try_reclaim(size.saturating_sub(length));
        if !is_reclaimed && arrived.capacity() - length < room_min {
            let mut fresh = BytesMut::with_capacity(size);
            fresh.extend_from_slice(arrived);
            *arrived = fresh;
        }
        arrived.capacity() - length
    }
}

/// The writing half.
pub(super) struct WriteSide {
    socket: LinkWriter,
    sealer: Option<(Sealer, Vec<u8>)>,
}

impl WriteSide {
    pub(super) fn new(socket: LinkWriter, sealer: Option<Sealer>) -> Self {
        Self { socket, sealer: sealer.map(|sealer| (sealer, Vec::new())) }
    }

    /// Returns whether this side should begin no further request (its keys are near their limit).
    pub(super) fn is_worn(&self) -> bool {
        self.sealer.as_ref().is_some_and(|(sealer, _)| sealer.is_worn())
    }

    /// Writes control frames, and the payload of the `Data` frame whose header ends them. Not cancel-safe: a connection
    /// whose write was dropped must be closed. With `more`, further bytes of the frame follow at once.
    pub(super) async fn write_all(&mut self, control: &[u8], body: &[u8], more: bool) -> io::Result<()> {
        let Some((sealer, wire)) = &mut self.sealer else {
            return write_both(&mut self.socket, control, body, more).await;
        };
        wire.clear();
        for record in control.chunks(RECORD_PLAIN_BYTES_MAX) {
            if wire.len() + Sealer::wire_bytes(record.len()) > WRITE_BUFFER_BYTES {
                self.socket.write_all(wire).await?;
                wire.clear();
            }
            let (start, length) = (wire.len(), Sealer::wire_bytes(record.len()));
            wire.resize(start + length, 0);
            sealer.seal(record, &mut wire[start..])?;
        }
        write_both(&mut self.socket, wire, body, more).await
    }

    /// Returns whether this is a socket, to which bytes of a pipe can be moved.
    pub(super) fn splices(&self) -> bool {
        self.socket.tcp().is_some()
    }

    /// As [`WriteSide::write_all`], with the bytes of a pipe as the payload.
    pub(super) async fn write_pipe(&mut self, control: &[u8], pipe: &mut Pipe, more: bool) -> io::Result<()> {
        if !control.is_empty() {
            self.write_all(control, &[], true).await?;
        }
        match self.socket.tcp() {
            Some(tcp) => pipe.drain(tcp, more).await,
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

async fn write_both(socket: &mut LinkWriter, mut head: &[u8], mut body: &[u8], more: bool) -> io::Result<()> {
    while !head.is_empty() || !body.is_empty() {
        let both = [IoSlice::new(head), IoSlice::new(body)];
        let written = if more { socket.write_with_more(&both).await? } else { socket.write_vectored(&both).await? };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let of_head = written.min(head.len());
        head = &head[of_head..];
        body = &body[written - of_head..];
    }
    Ok(())
}

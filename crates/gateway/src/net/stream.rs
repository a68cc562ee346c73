//! The two halves of a connection, secured by TLS or plain.
//!
//! Over TLS, only control frames are in records. The payload of a `Data` frame is already sealed, so it is sent as it
//! is, after the record that ends with the frame's header. The header has its length, and is protected by the record.

use super::link::{LinkReader, LinkWriter};
use super::record::{Opener, RECORD_PLAIN_BYTES_MAX, RECORD_WIRE_BYTES_MAX, Sealer};
use bytes::{BufMut, BytesMut};
use std::io::{self, IoSlice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Size of buffers for bodies. A buffer stays allocated as long as any piece of a chunk in it is in use.
const READ_BUFFER_BYTES: usize = 512 << 10;
/// A buffer with less room than this is replaced (or reclaimed if no piece of it is in use).
const READ_ROOM_BYTES_MIN: usize = 64 << 10;
/// Most records read from the socket at once. Bytes of a body that come with them are copied once more.
const RECORDS_BUFFER_BYTES: usize = 2 * RECORD_WIRE_BYTES_MAX;
/// Most records collected before they are written to the socket.
const WRITE_BUFFER_BYTES: usize = 256 << 10;

/// The reading half.
pub(super) struct ReadSide {
    socket: LinkReader,
    records: Option<Records>,
}

/// Records that have arrived but are not decrypted yet.
struct Records {
    opener: Opener,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    is_closed: bool,
}

impl ReadSide {
    pub(super) fn new(socket: LinkReader, opener: Option<Opener>) -> Self {
        let records = opener.map(|opener| Records {
            opener,
            bytes: vec![0; RECORDS_BUFFER_BYTES],
            start: 0,
            end: 0,
            is_closed: false,
        });
        Self { socket, records }
    }

    /// Returns whether control frames are in records.
    pub(super) fn is_secure(&self) -> bool {
        self.records.is_some()
    }

    /// Appends arrived data, at least one byte, to `plain`; returns false at the end of the stream. `body_bytes` is the
    /// number of bytes that the current `Data` frame still lacks, 0 outside such a frame. Cancel-safe: bytes already
    /// read stay in the buffers.
    pub(super) async fn fill(&mut self, plain: &mut BytesMut, body_bytes: usize) -> io::Result<bool> {
        match &mut self.records {
            None => {
                reserve(plain, READ_BUFFER_BYTES);
                Ok(self.socket.read_buf(plain).await? > 0)
            }
            Some(records) if body_bytes == 0 => records.next(&mut self.socket, plain).await,
            Some(records) => {
                let here = records.take(body_bytes);
                if !here.is_empty() {
                    reserve(plain, body_bytes);
                    plain.extend_from_slice(here);
                    return Ok(true);
                }
                reserve(plain, body_bytes);
                Ok(self.socket.read_buf(&mut plain.limit(body_bytes)).await? > 0)
            }
        }
    }
}

/// Makes room for `bytes`, or for as much as is worth a read.
fn reserve(plain: &mut BytesMut, bytes: usize) {
    let room = plain.capacity() - plain.len();
    if room < bytes.min(READ_ROOM_BYTES_MIN) {
        plain.reserve(if bytes < READ_ROOM_BYTES_MIN { bytes } else { READ_BUFFER_BYTES });
    }
}

impl Records {
    /// Appends the content of the next record to `plain`. Returns false if the peer has closed the connection.
    async fn next(&mut self, socket: &mut LinkReader, plain: &mut BytesMut) -> io::Result<bool> {
        let before = plain.len();
        while plain.len() == before && !self.is_closed {
            let opened = self.opener.open_next(&self.bytes[self.start..self.end], plain)?;
            self.start += opened.consumed;
            self.is_closed = opened.closed;
            if opened.consumed == 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                let read = socket.read(&mut self.bytes[self.end..]).await?;
                if read == 0 {
                    return Ok(false);
                }
                self.end += read;
            }
        }
        Ok(plain.len() > before)
    }

    /// Removes and returns up to `body_bytes` that arrived after the last record.
    fn take(&mut self, body_bytes: usize) -> &[u8] {
        let start = self.start;
        self.start = self.end.min(start + body_bytes);
        &self.bytes[start..self.start]
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
    /// whose write was dropped must be closed.
    pub(super) async fn write_all(&mut self, control: &[u8], body: &[u8]) -> io::Result<()> {
        let Some((sealer, wire)) = &mut self.sealer else {
            return write_both(&mut self.socket, control, body).await;
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
        write_both(&mut self.socket, wire, body).await
    }
}

async fn write_both(socket: &mut LinkWriter, mut head: &[u8], mut body: &[u8]) -> io::Result<()> {
    while !head.is_empty() || !body.is_empty() {
        let written = socket.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let of_head = written.min(head.len());
        head = &head[of_head..];
        body = &body[written - of_head..];
    }
    Ok(())
}

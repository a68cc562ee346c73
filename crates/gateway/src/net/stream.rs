//! The two halves of a connection, sealed or plain.

use super::link::{LinkReader, LinkWriter};
use super::record::{Opener, RECORD_PLAIN_BYTES_MAX, Sealer};
use bytes::BytesMut;
use std::io::{self, IoSlice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Size of buffers for plaintext. A buffer stays allocated as long as any chunk piece in it is in use.
const READ_BUFFER_BYTES: usize = 512 << 10;
/// A buffer with less room than this is replaced (or reclaimed if no piece of it is in use).
const READ_ROOM_BYTES_MIN: usize = 64 << 10;
/// Most ciphertext read from the socket at once.
const CIPHER_BUFFER_BYTES: usize = 256 << 10;
/// Most ciphertext collected before it is written to the socket.
const SEAL_BUFFER_BYTES: usize = 256 << 10;

/// The reading half.
pub(super) struct ReadSide {
    socket: LinkReader,
    opener: Option<(Opener, CipherBuffer)>,
}

struct CipherBuffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl ReadSide {
    pub(super) fn new(socket: LinkReader, opener: Option<Opener>) -> Self {
        let sealed = |opener| (opener, CipherBuffer { bytes: vec![0; CIPHER_BUFFER_BYTES], filled: 0 });
        Self { socket, opener: opener.map(sealed) }
    }

    /// Appends arrived data, at least one byte, to `plain`; returns false at the end of the stream. Cancel-safe: bytes
    /// already read stay in the buffers.
    pub(super) async fn fill(&mut self, plain: &mut BytesMut) -> io::Result<bool> {
        if plain.capacity() - plain.len() < READ_ROOM_BYTES_MIN {
            plain.reserve(READ_BUFFER_BYTES);
        }
        let Some((opener, cipher)) = &mut self.opener else {
            return Ok(self.socket.read_buf(plain).await? > 0);
        };
        let before = plain.len();
        while plain.len() == before {
            let read = self.socket.read(&mut cipher.bytes[cipher.filled..]).await?;
            if read == 0 {
                return Ok(false);
            }
            cipher.filled += read;
            let opened = opener.open_all(&cipher.bytes[..cipher.filled], plain)?;
            cipher.bytes.copy_within(opened.consumed..cipher.filled, 0);
            cipher.filled -= opened.consumed;
            if opened.closed {
                return Ok(plain.len() > before);
            }
        }
        Ok(true)
    }
}

/// The writing half.
pub(super) struct WriteSide {
    socket: LinkWriter,
    sealer: Option<(Sealer, Vec<u8>)>,
}

impl WriteSide {
    pub(super) fn new(socket: LinkWriter, sealer: Option<Sealer>) -> Self {
        Self { socket, sealer: sealer.map(|sealer| (sealer, Vec::with_capacity(SEAL_BUFFER_BYTES))) }
    }

    /// Returns whether this side should begin no further request (its keys are near their limit).
    pub(super) fn is_worn(&self) -> bool {
        self.sealer.as_ref().is_some_and(|(sealer, _)| sealer.is_worn())
    }

    /// Writes all of both slices to the socket. Not cancel-safe: a connection whose write was dropped must be closed.
    pub(super) async fn write_all(&mut self, head: &[u8], body: &[u8]) -> io::Result<()> {
        let Some((sealer, wire)) = &mut self.sealer else {
            return write_both(&mut self.socket, head, body).await;
        };
        for plain in [head, body] {
            for record in plain.chunks(RECORD_PLAIN_BYTES_MAX) {
                let (start, length) = (wire.len(), Sealer::wire_bytes(record.len()));
                wire.resize(start + length, 0);
                sealer.seal(record, &mut wire[start..])?;
                if wire.len() + Sealer::wire_bytes(RECORD_PLAIN_BYTES_MAX) > SEAL_BUFFER_BYTES {
                    self.socket.write_all(wire).await?;
                    wire.clear();
                }
            }
        }
        self.socket.write_all(wire).await?;
        wire.clear();
        Ok(())
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

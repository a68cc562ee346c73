//! Reads and writes whole frames over a connection.

use super::handshake::ConnectionError;
use super::splice::Pipe;
use super::stream::{ReadSide, WriteSide};
use bytes::{Buf, BytesMut};
use tradewind_wire::frame::{DATA_BYTES_MAX, Frame, FrameError, HEADER_BYTES, Head, Header, Kind};
use tradewind_wire::intake::{Intake, Step};

/// A message that a connection received.
#[derive(Debug)]
pub enum Incoming {
    /// A request begins. Its `wire_bytes` follow as [`Incoming::Piece`]s.
    Begin(Head),
    /// The next bytes of the request's body.
    Piece {
        /// The bytes.
        bytes: BytesMut,
        /// Number of bytes that follow in the same `Data` frame.
        more: usize,
        /// True if this completes the body.
        last: bool,
    },
    /// The next bytes of the request's body are in the reader's pipe. Only after [`FrameReader::begin_splicing`].
    Piped {
        /// Their number.
        length: usize,
        /// As in [`Incoming::Piece`].
        more: usize,
        /// As in [`Incoming::Piece`].
        last: bool,
    },
    /// The request that began last will not be finished.
    GiveUp,
    /// Anything else.
    Frame(Frame),
}

/// Reads frames.
pub struct FrameReader {
    side: ReadSide,
    plain: BytesMut,
    intake: Intake,
    /// Bytes left of the current `Data` frame, and whether the body ends with it.
    data: Option<(usize, bool)>,
}

impl FrameReader {
    pub(super) fn new(side: ReadSide, intake: Intake) -> Self {
        Self { side, plain: BytesMut::new(), intake, data: None }
    }

    /// Returns what the connection receives next. Cancel-safe.
    ///
    /// # Errors
    /// `Closed` at the end of the stream, `Protocol` for data that no correct peer would send, `Io` otherwise.
    pub async fn next(&mut self) -> Result<Incoming, ConnectionError> {
        loop {
            if let Some(incoming) = self.parse()? {
                return Ok(incoming);
            }
            let has_more = match self.data {
                Some((left, ends_body)) => match self.side.splice(left).await? {
                    Some(0) => false,
                    Some(length) => return Ok(self.piped(length, left, ends_body)),
                    None => match self.side.body(left).await? {
                        Some(bytes) => return Ok(self.piece(bytes, left, ends_body)),
                        None => false,
                    },
                },
                None => self.side.control(&mut self.plain).await?,
            };
            if !has_more {
                return Err(ConnectionError::Closed);
            }
        }
    }

    fn parse(&mut self) -> Result<Option<Incoming>, ConnectionError> {
        if let Some((left, ends_body)) = self.data {
            return Ok(self.parse_piece(left, ends_body));
        }
        let Some(header) = self.plain.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::parse(header)?;
        if header.kind == Kind::Data {
            let ends_body = self.intake.data(&header)?;
            self.plain.advance(HEADER_BYTES);
            if self.side.is_secure() && !self.plain.is_empty() {
                return Err(FrameError::Unexpected(Kind::Data, "its header does not end a record").into());
            }
            self.data = Some((header.length, ends_body));
            return Ok(self.parse_piece(header.length, ends_body));
        }
        if self.plain.len() < HEADER_BYTES + header.length {
            return Ok(None);
        }
        self.plain.advance(HEADER_BYTES);
        let payload = self.plain.split_to(header.length).freeze();
        Ok(Some(match self.intake.frame(Frame::parse(&header, payload)?)? {
            Step::Begin(head) => Incoming::Begin(head),
            Step::GiveUp => Incoming::GiveUp,
            Step::Other(frame) => Incoming::Frame(frame),
        }))
    }

    fn parse_piece(&mut self, left: usize, ends_body: bool) -> Option<Incoming> {
        if self.plain.is_empty() {
            return None;
        }
        let bytes = self.plain.split_to(left.min(self.plain.len()));
        Some(self.piece(bytes, left, ends_body))
    }

    /// Takes `bytes` of a `Data` frame that lacked `left`.
    fn piece(&mut self, bytes: BytesMut, left: usize, ends_body: bool) -> Incoming {
        let more = left - bytes.len();
        self.data = (more > 0).then_some((more, ends_body));
        Incoming::Piece { bytes, more, last: ends_body && more == 0 }
    }

    /// As [`FrameReader::piece`], with `length` bytes that are in the pipe.
    fn piped(&mut self, length: usize, left: usize, ends_body: bool) -> Incoming {
        let more = left - length;
        self.data = (more > 0).then_some((more, ends_body));
        Incoming::Piped { length, more, last: ends_body && more == 0 }
    }

    /// Returns long pieces of bodies in a pipe from now on, where the kernel can move them to another socket. Each must
    /// be taken out of the pipe before the next call of [`FrameReader::next`].
    pub fn begin_splicing(&mut self) {
        self.side.begin_splicing();
    }

    /// Returns all bytes of bodies from now on. Bytes in the pipe are lost.
    pub fn end_splicing(&mut self) {
        self.side.end_splicing();
    }

    /// Returns the pipe, which exists after [`Incoming::Piped`].
    pub fn pipe(&mut self) -> Option<&mut Pipe> {
        self.side.pipe()
    }
}

/// Writes frames. Not cancel-safe: if a write was dropped, drop the connection.
pub struct FrameWriter {
    side: WriteSide,
    scratch: Vec<u8>,
    /// Bytes that the `Data` frame being written still lacks.
    data_left: usize,
    /// Buffer for a piece of a body that is sealed here, so that it is allocated once for each connection. At most
    /// [`DATA_BYTES_MAX`].
    pub piece: Vec<u8>,
}

impl FrameWriter {
    pub(super) fn new(side: WriteSide) -> Self {
        Self { side, scratch: Vec::new(), data_left: 0, piece: Vec::new() }
    }

    /// Returns whether this connection should carry no further request.
    pub fn is_worn(&self) -> bool {
        self.side.is_worn()
    }

    /// Adds a frame to those that are written with the next one.
    pub fn queue(&mut self, frame: &Frame) {
        debug_assert_eq!(self.data_left, 0, "no frame comes inside another");
        frame.encode(&mut self.scratch);
    }

    /// Writes the queued frames.
    pub async fn flush(&mut self) -> Result<(), ConnectionError> {
        self.write(&[], false).await
    }

    /// Writes a frame.
    pub async fn frame(&mut self, frame: &Frame) -> Result<(), ConnectionError> {
        self.queue(frame);
        self.flush().await
    }

    /// Writes sealed bytes of the body that began last, as `Data` frames.
    pub async fn data(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        for piece in bytes.chunks(DATA_BYTES_MAX) {
            self.part_of_data(piece, 0).await?;
        }
        Ok(())
    }

    /// Writes the next bytes of a `Data` frame, of which `more` follow in further calls.
    pub async fn part_of_data(&mut self, bytes: &[u8], more: usize) -> Result<(), ConnectionError> {
        self.begin_part(bytes.len(), more);
        self.write(bytes, more > 0).await
    }

    /// As [`FrameWriter::part_of_data`], with the bytes that are in a pipe.
    pub async fn piped_part_of_data(&mut self, pipe: &mut Pipe, more: usize) -> Result<(), ConnectionError> {
        self.begin_part(pipe.held(), more);
        self.side.write_pipe(&self.scratch, pipe, more > 0).await?;
        self.scratch.clear();
        Ok(())
    }

    /// Returns whether bytes in a pipe can be written.
    pub fn splices(&self) -> bool {
        self.side.splices()
    }

    /// Queues the header of a `Data` frame, unless one has begun.
    fn begin_part(&mut self, part_bytes: usize, more: usize) {
        let length = part_bytes + more;
        if self.data_left == 0 {
            let header = Header { kind: Kind::Data, route: tradewind_wire::RouteId(0), length };
            self.scratch.extend_from_slice(&header.encode());
        } else {
            debug_assert_eq!(self.data_left, length, "a frame has the length that its header announced");
        }
        self.data_left = more;
    }

    /// Returns how many bytes the `Data` frame being written still lacks; 0 between frames.
    pub fn data_left(&self) -> usize {
        self.data_left
    }

    /// Ends a `Data` frame whose bytes do not come: writes zeros in their place.
    pub async fn pad_data(&mut self) -> Result<(), ConnectionError> {
        match std::mem::take(&mut self.data_left) {
            0 => Ok(()),
            missing => self.write(&vec![0; missing], false).await,
        }
    }

    async fn write(&mut self, body: &[u8], more: bool) -> Result<(), ConnectionError> {
        self.side.write_all(&self.scratch, body, more).await?;
        self.scratch.clear();
        Ok(())
    }
}

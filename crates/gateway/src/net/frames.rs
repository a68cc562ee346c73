//! Reads and writes whole frames over a connection.

use super::handshake::ConnectionError;
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
                Some((left, ends_body)) => match self.side.body(left).await? {
                    Some(bytes) => return Ok(self.piece(bytes, left, ends_body)),
                    None => false,
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
        self.write(&[]).await
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
        let length = bytes.len() + more;
        if self.data_left == 0 {
            let header = Header { kind: Kind::Data, route: tradewind_wire::RouteId(0), length };
            self.scratch.extend_from_slice(&header.encode());
        } else {
            debug_assert_eq!(self.data_left, length, "a frame has the length that its header announced");
        }
        self.data_left = more;
        self.write(bytes).await
    }

    /// Returns how many bytes the `Data` frame being written still lacks; 0 between frames.
    pub fn data_left(&self) -> usize {
        self.data_left
    }

    /// Ends a `Data` frame whose bytes do not come: writes zeros in their place.
    pub async fn pad_data(&mut self) -> Result<(), ConnectionError> {
        match std::mem::take(&mut self.data_left) {
            0 => Ok(()),
            missing => self.write(&vec![0; missing]).await,
        }
    }

    async fn write(&mut self, body: &[u8]) -> Result<(), ConnectionError> {
        self.side.write_all(&self.scratch, body).await?;
        self.scratch.clear();
        Ok(())
    }
}

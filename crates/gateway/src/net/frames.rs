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
            let body_bytes = self.data.map_or(0, |(left, _)| left - self.plain.len());
            if !self.side.fill(&mut self.plain, body_bytes).await? {
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
        let left = left - bytes.len();
        self.data = (left > 0).then_some((left, ends_body));
        Some(Incoming::Piece { bytes, last: ends_body && left == 0 })
    }
}

/// Writes frames. Not cancel-safe: if a write was dropped, drop the connection.
pub struct FrameWriter {
    side: WriteSide,
    scratch: Vec<u8>,
    /// Buffer for a piece of a body that is sealed here, so that it is allocated once for each connection. At most
    /// [`DATA_BYTES_MAX`].
    pub piece: Vec<u8>,
}

impl FrameWriter {
    pub(super) fn new(side: WriteSide) -> Self {
        Self { side, scratch: Vec::new(), piece: Vec::new() }
    }

    /// Returns whether this connection should carry no further request.
    pub fn is_worn(&self) -> bool {
        self.side.is_worn()
    }

    /// Adds a frame to those that are written with the next one.
    pub fn queue(&mut self, frame: &Frame) {
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
            let header = Header { kind: Kind::Data, route: tradewind_wire::RouteId(0), length: piece.len() };
            self.scratch.extend_from_slice(&header.encode());
            self.write(piece).await?;
        }
        Ok(())
    }

    async fn write(&mut self, body: &[u8]) -> Result<(), ConnectionError> {
        self.side.write_all(&self.scratch, body).await?;
        self.scratch.clear();
        Ok(())
    }
}

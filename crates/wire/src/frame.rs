//! Frames: an eight-byte header and a payload.
//!
//! ```text
//!  byte 0      1        2..4         4..8
//! +--------+--------+------------+----------------------+
//! | kind   | zero   | route u16  | payload length u32   |  little endian
//! +--------+--------+------------+----------------------+
//! ```
//!
//! A request is one `Head` and then `Data` frames until `Head::wire_bytes` bytes have passed, or one `Abort`. Other
//! frames (a ping, for example) may come between `Data` frames, but no second `Head`. `Orders` and `Replies` are
//! batches. All payloads except `Data` are postcard (<https://postcard.jamesmunns.com/wire-format>).

use crate::{Fault, RequestId, RouteId, WIRE_VERSION_MAJOR};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Length of a frame header.
pub const HEADER_BYTES: usize = 8;
/// Longest `Data` payload; a sender cuts longer bodies. Bounds the memory that a relay needs per connection.
pub const DATA_BYTES_MAX: usize = 256 << 10;
/// Length of a sealed segment of a body. Four fill the longest `Data` frame.
pub const SEGMENT_BYTES: usize = 64 << 10;
/// Longest payload of any other frame. A close of 10,000 parts needs about 700 KiB.
pub const CONTROL_BYTES_MAX: usize = 4 << 20;
/// Longest body of one request (a 5 TiB object in 10,000 parts has parts of 525 MiB).
pub const BODY_BYTES_MAX: u64 = 1 << 30;
/// Most replies in one frame; a sender cuts longer batches. A reply takes three bytes on the wire and some 70 in memory.
pub const REPLIES_MAX: usize = 1 << 16;
/// Longest message of a failure; a sender cuts longer ones. The lead may keep it for each object of a request.
pub const MESSAGE_BYTES_MAX: usize = 8 << 10;
/// Longest batch of reports about hops: some dozens of hops.
pub const HOP_REPORTS_BYTES_MAX: usize = 16 << 10;
/// Longest text in a Hello, and longest kind of a failure.
pub const NAME_BYTES_MAX: usize = 64;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// First frame of each side of a connection.
    Hello = 1,
    /// A batch of orders, lead to source.
    Orders = 2,
    /// Begins a request.
    Head = 3,
    /// Bytes of the request that began last.
    Data = 4,
    /// The request that began last will not be completed; discard it.
    Abort = 5,
    /// A batch of replies, upstream.
    Replies = 6,
    /// Asks for a `Pong` with the same token.
    Ping = 7,
    /// Answers a `Ping`.
    Pong = 8,
    /// The sender accepts no new requests; those in flight are completed.
    Drain = 9,
    /// A batch of reports by relays about their outgoing hops, upstream.
    HopReports = 10,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        [Hello, Orders, Head, Data, Abort, Replies, Ping, Pong, Drain, HopReports]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    fn payload_bytes_max(self) -> usize {
        match self {
            Kind::Hello => 1 << 10,
            Kind::Head => 256,
            Kind::Data => DATA_BYTES_MAX,
            Kind::Abort | Kind::Drain => 0,
            Kind::Ping | Kind::Pong => 8,
            Kind::Orders | Kind::Replies => CONTROL_BYTES_MAX,
            Kind::HopReports => HOP_REPORTS_BYTES_MAX,
        }
    }
}

/// A protocol error of the peer. Each one ends the connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Unknown kind byte, or the reserved byte is not zero: this is not our protocol.
    #[error("not a tradewind frame (header begins {0:02x} {1:02x})")]
    Garbage(u8, u8),
    /// The header announces a payload longer than the limit of its kind.
    #[error("{kind:?} frame announces {length} bytes, more than its limit of {limit}")]
    TooLong {
        /// Kind of the frame.
        kind: Kind,
        /// Announced length.
        length: u32,
        /// Longest length allowed.
        limit: usize,
    },
    /// The payload does not parse.
    #[error("{0:?} payload does not parse")]
    Payload(Kind),
    /// Hello of another protocol or version.
    #[error("peer speaks version {0}, this side speaks {WIRE_VERSION_MAJOR}")]
    Version(u8),
    /// A frame at a point where its kind is not allowed.
    #[error("unexpected {0:?} frame: {1}")]
    Unexpected(Kind, &'static str),
}

/// A parsed frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the frame.
    pub kind: Kind,
    /// Route, for `Head`; zero otherwise.
    pub route: RouteId,
    /// Payload length in bytes, within the kind's limit.
    pub length: usize,
}

impl Header {
    /// Parses and checks a header, before anything is allocated for its payload.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let garbage = FrameError::Garbage(bytes[0], bytes[1]);
        let kind = Kind::from_byte(bytes[0]).filter(|_| bytes[1] == 0).ok_or(garbage)?;
        let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let limit = kind.payload_bytes_max();
        if length as usize > limit {
            return Err(FrameError::TooLong { kind, length, limit });
        }
        Ok(Self { kind, route: RouteId(u16::from_le_bytes([bytes[2], bytes[3]])), length: length as usize })
    }

    /// Returns the eight bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let route = self.route.0.to_le_bytes();
        let length = (self.length as u32).to_le_bytes();
        [self.kind as u8, 0, route[0], route[1], length[0], length[1], length[2], length[3]]
    }
}

/// An end of a hop. Requests travel from upstream to downstream, replies travel back; either end may open the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HopEnd {
    /// Sends requests.
    Upstream,
    /// Sends replies.
    Downstream,
}

impl HopEnd {
    /// Returns the other end.
    pub fn opposite(self) -> Self {
        match self {
            Self::Upstream => Self::Downstream,
            Self::Downstream => Self::Upstream,
        }
    }
}

/// First frame of each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`WIRE_VERSION_MAJOR`].
    pub version: u8,
    /// Job this connection serves.
    pub job: String,
    /// Name of the sender; must equal the name in its certificate.
    pub node: String,
    /// The sender's end of the hop that this connection belongs to.
    pub end: HopEnd,
}

/// Encoding of a body on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Codec {
    /// Not compressed.
    Raw,
    /// LZ4 block.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// Purpose of a request. A relay needs to know only the [`Head`] of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Write bytes (a part, or a bundle of whole objects).
    Chunk,
    /// Open, close or abort a destination object.
    Control,
}

/// Length of the checksum of one object or part at the end of a body: CRC-64/NVME, little-endian.
pub const CHECKSUM_BYTES: usize = 8;

/// Begins a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Id assigned by the lead.
    pub request: RequestId,
    /// Route, also in the frame header.
    pub route: RouteId,
    /// Purpose of the request.
    pub purpose: Purpose,
    /// Length of the manifest at the front of the decoded body.
    pub manifest_bytes: u32,
    /// Length of the recipe after the manifest, by which the sink restores the object bytes; 0 if the body has them all.
    pub recipe_bytes: u32,
    /// Object bytes that are not in the body, because its recipe refers to them.
    pub referenced_bytes: u64,
    /// How many objects (or parts) have their checksum after the object bytes, and not in the manifest.
    pub checksums: u32,
    /// Length of the decompressed body: manifest, recipe, object bytes and checksums.
    pub raw_bytes: u64,
    /// Length of the body on the wire.
    pub wire_bytes: u64,
    /// Encoding of the body.
    pub codec: Codec,
    /// Key and nonce of the body's seal.
    pub seal: SealId,
}

impl Head {
    /// Returns the length of the checksums at the end of the body.
    pub fn checksums_bytes(&self) -> u64 {
        u64::from(self.checksums) * CHECKSUM_BYTES as u64
    }

    /// Returns the length of the object bytes of an uncompressed body without a recipe.
    pub fn data_bytes(&self) -> u64 {
        self.raw_bytes.saturating_sub(u64::from(self.manifest_bytes) + self.checksums_bytes())
    }

    /// Returns whether the body is a manifest and object bytes as they are: not compressed, and without a recipe.
    pub fn is_plain_chunk(&self) -> bool {
        self.purpose == Purpose::Chunk && self.codec == Codec::Raw && self.recipe_bytes == 0
    }
}

/// Length of [`SealId::sealer`].
pub const SEALER_ID_BYTES: usize = 16;

/// Names a sealed message: no two messages of a run have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SealId {
    /// Drawn at random by the process that sealed the message.
    pub sealer: [u8; SEALER_ID_BYTES],
    /// How many messages this process had sealed before.
    pub count: u64,
}

/// A reply to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The request.
    pub request: RequestId,
    /// Outcome of the request.
    pub verdict: Verdict,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The sink's own reply, which only source and lead can read.
    Sink(Bytes),
    /// A node on the route failed to do its part.
    Failed {
        /// Class of the fault.
        fault: Fault,
        /// Meaning for the report, e.g. `forbidden`.
        kind: String,
        /// One line, naming the node.
        message: String,
        /// True if it is certain that no byte of the request left its source; set by source and lead only. False when
        /// in doubt.
        unsent: bool,
    },
}

impl Verdict {
    /// Returns whether the texts of a failure are within their limits.
    fn is_short(&self) -> bool {
        match self {
            Self::Sink(_) => true,
            Self::Failed { kind, message, .. } => kind.len() <= NAME_BYTES_MAX && message.len() <= MESSAGE_BYTES_MAX,
        }
    }
}

/// Any complete frame except `Data`, whose bytes are handled in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// See [`Kind::Hello`].
    Hello(Hello),
    /// See [`Kind::Orders`]; the payload belongs to lead and source.
    Orders(Bytes),
    /// See [`Kind::Head`].
    Head(Head),
    /// See [`Kind::Abort`].
    Abort,
    /// See [`Kind::Replies`].
    Replies(Vec<Reply>),
    /// See [`Kind::Ping`].
    Ping(u64),
    /// See [`Kind::Pong`].
    Pong(u64),
    /// See [`Kind::Drain`].
    Drain,
    /// See [`Kind::HopReports`]; the payload belongs to the gateways.
    HopReports(Bytes),
}

impl Frame {
    /// Parses the payload that belongs to `header`. `Data` is not parsed here.
    pub fn parse(header: &Header, payload: Bytes) -> Result<Self, FrameError> {
        Ok(match header.kind {
            Kind::Hello => Frame::Hello(parse_hello(&payload)?),
            Kind::Orders => Frame::Orders(payload),
            Kind::Head => Frame::Head(parse_head(header, &payload)?),
            Kind::Data => return Err(FrameError::Unexpected(Kind::Data, "not a control frame")),
            Kind::Abort => Frame::Abort,
            Kind::Replies => Frame::Replies(parse_replies(&payload)?),
            Kind::Ping => Frame::Ping(parse_token(header.kind, &payload)?),
            Kind::Pong => Frame::Pong(parse_token(header.kind, &payload)?),
            Kind::Drain => Frame::Drain,
            Kind::HopReports => Frame::HopReports(payload),
        })
    }

    /// Appends header and payload to `out`.
    ///
    /// # Panics
    /// If the payload is longer than its kind allows: the caller cuts batches (see [`CONTROL_BYTES_MAX`],
    /// [`REPLIES_MAX`] and [`HOP_REPORTS_BYTES_MAX`]).
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, route) = match self {
            Frame::Hello(_) => (Kind::Hello, RouteId(0)),
            Frame::Orders(_) => (Kind::Orders, RouteId(0)),
            Frame::Head(head) => (Kind::Head, head.route),
            Frame::Abort => (Kind::Abort, RouteId(0)),
            Frame::Replies(_) => (Kind::Replies, RouteId(0)),
            Frame::Ping(_) => (Kind::Ping, RouteId(0)),
            Frame::Pong(_) => (Kind::Pong, RouteId(0)),
            Frame::Drain => (Kind::Drain, RouteId(0)),
            Frame::HopReports(_) => (Kind::HopReports, RouteId(0)),
        };
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        match self {
            Frame::Hello(hello) => append(out, hello),
            Frame::Orders(payload) | Frame::HopReports(payload) => out.extend_from_slice(payload),
            Frame::Head(head) => append(out, head),
            Frame::Replies(replies) => {
                assert!(replies.len() <= REPLIES_MAX, "{} replies in one frame", replies.len());
                append(out, replies);
            }
            Frame::Ping(token) | Frame::Pong(token) => out.extend_from_slice(&token.to_le_bytes()),
            Frame::Abort | Frame::Drain => {}
        }
        let length = out.len() - start - HEADER_BYTES;
        assert!(length <= kind.payload_bytes_max(), "{kind:?} frame of {length} bytes is over its limit");
        out[start..start + HEADER_BYTES].copy_from_slice(&Header { kind, route, length }.encode());
    }
}

fn append<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    // Serialising our own types into memory cannot fail: no maps of unknown length, no custom errors.
    if let Ok(bytes) = postcard::to_stdvec(value) {
        out.extend_from_slice(&bytes);
    }
}

/// Parses a payload that is one `T` and nothing else.
fn parse_exactly<'a, T: Deserialize<'a>>(kind: Kind, payload: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(payload) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::Payload(kind)),
    }
}

fn parse_replies(payload: &[u8]) -> Result<Vec<Reply>, FrameError> {
    let bad = FrameError::Payload(Kind::Replies);
    // Check the count, which comes first, before allocating a vector of that length.
    let (count, _) = postcard::take_from_bytes::<u64>(payload).map_err(|_| bad.clone())?;
    if count > REPLIES_MAX as u64 {
        return Err(bad);
    }
    let replies: Vec<Reply> = parse_exactly(Kind::Replies, payload)?;
    if replies.iter().all(|reply| reply.verdict.is_short()) { Ok(replies) } else { Err(bad) }
}

fn parse_hello(payload: &[u8]) -> Result<Hello, FrameError> {
    let hello: Hello = parse_exactly(Kind::Hello, payload)?;
    if hello.version != WIRE_VERSION_MAJOR {
        return Err(FrameError::Version(hello.version));
    }
    if hello.job.len() > NAME_BYTES_MAX || hello.node.len() > NAME_BYTES_MAX {
        return Err(FrameError::Payload(Kind::Hello));
    }
    Ok(hello)
}

fn parse_head(header: &Header, payload: &[u8]) -> Result<Head, FrameError> {
    let head: Head = parse_exactly(Kind::Head, payload)?;
    let sane = head.route == header.route
        && head.wire_bytes <= BODY_BYTES_MAX
        && head.raw_bytes <= BODY_BYTES_MAX
        && head.referenced_bytes <= BODY_BYTES_MAX
        && (head.recipe_bytes > 0 || head.referenced_bytes == 0)
        && u64::from(head.manifest_bytes) + u64::from(head.recipe_bytes) + head.checksums_bytes() <= head.raw_bytes
        && (head.checksums == 0 || head.is_plain_chunk())
        && head.manifest_bytes as usize <= CONTROL_BYTES_MAX
        && head.recipe_bytes as usize <= CONTROL_BYTES_MAX;
    if sane { Ok(head) } else { Err(FrameError::Payload(Kind::Head)) }
}

fn parse_token(kind: Kind, payload: &[u8]) -> Result<u64, FrameError> {
    payload.try_into().map(u64::from_le_bytes).map_err(|_| FrameError::Payload(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault() -> impl Strategy<Value = Fault> {
        use Fault::*;
        prop::sample::select(vec![Lost, RouteDown, Unavailable, Corrupt, Refused, Permanent, Changed, UploadGone])
    }

    fn head() -> impl Strategy<Value = Head> {
        let sizes = (0..=BODY_BYTES_MAX, 0..=BODY_BYTES_MAX, 0..=CONTROL_BYTES_MAX as u32);
        let codec = prop::sample::select(vec![Codec::Raw, Codec::Lz4, Codec::Zstd]);
        let purpose = (prop::sample::select(vec![Purpose::Chunk, Purpose::Control]), 0..=200u32);
        let seal = (any::<[u8; SEALER_ID_BYTES]>(), any::<u64>());
        (any::<u64>(), any::<u16>(), sizes, codec, purpose, seal).prop_map(
            |(
                request,
                route,
                (raw_bytes, wire_bytes, manifest_bytes),
                codec,
                (purpose, checksums),
                (sealer, count),
            )| {
                let head = Head {
                    request: RequestId(request),
                    route: RouteId(route),
                    purpose,
                    manifest_bytes: u64::from(manifest_bytes).min(raw_bytes / 2) as u32,
                    recipe_bytes: u64::from(manifest_bytes / 3).min(raw_bytes / 2) as u32,
                    referenced_bytes: if manifest_bytes / 3 > 0 && raw_bytes > 1 { wire_bytes } else { 0 },
                    checksums: 0,
                    raw_bytes,
                    wire_bytes,
                    codec,
                    seal: SealId { sealer, count },
                };
                if checksums == 0 {
                    return head;
                }
                let (purpose, codec, raw_bytes) =
                    (Purpose::Chunk, Codec::Raw, raw_bytes.max(u64::from(2 * checksums) * CHECKSUM_BYTES as u64));
                Head { purpose, checksums, recipe_bytes: 0, referenced_bytes: 0, codec, raw_bytes, ..head }
            },
        )
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let verdict =
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| Verdict::Sink(Bytes::from(bytes))),
                (fault(), "[a-z_]{0,64}", ".*", any::<bool>())
                    .prop_map(|(fault, kind, message, unsent)| Verdict::Failed { fault, kind, message, unsent }),
            ];
        (any::<u64>(), verdict).prop_map(|(request, verdict)| Reply { request: RequestId(request), verdict })
    }

    fn frame() -> impl Strategy<Value = Frame> {
        prop_oneof![
            ("[a-z0-9-]{0,64}", "[a-z0-9-]{0,64}", any::<bool>()).prop_map(|(job, node, is_upstream)| {
                let end = if is_upstream { HopEnd::Upstream } else { HopEnd::Downstream };
                Frame::Hello(Hello { version: WIRE_VERSION_MAJOR, job, node, end })
            }),
            prop::collection::vec(any::<u8>(), 0..500).prop_map(|orders| Frame::Orders(Bytes::from(orders))),
            head().prop_map(Frame::Head),
            prop::collection::vec(reply(), 0..20).prop_map(Frame::Replies),
            any::<u64>().prop_map(Frame::Ping),
            any::<u64>().prop_map(Frame::Pong),
            Just(Frame::Abort),
            Just(Frame::Drain),
            prop::collection::vec(any::<u8>(), 0..500).prop_map(|reports| Frame::HopReports(Bytes::from(reports))),
        ]
    }

    fn split(encoded: &[u8]) -> (Header, Bytes) {
        let header = Header::parse(encoded[..HEADER_BYTES].try_into().unwrap()).unwrap();
        assert_eq!(header.length, encoded.len() - HEADER_BYTES);
        (header, Bytes::copy_from_slice(&encoded[HEADER_BYTES..]))
    }

    proptest! {
        #[test]
        fn every_frame_round_trips(frame in frame()) {
            let mut encoded = Vec::new();
            frame.encode(&mut encoded);
            let (header, payload) = split(&encoded);
            prop_assert_eq!(Frame::parse(&header, payload), Ok(frame));
        }

        #[test]
        fn a_payload_with_something_behind_it_is_refused(frame in frame(), tail in prop::collection::vec(any::<u8>(), 1..9)) {
            let mut encoded = Vec::new();
            frame.encode(&mut encoded);
            let (header, payload) = split(&encoded);
            prop_assume!(!matches!(header.kind, Kind::Orders | Kind::HopReports | Kind::Abort | Kind::Drain));
            let longer: Bytes = payload.iter().copied().chain(tail).collect();
            prop_assert_eq!(Frame::parse(&header, longer), Err(FrameError::Payload(header.kind)));
        }

        #[test]
        fn a_header_within_its_limit_round_trips_and_one_beyond_is_refused(bytes in any::<[u8; HEADER_BYTES]>(), kind in 0u8..12) {
            let bytes = [kind, 0, bytes[2], bytes[3], bytes[4], bytes[5], bytes[6] & 0x7f, bytes[7] & 1];
            match Header::parse(&bytes) {
                Ok(header) => {
                    prop_assert!(header.length <= header.kind.payload_bytes_max());
                    prop_assert_eq!(header.encode(), bytes);
                }
                Err(FrameError::TooLong { length, limit, .. }) => prop_assert!(length as usize > limit),
                Err(FrameError::Garbage(..)) => prop_assert!(Kind::from_byte(kind).is_none()),
                Err(other) => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn arbitrary_payloads_never_panic(kind in 1u8..11, route in any::<u16>(), payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let header = Header { kind: Kind::from_byte(kind).unwrap(), route: RouteId(route), length: payload.len() };
            let _ = Frame::parse(&header, Bytes::from(payload));
        }
    }

    #[test]
    fn a_batch_that_announces_too_many_replies_is_refused_before_it_is_made() {
        // Four million replies in one frame would take 24 times its size in memory.
        let mut payload = postcard::to_stdvec(&(REPLIES_MAX as u64 + 1)).unwrap();
        payload.resize(3 * (REPLIES_MAX + 1) + 10, 0);
        let header = Header { kind: Kind::Replies, route: RouteId(0), length: payload.len() };
        assert_eq!(Frame::parse(&header, payload.into()), Err(FrameError::Payload(Kind::Replies)));
    }

    #[test]
    fn a_failure_with_too_long_a_text_is_refused() {
        let parsed = |kind: usize, message: usize| {
            let (kind, message) = ("k".repeat(kind), "m".repeat(message));
            let verdict = Verdict::Failed { fault: Fault::Lost, kind, message, unsent: false };
            let mut encoded = Vec::new();
            Frame::Replies(vec![Reply { request: RequestId(1), verdict }]).encode(&mut encoded);
            let (header, payload) = split(&encoded);
            Frame::parse(&header, payload)
        };
        assert!(parsed(NAME_BYTES_MAX, MESSAGE_BYTES_MAX).is_ok());
        for (kind, message) in [(NAME_BYTES_MAX + 1, 0), (0, MESSAGE_BYTES_MAX + 1)] {
            assert_eq!(parsed(kind, message), Err(FrameError::Payload(Kind::Replies)));
        }
    }

    #[test]
    fn another_version_is_refused_with_its_number() {
        let mut encoded = Vec::new();
        let hello = Hello { version: WIRE_VERSION_MAJOR + 1, job: "j".into(), node: "n".into(), end: HopEnd::Upstream };
        Frame::Hello(hello).encode(&mut encoded);
        let (header, payload) = split(&encoded);
        assert_eq!(Frame::parse(&header, payload), Err(FrameError::Version(WIRE_VERSION_MAJOR + 1)));
    }

    #[test]
    fn a_close_of_the_most_parts_fits_a_frame() {
        let orders = Bytes::from(vec![0; 10_000 * 70]);
        Frame::Orders(orders).encode(&mut Vec::new());
    }
}

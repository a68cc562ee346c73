//! One frame: a header and its payload.

use bytes::Bytes;
use tradewind_wire::frame::{Frame, HEADER_BYTES, Header, Kind};

/// Parses `data` as one frame. A parsed frame must survive encoding and parsing unchanged.
pub(crate) fn run(data: &[u8]) {
    let Some((header, payload)) = data.split_first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = Header::parse(header) else { return };
    if header.kind == Kind::Data {
        return;
    }
    let payload = &payload[..payload.len().min(header.length)];
    let Ok(frame) = Frame::parse(&header, Bytes::copy_from_slice(payload)) else { return };
    let mut encoded = Vec::new();
    frame.encode(&mut encoded);
    let (again, payload) = encoded.split_first_chunk::<HEADER_BYTES>().expect("a frame has a header");
    let again = Header::parse(again).expect("what was encoded parses");
    assert_eq!(Frame::parse(&again, Bytes::copy_from_slice(payload)), Ok(frame));
}

//! All that a peer may send on one connection.

use bytes::Bytes;
use tradewind_wire::frame::{BODY_BYTES_MAX, CONTROL_BYTES_MAX, Frame, HEADER_BYTES, Header, Kind};
use tradewind_wire::intake::{Intake, Step};

/// Reads `data` as a gateway reads a connection, to its end or the first error. Bodies never grow past what their head
/// announced, nor payloads past their limit.
pub(crate) fn run(mut data: &[u8]) {
    let mut intake = Intake::new();
    let (mut announced, mut received) = (0, 0);
    while let Some((header, rest)) = data.split_first_chunk::<HEADER_BYTES>() {
        let Ok(header) = Header::parse(header) else { return };
        assert!(header.length <= CONTROL_BYTES_MAX);
        let Some((payload, rest)) = rest.split_at_checked(header.length) else { return };
        data = rest;
        if header.kind == Kind::Data {
            let Ok(ends) = intake.data(&header) else { return };
            received += payload.len() as u64;
            assert!(received <= announced && ends == (received == announced) && ends != intake.in_body());
            continue;
        }
        let Ok(frame) = Frame::parse(&header, Bytes::copy_from_slice(payload)) else { return };
        match intake.frame(frame) {
            Ok(Step::Begin(head)) => {
                assert_eq!(received, announced, "a body was cut short by the next");
                (announced, received) = (head.wire_bytes, 0);
                assert!(announced <= BODY_BYTES_MAX);
            }
            Ok(Step::GiveUp) => (announced, received) = (0, 0),
            Ok(Step::Other(_)) => {}
            Err(_) => return,
        }
    }
}

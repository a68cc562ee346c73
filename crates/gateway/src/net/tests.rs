//! Frames over TLS: bodies are outside of records, and nobody on the way can move where they end.

use super::frames::{FrameReader, FrameWriter};
use super::fuzz::{Fragments, secrets};
use super::record::{Opener, RECORDS_MAX, Sealer};
use super::stream::{ReadSide, WriteSide};
use super::{Connection, ConnectionError, Incoming, Link};
use bytes::Bytes;
use proptest::prelude::*;
use tokio::io::AsyncReadExt;
use tradewind_wire::frame::{Codec, Frame, FrameError, HEADER_BYTES, Head, Header, HopEnd, Kind, Purpose, SealId};
use tradewind_wire::intake::Intake;
use tradewind_wire::{RequestId, RouteId};

/// The ping behind the last body of every script.
const LAST: u64 = 7;

fn head(wire_bytes: usize) -> Frame {
    Frame::Head(Head {
        request: RequestId(1),
        route: RouteId(0),
        purpose: Purpose::Chunk,
        manifest_bytes: 1,
        recipe_bytes: 0,
        referenced_bytes: 0,
        checksums: 0,
        raw_bytes: wire_bytes as u64,
        wire_bytes: wire_bytes as u64,
        codec: Codec::Raw,
        seal: SealId { sealer: [1; 16], count: 2 },
    })
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|index| ((index * 31) >> 3) as u8).collect()
}

/// Returns what goes over the network when a script writes frames.
async fn written(script: impl AsyncFnOnce(&mut FrameWriter)) -> Vec<u8> {
    let (here, mut there) = tokio::io::duplex(64 << 20);
    let link = Link::new(Box::new(tokio::io::empty()), Box::new(here), String::new());
    let (reader, writer) = link.into_halves();
    drop(reader);
    let mut writer = FrameWriter::new(WriteSide::new(writer, Some(Sealer::new(0, &secrets(false)).unwrap())));
    script(&mut writer).await;
    drop(writer);
    let mut wire = Vec::new();
    there.read_to_end(&mut wire).await.unwrap();
    wire
}

async fn bodies_between_pings(lengths: &[usize]) -> Vec<u8> {
    written(async |writer| {
        for length in lengths {
            writer.queue(&head(*length));
            writer.data(&body(*length)).await.unwrap();
            writer.frame(&Frame::Ping(1)).await.unwrap();
        }
        writer.frame(&Frame::Ping(LAST)).await.unwrap();
    })
    .await
}

/// Reads a connection to its end. Returns the bodies, whether the last ping came, and the error.
async fn read(wire: Vec<u8>, fragment: usize) -> (Vec<Vec<u8>>, bool, ConnectionError) {
    let reader = Fragments { data: Bytes::from(wire), fragment, ready: false };
    let (reader, _) = Link::new(Box::new(reader), Box::new(tokio::io::sink()), String::new()).into_halves();
    let side = ReadSide::new(reader, Some(Opener::new(0, &secrets(false)).unwrap()));
    let (mut reader, mut bodies, mut open, mut is_last) =
        (FrameReader::new(side, Intake::greeted()), Vec::new(), Vec::new(), false);
    loop {
        match reader.next().await {
            Ok(Incoming::Piece { bytes, last, .. }) => {
                open.extend_from_slice(&bytes);
                if last {
                    bodies.push(std::mem::take(&mut open));
                }
            }
            Ok(Incoming::GiveUp) => open.clear(),
            Ok(Incoming::Frame(Frame::Ping(token))) => is_last |= token == LAST,
            Ok(_) => {}
            Err(error) => return (bodies, is_last, error),
        }
    }
}

/// Both ends of a connection whose keys may seal one more record each way: the upstream end, then the downstream end.
pub(crate) fn nearly_worn() -> (Connection, Connection) {
    let (upstream, downstream) = tokio::io::duplex(1 << 20);
    let end = |stream, peer: &str, peer_end| {
        let (read, write) = tokio::io::split::<tokio::io::DuplexStream>(stream);
        let (reader, writer) = Link::new(Box::new(read), Box::new(write), String::new()).into_halves();
        let (first, secrets) = (RECORDS_MAX - 1, secrets(false));
        let reader = ReadSide::new(reader, Some(Opener::new(first, &secrets).unwrap()));
        let writer = WriteSide::new(writer, Some(Sealer::new(first, &secrets).unwrap()));
        Connection {
            peer: peer.to_owned(),
            peer_end,
            reader: FrameReader::new(reader, Intake::greeted()),
            writer: FrameWriter::new(writer),
        }
    };
    (end(upstream, "below", HopEnd::Downstream), end(downstream, "above", HopEnd::Upstream))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn bodies_arrive_as_they_were_sent_however_the_stream_is_cut(
        lengths in prop::collection::vec(1usize..600_000, 1..5), fragment in 1_000usize..400_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let wire = runtime.block_on(bodies_between_pings(&lengths));
        let (bodies, is_last, error) = runtime.block_on(read(wire, fragment));
        prop_assert!(matches!(error, ConnectionError::Closed), "{error}");
        prop_assert!(is_last);
        prop_assert_eq!(bodies, lengths.into_iter().map(body).collect::<Vec<_>>());
    }

    #[test]
    fn a_byte_more_or_less_anywhere_ends_the_connection(at: prop::sample::Index, is_more: bool, fragment in 1_000usize..400_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut wire = runtime.block_on(bodies_between_pings(&[300_000, 10, 70_000]));
        let at = at.index(wire.len());
        if is_more {
            wire.insert(at, wire[at] ^ 1);
        } else {
            wire.remove(at);
        }
        let (_, is_last, _) = runtime.block_on(read(wire, fragment));
        prop_assert!(!is_last, "the connection goes on");
    }
}

#[tokio::test]
async fn a_single_byte_at_a_time_is_enough() {
    let (bodies, is_last, _) = read(bodies_between_pings(&[2_000, 1]).await, 1).await;
    assert_eq!((bodies, is_last), (vec![body(2_000), body(1)], true));
}

#[tokio::test]
async fn a_frame_written_in_parts_is_one_frame_and_one_without_its_end_is_padded() {
    let wire = written(async |writer| {
        writer.queue(&head(300));
        writer.part_of_data(&body(300)[..100], 200).await.unwrap();
        writer.part_of_data(&body(300)[100..], 0).await.unwrap();
        writer.queue(&head(300));
        writer.part_of_data(&body(100), 150).await.unwrap();
        writer.pad_data().await.unwrap();
        writer.frame(&Frame::Abort).await.unwrap();
        writer.queue(&head(400));
        writer.data(&body(400)).await.unwrap();
        writer.frame(&Frame::Ping(LAST)).await.unwrap();
    })
    .await;
    for fragment in [7, 1_000] {
        let (bodies, is_last, _) = read(wire.clone(), fragment).await;
        assert_eq!((bodies, is_last), (vec![body(300), body(400)], true));
    }
}

#[tokio::test]
async fn a_body_inside_a_record_is_refused() {
    let mut frames = Vec::new();
    head(4).encode(&mut frames);
    frames.extend(Header { kind: Kind::Data, route: RouteId(0), length: 4 }.encode());
    frames.extend(b"body");
    assert!(frames.len() > HEADER_BYTES);
    let mut wire = vec![0; Sealer::wire_bytes(frames.len())];
    Sealer::new(0, &secrets(false)).unwrap().seal(&frames, &mut wire).unwrap();
    let (bodies, _, error) = read(wire, 1_000).await;
    assert!(bodies.is_empty());
    assert!(matches!(error, ConnectionError::Protocol(FrameError::Unexpected(Kind::Data, _))), "{error}");
}

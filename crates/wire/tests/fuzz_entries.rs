//! Drives the fuzz entries (`fuzz/entries`) with mutated good input, so that every test run covers them on stable Rust.

#[path = "../../../fuzz/entries/frames.rs"]
mod frames;
#[path = "../../../fuzz/entries/intake.rs"]
mod intake;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tradewind_wire::frame::{Codec, Frame, Head, Header, Hello, HopEnd, Kind, Purpose, Reply, SealId, Verdict};
use tradewind_wire::{Fault, RequestId, RouteId, WIRE_VERSION_MAJOR};

const INPUTS: u64 = 20_000;

fn data(length: usize) -> Vec<u8> {
    let header = Header { kind: Kind::Data, route: RouteId(0), length };
    header.encode().into_iter().chain(std::iter::repeat_n(7, length)).collect()
}

fn encoded(frame: Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

/// Frames of every kind, in an order that a connection may carry.
fn good_frames() -> Vec<Vec<u8>> {
    let head = Head {
        request: RequestId(300),
        route: RouteId(2),
        purpose: Purpose::Chunk,
        manifest_bytes: 4,
        recipe_bytes: 0,
        referenced_bytes: 0,
        checksums: 2,
        raw_bytes: 40,
        wire_bytes: 30,
        codec: Codec::Raw,
        seal: SealId { sealer: [9; 16], count: 300 },
    };
    let failed =
        Verdict::Failed {
            fault: Fault::Refused, kind: "disk full".into(), message: "sink-1: …".into(), unsent: false
        };
    let replies = vec![
        Reply { request: RequestId(1), verdict: Verdict::Sink(Bytes::from_static(b"done")) },
        Reply { request: RequestId(u64::MAX), verdict: failed },
    ];
    vec![
        encoded(Frame::Hello(Hello {
            version: WIRE_VERSION_MAJOR,
            job: "job".into(),
            node: "source-1".into(),
            end: HopEnd::Upstream,
        })),
        encoded(Frame::Head(head)),
        data(20),
        encoded(Frame::Ping(1)),
        data(10),
        encoded(Frame::Replies(replies)),
        encoded(Frame::Orders(Bytes::from_static(b"orders"))),
        encoded(Frame::Pong(1)),
        encoded(Frame::Drain),
        encoded(Frame::Abort),
    ]
}

fn mutate(input: &mut Vec<u8>, rng: &mut StdRng) {
    for _ in 0..rng.random_range(0..6) {
        if input.is_empty() {
            return;
        }
        let at = rng.random_range(0..input.len());
        match rng.random_range(0..5) {
            0 => input[at] ^= 1 << rng.random_range(0..8),
            1 => input[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            2 => input.truncate(at),
            3 => input.insert(at, rng.random()),
            _ => {
                let copied = input[at..].to_vec();
                input.extend(copied);
            }
        }
    }
}

#[test]
fn one_frame() {
    let mut rng = StdRng::seed_from_u64(1);
    let good = good_frames();
    seeds::keep("frames", &good);
    good.iter().for_each(|frame| frames::run(frame));
    for _ in 0..INPUTS {
        let mut input = good[rng.random_range(0..good.len())].clone();
        mutate(&mut input, &mut rng);
        frames::run(&input);
    }
}

#[test]
fn one_connection() {
    let mut rng = StdRng::seed_from_u64(2);
    let good = good_frames();
    seeds::keep("intake", &[good.concat()]);
    intake::run(&good.concat());
    for _ in 0..INPUTS {
        let mut input = good[0].clone();
        for _ in 0..rng.random_range(0..12) {
            let mut frame = good[rng.random_range(0..good.len())].clone();
            mutate(&mut frame, &mut rng);
            input.extend(frame);
        }
        intake::run(&input);
    }
}

#[test]
fn noise() {
    let mut rng = StdRng::seed_from_u64(3);
    for _ in 0..INPUTS {
        let mut input = vec![0; rng.random_range(0..200)];
        rng.fill(&mut input[..]);
        frames::run(&input);
        intake::run(&input);
    }
}

//! The promises of the seal: what was sealed opens, nothing else does, and no key meets a nonce twice.

use super::*;
use crate::node::passing::ObjectBytes;
use proptest::prelude::*;
use std::collections::HashSet;
use tradewind_wire::frame::{CHECKSUM_BYTES, Codec, DATA_BYTES_MAX, Purpose};
use tradewind_wire::{Fault, RouteId};

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn seal(sealer: u8) -> Arc<Seal> {
    Arc::new(Seal::named(KEY, [sealer; SEALER_ID_BYTES]).unwrap())
}

fn coded(content: &[u8], piece_bytes: usize, seal: SealId) -> Coded {
    let head = Head {
        request: RequestId(3),
        route: RouteId(2),
        purpose: Purpose::Chunk,
        manifest_bytes: 1,
        recipe_bytes: 0,
        referenced_bytes: 0,
        checksums: 0,
        raw_bytes: content.len() as u64,
        wire_bytes: sealed_bytes(content.len() as u64),
        codec: Codec::Raw,
        seal,
    };
    let body = content.chunks(piece_bytes).map(Bytes::copy_from_slice).collect();
    Coded { head, body, objects: Vec::new(), arrived: Arrived::default() }
}

/// A body of objects after a manifest of one byte. Their checksums follow.
fn followed(objects: &[&[u8]], seal: SealId) -> Coded {
    let content = [b"m", &objects.concat()[..]].concat();
    let Coded { head, body, .. } = coded(&content, 4, seal);
    let checksums = objects.len() as u32;
    let raw_bytes = content.len() as u64 + u64::from(checksums) * CHECKSUM_BYTES as u64;
    let head = Head { checksums, raw_bytes, wire_bytes: sealed_bytes(raw_bytes), ..head };
    let object = |bytes: &&[u8]| ObjectBytes { size_bytes: bytes.len() as u64, sums_follow: true };
    Coded { head, body, objects: objects.iter().map(object).collect(), arrived: Arrived::default() }
}

fn sealed(seal: &Seal, coded: &Coded) -> Vec<u8> {
    let (mut sealing, mut wire, mut all) = (seal.sealing(coded), vec![0; DATA_BYTES_MAX], Vec::new());
    loop {
        match sealing.fill(&mut wire).unwrap() {
            0 => break,
            filled => all.extend_from_slice(&wire[..filled]),
        }
    }
    assert_eq!(all.len() as u64, coded.head.wire_bytes);
    all
}

fn opened(seal: &Arc<Seal>, head: &Head, wire: &[u8], piece_bytes: usize) -> Result<Vec<u8>, Fault> {
    let mut opening = seal.opening(head, Some(Crcs::Both));
    wire.chunks(piece_bytes).for_each(|piece| opening.push(BytesMut::from(piece)));
    opening.finish().map(|coded| coded.body.concat()).map_err(|failure| failure.fault)
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|index| ((index * 31) >> 3) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_body_opens_as_it_was_sealed_however_it_is_cut(
        length in 1usize..300_000, sent_in in 1usize..100_000, arrives_in in 1usize..150_000,
    ) {
        let (source, sink, content) = (seal(1), seal(2), content(length));
        let coded = coded(&content, sent_in, source.next_id());
        prop_assert_eq!(opened(&sink, &coded.head, &sealed(&source, &coded), arrives_in), Ok(content));
    }

    #[test]
    fn a_changed_cut_or_longer_body_does_not_open(length in 1usize..200_000, at: usize, bit in 0u8..8) {
        let (source, sink) = (seal(1), seal(2));
        let coded = coded(&content(length), 50_000, source.next_id());
        let wire = sealed(&source, &coded);
        let at = at % wire.len();
        let mut flipped = wire.clone();
        flipped[at] ^= 1 << bit;
        prop_assert_eq!(opened(&sink, &coded.head, &flipped, 9_000), Err(Fault::Lost));
        prop_assert_eq!(opened(&sink, &coded.head, &wire[..at], 9_000), Err(Fault::Lost));
    }

    #[test]
    fn no_field_of_the_head_can_be_another(length in 1usize..100_000, field in 0usize..13) {
        let (source, sink) = (seal(1), seal(2));
        let coded = coded(&content(length), 50_000, source.next_id());
        let wire = sealed(&source, &coded);
        let mut head = coded.head.clone();
        match field {
            0 => head.request.0 += 1,
            1 => head.route.0 += 1,
            2 => head.purpose = Purpose::Control,
            3 => head.manifest_bytes += 1,
            4 => head.raw_bytes += 1,
            5 => head.wire_bytes += 1,
            6 => head.wire_bytes -= 1,
            7 => head.codec = Codec::Lz4,
            8 => head.seal.count += 1,
            9 => head.recipe_bytes += 1,
            10 => head.referenced_bytes += 1,
            11 => head.checksums += 1,
            _ => head.seal.sealer[0] ^= 1,
        }
        prop_assert_eq!(opened(&sink, &head, &wire, 9_000), Err(Fault::Lost));
    }

    /// Every message of many processes, over epochs and directions, has a key and nonce of its own.
    #[test]
    fn no_key_meets_a_nonce_twice(
        processes in prop::collection::hash_map(
            any::<[u8; SEALER_ID_BYTES]>(), (0..4 * EPOCH_MESSAGES, 1u64..50), 1..20,
        ),
    ) {
        let mut seen = HashSet::new();
        for (sealer, (first, messages)) in processes {
            let seal = Seal::named(KEY, sealer).unwrap();
            seal.next.store(first, Ordering::Relaxed);
            for _ in 0..messages {
                let id = seal.next_id();
                for direction in [Direction::Body, Direction::Answer] {
                    // Two keys are equal only if what they are derived from is.
                    let key = (direction, id.sealer, id.count / EPOCH_MESSAGES);
                    for segment in 0..3 {
                        prop_assert!(seen.insert((key, *nonce(id.count, segment).as_ref())));
                    }
                }
            }
        }
    }
}

#[test]
fn segments_cannot_change_places() {
    let (source, sink) = (seal(1), seal(2));
    let coded = coded(&content(3 * SEGMENT_PLAIN_BYTES), 50_000, source.next_id());
    let wire = sealed(&source, &coded);
    let swapped =
        [&wire[SEGMENT_BYTES..2 * SEGMENT_BYTES], &wire[..SEGMENT_BYTES], &wire[2 * SEGMENT_BYTES..]].concat();
    assert_eq!(opened(&sink, &coded.head, &swapped, 9_000), Err(Fault::Lost));
}

#[test]
fn a_body_does_not_open_in_another_run_or_as_an_answer() {
    let source = seal(1);
    let id = source.next_id();
    let coded = coded(b"words", 5, id);
    let wire = sealed(&source, &coded);
    let other_run = Arc::new(Seal::named(&"11".repeat(32), [2; SEALER_ID_BYTES]).unwrap());
    assert_eq!(opened(&other_run, &coded.head, &wire, 9), Err(Fault::Lost));
    let reflected = [&id.sealer[..], &id.count.to_le_bytes(), &wire].concat();
    assert!(source.open_answer(coded.head.request, &reflected).is_err());
}

#[test]
fn an_answer_opens_only_unchanged_and_for_its_request() {
    let (source, sink) = (seal(1), seal(2));
    let answer = sink.seal_answer(RequestId(7), b"tradewind").unwrap();
    assert_eq!(source.open_answer(RequestId(7), &answer).unwrap().1, b"tradewind");
    assert!(source.open_answer(RequestId(8), &answer).is_err());
    for at in 0..answer.len() {
        let mut changed = answer.clone();
        changed[at] ^= 1;
        assert!(source.open_answer(RequestId(7), &changed).is_err(), "{at}");
        assert!(source.open_answer(RequestId(7), &answer[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn two_processes_have_two_names_and_count_from_zero() {
    let (first, second) = (Seal::from_hex(KEY).unwrap(), Seal::from_hex(KEY).unwrap());
    assert_ne!(first.next_id().sealer, second.next_id().sealer);
    assert_eq!((first.next_id().count, second.next_id().count), (1, 1));
}

#[test]
fn forged_heads_leave_no_keys_behind() {
    let sink = seal(2);
    for count in 0..1000 {
        let head = coded(b"words", 5, SealId { sealer: [count as u8; 16], count: count * EPOCH_MESSAGES }).head;
        assert_eq!(opened(&sink, &head, &[0; 21], 21), Err(Fault::Lost));
    }
    assert_eq!(sink.keys.lock().unwrap().len(), 0);
}

#[test]
fn keys_are_kept_up_to_their_limit() {
    let (source, sink) = (seal(1), seal(2));
    for epoch in 0..2 * KEYS_MAX as u64 {
        source.next.store(epoch * EPOCH_MESSAGES, Ordering::Relaxed);
        let coded = coded(b"words", 5, source.next_id());
        assert_eq!(opened(&sink, &coded.head, &sealed(&source, &coded), 21), Ok(b"words".to_vec()));
    }
    assert!(sink.keys.lock().unwrap().len() <= KEYS_MAX && source.keys.lock().unwrap().len() <= KEYS_MAX);
}

#[test]
fn a_bad_key_is_refused() {
    assert!(Seal::from_hex("abc").is_none());
    assert!(Seal::from_hex(&"zz".repeat(32)).is_none());
}

/// Known answers, also computed by another implementation (OpenSSL). They change only together with the version of the data plane's protocol.
#[test]
fn known_answers() {
    let source = seal(0xaa);
    source.next.store(EPOCH_MESSAGES + 5, Ordering::Relaxed);
    let coded = coded(b"tradewind", 4, source.next_id());
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&sealed(&source, &coded)), "ca5e45e9c851fe179cc5d05b783a49f7031cf6779510107179");
    assert_eq!(
        hex(&source.seal_answer(RequestId(7), b"written").unwrap()),
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa0600010000000000afe90a6095f2aba2ccdb27b2e6b7e38a53109ffa9736ca"
    );
    let followed = followed(&[b"trade", b"wind"], source.next_id());
    assert_eq!(
        hex(&sealed(&source, &followed)),
        "357dc979ced1f2a8d51a6997fadd253c6d36f62a23b23c0333648c53cf4a316007a7dc41aa928ba3e94e"
    );
}

/// A peer may send a byte at a time: a separate small piece takes more memory than it holds.
#[test]
fn small_pieces_are_copied_together() {
    let (source, sink) = (seal(1), seal(2));
    let coded = coded(&content(2 * SEGMENT_PLAIN_BYTES + 100), 50_000, source.next_id());
    let mut opening = sink.opening(&coded.head, None);
    sealed(&source, &coded).chunks(7).for_each(|piece| opening.push(BytesMut::from(piece)));
    assert_eq!(opening.finish().unwrap().body.len(), 3);
}

//! Whatever a body has and however it is cut, its objects arrive with their bytes and both sides' checksums.

use super::*;
use crate::node::dedup::window::Window;
use crate::node::drops::whole_place;
use crate::node::parcel::{Coded, Parcel};
use crate::node::seal::of_tests;
use crate::node::work::{PartPlace, Proof};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use tradewind_contract::{CodecChoice, VerifyMode};
use tradewind_store::{Payload, UploadId};
use tradewind_wire::frame::SEGMENT_BYTES;
use tradewind_wire::{Fault, RequestId, RouteId};

/// Coprime to the lengths of segments.
const PATTERN_BYTES: usize = 10_007;

fn sums_of(bytes: &[u8], crcs: Crcs) -> Checksums {
    Checksums::computed(&[Bytes::copy_from_slice(bytes)], crcs)
}

fn crc64_of(bytes: &[u8]) -> Checksums {
    sums_of(bytes, Crcs::Crc64)
}

fn content(length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length.min(PATTERN_BYTES)).map(|index| ((index * 31) >> 3) as u8).collect();
    while bytes.len() < length {
        bytes.extend_from_within(..PATTERN_BYTES.min(length - bytes.len()));
    }
    bytes
}

/// A bundle of objects of these lengths. Of those that are marked the source has computed the checksums.
fn bundle(objects: &[(usize, bool)]) -> Manifest {
    let mut rest = &content(objects.iter().map(|(length, _)| length).sum())[..];
    let entries = objects.iter().map(|&(length, is_known)| {
        let object = rest.split_off(..length).unwrap();
        let checksums = if is_known || length == 0 { crc64_of(object) } else { Checksums::default() };
        let place = whole_place("key", VerifyMode::Auto, false);
        Entry::Write { place, size_bytes: length as u64, checksums, source_proof: Proof::Length }
    });
    Manifest::Bundle(entries.collect())
}

fn part(checksums: Checksums) -> Manifest {
    let upload = UploadId("u".to_owned());
    Manifest::Part { place: PartPlace { target: 0, key: "k".to_owned(), upload, part: 1, offset: 0 }, checksums }
}

fn encoded(manifest: Manifest, data: &[u8], piece_bytes: usize, codec: Option<CodecChoice>) -> Coded {
    let data = Payload::new(data.chunks(piece_bytes).map(Bytes::copy_from_slice).collect());
    let parcel = Parcel { request: RequestId(3), route: RouteId(2), manifest, data, computed: Vec::new(), held: None };
    parcel.encode(codec, of_tests().next_id()).unwrap()
}

/// Sends a parcel whose body arrives in pieces. `crcs`: those that the sink wants.
fn arrived(coded: &Coded, arrives_in: usize, crcs: Option<Crcs>) -> Result<Parcel, Fault> {
    let mut opening = of_tests().opening(&coded.head, crcs);
    coded.sealed().chunks(arrives_in).for_each(|piece| opening.push(BytesMut::from(piece)));
    let decoded = opening.finish().and_then(|coded| coded.decode(None, &Window::new(0)));
    decoded.map(|(parcel, _)| parcel).map_err(|failure| failure.fault)
}

/// Checks that a bundle arrives with the bytes and checksums of its objects.
fn assert_arrives(objects: &[(usize, bool)], sent_in: usize, arrives_in: usize) {
    let whole: Vec<(usize, bool)> = objects.iter().map(|&(length, _)| (length, true)).collect();
    let data = content(objects.iter().map(|(length, _)| length).sum());
    let coded = encoded(bundle(objects), &data, sent_in, None);
    let following = objects.iter().filter(|(length, is_known)| *length > 0 && !is_known).count();
    assert_eq!(coded.head.checksums as usize, following);
    for crcs in [None, Some(Crcs::Crc64), Some(Crcs::Both)] {
        let parcel = arrived(&coded, arrives_in, crcs).unwrap();
        assert_eq!(parcel.manifest, bundle(&whole));
        assert_eq!(parcel.data.segments().concat(), data);
        let mut rest = &data[..];
        let each = objects.iter().map(|&(length, _)| rest.split_off(..length).unwrap());
        // A body without object bytes is not looked into.
        let crcs = crcs.filter(|_| !data.is_empty());
        let computed = crcs.map_or_else(Vec::new, |crcs| each.map(|object| sums_of(object, crcs)).collect());
        assert_eq!(parcel.computed, computed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn objects_arrive_with_their_checksums_however_the_body_is_cut(
        mut objects in prop::collection::vec((0usize..4_000, any::<bool>()), 0..130),
        large in prop::collection::vec((0usize..200_000, any::<bool>()), 0..3),
        at: usize, sent_in in 500usize..100_000, arrives_in in 500usize..150_000,
    ) {
        let at = at % (objects.len() + 1);
        objects.splice(at..at, large);
        assert_arrives(&objects, sent_in, arrives_in);
    }
}

#[test]
fn checksums_follow_wherever_a_segment_ends() {
    // They begin in one segment and end in the next, or have one of their own.
    let manifest_bytes = postcard::to_stdvec(&bundle(&[(70_000, false); 2])).unwrap().len();
    let near_a_segment = SEGMENT_BYTES - 16 - manifest_bytes - 2 * CHECKSUM_BYTES;
    for data_bytes in near_a_segment - 3..near_a_segment + 2 * CHECKSUM_BYTES + 4 {
        for (sent_in, arrives_in) in [(50_000, 9_000), (1 << 20, 300_000), (1_000, 70_000)] {
            assert_arrives(&[(100, false), (data_bytes - 100, false)], sent_in, arrives_in);
        }
    }
}

#[test]
fn the_checksums_of_a_part_follow_it_unless_it_is_compressed() {
    for data_bytes in [1, 7, 8, 9, 70_000, 3 * SEGMENT_BYTES] {
        let data = content(data_bytes);
        let sums = crc64_of(&data);
        for (codec, known) in [(None, Checksums::default()), (None, sums), (Some(CodecChoice::Auto), sums)] {
            let coded = encoded(part(known), &data, 50_000, codec);
            assert_eq!(coded.head.checksums, u32::from(known == Checksums::default()));
            let is_computed = coded.head.is_plain_chunk();
            let parcel = arrived(&coded, 9_000, Some(Crcs::Both)).unwrap();
            assert_eq!(parcel.manifest, part(sums));
            let both = vec![sums_of(&data, Crcs::Both)];
            assert_eq!(parcel.computed, if is_computed { both } else { Vec::new() });
            assert!(parcel.data.segments().concat() == data);
        }
    }
}

#[test]
fn a_body_with_more_or_fewer_checksums_than_its_manifest_lacks_is_refused() {
    let data = content(300);
    let sums = crc64_of(&data);
    for (manifest, lacks) in [(bundle(&[(100, false), (0, false), (200, false)]), 2), (bundle(&[(300, true)]), 0)] {
        for followed in 0..4 {
            let mut coded = encoded(manifest.clone(), &data, 1_000, None);
            coded.arrived.followed = vec![sums; followed];
            let fault = coded.decode(None, &Window::new(0)).err().map(|failure| failure.fault);
            assert_eq!(fault, (followed != lacks).then_some(Fault::Corrupt), "{followed} for {lacks}");
        }
    }
    // A source that compresses computes checksums when it reads: none can follow.
    let coded = encoded(part(Checksums::default()), &[7; 5_000], 1_000, Some(CodecChoice::Lz4));
    assert_eq!(arrived(&coded, 9_000, Some(Crcs::Crc64)).err(), Some(Fault::Corrupt));
}

#[test]
fn a_manifest_that_promises_other_lengths_gives_no_checksums_to_the_wrong_object() {
    for promised in [&[(100, true), (300, true)][..], &[(100, true)], &[]] {
        let coded = encoded(bundle(promised), &content(200), 1_000, None);
        let parcel = arrived(&coded, 9_000, Some(Crcs::Crc64)).unwrap();
        let first = (!promised.is_empty()).then(|| crc64_of(&content(100)));
        assert_eq!(parcel.computed, Vec::from_iter(first), "an object that has not arrived has none");
    }
}

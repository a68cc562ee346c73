//! Drives the fuzz entries of manifests, orders, records, connections, enrolments, JSON and the journal with mutated good input, so that
//! every test run covers them on stable.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../../../fuzz/entries/bodies.rs"]
mod bodies;
#[path = "../../../fuzz/entries/connection.rs"]
mod connection;
#[path = "../../../fuzz/entries/documents.rs"]
mod documents;
#[path = "../../../fuzz/entries/enrolment.rs"]
mod enrolment;
#[path = "../../../fuzz/entries/journal.rs"]
mod journal;
#[path = "../../../fuzz/entries/records.rs"]
mod records;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use tradewind_contract::{CodecChoice, LimitReason, VerifyMode};
use tradewind_gateway::attributes::Inherited;
use tradewind_gateway::enrol::NewKey;
use tradewind_gateway::enrol::messages::{Claim, Grant, Opening};
use tradewind_gateway::node::dedup::recipe::Step;
use tradewind_gateway::node::hop_reports::HopReport;
use tradewind_gateway::node::work::{
    Close, Entry, Failure, Fetch, Manifest, Order, PartPlace, Proof, SourceTask, Unsynced, WholePlace,
};
use tradewind_store::{Checksums, Expect, FileIdentity, PartSource, PartTag, Precondition, PutOptions, UploadId};
use tradewind_wire::frame::{Codec, Frame, Head, Header, Hello, HopEnd, Kind, Purpose, SealId};
use tradewind_wire::{Fault, RequestId, RouteId, WIRE_VERSION_MAJOR};

/// Inputs per seed document.
const MUTATIONS: usize = 5_000;
/// Inputs of each kind for the journal, where each is a file.
const JOURNALS: usize = 150;

/// Inputs of each kind for records and connections.
const SCRIPTS: usize = 1_000;
/// Inputs per example document.
const DOCUMENTS: usize = 100;

fn place() -> WholePlace {
    let options = PutOptions { size_bytes: Some(7), storage_class: Some("COLD".to_owned()), ..PutOptions::default() };
    WholePlace {
        target: 1,
        key: "a//b ü".to_owned(),
        options,
        verify: VerifyMode::Read,
        expect: Some(Expect::Absent),
        again: true,
        tags_dropped: false,
    }
}

fn part_place() -> PartPlace {
    PartPlace { target: 0, key: "k".to_owned(), upload: UploadId("u".to_owned()), part: 3, offset: 1 << 33 }
}

fn manifests() -> Vec<Manifest> {
    let checksums = Checksums { crc64nvme: Some(u64::MAX), crc32c: Some(1), md5: Some([9; 16]) };
    let source = PartSource {
        bucket: "b".to_owned(),
        key: "k".to_owned(),
        condition: Precondition { etag: Some("e".to_owned()), ..Precondition::default() },
        range: Some(5..9),
    };
    let tag = PartTag { part: 1, size_bytes: 5, tag: "t".to_owned(), checksums };
    let close = Close {
        place: place(),
        upload: UploadId("u".to_owned()),
        parts: vec![tag.clone(); 4],
        size_bytes: 20,
        checksums,
        source_proof: Proof::Crc32c,
        sweep_since_unix_ms: Some(-1),
    };
    vec![
        Manifest::Part { place: part_place(), checksums },
        Manifest::CheckPart { place: part_place(), part: tag.clone() },
        Manifest::CopyPart { place: part_place(), source: source.clone() },
        Manifest::Bundle(vec![
            Entry::Write { place: place(), size_bytes: 7, checksums, source_proof: Proof::Md5 },
            Entry::Write {
                place: place(),
                size_bytes: 9,
                checksums: Checksums::default(),
                source_proof: Proof::Length,
            },
            Entry::Copy { place: place(), size_bytes: 7, source: Box::new(source), listed: checksums },
            Entry::Failed(Failure::new(Fault::Changed, "changed", "it changed")),
        ]),
        Manifest::Close(Box::new(close)),
    ]
}

fn orders() -> Vec<Order> {
    let fetch = Fetch {
        source_key: "s".to_owned(),
        condition: Precondition {
            file: Some(FileIdentity { inode: 7, ..FileIdentity::default() }),
            ..Precondition::default()
        },
        size_bytes: 7,
        listed: Checksums::default(),
        place: place(),
        inherited: Inherited { from_source: true, content_type: Some("a/b".to_owned()) },
        tags: Default::default(),
        copy_from_bucket: None,
        check: Some(Box::new(Unsynced { boot: "b".to_owned(), checksums: Checksums::default() })),
    };
    let condition = Precondition::default();
    let part =
        SourceTask::Part { source_key: "s".to_owned(), condition, range: 0..5, place: part_place(), crc32c: true };
    let tasks = [SourceTask::Bundle(vec![fetch; 3]), part, SourceTask::Pass(manifests().remove(0))];
    let order = |(id, task)| Order {
        request: RequestId(id),
        route: RouteId(2),
        codec: Some(CodecChoice::Auto),
        deduplicate: true,
        task,
    };
    (0u64..).zip(tasks).map(order).collect()
}

fn hop_reports() -> Vec<HopReport> {
    let report = |relay: &str, to: &str| HopReport {
        relay: relay.to_owned(),
        to: to.to_owned(),
        limit: 4,
        limit_max: 64,
        elapsed_ms: 70_000,
        receiving_ms: 3,
        sending_ms: u64::MAX,
        changes: vec![(8, 4, LimitReason::Errors)],
    };
    vec![report("relay-1", "relay-2"), report("relay-2", "sink")]
}

fn recipe() -> Vec<Step> {
    let reference = |body, at| Step::Reference { body, at, bytes: 4096, hash: *blake3::hash(&[5; 4096]).as_bytes() };
    vec![Step::New { bytes: 8000 }, reference(0, 100), reference(1, 0), Step::New { bytes: 192 }]
}

fn mutated(good: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..bytes.len().max(1));
        match random.random_range(0..4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), random.random()),
            _ if at < bytes.len() => bytes[at] = random.random(),
            _ => bytes.push(random.random()),
        }
    }
    bytes
}

/// A body that the entry seals: the length of its manifest, how many checksums follow, and how it is cut come first.
fn sealed_body(manifest: &Manifest, checksums: u8) -> Vec<u8> {
    let manifest = postcard::to_stdvec(manifest).unwrap();
    let [low, high] = (manifest.len() as u16).to_le_bytes();
    [&[low, high, checksums, 1][..], &manifest, b"seven b and nine"].concat()
}

#[test]
fn manifests_and_orders_survive_any_bytes() {
    let mut seeds: Vec<Vec<u8>> = manifests().iter().map(|manifest| postcard::to_stdvec(manifest).unwrap()).collect();
    seeds.extend(manifests().iter().map(|manifest| sealed_body(manifest, 1)));
    seeds.push(sealed_body(&Manifest::Bundle(Vec::new()), 255));
    seeds.push(postcard::to_stdvec(&orders()).unwrap());
    seeds.push(postcard::to_stdvec(&hop_reports()).unwrap());
    seeds.push(postcard::to_stdvec(&recipe()).unwrap());
    seeds::keep("bodies", &seeds);
    let mut random = StdRng::seed_from_u64(20_261_121);
    for seed in &seeds {
        bodies::run(seed);
        for _ in 0..MUTATIONS {
            bodies::run(&mutated(seed, &mut random));
        }
    }
}

/// One row of each table, as the journal's fuzz entry reads rows.
fn journal_rows() -> Vec<u8> {
    fn integer(value: i64) -> Vec<u8> {
        [vec![2], value.to_le_bytes().to_vec()].concat()
    }
    fn text(value: &str) -> Vec<u8> {
        [vec![4], (value.len() as u16).to_le_bytes().to_vec(), value.as_bytes().to_vec()].concat()
    }
    let options = serde_json::to_string(&PutOptions::default()).unwrap();
    let done = [integer(0), text("a"), integer(1), integer(5), text("boot"), integer(-1), integer(9)];
    let upload = [
        vec![integer(1), integer(0), text("a"), text("s/a"), integer(20), integer(1), integer(10), text(&options)],
        vec![integer(1_700_000_000_000), text("u"), integer(0)],
    ];
    let part = [integer(1), integer(1), integer(10), text("boot"), integer(-5), integer(7), vec![0]];
    let boot = [text("boot"), integer(3)];
    [vec![1, 0], done.concat(), vec![1], upload.concat().concat(), vec![2], part.concat(), vec![3], boot.concat()]
        .concat()
}

#[test]
fn the_journal_survives_any_file_and_any_rows() {
    let rows = journal_rows();
    let file = [vec![0], journal::good_journal().to_vec()].concat();
    let seeds = [rows, file];
    seeds::keep("journal", &seeds);
    let mut random = StdRng::seed_from_u64(20_261_122);
    for seed in seeds {
        journal::run(&seed);
        for _ in 0..JOURNALS {
            journal::run(&mutated(&seed, &mut random));
        }
    }
}

#[test]
fn records_are_opened_as_they_were_sealed_or_not_at_all() {
    let mut random = StdRng::seed_from_u64(20_261_123);
    let good: Vec<u8> = std::iter::once(9).chain((0..20).flat_map(|step| [step % 4, 7 * step])).collect();
    let mut wire = vec![23, 3, 3, 0, 40];
    wire.resize(200, 5);
    let seeds = [good, wire];
    seeds::keep("records", &seeds);
    for seed in seeds {
        records::run(&seed);
        for _ in 0..SCRIPTS {
            records::run(&mutated(&seed, &mut random));
        }
    }
}

/// Valid bytes of a gateway's connection, after one byte for the length of the pieces.
fn good_connection() -> Vec<u8> {
    let mut bytes = vec![6];
    let head = |request, wire_bytes| Head {
        request: RequestId(request),
        route: RouteId(2),
        purpose: Purpose::Chunk,
        manifest_bytes: 4,
        recipe_bytes: 0,
        referenced_bytes: 0,
        checksums: u32::from(wire_bytes == 30),
        raw_bytes: wire_bytes,
        wire_bytes,
        codec: Codec::Raw,
        seal: SealId { sealer: [9; 16], count: 300 },
    };
    let data = |bytes: &mut Vec<u8>, length| {
        bytes.extend(Header { kind: Kind::Data, route: RouteId(0), length }.encode());
        bytes.extend(std::iter::repeat_n(7, length));
    };
    Frame::Hello(Hello {
        version: WIRE_VERSION_MAJOR,
        job: "job".into(),
        node: "source-1".into(),
        end: HopEnd::Upstream,
    })
    .encode(&mut bytes);
    Frame::Head(head(1, 30)).encode(&mut bytes);
    data(&mut bytes, 20);
    Frame::Ping(1).encode(&mut bytes);
    data(&mut bytes, 10);
    Frame::Head(head(2, 0)).encode(&mut bytes);
    Frame::Head(head(3, 9)).encode(&mut bytes);
    data(&mut bytes, 5);
    Frame::Abort.encode(&mut bytes);
    Frame::Orders(postcard::to_stdvec(&orders()).unwrap().into()).encode(&mut bytes);
    Frame::HopReports(postcard::to_stdvec(&hop_reports()).unwrap().into()).encode(&mut bytes);
    Frame::Drain.encode(&mut bytes);
    bytes
}

#[test]
fn a_connection_is_read_the_same_in_pieces_of_any_length() {
    let mut random = StdRng::seed_from_u64(20_261_124);
    let seed = good_connection();
    seeds::keep("connection", std::slice::from_ref(&seed));
    for pieces in 0..=255 {
        connection::run(&[&[pieces], &seed[1..]].concat());
    }
    for _ in 0..SCRIPTS {
        connection::run(&mutated(&seed, &mut random));
    }
}

#[test]
fn documents_survive_any_bytes() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contract/examples");
    let mut paths: Vec<_> = std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(seeds.len() > 20);
    seeds::keep("documents", &seeds);
    let mut random = StdRng::seed_from_u64(20_261_125);
    for seed in &seeds {
        documents::run(seed);
        for _ in 0..DOCUMENTS {
            documents::run(&mutated(seed, &mut random));
        }
    }
}

#[test]
fn messages_of_an_enrolment_survive_any_bytes() {
    let (fleet, proof_hex) = ("fleet-1".to_owned(), "0f".repeat(32));
    let key = NewKey::generate("relay").unwrap().request().clone();
    let opening = Opening { fleet: fleet.clone(), name: "relay".to_owned(), proof_hex: proof_hex.clone() };
    let grant = Grant { proof_hex: proof_hex.clone(), certificate_pem: "-----BEGIN".to_owned() };
    let claim = Claim { fleet, proof_hex, key };
    let seeds = [
        serde_json::to_vec(&opening).unwrap(),
        serde_json::to_vec(&claim).unwrap(),
        serde_json::to_vec(&grant).unwrap(),
        b"{}\n".to_vec(),
    ];
    seeds::keep("enrolment", &seeds);
    let mut random = StdRng::seed_from_u64(20_261_126);
    for seed in &seeds {
        enrolment::run(seed);
        for _ in 0..SCRIPTS {
            enrolment::run(&mutated(seed, &mut random));
        }
    }
}

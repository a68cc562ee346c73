//! Source and sink together, without a network: what is restored is what was sent, whatever has left the window.

use super::cutting::Piece;
use super::known::{Contents, Known, PIECES_MAX, Sent};
use super::recipe::{Step, is_gone, restore};
use super::window::{Window, WindowState};
use crate::node::parcel::{Coded, Parcel};
use crate::node::work::{Failure, Manifest, PartPlace};
use bytes::Bytes;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use std::sync::Arc;
use tradewind_contract::CodecChoice;
use tradewind_store::{Checksums, Payload, UploadId};
use tradewind_wire::frame::SealId;
use tradewind_wire::{Fault, RequestId, RouteId};

const ROUTE: RouteId = RouteId(2);

/// Random bytes.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn parcel(data: &[u8]) -> Parcel {
    let place = PartPlace { target: 0, key: "k".to_owned(), upload: UploadId("u".to_owned()), part: 1, offset: 0 };
    let segments: Vec<Bytes> = data.chunks(100_000).map(Bytes::copy_from_slice).collect();
    // As a source that deduplicates, which computes them when it reads.
    let manifest = Manifest::Part { place, checksums: Checksums::of_segments(&segments) };
    Parcel {
        request: RequestId(3),
        route: ROUTE,
        manifest,
        data: Payload::new(segments),
        computed: Vec::new(),
        held: None,
    }
}

/// A source, and a sink process that can be replaced by a new one.
struct Ends {
    known: Arc<Known>,
    window: Window,
    sink: u8,
    count: u64,
    codec: Option<CodecChoice>,
}

/// A body on its way.
struct Flight {
    data: Vec<u8>,
    coded: Coded,
    sent: Option<Sent>,
}

impl Ends {
    fn new(window_bytes: u64, codec: Option<CodecChoice>) -> Self {
        Self { known: Arc::default(), window: Window::new(window_bytes), sink: 1, count: 0, codec }
    }

    fn send(&mut self, data: &[u8]) -> Flight {
        let seal = SealId { sealer: [9; 16], count: self.count };
        self.count += 1;
        let places = |pieces: &[Piece]| self.known.places(ROUTE, pieces);
        let (coded, contents) = parcel(data).encode_new(self.codec, seal, places).unwrap();
        let sent = contents.map(|contents| self.known.sending(ROUTE, seal.count, contents));
        Flight { data: data.to_vec(), coded, sent }
    }

    /// Brings a body to the sink, and the answer to the source. Returns how many bytes it saved.
    fn arrive(&self, flight: Flight) -> Result<u64, Failure> {
        let (has_recipe, saved_bytes) = (flight.coded.head.recipe_bytes > 0, flight.coded.deduplicated_bytes());
        let decoded = flight.coded.decode(None, &self.window);
        let start = decoded.as_ref().map_or(None, |(_, start)| *start);
        if let Some(sent) = flight.sent.filter(|_| has_recipe) {
            sent.answered([self.sink; 16], self.window.state(start));
        }
        let (got, _) = decoded?;
        let restored: Vec<u8> = got.data.segments().concat();
        assert!(restored == flight.data, "{} bytes are not the {} sent", restored.len(), flight.data.len());
        Ok(saved_bytes)
    }

    fn pass(&mut self, data: &[u8]) -> Result<u64, Failure> {
        let flight = self.send(data);
        self.arrive(flight)
    }

    fn restart_sink(&mut self, window_bytes: u64) {
        self.window = Window::new(window_bytes);
        self.sink += 1;
    }
}

#[test]
fn repeated_bytes_are_sent_once_and_only_after_an_answer() {
    let data = noise(1, 1 << 20);
    let mut ends = Ends::new(8 << 20, None);
    let (first, second) = (ends.send(&data), ends.send(&data));
    assert_eq!(ends.arrive(first).unwrap(), 0);
    assert_eq!(ends.arrive(second).unwrap(), 0, "the first one was not answered when it was sent");
    let saved_bytes = ends.pass(&data).unwrap();
    assert!(saved_bytes > (1 << 20) - 4096, "{saved_bytes}");
}

#[test]
fn bytes_that_a_body_repeats_are_sent_once_even_without_a_window() {
    let mut data = noise(2, 600_000);
    data.extend_from_within(..);
    let mut ends = Ends::new(0, None);
    let saved_bytes = ends.pass(&data).unwrap();
    assert!(saved_bytes > 350_000, "{saved_bytes}");
    assert_eq!(ends.window.usage(), None);
}

#[test]
fn an_edited_version_sends_little_more_than_its_edits() {
    let data = noise(3, 4 << 20);
    let mut ends = Ends::new(64 << 20, None);
    ends.pass(&data).unwrap();
    let mut edited = data.clone();
    for at in [50_000, 1_000_000, 3_000_000] {
        edited.splice(at..at, *b"an edit");
    }
    let saved_bytes = ends.pass(&edited).unwrap();
    assert!(saved_bytes > 3 << 20, "{saved_bytes}");
}

#[test]
fn random_bytes_cost_next_to_nothing() {
    let mut ends = Ends::new(64 << 20, None);
    let plain = parcel(&noise(4, 4 << 20)).encode(None, SealId { sealer: [9; 16], count: 0 }).unwrap();
    let flight = ends.send(&noise(4, 4 << 20));
    assert!(flight.coded.head.wire_bytes - plain.head.wire_bytes < 100);
    assert_eq!(ends.arrive(flight).unwrap(), 0);
}

#[test]
fn short_pieces_are_sent_without_a_recipe() {
    let mut ends = Ends::new(1 << 20, None);
    for _ in 0..2 {
        let flight = ends.send(&noise(5, super::REFERENCED_BYTES_MIN - 1));
        assert_eq!(flight.coded.head.recipe_bytes, 0);
        assert_eq!(ends.arrive(flight).unwrap(), 0);
    }
}

#[test]
fn a_new_sink_refuses_references_once_and_the_source_learns_from_it() {
    let data = noise(6, 1 << 20);
    let mut ends = Ends::new(8 << 20, None);
    ends.pass(&data).unwrap();
    let flight = ends.send(&data);
    ends.restart_sink(8 << 20);
    let failure = ends.arrive(flight).unwrap_err();
    assert!(is_gone(&failure) && failure.fault == Fault::Unavailable);
    assert_eq!(ends.pass(&data).unwrap(), 0, "the new sink has nothing");
    assert!(ends.pass(&data).unwrap() > 1 << 19);
}

#[test]
fn a_piece_with_other_bytes_is_never_used() {
    let (id, window) = (SealId { sealer: [9; 16], count: 1 }, Window::new(1 << 20));
    window.keep(SealId { count: 0, ..id }, Bytes::from(vec![7; 5000]));
    let new = Bytes::from_static(b"new");
    let reference =
        |body, at, bytes, of: &[u8]| Step::Reference { body, at, bytes, hash: *blake3::hash(of).as_bytes() };
    let fault = |recipe: &[Step]| restore(recipe, &new, id, &window).err().map(|failure| failure.fault);
    assert_eq!(fault(&[Step::New { bytes: 3 }, reference(0, 10, 4990, &[7; 4990])]), None);
    assert_eq!(fault(&[Step::New { bytes: 3 }, reference(0, 10, 4990, &[8; 4990])]), Some(Fault::Corrupt));
    assert_eq!(fault(&[Step::New { bytes: 3 }, reference(0, 10, 4991, &[7; 4991])]), Some(Fault::Corrupt));
    assert_eq!(fault(&[Step::New { bytes: 3 }, reference(0, u32::MAX, u32::MAX, &[])]), Some(Fault::Corrupt));
    assert_eq!(fault(&[Step::New { bytes: 3 }, reference(5, 0, 10, &[7; 10])]), Some(Fault::Unavailable));
    assert_eq!(fault(&[Step::New { bytes: 2 }]), Some(Fault::Corrupt), "a byte is left over");
    assert_eq!(fault(&[Step::New { bytes: 4 }]), Some(Fault::Corrupt), "a byte is missing");
}

#[test]
fn a_restored_body_keeps_nothing_alive_that_left_the_window() {
    let (data, mut ends) = (noise(7, 200_000), Ends::new(8 << 20, None));
    let flight = ends.send(&data);
    let id = flight.coded.head.seal;
    ends.arrive(flight).unwrap();
    let kept = ends.window.find(id).unwrap();
    let flight = ends.send(&[&noise(8, 50_000), &data[..]].concat());
    assert!(flight.coded.deduplicated_bytes() > 0);
    let (got, _) = flight.coded.decode(None, &ends.window).unwrap();
    assert!(got.data.segments().iter().all(|piece| !kept.as_ptr_range().contains(&piece.as_ptr())));
}

#[test]
fn a_source_remembers_a_limited_number_of_pieces_whatever_a_sink_says() {
    let known = Arc::<Known>::default();
    let new_pieces = |body: u64| -> Vec<Piece> {
        let piece = |number: u64| {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&((body << 20) | number).to_le_bytes());
            Piece { at: 0, bytes: 4096, hash: Some(hash) }
        };
        (0..1 << 18).map(piece).collect()
    };
    for body in 0..6 {
        let sent = known.sending(ROUTE, body, Contents { new_pieces: new_pieces(body), ..Contents::default() });
        let window = WindowState { start_bytes: Some(u64::MAX - body), total_bytes: 0, bytes_max: u64::MAX };
        sent.answered([1; 16], window);
        assert!(known.pieces() <= PIECES_MAX);
    }
    assert_eq!(known.pieces(), PIECES_MAX);
    known.retain_routes(|route| route == ROUTE);
    assert_eq!(known.pieces(), PIECES_MAX);
    known.retain_routes(|route| route != ROUTE);
    assert_eq!(known.pieces(), 0, "the route is gone, and so is its sink");
}

/// The next event of a run.
#[derive(Clone, Debug)]
enum Event {
    /// A body of some of the known blocks, in this order, is sent.
    Send(Vec<u8>),
    /// One of the bodies in flight arrives.
    Arrive(prop::sample::Index),
    /// One of the bodies in flight is lost.
    Lose(prop::sample::Index),
    /// The sink is replaced by a new one.
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => prop::collection::vec(0u8..12, 1..6).prop_map(Event::Send),
        6 => any::<prop::sample::Index>().prop_map(Event::Arrive),
        1 => any::<prop::sample::Index>().prop_map(Event::Lose),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In any order of arrival, with losses, new sinks and windows that overflow: a body arrives as it was sent, or the
    /// sink says that a piece is gone. Its window never holds more than it may.
    #[test]
    fn what_arrives_is_what_was_sent(
        events in events(),
        window_bytes in prop::sample::select(vec![0u64, 70_000, 300_000, 2_000_000]),
        codec in prop::sample::select(vec![None, Some(CodecChoice::Lz4)]),
    ) {
        let blocks: Vec<Vec<u8>> = (0..12).map(|seed| noise(100 + seed, 7_000 + 9_000 * seed as usize)).collect();
        let (mut ends, mut flights) = (Ends::new(window_bytes, codec), Vec::new());
        let arrives = |ends: &Ends, flight| {
            match ends.arrive(flight) {
                Ok(_) => {}
                Err(failure) => assert!(is_gone(&failure), "{failure:?}"),
            }
            assert!(ends.window.usage().is_none_or(|(bytes, _)| bytes <= window_bytes));
        };
        for event in events {
            match event {
                Event::Send(order) => {
                    let data: Vec<u8> = order.iter().flat_map(|block| blocks[usize::from(*block)].clone()).collect();
                    flights.push(ends.send(&data));
                }
                Event::Arrive(which) if !flights.is_empty() => {
                    arrives(&ends, flights.swap_remove(which.index(flights.len())));
                }
                Event::Lose(which) if !flights.is_empty() => drop(flights.swap_remove(which.index(flights.len()))),
                Event::Restart => ends.restart_sink(window_bytes),
                Event::Arrive(_) | Event::Lose(_) => {}
            }
        }
        for flight in flights {
            arrives(&ends, flight);
        }
    }

    /// Where bodies arrive in the order in which they were sent, and nothing is lost, no reference is ever refused.
    #[test]
    fn in_order_no_piece_is_gone(
        orders in prop::collection::vec(prop::collection::vec(0u8..12, 1..6), 1..30),
        window_bytes in prop::sample::select(vec![70_000u64, 300_000, 2_000_000]),
    ) {
        let blocks: Vec<Vec<u8>> = (0..12).map(|seed| noise(100 + seed, 7_000 + 9_000 * seed as usize)).collect();
        let mut ends = Ends::new(window_bytes, None);
        for order in orders {
            let data: Vec<u8> = order.iter().flat_map(|block| blocks[usize::from(*block)].clone()).collect();
            prop_assert!(ends.pass(&data).is_ok());
        }
    }
}

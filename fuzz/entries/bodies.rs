//! Messages of lead, source and sink inside frames.

use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use tradewind_gateway::node::dedup::recipe::{parse_recipe, restore};
use tradewind_gateway::node::dedup::window::Window;
use tradewind_gateway::node::hop_reports::parse_hop_reports;
use tradewind_gateway::node::inbound::parse_orders;
use tradewind_gateway::node::parcel::{Arrived, Coded, parse_manifest};
use tradewind_gateway::node::seal::{Seal, sealed_bytes};
use tradewind_gateway::node::work::{SinkAnswer, parse_exactly};
use tradewind_store::Crcs;
use tradewind_wire::frame::{CHECKSUM_BYTES, Codec, Head, Purpose, SealId};
use tradewind_wire::{RequestId, RouteId};

/// Parses `data` as a manifest, as a batch of orders, as a sink's answer, as a relay's reports and as a recipe. A parsed
/// message must survive writing and parsing unchanged. A recipe is also carried out. Then `data` is sealed and opened.
pub(crate) fn run(data: &[u8]) {
    if let Some(manifest) = parse_manifest(data) {
        let again = postcard::to_stdvec(&manifest).expect("what was parsed can be written");
        assert_eq!(parse_manifest(&again), Some(manifest));
    }
    if let Some(orders) = parse_orders(data) {
        let again = postcard::to_stdvec(&orders).expect("what was parsed can be written");
        assert_eq!(parse_orders(&again), Some(orders));
    }
    if let Some(answer) = parse_exactly::<SinkAnswer>(data) {
        let again = postcard::to_stdvec(&answer).expect("what was parsed can be written");
        assert_eq!(parse_exactly(&again), Some(answer));
    }
    if let Some(reports) = parse_hop_reports(data) {
        let again = postcard::to_stdvec(&reports).expect("what was parsed can be written");
        assert_eq!(parse_hop_reports(&again), Some(reports));
    }
    if let Some(recipe) = parse_recipe(data) {
        let again = postcard::to_stdvec(&recipe).expect("what was parsed can be written");
        assert_eq!(parse_recipe(&again).as_ref(), Some(&recipe));
        let (id, window) = (SealId { sealer: [7; 16], count: 1 }, Window::new(1 << 20));
        let new = Bytes::from_static(&[5; 8192]);
        window.keep(SealId { count: 0, ..id }, new.clone());
        drop(restore(&recipe, &new, id, &window));
    }
    body(data);
}

/// Seals a body as a source would that lies about its manifest and checksums, opens and decodes it.
fn body(data: &[u8]) {
    let Some(([low, high, checksums, cut], content)) = data.split_first_chunk() else { return };
    let seal = Arc::new(Seal::from_hex(&"05".repeat(32)).expect("a key"));
    let raw_bytes = content.len() as u64 + u64::from(*checksums) * CHECKSUM_BYTES as u64;
    let head = Head {
        request: RequestId(1),
        route: RouteId(0),
        purpose: Purpose::Chunk,
        manifest_bytes: u32::from(u16::from_le_bytes([*low, *high])).min(content.len() as u32),
        recipe_bytes: 0,
        referenced_bytes: 0,
        checksums: u32::from(*checksums),
        raw_bytes,
        wire_bytes: sealed_bytes(raw_bytes),
        codec: Codec::Raw,
        seal: seal.next_id(),
    };
    let mut wire = vec![0; head.wire_bytes as usize];
    let body = vec![Bytes::copy_from_slice(content)];
    let coded = Coded { head, body, objects: Vec::new(), arrived: Arrived::default() };
    seal.sealing(&coded).fill(&mut wire).expect("it is sealed");
    let mut opening = seal.opening(&coded.head, Some(Crcs::Both));
    wire.chunks(64 * (usize::from(*cut) + 1)).for_each(|piece| opening.push(BytesMut::from(piece)));
    let opened = opening.finish();
    assert_eq!(opened.is_ok(), !wire.is_empty());
    drop(opened.map(|coded| coded.decode(None, &Window::new(0))));
}

//! Messages of lead, source and sink inside frames.

use bytes::Bytes;
use tradewind_gateway::node::dedup::recipe::{parse_recipe, restore};
use tradewind_gateway::node::dedup::window::Window;
use tradewind_gateway::node::hop_reports::parse_hop_reports;
use tradewind_gateway::node::inbound::parse_orders;
use tradewind_gateway::node::parcel::parse_manifest;
use tradewind_gateway::node::work::{SinkAnswer, parse_exactly};
use tradewind_wire::frame::SealId;

/// Parses `data` as a manifest, as a batch of orders, as a sink's answer, as a relay's reports and as a recipe. A parsed
/// message must survive writing and parsing unchanged. A recipe is also carried out.
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
}

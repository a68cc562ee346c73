//! Messages of lead, source and sink inside frames.

use tradewind_gateway::node::inbound::parse_orders;
use tradewind_gateway::node::parcel::parse_manifest;
use tradewind_gateway::node::work::{SinkAnswer, parse_exactly};

/// Parses `data` as a manifest, as a batch of orders and as a sink's answer. A parsed message must survive
/// writing and parsing unchanged.
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
}

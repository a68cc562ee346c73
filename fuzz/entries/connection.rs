//! A plain connection between gateways, hello first, in pieces of any length.

/// Reads `data` as what a peer sends; the gateway crate asserts that it reads the same in pieces of any length.
pub(crate) fn run(data: &[u8]) {
    tradewind_gateway::net::fuzz::connection(data);
}

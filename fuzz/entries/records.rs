//! The TLS record layer of the data port.

/// Opens `data` as records, and as a script that damages good ones; the gateway crate asserts that nothing comes out that
/// was not sealed.
pub(crate) fn run(data: &[u8]) {
    tradewind_gateway::net::fuzz::records(data);
}

//! The TLS records between split proxies.

/// Opens `data` as records, and as a script that damages good ones; the split crate asserts that nothing comes out that
/// was not sealed.
pub(crate) fn run(data: &[u8]) {
    tradewind_split::fuzz::records(data);
}

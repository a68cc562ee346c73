//! The request and the answer between two split proxies.

use tradewind_split::header::{self, Request};

/// Parses `data` as a request and as an answer. A parsed request must survive encoding and parsing unchanged.
pub(crate) fn run(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers starts");
    runtime.block_on(async {
        let _ = header::read_answer(&mut &*data).await;
        let Ok(request) = Request::read(&mut &*data).await else { return };
        let mut encoded = Vec::new();
        // Lower-case names and canonical addresses are never longer than what was parsed.
        request.write(&mut encoded).await.expect("what was parsed can be encoded");
        assert_eq!(Request::read(&mut &*encoded).await.expect("what was encoded parses"), request);
    });
}

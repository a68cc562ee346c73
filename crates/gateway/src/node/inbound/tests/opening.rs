//! Hops whose downstream end opens the connections.

use super::super::super::dial::{Dial, DialledHop};
use super::*;
use crate::net::Tcp;
use tokio::net::TcpListener;

/// The gateway above has a data port and one hop, to `here`. Gateway `here` opens its connections.
async fn above_without_dialling(stop: &CancellationToken) -> (Arc<Hop>, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let setup = HopSetup {
        spec: HopSpec { to: "here".to_owned(), address: None, connections: 2 },
        security: Security::Plain,
        hello: hello("above"),
        silence_max: Duration::from_secs(2),
        request_max: HANG,
        network: Arc::new(Tcp),
        reports: Arc::default(),
    };
    let hop = Hop::start(setup, stop.clone());
    let ends = Ends::new();
    let inbound = Inbound {
        hello: hello("above"),
        awaited: RwLock::new(HashMap::from([("here".to_owned(), hop.clone())])),
        stop: stop.clone(),
        ..Arc::into_inner(inbound_of(&ends)).unwrap()
    };
    tokio::spawn(Arc::new(inbound).listen(Box::new(listener)));
    (hop, address)
}

fn dial(own_name: &str, address: std::net::SocketAddr) -> Dial {
    Dial {
        peer: "above".to_owned(),
        address: address.to_string(),
        security: Security::Plain,
        hello: Hello { end: HopEnd::Downstream, ..hello(own_name) },
        silence_max: HANG,
        network: Arc::new(Tcp),
    }
}

async fn write_over(hop: &Hop, request: u64) -> Verdict {
    let data = payload(&content());
    let (checksums, size_bytes) = (Checksums::of_segments(data.segments()), data.len());
    let place = whole_place(KEY, VerifyMode::Auto, false);
    let manifest = Manifest::Bundle(vec![Entry::Write { place, size_bytes, checksums, source_proof: Proof::Length }]);
    let parcel =
        Parcel { request: RequestId(request), route: RouteId(0), manifest, data, computed: Vec::new(), held: None };
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let seal = seal::of_tests();
    let coded = parcel.encode(None, seal.next_id()).unwrap();
    hop.send(&coded, &seal, &ReplyTo::memory(answers_in).from_downstream(seal.clone(), None)).await;
    tokio::time::timeout(HANG, answers.recv()).await.expect("a request is not answered").unwrap().verdict
}

#[tokio::test]
async fn a_hop_whose_downstream_end_opens_it_carries_requests_and_is_opened_again_when_it_breaks() {
    let (stop, below_stop) = (CancellationToken::new(), CancellationToken::new());
    let (hop, address) = above_without_dialling(&stop).await;
    let ends = Ends::new();
    let below = Inbound { stop: below_stop.clone(), ..Arc::into_inner(inbound_of(&ends)).unwrap() };
    let dialled = DialledHop::start(dial("here", address), 2, Arc::new(below), stop.child_token());
    assert_done(&write_over(&hop, 1).await, "the first");

    // The lower end breaks off: later requests use a new connection.
    below_stop.cancel();
    let below = inbound_of(&ends);
    let again = DialledHop::start(dial("here", address), 2, below, stop.child_token());
    let written = async {
        for request in 2.. {
            if matches!(write_over(&hop, request).await, Verdict::Sink(_)) {
                return;
            }
        }
    };
    tokio::time::timeout(HANG, written).await.expect("nothing arrives over the new connections");
    dialled.retire();
    again.retire();
    stop.cancel();
}

#[tokio::test]
async fn a_hop_that_nobody_opens_is_down_and_strangers_do_not_open_it() {
    let stop = CancellationToken::new();
    let (hop, address) = above_without_dialling(&stop).await;
    // A name that no hop waits for, and the right name at the wrong end.
    for dial in [dial("stranger", address), Dial { hello: hello("here"), ..dial("here", address) }] {
        if let Ok(mut connection) = dial.connect().await {
            while connection.reader.next().await.is_ok() {}
        }
    }
    let verdict = write_over(&hop, 1).await;
    assert!(matches!(verdict, Verdict::Failed { fault: Fault::RouteDown, unsent: true, .. }), "{verdict:?}");
    stop.cancel();
}

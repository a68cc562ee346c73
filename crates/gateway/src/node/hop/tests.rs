//! A hop whose other end is not there, and one whose other end goes away.

use super::*;
use crate::net::Tcp;
use crate::node::parcel::Parcel;
use crate::node::work::Manifest;
use bytes::Bytes;
use tokio::net::TcpListener;
use tradewind_store::Payload;
use tradewind_wire::RouteId;
use tradewind_wire::frame::Verdict;

/// Longer than what the sockets between two gateways take in before anybody reads.
const LONG_BODY_BYTES: usize = 64 << 20;

fn hello(node: &str) -> Hello {
    Hello { version: tradewind_wire::WIRE_VERSION_MAJOR, job: "j".to_owned(), node: node.to_owned() }
}

/// A hop of one connection to `below`, who listens there.
fn hop_to(address: std::net::SocketAddr, stop: &CancellationToken) -> Arc<Hop> {
    let spec = HopSpec { to: "below".to_owned(), address: address.to_string(), connections: 1 };
    let silence_max = Duration::from_secs(10);
    Hop::start(
        HopSetup { spec, security: Security::Plain, hello: hello("here"), silence_max, network: Arc::new(Tcp) },
        stop.clone(),
    )
}

/// A hop to a port where nobody listens.
async fn dead_hop(stop: &CancellationToken) -> Arc<Hop> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    hop_to(address, stop)
}

fn coded(request: RequestId, body_bytes: usize) -> Coded {
    let data = Payload::new(vec![Bytes::from(vec![7; body_bytes])]);
    let parcel = Parcel { request, route: RouteId(0), manifest: Manifest::Bundle(Vec::new()), data, held: None };
    parcel.encode(false, None).unwrap()
}

async fn accept(listener: &TcpListener) -> Connection {
    let (tcp, _) = listener.accept().await.unwrap();
    Connection::accept(tcp.into(), &Security::Plain, hello("below")).await.unwrap()
}

/// Reads up to the head of the next request.
async fn begun(connection: &mut Connection) -> tradewind_wire::frame::Head {
    loop {
        match connection.reader.next().await.unwrap() {
            Incoming::Begin(head) => return head,
            Incoming::Frame(Frame::Ping(_)) => {}
            other => panic!("{other:?} before a head"),
        }
    }
}

#[tokio::test]
async fn a_dead_hop_says_what_was_not_sent_to_a_source_and_lead_and_nothing_to_a_relay() {
    let stop = CancellationToken::new();
    let hop = dead_hop(&stop).await;
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    hop.send(&coded(RequestId(1), 0), &reply).await;
    hop.send_orders(&Frame::Orders(bytes::Bytes::new()), &[RequestId(2)], &reply).await;
    assert!(hop.checkout(RequestId(3), &reply).await.is_none());
    for wanted in [(RequestId(1), true), (RequestId(2), true), (RequestId(3), false)] {
        let Reply { request, verdict } = answers.recv().await.unwrap();
        let Verdict::Failed { fault: Fault::RouteDown, unsent, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!((request, unsent), wanted);
    }
    stop.cancel();
}

#[tokio::test]
async fn a_body_cut_off_goes_back_to_the_lead_and_is_not_sent_again_unbooked() {
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hop = hop_to(listener.local_addr().unwrap(), &stop);
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let sending = tokio::spawn({
        let (hop, reply) = (hop.clone(), ReplyTo::memory(answers_in));
        async move { hop.send(&coded(RequestId(1), LONG_BODY_BYTES), &reply).await }
    });

    let mut cut_off = accept(&listener).await;
    begun(&mut cut_off).await;
    assert!(matches!(cut_off.reader.next().await.unwrap(), Incoming::Piece { last: false, .. }));
    drop(cut_off);
    // The way is whole again at once: the body could go over it.
    let mut again = accept(&listener).await;
    tokio::select! {
        done = sending => done.unwrap(),
        head = begun(&mut again) => panic!("sent again, and nobody asked the lead: {head:?}"),
    }

    let Reply { request, verdict } = answers.recv().await.unwrap();
    let Verdict::Failed { fault: Fault::Lost, unsent: false, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!((request, hop.in_flight()), (RequestId(1), 0));
    assert!(hop.counts().sent_bytes.load(Ordering::Relaxed) < LONG_BODY_BYTES as u64);
    stop.cancel();
}

#[tokio::test]
async fn orders_that_a_broken_connection_cuts_off_are_answered_lost() {
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hop = hop_to(listener.local_addr().unwrap(), &stop);
    let below = accept(&listener).await;
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    // Nobody reads below, so that in the end a frame stands half written; then the connection breaks.
    let frame = Frame::Orders(Bytes::from(vec![7; tradewind_wire::frame::CONTROL_BYTES_MAX]));
    let sending = async {
        let mut asked = 0;
        while asked < 1 || hop.connections() > 0 {
            hop.send_orders(&frame, &[RequestId(asked)], &reply).await;
            asked += 1;
        }
        asked
    };
    let breaking = async {
        while hop.in_flight() < 1 {
            tokio::task::yield_now().await;
        }
        drop(below);
    };
    drop(listener);
    let (asked, ()) = tokio::join!(sending, breaking);
    for _ in 0..asked {
        let Reply { verdict, .. } = answers.recv().await.unwrap();
        assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost | Fault::RouteDown, .. }), "{verdict:?}");
    }
    assert_eq!(hop.in_flight(), 0);
    stop.cancel();
}

#[tokio::test]
async fn a_request_that_is_in_flight_is_not_sent_a_second_time() {
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hop = hop_to(listener.local_addr().unwrap(), &stop);
    let _below = accept(&listener).await;
    let (first_in, mut first) = mpsc::unbounded_channel();
    let (second_in, mut second) = mpsc::unbounded_channel();
    hop.send(&coded(RequestId(1), 10), &ReplyTo::memory(first_in)).await;
    hop.send(&coded(RequestId(1), 10), &ReplyTo::memory(second_in)).await;
    let Reply { verdict, .. } = second.recv().await.unwrap();
    assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{verdict:?}");
    assert!(first.try_recv().is_err(), "the first one is still under way");
    assert_eq!(hop.in_flight(), 1);
    stop.cancel();
}

#[tokio::test]
async fn a_dropped_sending_answers_its_request_and_gives_its_connection_back() {
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hop = hop_to(listener.local_addr().unwrap(), &stop);
    let mut below = accept(&listener).await;
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    drop(hop.checkout(RequestId(1), &reply).await.unwrap());
    let Reply { request, verdict } = answers.recv().await.unwrap();
    assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{verdict:?}");
    assert_eq!(request, RequestId(1));
    // Nothing was begun, so the same connection takes the next.
    hop.send(&coded(RequestId(2), 0), &reply).await;
    assert_eq!(begun(&mut below).await.request, RequestId(2));
    stop.cancel();
}

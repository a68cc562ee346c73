//! Tests a hop whose other end is absent, and one whose other end goes away.

use super::*;
use crate::drop_after::DropAfter;
use crate::net::tests::nearly_worn;
use crate::net::{Connection, Incoming};
use crate::net::{DataPort, Tcp};
use crate::node::parcel::Parcel;
use crate::node::seal;
use crate::node::work::Manifest;
use bytes::Bytes;
use tokio::net::TcpListener;
use tradewind_store::Payload;
use tradewind_wire::RouteId;
use tradewind_wire::frame::{Reply, Verdict};

/// More than the sockets between two gateways accept before the other side reads.
const LONG_BODY_BYTES: usize = 64 << 20;
/// Longer than any test here.
const REQUEST_MAX: Duration = Duration::from_secs(3600);

fn hello(node: &str) -> Hello {
    Hello {
        version: tradewind_wire::WIRE_VERSION_MAJOR,
        job: "j".to_owned(),
        node: node.to_owned(),
        end: HopEnd::Upstream,
    }
}

/// A hop of one connection to `downstream`, which listens at `address`.
fn hop_to(address: std::net::SocketAddr, stop: &CancellationToken) -> Arc<Hop> {
    let spec = HopSpec { to: "downstream".to_owned(), address: Some(address.to_string()), connections: 1 };
    let silence_max = Duration::from_secs(10);
    Hop::start(
        HopSetup {
            spec,
            security: Security::Plain,
            hello: hello("here"),
            silence_max,
            request_max: REQUEST_MAX,
            network: Arc::new(Tcp),
            reports: Arc::default(),
        },
        stop.clone(),
    )
}

/// A hop whose only connection is this one.
fn hop_over(connection: Connection, stop: &CancellationToken) -> Arc<Hop> {
    let spec = HopSpec { to: connection.peer.clone(), address: None, connections: 1 };
    let hop = Hop::start(
        HopSetup {
            spec,
            security: Security::Plain,
            hello: hello("here"),
            silence_max: Duration::from_secs(10),
            request_max: REQUEST_MAX,
            network: Arc::new(Tcp),
            reports: Arc::default(),
        },
        stop.clone(),
    );
    tokio::spawn({
        let hop = hop.clone();
        async move { hop.serve(connection).await }
    });
    hop
}

/// A hop to a port on which nothing listens.
async fn dead_hop(stop: &CancellationToken) -> Arc<Hop> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    hop_to(address, stop)
}

fn coded(request: RequestId, body_bytes: usize) -> Coded {
    let data = Payload::new(vec![Bytes::from(vec![7; body_bytes])]);
    let parcel = Parcel {
        request,
        route: RouteId(0),
        manifest: Manifest::Bundle(Vec::new()),
        data,
        computed: Vec::new(),
        held: None,
    };
    parcel.encode(None, seal::of_tests().next_id()).unwrap()
}

async fn accept(listener: &TcpListener) -> Connection {
    let (tcp, _) = listener.accept().await.unwrap();
    Connection::accept(tcp.into(), &Security::Plain, hello("downstream")).await.unwrap()
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
    hop.send(&coded(RequestId(1), 0), &seal::of_tests(), &reply).await;
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
        async move { hop.send(&coded(RequestId(1), LONG_BODY_BYTES), &seal::of_tests(), &reply).await }
    });

    let mut cut_off = accept(&listener).await;
    begun(&mut cut_off).await;
    assert!(matches!(cut_off.reader.next().await.unwrap(), Incoming::Piece { last: false, .. }));
    drop(cut_off);
    // The path works again at once: the body could be sent over it.
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

/// The first one may still arrive, so that its bytes and its write count.
#[tokio::test]
async fn a_request_that_comes_a_second_time_may_have_been_sent() {
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hop = hop_to(listener.local_addr().unwrap(), &stop);
    let _downstream = accept(&listener).await;
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    hop.send(&coded(RequestId(1), 0), &seal::of_tests(), &reply).await;
    hop.send(&coded(RequestId(1), 0), &seal::of_tests(), &reply).await;
    hop.send_orders(&Frame::Orders(Bytes::new()), &[RequestId(1)], &reply).await;
    for _ in 0..2 {
        let Reply { request, verdict } = answers.recv().await.unwrap();
        let Verdict::Failed { fault: Fault::Lost, unsent: false, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(request, RequestId(1));
    }
    assert_eq!(hop.in_flight(), 1);
    stop.cancel();
}

/// Every record counts, not only those of bodies.
#[tokio::test(start_paused = true)]
async fn a_connection_whose_keys_are_worn_by_orders_takes_no_more_of_them() {
    let stop = CancellationToken::new();
    let (connection, mut downstream) = nearly_worn();
    let hop = hop_over(connection, &stop);
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    hop.send_orders(&Frame::Orders(Bytes::from_static(b"orders")), &[RequestId(1)], &reply).await;
    let answer = Reply { request: RequestId(1), verdict: Verdict::Sink(Bytes::new()) };
    downstream.writer.frame(&Frame::Replies(vec![answer])).await.unwrap();
    assert_eq!(answers.recv().await.unwrap().request, RequestId(1));
    let retired = async {
        while hop.connections() > 0 {
            tokio::time::sleep(RETIRE_PAUSE).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(9), retired).await.is_ok(), "the connection is still in use");
    stop.cancel();
}

#[tokio::test]
async fn orders_that_a_broken_connection_cuts_off_are_answered_lost() {
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hop = hop_to(listener.local_addr().unwrap(), &stop);
    let downstream = accept(&listener).await;
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    // Nothing reads downstream, so that a frame is finally half written; then the connection breaks.
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
        drop(downstream);
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
    let _downstream = accept(&listener).await;
    let (first_in, mut first) = mpsc::unbounded_channel();
    let (second_in, mut second) = mpsc::unbounded_channel();
    hop.send(&coded(RequestId(1), 10), &seal::of_tests(), &ReplyTo::memory(first_in)).await;
    hop.send(&coded(RequestId(1), 10), &seal::of_tests(), &ReplyTo::memory(second_in)).await;
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
    let mut downstream = accept(&listener).await;
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    drop(hop.checkout(RequestId(1), &reply).await.unwrap());
    let Reply { request, verdict } = answers.recv().await.unwrap();
    assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{verdict:?}");
    assert_eq!(request, RequestId(1));
    // Nothing was begun, so the same connection takes the next request.
    hop.send(&coded(RequestId(2), 0), &seal::of_tests(), &reply).await;
    assert_eq!(begun(&mut downstream).await.request, RequestId(2));
    stop.cancel();
}

/// More than a pipe accepts before the other side reads.
const BODY_BYTES: usize = 200 << 10;
/// Far more than any of these futures has awaits.
const POLLS_MAX: usize = 10_000;

/// A gateway downstream that answers each whole request and each batch of orders (the payload is the id of its one
/// order).
async fn answer_everything(port: Box<dyn DataPort>) {
    while let Ok(link) = port.accept().await {
        tokio::spawn(async move {
            let Ok(mut connection) = Connection::accept(link, &Security::Plain, hello("downstream")).await else {
                return;
            };
            let mut begun = RequestId(0);
            while let Ok(incoming) = connection.reader.next().await {
                let request = match incoming {
                    Incoming::Begin(head) => {
                        begun = head.request;
                        continue;
                    }
                    Incoming::Piece { last: true, .. } => begun,
                    Incoming::Frame(Frame::Orders(id)) => RequestId(u64::from_le_bytes(id[..8].try_into().unwrap())),
                    _ => continue,
                };
                let answer = Reply { request, verdict: Verdict::Sink(Bytes::from_static(b"done")) };
                drop(connection.writer.frame(&Frame::Replies(vec![answer])).await);
            }
        });
    }
}

/// A hop of one connection over pipes to [`answer_everything`].
fn piped_hop(stop: &CancellationToken) -> Arc<Hop> {
    let (network, port) = crate::pipes::network();
    tokio::spawn(answer_everything(port));
    let spec = HopSpec { to: "downstream".to_owned(), address: Some("127.0.0.1:1".to_owned()), connections: 1 };
    let silence_max = Duration::from_secs(10);
    let setup = HopSetup {
        spec,
        security: Security::Plain,
        hello: hello("here"),
        silence_max,
        request_max: REQUEST_MAX,
        network,
        reports: Arc::default(),
    };
    Hop::start(setup, stop.clone())
}

#[derive(Clone, Copy, Debug)]
enum Sends {
    Request,
    Orders,
}

impl Sends {
    /// Sends one request, dropped after `polls`. Returns whether it was sent, and the answer if there is one.
    async fn once(self, hop: &Hop, request: u64, polls: usize) -> (bool, Option<Verdict>) {
        let (answers_in, mut answers) = mpsc::unbounded_channel();
        let reply = ReplyTo::memory(answers_in);
        let request = RequestId(request);
        let sent = match self {
            Self::Request => {
                DropAfter::new(polls, hop.send(&coded(request, BODY_BYTES), &seal::of_tests(), &reply)).await
            }
            Self::Orders => {
                // Longer than the pipe's buffer, so that it may be dropped half written.
                let mut orders = vec![0; BODY_BYTES];
                orders[..8].copy_from_slice(&request.0.to_le_bytes());
                let frame = Frame::Orders(orders.into());
                DropAfter::new(polls, hop.send_orders(&frame, &[request], &reply)).await
            }
        };
        drop(reply);
        if sent.is_none() {
            assert_eq!(hop.in_flight(), 0, "{self:?} after {polls} polls is registered, and nobody answers it");
        }
        let verdict = answers.recv().await.map(|Reply { verdict, .. }| verdict);
        assert!(answers.recv().await.is_none(), "{self:?} after {polls} polls is answered twice");
        (sent.is_some(), verdict)
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_dropped_at_any_await_is_answered_and_the_next_goes_through() {
    for sends in [Sends::Request, Sends::Orders] {
        let (stop, mut request) = (CancellationToken::new(), 0);
        let hop = piped_hop(&stop);
        for polls in 0.. {
            assert!(polls < POLLS_MAX, "{sends:?} never ends");
            request += 2;
            let (sent, verdict) = sends.once(&hop, request, polls).await;
            if !sent && let Some(verdict) = verdict {
                assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{verdict:?}");
            }
            let (_, verdict) = sends.once(&hop, request + 1, usize::MAX).await;
            assert!(matches!(verdict, Some(Verdict::Sink(_))), "{sends:?} after {polls} polls: {verdict:?}");
            assert_eq!((hop.in_flight(), hop.connections()), (0, 1), "{sends:?} after {polls} polls");
            if sent && polls > 5 {
                break;
            }
        }
        stop.cancel();
    }
}

/// The task that keeps a connection up is dropped only with the whole gateway, or by a panic.
#[tokio::test(start_paused = true)]
async fn a_connection_dropped_at_any_await_answers_what_is_on_it() {
    for polls in 0..20 {
        let (network, port) = crate::pipes::network();
        let stop = CancellationToken::new();
        let spec = HopSpec { to: "downstream".to_owned(), address: Some("127.0.0.1:1".to_owned()), connections: 0 };
        let silence_max = Duration::from_secs(10);
        let setup = HopSetup {
            spec,
            security: Security::Plain,
            hello: hello("here"),
            silence_max,
            request_max: REQUEST_MAX,
            network,
            reports: Arc::default(),
        };
        let hop = Hop::start(setup, stop.clone());
        // Accepts requests and never answers.
        let mute = tokio::spawn(async move {
            let mut connections = Vec::new();
            while let Ok(link) = port.accept().await {
                connections.push(Connection::accept(link, &Security::Plain, hello("downstream")).await);
            }
        });
        let (answers_in, mut answers) = mpsc::unbounded_channel();
        let keeping = DropAfter::new(polls, hop.clone().keep_connected());
        let sending = async {
            tokio::time::timeout(
                Duration::from_secs(1),
                hop.send(&coded(RequestId(1), 10), &seal::of_tests(), &ReplyTo::memory(answers_in)),
            )
            .await
        };
        let (kept, sent) = tokio::join!(tokio::time::timeout(Duration::from_secs(2), keeping), sending);
        drop(kept);
        assert_eq!((hop.in_flight(), hop.connections()), (0, 0), "after {polls} polls");
        if sent.is_ok() {
            let Reply { verdict, .. } = answers.recv().await.unwrap();
            assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{verdict:?}");
        }
        stop.cancel();
        mute.abort();
    }
}

/// A hop of one connection to a gateway that sends pings but never answers. `reads` decides whether it reads.
fn hop_to_one_that_only_pings(reads: bool, stop: &CancellationToken) -> Arc<Hop> {
    let (network, port) = crate::pipes::network();
    tokio::spawn(async move {
        while let Ok(link) = port.accept().await {
            let Ok(Connection { mut reader, mut writer, .. }) =
                Connection::accept(link, &Security::Plain, hello("downstream")).await
            else {
                return;
            };
            tokio::spawn(async move {
                while reads && reader.next().await.is_ok() {}
                std::future::pending::<()>().await;
                drop(reader);
            });
            tokio::spawn(async move {
                while writer.frame(&Frame::Ping(0)).await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
        }
    });
    let spec = HopSpec { to: "downstream".to_owned(), address: Some("127.0.0.1:1".to_owned()), connections: 1 };
    let silence_max = Duration::from_secs(10);
    let request_max = Duration::from_secs(600);
    let setup = HopSetup {
        spec,
        security: Security::Plain,
        hello: hello("here"),
        silence_max,
        request_max,
        network,
        reports: Arc::default(),
    };
    Hop::start(setup, stop.clone())
}

#[tokio::test(start_paused = true)]
async fn what_a_living_peer_does_not_answer_or_take_is_given_up() {
    for reads in [true, false] {
        let stop = CancellationToken::new();
        let hop = hop_to_one_that_only_pings(reads, &stop);
        let (answers_in, mut answers) = mpsc::unbounded_channel();
        let reply = ReplyTo::memory(answers_in);
        let mut orders = vec![0; BODY_BYTES];
        orders[..8].copy_from_slice(&2_u64.to_le_bytes());
        let sending = async {
            hop.send(&coded(RequestId(1), BODY_BYTES), &seal::of_tests(), &reply).await;
            hop.send_orders(&Frame::Orders(orders.into()), &[RequestId(2)], &reply).await;
        };
        tokio::time::timeout(REQUEST_MAX, sending).await.expect("the peer takes nothing and is waited for");
        for _ in 0..2 {
            let answer = tokio::time::timeout(REQUEST_MAX, answers.recv()).await;
            let Reply { verdict, .. } = answer.expect("a request is not answered").unwrap();
            assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{verdict:?}");
        }
        assert_eq!(hop.in_flight(), 0);
        stop.cancel();
    }
}

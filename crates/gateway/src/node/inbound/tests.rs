//! A relay whose work is dropped anywhere leaves nothing behind: no request unanswered, no connection lost for good.

use super::super::drops::{Ends, KEY, assert_done, block_on, content, payload, whole_place};
use super::super::hop::HopSetup;
use super::*;
use crate::drop_after::DropAfter;
use crate::net::Tcp;
use crate::node::parcel::Parcel;
use crate::node::work::{Entry, Fetch, Manifest, Proof, SourceTask};
use std::collections::HashMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tradewind_contract::{HopSpec, VerifyMode};
use tradewind_store::{Checksums, Payload, Precondition};
use tradewind_wire::frame::Verdict;
use tradewind_wire::{Fault, RequestId, RouteId};

/// More than the sockets of a hop accept before the other side reads.
const BODY_BYTES: usize = 12 << 20;
/// Ends the test if the relay hangs; nothing else depends on it.
const HANG: Duration = Duration::from_secs(60);

fn hello(node: &str) -> Hello {
    Hello { version: tradewind_wire::WIRE_VERSION_MAJOR, job: "j".to_owned(), node: node.to_owned() }
}

fn hop(address: std::net::SocketAddr, to: &str, stop: &CancellationToken) -> Arc<Hop> {
    let spec = HopSpec { to: to.to_owned(), address: address.to_string(), connections: 1 };
    let setup =
        HopSetup { spec, security: Security::Plain, hello: hello("above"), silence_max: HANG, network: Arc::new(Tcp) };
    Hop::start(setup, stop.clone())
}

fn coded(request: u64) -> Coded {
    let data = Payload::new(vec![Bytes::from(vec![7; BODY_BYTES])]);
    let manifest = Manifest::Bundle(Vec::new());
    Parcel { request: RequestId(request), route: RouteId(0), manifest, data, held: None }.encode(false, None).unwrap()
}

/// The gateway below: answers each whole request, whatever connection it comes on, and says which.
fn below(listener: TcpListener, whole: mpsc::UnboundedSender<RequestId>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let whole = whole.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = Connection::accept(tcp.into(), &Security::Plain, hello("below")).await else {
                    return;
                };
                let mut begun = None;
                while let Ok(incoming) = connection.reader.next().await {
                    match incoming {
                        Incoming::Begin(head) => begun = Some(head.request),
                        Incoming::Piece { last: true, .. } => {
                            let Some(request) = begun.take() else { return };
                            let verdict = Verdict::Sink(Bytes::from_static(b"done"));
                            let answer = Frame::Replies(vec![Reply { request, verdict }]);
                            whole.send(request).ok();
                            drop(connection.writer.frame(&answer).await);
                        }
                        _ => {}
                    }
                }
            });
        }
    })
}

/// One request over a connection of its own, with the relay's work on it dropped after `polls`. Returns whether it came
/// to its end before, and the answer that the asker got.
async fn relayed(polls: usize, request: u64, hop: &Arc<Hop>) -> (bool, Option<Reply>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sending = tokio::spawn(async move {
        let tcp = TcpStream::connect(address).await.unwrap();
        let mut above = Connection::open(tcp.into(), &Security::Plain, hello("above"), "here").await.unwrap();
        let Coded { head, body } = coded(request);
        // Ends with an error when the relay drops its side.
        if above.writer.frame(&Frame::Head(head)).await.is_ok() {
            for segment in body {
                if above.writer.data(&segment).await.is_err() {
                    break;
                }
            }
        }
        above
    });
    let (tcp, _) = listener.accept().await.unwrap();
    let connection = Connection::accept(tcp.into(), &Security::Plain, hello("here")).await.unwrap();
    let pulse = Pulse::start(HANG, CancellationToken::new());
    let liveness = Liveness::new(0, HANG.as_millis() as u64);
    let mut incoming = Reading { reader: connection.reader, pulse, liveness, heard_ms: 0, silence_max: HANG };
    let head = loop {
        match incoming.next().await.unwrap() {
            Incoming::Begin(head) => break head,
            Incoming::Frame(Frame::Ping(_)) => {}
            other => panic!("{other:?} before a head"),
        }
    };
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    let ended = DropAfter::new(polls, relay(hop, head, &mut incoming, &reply)).await;
    drop((incoming, reply));
    let answer = answers.recv().await;
    sending.abort();
    (ended.is_some(), answer)
}

#[tokio::test]
async fn a_relay_dropped_at_any_await_answers_its_request_and_frees_its_connection() {
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (whole_in, mut whole) = mpsc::unbounded_channel();
    let below = below(listener, whole_in);
    let hop = hop(address, "below", &stop);
    let (mut request, mut dropped) = (0, 0);
    for polls in 1.. {
        request += 1;
        let (ended, answer) = tokio::time::timeout(HANG, relayed(polls, request, &hop)).await.expect("it hangs");
        if !ended {
            dropped += 1;
            if let Some(Reply { verdict, .. }) = answer {
                assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{verdict:?}");
            }
            assert_eq!(hop.in_flight(), 0, "after {polls} polls a request is left that nobody answers");
        }
        // The one connection of the hop serves the next request: it was given back or made anew.
        request += 1;
        let next = tokio::time::timeout(HANG, relayed(usize::MAX, request, &hop));
        let (ended, answer) = next.await.unwrap_or_else(|_| panic!("after {polls} polls the hop has no connection"));
        assert!(ended);
        assert!(matches!(answer, Some(Reply { verdict: Verdict::Sink(_), .. })), "{answer:?}");
        while whole.recv().await != Some(RequestId(request)) {}
        if request > 2 && dropped + 1 < polls {
            break;
        }
    }
    assert!(dropped > 3, "the body went through in {dropped} polls, so nothing was tried");
    stop.cancel();
    below.abort();
}

/// A gateway that is source and sink: `above` brings requests of route 0 and orders of route 1.
fn inbound_of(ends: &Ends) -> Arc<Inbound> {
    let above: Arc<str> = "above".into();
    Arc::new(Inbound {
        security: Security::Plain,
        hello: hello("here"),
        upstream: RwLock::new(HashSet::from(["above".to_owned()])),
        stations: RouteTable::new(HashMap::from([(RouteId(0), (above.clone(), Station::Sink(ends.sink.clone())))])),
        leads: RouteTable::new(HashMap::from([(RouteId(1), above)])),
        source: Some(ends.source.clone()),
        peers: Peers::default(),
        budget: ends.budget.clone(),
        silence_max: HANG,
        pulse: Pulse::start(HANG, CancellationToken::new()),
        stop: CancellationToken::new(),
    })
}

/// Sends a request that writes the object, and an order that reads and writes it, and waits for both answers.
async fn talk(link: Link, first_request: u64) -> Vec<Reply> {
    let Ok(mut above) = Connection::open(link, &Security::Plain, hello("above"), "here").await else {
        return Vec::new();
    };
    let data = payload(&content());
    let (checksums, size_bytes) = (Checksums::of_segments(data.segments()), data.len());
    let place = whole_place(KEY, VerifyMode::Auto, false);
    let write = Entry::Write { place: place.clone(), size_bytes, checksums, source_proof: Proof::Length };
    let manifest = Manifest::Bundle(vec![write]);
    let parcel = Parcel { request: RequestId(first_request), route: RouteId(0), manifest, data, held: None };
    let Coded { head, body } = parcel.encode(false, None).unwrap();
    let fetch = Fetch {
        source_key: KEY.to_owned(),
        condition: Precondition::default(),
        size_bytes,
        listed: Checksums::default(),
        place,
        copy_from_bucket: None,
        check: None,
    };
    let (request, task) = (RequestId(first_request + 1), SourceTask::Bundle(vec![fetch]));
    let order = Order { request, route: RouteId(1), compress: false, task };
    let orders = postcard::to_stdvec(&vec![order]).unwrap();
    // Errors mean that the other side was dropped, which reading notices too.
    drop(above.writer.frame(&Frame::Head(head)).await);
    for segment in body {
        drop(above.writer.data(&segment).await);
    }
    drop(above.writer.frame(&Frame::Orders(orders.into())).await);
    let mut replies = Vec::new();
    while replies.len() < 2 {
        match above.reader.next().await {
            Ok(Incoming::Frame(Frame::Replies(some))) => replies.extend(some),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    replies
}

#[test]
fn a_connection_dropped_at_any_await_gives_back_all_that_it_held() {
    block_on(connection_is_dropped_everywhere());
}

async fn connection_is_dropped_everywhere() {
    let gate = Gate::new(GateLimits { handshakes_max: 8, per_address_max: 8 });
    let places = Arc::new(Semaphore::new(1));
    let (ends, mut request) = (Ends::new(), 1);
    let inbound = inbound_of(&ends);
    for polls in 0.. {
        assert!(polls < 10_000, "it never ends");
        let mut ended = false;
        for polls in [polls, usize::MAX] {
            let when = format!("after {polls} polls");
            let (above, here) = crate::pipes::pipe();
            let talking = tokio::spawn(talk(above, request));
            request += 2;
            let place = gate.enter(address_of(&here));
            let connection = inbound.clone().connection(here, place, places.clone());
            let done = DropAfter::new(polls, connection).await.is_some();
            let replies = talking.await.unwrap();
            ends.settle().await;
            ends.assert_nothing_is_held(&when);
            ends.assert_no_wrong_byte(&when);
            assert_eq!((inbound.peers.count(), places.available_permits(), gate.evict()), (0, 1, false), "{when}");
            if polls == usize::MAX {
                assert_eq!(replies.len(), 2, "{when}");
                replies.iter().for_each(|reply| assert_done(&reply.verdict, &when));
            }
            ended |= done && polls < usize::MAX;
        }
        if ended {
            assert!(polls > 10, "nothing was dropped");
            break;
        }
    }
}

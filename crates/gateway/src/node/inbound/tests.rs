//! Drops a relay's work anywhere: every request must still be answered, and no connection may be lost for good.

use super::super::dial::{Dial, DialledHop};
use super::super::drops::{Ends, KEY, assert_done, block_on, content, payload, sink_reply, whole_place};
use super::super::hop::HopSetup;
use super::*;
use crate::attributes::Inherited;
use crate::drop_after::DropAfter;
use crate::net::Tcp;
use crate::node::parcel::{Coded, Parcel};
use crate::node::reply::ANSWERS_WAITING_MAX;
use crate::node::seal;
use crate::node::work::{Entry, Failure, Fetch, Manifest, Proof, SinkReply, SourceTask};
use socket2::SockRef;
use std::collections::HashMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tradewind_contract::{HopSpec, VerifyMode};
use tradewind_store::{Checksums, Payload, Precondition};
use tradewind_wire::frame::{DATA_BYTES_MAX, Verdict};
use tradewind_wire::{Fault, RequestId, RouteId};

/// More than the sockets of a hop accept before the other side reads.
const BODY_BYTES: usize = 12 << 20;
/// So short that a body does not pass in a few polls.
const SHORT_BUFFER_BYTES: usize = 128 << 10;
/// Ends the test if the relay hangs; nothing else depends on it.
const HANG: Duration = Duration::from_secs(60);

fn hello(node: &str) -> Hello {
    Hello {
        version: tradewind_wire::WIRE_VERSION_MAJOR,
        job: "j".to_owned(),
        node: node.to_owned(),
        end: HopEnd::Upstream,
    }
}

fn hop(address: std::net::SocketAddr, to: &str, stop: &CancellationToken) -> Arc<Hop> {
    let spec = HopSpec { to: to.to_owned(), address: Some(address.to_string()), connections: 1 };
    let setup = HopSetup {
        spec,
        security: Security::Plain,
        hello: hello("above"),
        silence_max: HANG,
        request_max: HANG,
        network: Arc::new(Tcp),
    };
    Hop::start(setup, stop.clone())
}

fn coded(request: u64) -> Coded {
    let data = Payload::new(vec![Bytes::from(vec![7; BODY_BYTES])]);
    let manifest = Manifest::Bundle(Vec::new());
    Parcel { request: RequestId(request), route: RouteId(0), manifest, data, held: None }
        .encode(None, seal::of_tests().next_id())
        .unwrap()
}

/// The gateway downstream. It answers each whole request, whatever connection it arrives on, and reports its id.
fn downstream(listener: TcpListener, whole: mpsc::UnboundedSender<RequestId>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let whole = whole.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = Connection::accept(tcp.into(), &Security::Plain, hello("downstream")).await
                else {
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

fn reading(reader: FrameReader) -> Reading {
    let freezes = FreezeDetector::start(HANG, CancellationToken::new());
    let liveness = Liveness::new(0, HANG.as_millis() as u64);
    Reading { reader, freezes, liveness, heard_ms: 0, silence_max: HANG, advance: Advance::since(0) }
}

async fn next_head(incoming: &mut Reading) -> Head {
    loop {
        match incoming.next().await.unwrap() {
            Incoming::Begin(head) => return head,
            Incoming::Frame(Frame::Ping(_)) => {}
            other => panic!("{other:?} before a head"),
        }
    }
}

/// A gateway above, and the reading side of a relay that is connected to it by TCP.
async fn above_a_relay() -> (Connection, Reading) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let opening = tokio::spawn(async move {
        let tcp = TcpStream::connect(address).await.unwrap();
        Connection::open(tcp.into(), &Security::Plain, hello("above"), "here").await.unwrap()
    });
    let (tcp, _) = listener.accept().await.unwrap();
    let here = Connection::accept(tcp.into(), &Security::Plain, hello("here")).await.unwrap();
    (opening.await.unwrap(), reading(here.reader))
}

/// A hop, and the gateway at its other end.
async fn below_a_relay(stop: &CancellationToken) -> (Arc<Hop>, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hop = hop(listener.local_addr().unwrap(), "downstream", stop);
    let (tcp, _) = listener.accept().await.unwrap();
    (hop, Connection::accept(tcp.into(), &Security::Plain, hello("downstream")).await.unwrap())
}

fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|index| ((index * 31) >> 3) as u8).collect()
}

/// Sends requests with bodies of these lengths.
async fn send_bodies(mut above: Connection, lengths: &[usize]) -> Connection {
    let like = coded(1).head;
    for (index, length) in lengths.iter().enumerate() {
        let head = Head { request: RequestId(index as u64), wire_bytes: *length as u64, ..like.clone() };
        above.writer.queue(&Frame::Head(head));
        above.writer.data(&noise(*length)).await.unwrap();
        above.writer.frame(&Frame::Ping(1)).await.unwrap();
    }
    above
}

async fn next_body(reader: &mut FrameReader) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        if let Incoming::Piece { bytes, last, .. } = reader.next().await.unwrap() {
            body.extend_from_slice(&bytes);
            if last {
                return body;
            }
        }
    }
}

#[tokio::test]
async fn bodies_of_all_lengths_pass_a_relay_unchanged() {
    const LENGTHS: [usize; 7] = [1, 20_000, 40_000, 300_000, 3_000_000, 262_144, 5];
    let stop = CancellationToken::new();
    let (above, mut incoming) = above_a_relay().await;
    let (hop, mut below) = below_a_relay(&stop).await;
    let sending = tokio::spawn(async move { send_bodies(above, &LENGTHS).await });
    let relaying = tokio::spawn(async move {
        let (answers_in, _answers) = mpsc::unbounded_channel();
        let reply = ReplyTo::memory(answers_in);
        for _ in LENGTHS {
            let head = next_head(&mut incoming).await;
            relay(&hop, head, &mut incoming, &reply).await.unwrap();
        }
        assert!(incoming.reader.pipe().is_some(), "they were copied");
        (incoming, hop)
    });
    for length in LENGTHS {
        let body = tokio::time::timeout(HANG, next_body(&mut below.reader)).await.expect("it hangs");
        assert!(body == noise(length), "a body of {length} bytes arrived as another");
    }
    let ended = tokio::join!(sending, relaying);
    drop((ended.0.unwrap(), ended.1.unwrap()));
    stop.cancel();
}

#[tokio::test]
async fn bytes_for_a_lost_connection_do_not_get_into_the_next_request() {
    const LENGTHS: [usize; 2] = [BODY_BYTES, 700_000];
    let stop = CancellationToken::new();
    let (above, mut incoming) = above_a_relay().await;
    let ((lost, mut ends), (hop, mut below)) = (below_a_relay(&stop).await, below_a_relay(&stop).await);
    let sending = tokio::spawn(async move { send_bodies(above, &LENGTHS).await });
    let (answers_in, _answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    let head = next_head(&mut incoming).await;
    let breaking = async {
        while !matches!(ends.reader.next().await, Ok(Incoming::Piece { .. })) {}
        drop(ends);
    };
    let (relayed, ()) = tokio::join!(relay(&lost, head, &mut incoming, &reply), breaking);
    relayed.unwrap();
    let head = next_head(&mut incoming).await;
    let (relayed, body) = tokio::join!(relay(&hop, head, &mut incoming, &reply), next_body(&mut below.reader));
    relayed.unwrap();
    assert!(body == noise(LENGTHS[1]), "the next body arrived as another");
    drop(sending.await.unwrap());
    stop.cancel();
}

/// Sends one request over its own connection, and drops the relay's work on it after `polls`. Returns whether the work
/// ended before, and the answer that the asker got.
async fn relayed(polls: usize, request: u64, hop: &Arc<Hop>) -> (bool, Option<Reply>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    SockRef::from(&listener).set_recv_buffer_size(SHORT_BUFFER_BYTES).unwrap();
    let address = listener.local_addr().unwrap();
    let sending = tokio::spawn(async move {
        let tcp = TcpStream::connect(address).await.unwrap();
        SockRef::from(&tcp).set_send_buffer_size(SHORT_BUFFER_BYTES).unwrap();
        let mut above = Connection::open(tcp.into(), &Security::Plain, hello("above"), "here").await.unwrap();
        let coded = coded(request);
        // Fails when the relay drops its side.
        above.writer.queue(&Frame::Head(coded.head.clone()));
        drop(above.writer.data(&coded.sealed()).await);
        above
    });
    let (tcp, _) = listener.accept().await.unwrap();
    let connection = Connection::accept(tcp.into(), &Security::Plain, hello("here")).await.unwrap();
    let mut incoming = reading(connection.reader);
    let head = next_head(&mut incoming).await;
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
    SockRef::from(&listener).set_recv_buffer_size(SHORT_BUFFER_BYTES).unwrap();
    let address = listener.local_addr().unwrap();
    let (whole_in, mut whole) = mpsc::unbounded_channel();
    let downstream = downstream(listener, whole_in);
    let hop = hop(address, "downstream", &stop);
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
        // The hop's only connection serves the next request: it was returned or replaced.
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
    downstream.abort();
}

/// The frames that a gateway downstream gets on one connection until a head of request 2, in a word each.
async fn frames_before_the_next_request(wire_bytes: u64, sent: usize, more: usize) -> Vec<&'static str> {
    let stop = CancellationToken::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hop = hop(listener.local_addr().unwrap(), "downstream", &stop);
    let (tcp, _) = listener.accept().await.unwrap();
    let mut downstream = Connection::accept(tcp.into(), &Security::Plain, hello("downstream")).await.unwrap();
    let (answers_in, _answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    let head = |request, wire_bytes| Head { request: RequestId(request), wire_bytes, ..coded(1).head };
    let mut sending = hop.checkout(RequestId(1), &reply).await.expect("a connection");
    sending.head(&head(1, wire_bytes));
    sending.piece(&vec![7; sent], more).await.unwrap();
    sending.abort().await;
    assert_eq!(hop.in_flight(), 0);
    let mut sending = hop.checkout(RequestId(2), &reply).await.expect("a connection");
    sending.head(&head(2, 0));
    sending.flush().await.unwrap();
    sending.finish();
    let mut frames = Vec::new();
    loop {
        match downstream.reader.next().await.expect("the connection goes on") {
            Incoming::Begin(head) if head.request == RequestId(2) => break,
            Incoming::Begin(_) => frames.push("begin"),
            Incoming::Piece { last: true, .. } => frames.push("whole"),
            Incoming::GiveUp => frames.push("given up"),
            _ => {}
        }
    }
    stop.cancel();
    frames
}

#[tokio::test]
async fn a_body_that_ends_inside_a_frame_is_ended_and_its_connection_takes_the_next_request() {
    for (wire_bytes, sent, more, ended) in
        [(9_000, 1_000, 500, "given up"), (9_000, 1_500, 0, "given up"), (1_500, 1_000, 500, "whole")]
    {
        let frames = tokio::time::timeout(HANG, frames_before_the_next_request(wire_bytes, sent, more));
        assert_eq!(frames.await.expect("it hangs"), ["begin", ended], "{sent} and {more} of {wire_bytes}");
    }
}

/// A gateway with source and sink: `above` brings requests of route 0 and orders of route 1.
fn inbound_of(ends: &Ends) -> Arc<Inbound> {
    let above: Arc<str> = "above".into();
    Arc::new(Inbound {
        security: Security::Plain,
        hello: hello("here"),
        upstream: RwLock::new(HashSet::from(["above".to_owned()])),
        awaited: RwLock::default(),
        stations: RouteTable::new(HashMap::from([(RouteId(0), (above.clone(), Station::Sink(ends.sink.clone())))])),
        leads: RouteTable::new(HashMap::from([(RouteId(1), above)])),
        source: Some(ends.source.clone()),
        peers: Peers::default(),
        budget: ends.budget.clone(),
        silence_max: HANG,
        request_max: HANG,
        freezes: FreezeDetector::start(HANG, CancellationToken::new()),
        stop: CancellationToken::new(),
    })
}

/// A request that writes the object.
fn a_write(request: u64) -> Coded {
    let data = payload(&content());
    let (checksums, size_bytes) = (Checksums::of_segments(data.segments()), data.len());
    let place = whole_place(KEY, VerifyMode::Auto, false);
    let write = Entry::Write { place, size_bytes, checksums, source_proof: Proof::Length };
    let manifest = Manifest::Bundle(vec![write]);
    let parcel = Parcel { request: RequestId(request), route: RouteId(0), manifest, data, held: None };
    parcel.encode(None, seal::of_tests().next_id()).unwrap()
}

/// Sends a request that writes the object, and an order that reads and writes it, and waits for both answers.
async fn talk(link: Link, first_request: u64) -> Vec<Reply> {
    let Ok(mut above) = Connection::open(link, &Security::Plain, hello("above"), "here").await else {
        return Vec::new();
    };
    let (coded, seal) = (a_write(first_request), seal::of_tests());
    let fetch = Fetch {
        source_key: KEY.to_owned(),
        condition: Precondition::default(),
        size_bytes: content().len() as u64,
        listed: Checksums::default(),
        place: whole_place(KEY, VerifyMode::Auto, false),
        inherited: Inherited::default(),
        tags: Default::default(),
        copy_from_bucket: None,
        check: None,
    };
    let (request, task) = (RequestId(first_request + 1), SourceTask::Bundle(vec![fetch]));
    let order = Order { request, route: RouteId(1), codec: None, deduplicate: false, task };
    let orders = postcard::to_stdvec(&vec![order]).unwrap();
    // Errors mean that the other side was dropped; reading shows that too.
    above.writer.queue(&Frame::Head(coded.head.clone()));
    drop(above.writer.data(&coded.sealed()).await);
    drop(above.writer.frame(&Frame::Orders(orders.into())).await);
    let mut replies = Vec::new();
    while replies.len() < 2 {
        match above.reader.next().await {
            Ok(Incoming::Frame(Frame::Replies(some))) => replies.extend(some.into_iter().map(|reply| match reply {
                Reply { request, verdict: Verdict::Sink(words) } if request.0 == first_request => {
                    let verdict = Verdict::Sink(seal.open_answer(request, &words).unwrap().1.into());
                    Reply { request, verdict }
                }
                other => other,
            })),
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
            let connection = inbound.clone().accepted(here, place, places.clone(), Refusals::default());
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

#[test]
fn a_request_that_comes_a_second_time_is_answered_and_not_done_again() {
    block_on(async {
        let gate = Gate::new(GateLimits { handshakes_max: 8, per_address_max: 8 });
        let places = Arc::new(Semaphore::new(8));
        let ends = Ends::new();
        let inbound = inbound_of(&ends);
        for is_first in [true, false] {
            let (above, here) = crate::pipes::pipe();
            let place = gate.enter(address_of(&here));
            tokio::spawn(inbound.clone().accepted(here, place, places.clone(), Refusals::default()));
            let replies = tokio::time::timeout(HANG, talk(above, 1)).await.expect("a request is not answered");
            let of_request = replies.iter().find(|reply| reply.request == RequestId(1)).expect("an answer");
            if is_first {
                assert_done(&of_request.verdict, "the first");
            } else {
                assert!(matches!(of_request.verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{of_request:?}");
            }
        }
    });
}

#[test]
fn a_peer_that_begins_a_request_and_then_only_pings_or_drips_is_given_up() {
    block_on(async {
        let gate = Gate::new(GateLimits { handshakes_max: 8, per_address_max: 8 });
        let places = Arc::new(Semaphore::new(1));
        for drips in [false, true] {
            let ends = Ends::new();
            // So long that only missing progress can end the request.
            let inbound =
                Arc::new(Inbound { request_max: 1_000 * HANG, ..Arc::into_inner(inbound_of(&ends)).unwrap() });
            let (above, here) = crate::pipes::pipe();
            let place = gate.enter(address_of(&here));
            let connection = tokio::spawn(inbound.clone().accepted(here, place, places.clone(), Refusals::default()));
            let mut above = Connection::open(above, &Security::Plain, hello("above"), "here").await.unwrap();
            let head = coded(1).head;
            above.writer.frame(&Frame::Head(head)).await.unwrap();
            let going_on = async {
                loop {
                    let sent = match drips {
                        true => above.writer.data(b"1").await,
                        false => above.writer.frame(&Frame::Ping(0)).await,
                    };
                    if sent.is_err() {
                        return;
                    }
                    tokio::time::sleep(HANG / 4).await;
                }
            };
            tokio::time::timeout(3 * HANG, going_on).await.expect("its connection stays open");
            connection.await.unwrap();
            ends.assert_nothing_is_held("after the connection");
        }
    });
}

#[test]
fn a_relay_gives_up_a_body_that_drips() {
    block_on(async {
        let (stop, ends) = (CancellationToken::new(), Ends::new());
        let (network, port) = crate::pipes::network();
        let spec = HopSpec { to: "below".to_owned(), address: Some("127.0.0.1:1".to_owned()), connections: 1 };
        // So long that only missing progress can end the request.
        let (silence_max, request_max) = (1_000 * HANG, 1_000 * HANG);
        let setup =
            HopSetup { spec, security: Security::Plain, hello: hello("here"), silence_max, request_max, network };
        let hop = Hop::start(setup, stop.clone());
        let below = tokio::spawn(async move {
            let link = port.accept().await.unwrap();
            let mut below = Connection::accept(link, &Security::Plain, hello("below")).await.unwrap();
            while below.reader.next().await.is_ok() {}
        });
        let station: (Arc<str>, _) = ("above".into(), Station::Relay(hop));
        let stations = RouteTable::new(HashMap::from([(RouteId(0), station)]));
        let inbound = Arc::new(Inbound { request_max, stations, ..Arc::into_inner(inbound_of(&ends)).unwrap() });
        let (above, here) = crate::pipes::pipe();
        let accepting = Connection::accept(here, &Security::Plain, hello("here"));
        let (above, here) = tokio::join!(Connection::open(above, &Security::Plain, hello("above"), "here"), accepting);
        let serving = tokio::spawn(inbound.serve(here.unwrap()));
        let mut writer = above.unwrap().writer;
        writer.frame(&Frame::Head(coded(1).head)).await.unwrap();
        let dripping = async {
            while writer.data(b"1").await.is_ok() {
                tokio::time::sleep(HANG / 4).await;
            }
        };
        tokio::time::timeout(3 * HANG, dripping).await.expect("its connection stays open");
        serving.await.unwrap();
        stop.cancel();
        below.await.unwrap();
    });
}

#[test]
fn a_body_that_is_slow_but_advances_is_not_given_up() {
    let (span_ms, mut advance) = (15_000, Advance::since(0));
    let piece_bytes = BODY_BYTES_PER_S_MIN * 5;
    assert!((1..100).all(|round| advance.arrived(piece_bytes, 5_000 * round, span_ms)));
    let mut advance = Advance::since(0);
    assert!(!(1..100).all(|round| advance.arrived(piece_bytes - 1, 5_000 * round, span_ms)));
}

#[test]
fn only_the_time_in_which_a_body_could_arrive_counts_for_its_rate() {
    for (piece_bytes, is_enough) in [(BODY_BYTES_PER_S_MIN * 5, true), (BODY_BYTES_PER_S_MIN * 5 - 1, false)] {
        let (span_ms, mut advance) = (15_000, Advance::since(0));
        let arrived = (1..100).all(|round| {
            // Each piece takes 5 s to arrive, and 60 s to be passed on.
            let is_enough = advance.arrived(piece_bytes, 65_000 * round - 60_000, span_ms);
            advance.paused(60_000);
            is_enough
        });
        assert_eq!(arrived, is_enough, "{piece_bytes}");
    }
}

#[tokio::test]
async fn answers_of_any_length_that_a_frame_can_bring_fit_the_frames_that_pass_them_on() {
    let (queue, answers) = AnswerQueue::new(CancellationToken::new());
    let longest = |request| Reply {
        request: RequestId(request),
        verdict: Verdict::Failed {
            fault: Fault::Lost,
            kind: "unavailable".to_owned(),
            message: "x".repeat(CONTROL_BYTES_MAX - 64),
            unsent: false,
        },
    };
    let short = |request| Reply { request: RequestId(request), verdict: Verdict::Sink(Bytes::from_static(b"done")) };
    for request in 0..5 {
        queue.send(Upstream::Reply(short(3 * request)));
        queue.send(Upstream::Reply(longest(3 * request + 1)));
        queue.send(Upstream::Reply(longest(3 * request + 2)));
    }
    queue.send(Upstream::Frame(Frame::Drain));
    let (there, here) = crate::pipes::pipe();
    let opening = tokio::spawn(async { Connection::open(there, &Security::Plain, hello("above"), "here").await });
    let connection = Connection::accept(here, &Security::Plain, hello("here")).await.unwrap();
    let mut above = opening.await.unwrap().unwrap();
    drop(queue);
    let writing = tokio::spawn(async move {
        write_answers(connection.writer, answers, CancellationToken::new(), HANG).await;
    });
    let mut seen = Vec::new();
    while seen.len() < 15 {
        match above.reader.next().await.expect("the writer has ended") {
            Incoming::Frame(Frame::Replies(replies)) => seen.extend(replies.iter().map(|reply| reply.request.0)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, (0..15).collect::<Vec<_>>());
    assert!(matches!(above.reader.next().await, Ok(Incoming::Frame(Frame::Drain))));
    writing.await.unwrap();
}

#[test]
fn a_peer_that_never_reads_its_answers_is_given_up() {
    let closed = CancellationToken::new();
    let (queue, mut answers) = AnswerQueue::new(closed.clone());
    for _ in 0..3 {
        (0..ANSWERS_WAITING_MAX).for_each(|_| queue.send(Upstream::Frame(Frame::Drain)));
        while answers.next_now().is_some() {}
    }
    assert!(!closed.is_cancelled(), "it reads");
    (0..=ANSWERS_WAITING_MAX).for_each(|_| queue.send(Upstream::Frame(Frame::Drain)));
    assert!(closed.is_cancelled());
}

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
    let parcel = Parcel { request: RequestId(request), route: RouteId(0), manifest, data, held: None };
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

#[test]
fn a_body_that_is_filled_up_with_zeros_is_refused_and_nothing_is_written() {
    block_on(async {
        let gate = Gate::new(GateLimits { handshakes_max: 8, per_address_max: 8 });
        let places = Arc::new(Semaphore::new(1));
        let ends = Ends::new();
        let inbound = inbound_of(&ends);
        let (coded, seal) = (a_write(1), seal::of_tests());
        let sealed = coded.sealed();
        let (above, here) = crate::pipes::pipe();
        let place = gate.enter(address_of(&here));
        tokio::spawn(inbound.clone().accepted(here, place, places.clone(), Refusals::default()));
        let mut above = Connection::open(above, &Security::Plain, hello("above"), "here").await.unwrap();
        above.writer.queue(&Frame::Head(coded.head.clone()));
        let frame = sealed.len().min(DATA_BYTES_MAX);
        let (first, sent) = sealed.split_at(sealed.len() - frame);
        above.writer.data(first).await.unwrap();
        above.writer.part_of_data(&sent[..1], frame - 1).await.unwrap();
        above.writer.pad_data().await.unwrap();
        let answer = loop {
            let incoming = above.reader.next().await.expect("the connection goes on");
            if let Incoming::Frame(Frame::Replies(replies)) = incoming {
                break replies;
            }
        };
        let [Reply { request, verdict: Verdict::Sink(words) }] = &answer[..] else { panic!("{answer:?}") };
        let answer = sink_reply(&seal.open_answer(*request, words).unwrap().1).unwrap();
        assert!(matches!(&answer, SinkReply::Failed(Failure { fault: Fault::Corrupt, .. })), "{answer:?}");
        ends.settle().await;
        assert_eq!(ends.to.keys(), [""; 0]);
    });
}

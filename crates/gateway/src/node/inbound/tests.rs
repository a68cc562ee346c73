//! Connections from upstream: dropped anywhere, they give back all that they held, and every request is answered.

mod opening;
mod relaying;
mod slow_peers;

use super::super::drops::{Ends, KEY, assert_done, block_on, content, payload, sink_reply, whole_place};
use super::super::hop::HopSetup;
use super::*;
use crate::attributes::Inherited;
use crate::drop_after::DropAfter;
use crate::net::tests::nearly_worn;
use crate::node::parcel::{Coded, Parcel};
use crate::node::seal;
use crate::node::work::{Entry, Failure, Fetch, Manifest, Proof, SinkReply, SourceTask};
use std::collections::HashMap;
use tokio::sync::mpsc;
use tradewind_contract::{HopSpec, VerifyMode};
use tradewind_store::{Checksums, Payload, Precondition};
use tradewind_wire::frame::{DATA_BYTES_MAX, Verdict};
use tradewind_wire::{Fault, RequestId, RouteId};

/// More than the sockets of a hop accept before the other side reads.
const BODY_BYTES: usize = 12 << 20;
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

fn coded(request: u64) -> Coded {
    let data = Payload::new(vec![Bytes::from(vec![7; BODY_BYTES])]);
    let manifest = Manifest::Bundle(Vec::new());
    Parcel { request: RequestId(request), route: RouteId(0), manifest, data, computed: Vec::new(), held: None }
        .encode(None, seal::of_tests().next_id())
        .unwrap()
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
    let parcel =
        Parcel { request: RequestId(request), route: RouteId(0), manifest, data, computed: Vec::new(), held: None };
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

#[tokio::test(start_paused = true)]
async fn a_connection_whose_keys_are_worn_by_answers_asks_once_for_no_more_requests() {
    let (mut above, connection) = nearly_worn();
    let closed = CancellationToken::new();
    let (queue, answers) = AnswerQueue::new(closed.clone());
    tokio::spawn(write_answers(connection.writer, answers, closed, HANG));
    let mut received = Vec::new();
    for request in 1..=2 {
        let (kind, message) = (String::new(), String::new());
        let verdict = Verdict::Failed { fault: Fault::Lost, kind, message, unsent: false };
        queue.send(Upstream::Reply(Reply { request: RequestId(request), verdict }));
        while received.iter().filter(|kind| **kind == "answers").count() < request as usize {
            match tokio::time::timeout(HANG / 2, above.reader.next()).await.expect("an answer").unwrap() {
                Incoming::Frame(Frame::Replies(_)) => received.push("answers"),
                Incoming::Frame(Frame::Drain) => received.push("drain"),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(received, ["answers", "drain", "answers"]);
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

#[tokio::test]
async fn answers_of_any_length_that_a_frame_can_bring_fit_the_frames_that_pass_them_on() {
    let (queue, answers) = AnswerQueue::new(CancellationToken::new());
    let longest = |request| Reply {
        request: RequestId(request),
        verdict: Verdict::Sink(Bytes::from(vec![0; CONTROL_BYTES_MAX - 64])),
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
        assert!(matches!(&answer, SinkReply::Failed(Failure { fault: Fault::Lost, .. })), "{answer:?}");
        ends.settle().await;
        assert_eq!(ends.to.keys(), [""; 0]);
    });
}

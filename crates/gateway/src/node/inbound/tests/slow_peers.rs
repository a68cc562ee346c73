//! Peers that send or read too slowly.

use super::*;
use crate::node::reply::ANSWERS_WAITING_MAX;

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
        let setup = HopSetup {
            spec,
            security: Security::Plain,
            hello: hello("here"),
            silence_max,
            request_max,
            network,
            reports: Arc::default(),
        };
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

//! Bodies that pass a relay: all their bytes arrive, also when the relay is dropped or a connection is lost.

use super::*;
use crate::net::Tcp;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// So short that a body does not pass in a few polls.
const SHORT_BUFFER_BYTES: usize = 128 << 10;

fn hop(address: std::net::SocketAddr, to: &str, stop: &CancellationToken) -> Arc<Hop> {
    let spec = HopSpec { to: to.to_owned(), address: Some(address.to_string()), connections: 1 };
    let setup = HopSetup {
        spec,
        security: Security::Plain,
        hello: hello("above"),
        silence_max: HANG,
        request_max: HANG,
        network: Arc::new(Tcp),
        reports: Arc::default(),
    };
    Hop::start(setup, stop.clone())
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

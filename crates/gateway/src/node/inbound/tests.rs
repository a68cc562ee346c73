//! A relay whose work is dropped anywhere leaves nothing behind: no request unanswered, no connection lost for good.

use super::super::hop::HopSetup;
use super::*;
use crate::net::Tcp;
use crate::node::parcel::Parcel;
use crate::node::work::Manifest;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tradewind_contract::HopSpec;
use tradewind_store::Payload;
use tradewind_wire::frame::Verdict;
use tradewind_wire::{Fault, RequestId, RouteId};

/// More than the sockets of a hop take in before somebody reads.
const BODY_BYTES: usize = 12 << 20;
/// Ends the test if the relay hangs; nothing else depends on it.
const HANG: Duration = Duration::from_secs(60);

/// Polls `inner` so many times, then drops it.
struct DropAfter<F> {
    inner: Option<Pin<Box<F>>>,
    polls_left: usize,
}

impl<F: Future> Future for DropAfter<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left == 0 {
            self.inner = None;
        }
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = inner.as_mut().poll(context).map(Some);
        self.polls_left -= 1;
        if polled.is_pending() && self.polls_left == 0 {
            // As a task does whose other branch is ready: the next poll drops this one.
            context.waker().wake_by_ref();
        }
        polled
    }
}

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
    let work = Box::pin(relay(hop, head, &mut incoming, &reply));
    let ended = DropAfter { inner: Some(work), polls_left: polls }.await;
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

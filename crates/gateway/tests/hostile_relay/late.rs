//! A relay that keeps a request, claims that it failed, and delivers it when the next version of the object is written.

use crate::relay::{Request, encoded, hello, read};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tradewind_wire::frame::{Frame, Header, HopEnd, Kind, Reply, Verdict};
use tradewind_wire::{Fault, RequestId};

/// Tricks of the relay by which its source believes that the kept request failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// The sink gets a broken body below the same head, and says so.
    BrokenBody,
    /// The source gets an answer that does not open.
    BrokenAnswer,
    /// The relay reports this fault to the source.
    Failed(Fault),
}

/// A request is for the object if its body is about as long as the object.
const FRAMING_BYTES_MAX: u64 = 1_000;

/// Relays until the test drops it. `change` makes the next version of the object, which has the same length.
pub(crate) async fn relay(
    listener: TcpListener,
    sink: SocketAddr,
    claim: Claim,
    object_bytes: u64,
    change: Arc<dyn Fn() + Send + Sync>,
) {
    let late = Arc::new(Mutex::new(Late { claim, object_bytes, change, stage: Stage::Nothing }));
    while let Ok((upstream, _)) = listener.accept().await {
        tokio::spawn(connection(upstream, sink, late.clone()));
    }
}

enum Stage {
    Nothing,
    /// The first request for the object.
    Keeps(Request),
    /// The second one has passed.
    Passed(Request, RequestId),
    /// The first one has followed it. The answer to the second waits until the first is written.
    Delivered(RequestId, Reply),
    Done,
}

/// Shared by all connections.
struct Late {
    claim: Claim,
    object_bytes: u64,
    change: Arc<dyn Fn() + Send + Sync>,
    stage: Stage,
}

#[derive(Default)]
struct Out {
    down: Vec<u8>,
    up: Vec<u8>,
}

impl Late {
    fn request(&mut self, request: Request, out: &mut Out) {
        let is_for_object =
            (self.object_bytes..self.object_bytes + FRAMING_BYTES_MAX).contains(&request.head.wire_bytes);
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Nothing if is_for_object => {
                (self.change)();
                let id = request.head.request;
                let answer = |verdict| Frame::Replies(vec![Reply { request: id, verdict }]);
                match self.claim {
                    Claim::BrokenBody => {
                        let mut body = request.body.clone();
                        body[0] ^= 1;
                        out.down = encoded(&Request { head: request.head.clone(), body });
                    }
                    Claim::BrokenAnswer => answer(Verdict::Sink(Bytes::from_static(&[7; 64]))).encode(&mut out.up),
                    Claim::Failed(fault) => {
                        let (kind, message) = ("unavailable".to_owned(), "says the relay".to_owned());
                        answer(Verdict::Failed { fault, kind, message, unsent: false }).encode(&mut out.up);
                    }
                }
                Stage::Keeps(request)
            }
            Stage::Keeps(kept) if is_for_object => {
                out.down = encoded(&request);
                Stage::Passed(kept, request.head.request)
            }
            stage => {
                out.down = encoded(&request);
                stage
            }
        };
    }

    fn reply(&mut self, reply: Reply, out: &mut Out) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Passed(kept, second) if reply.request == second => {
                out.down.extend(encoded(&kept));
                return self.stage = Stage::Delivered(kept.head.request, reply);
            }
            Stage::Delivered(first, second_reply) if reply.request == first => {
                Frame::Replies(vec![second_reply]).encode(&mut out.up);
                return self.stage = Stage::Done;
            }
            stage => stage,
        };
        Frame::Replies(vec![reply]).encode(&mut out.up);
    }
}

async fn connection(upstream: TcpStream, sink: SocketAddr, late: Arc<Mutex<Late>>) -> Option<()> {
    let downstream = TcpStream::connect(sink).await.ok()?;
    let ((mut from_upstream, mut to_upstream), (mut from_downstream, mut to_downstream)) =
        (upstream.into_split(), downstream.into_split());
    read(&mut from_upstream).await?;
    to_upstream.write_all(&hello(HopEnd::Downstream)).await.ok()?;
    to_downstream.write_all(&hello(HopEnd::Upstream)).await.ok()?;
    read(&mut from_downstream).await?;
    let (mut requests, mut replies) = (frames(from_upstream), frames(from_downstream));
    let mut begun: Option<Request> = None;
    loop {
        let mut out = Out::default();
        tokio::select! {
            frame = requests.recv() => match frame? {
                (header, payload) if header.kind == Kind::Data => begun.as_mut()?.body.extend_from_slice(&payload),
                (header, payload) => match Frame::parse(&header, payload).ok()? {
                    Frame::Head(head) => begun = Some(Request { head, body: Vec::new() }),
                    other => other.encode(&mut out.down),
                },
            },
            frame = replies.recv() => {
                let (header, payload) = frame?;
                match Frame::parse(&header, payload).ok()? {
                    Frame::Replies(replies) => replies.into_iter().for_each(|reply| late.lock().unwrap().reply(reply, &mut out)),
                    other => other.encode(&mut out.up),
                }
            }
        }
        if let Some(whole) = begun.take_if(|request| request.body.len() as u64 == request.head.wire_bytes) {
            late.lock().unwrap().request(whole, &mut out);
        }
        to_downstream.write_all(&out.down).await.ok()?;
        to_upstream.write_all(&out.up).await.ok()?;
    }
}

/// The frames of a connection, as they arrive.
fn frames(mut from: OwnedReadHalf) -> UnboundedReceiver<(Header, Bytes)> {
    let (arrived, frames) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(frame) = read(&mut from).await {
            if arrived.send(frame).is_err() {
                return;
            }
        }
    });
    frames
}

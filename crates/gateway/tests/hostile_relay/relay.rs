//! A relay of our own between a real source and a real sink: decodes what passes with the wire's types, edits some of
//! it, and passes it on.

use crate::edits::{Edit, changed, changed_bytes};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tradewind_gateway::node::parcel::Parcel;
use tradewind_gateway::node::seal::Seal;
use tradewind_gateway::node::work::Manifest;
use tradewind_store::{Payload, UploadId};
use tradewind_wire::WIRE_VERSION_MAJOR;
use tradewind_wire::frame::{DATA_BYTES_MAX, Frame, HEADER_BYTES, Head, Header, Hello, HopEnd, Kind, Reply, Verdict};

/// The relay's orders.
#[derive(Clone, Debug)]
pub(crate) enum Hostility {
    /// One of the edits.
    Edit(Edit),
    /// A body of the relay's own below the same head, sealed with the relay's key.
    ForgeBody,
    /// The request is dropped, and the sink's reply to an earlier one of its kind is its answer.
    ForgeAnswer,
}

/// Shared by all connections of one run.
pub(crate) struct Mischief {
    hostility: Hostility,
    /// The first frame of its kind that is edited, and whether all after it are.
    at: usize,
    always: bool,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: usize,
    replies: usize,
    held: Option<Request>,
    replayed: Option<Request>,
    last_verdict: Option<Verdict>,
    done: usize,
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

/// The output of a pump.
#[derive(Default)]
struct Out {
    down: Vec<Vec<u8>>,
    up: Vec<Reply>,
}

impl Mischief {
    pub(crate) fn new(hostility: Hostility, at: usize, always: bool) -> Arc<Self> {
        Arc::new(Self { hostility, at, always, counts: Mutex::default() })
    }

    /// The number of changes that were made.
    pub(crate) fn done(&self) -> usize {
        self.counts.lock().unwrap().done
    }

    fn is_due(&self, count: usize) -> bool {
        count == self.at || (self.always && count > self.at)
    }

    fn request(&self, request: Request) -> Out {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.requests;
        counts.requests += 1;
        let mut out = Out::default();
        if let Some(held) = counts.held.take() {
            self.pair(held, request, &mut out);
            return out;
        }
        let replayed = counts.replayed.take();
        let is_down = !matches!(&self.hostility, Hostility::Edit(edit) if !edit.is_down());
        if is_down && self.is_due(count) {
            self.mangle(request, &mut counts, &mut out);
        } else {
            out.down.push(encoded(&request));
        }
        out.down.extend(replayed.map(|request| encoded(&request)));
        out
    }

    fn mangle(&self, request: Request, counts: &mut Counts, out: &mut Out) {
        counts.done += 1;
        let edit = match &self.hostility {
            Hostility::Edit(edit) => edit,
            Hostility::ForgeAnswer => {
                let verdict = counts.last_verdict.clone();
                out.up.extend(verdict.map(|verdict| Reply { request: request.head.request, verdict }));
                return;
            }
            Hostility::ForgeBody => return out.down.push(encoded(&forged(&request))),
        };
        match edit {
            Edit::HeadField(path, change) => {
                let Some(head) = changed(&request.head, path, *change) else {
                    counts.done -= 1;
                    return out.down.push(encoded(&request));
                };
                out.down.push(encoded(&Request { head, body: request.body }));
            }
            Edit::Body(change) | Edit::BodyAndLengths(change) => {
                let Some(body) = changed_bytes(&request.body, *change) else {
                    counts.done -= 1;
                    return out.down.push(encoded(&request));
                };
                let mut head = request.head;
                if matches!(edit, Edit::BodyAndLengths(_)) {
                    let by = body.len() as i64 - request.body.len() as i64;
                    head.wire_bytes = head.wire_bytes.saturating_add_signed(by);
                    head.raw_bytes = head.raw_bytes.saturating_add_signed(by);
                    head.manifest_bytes = head.manifest_bytes.min(head.raw_bytes as u32);
                }
                out.down.push(encoded(&Request { head, body }));
            }
            Edit::DropRequest => {}
            Edit::RepeatRequest => out.down.extend([encoded(&request), encoded(&request)]),
            Edit::ReplayRequest => {
                out.down.push(encoded(&request));
                counts.replayed = Some(request);
            }
            Edit::SwapOrder | Edit::SwapBodies | Edit::SwapIds => counts.held = Some(request),
            Edit::AbortRequest => {
                let half = request.body.len() / 2;
                let mut bytes = encoded_head(&request.head);
                append_data(&mut bytes, &request.body[..half]);
                Frame::Abort.encode(&mut bytes);
                out.down.push(bytes);
            }
            Edit::ReflectBody => {
                let verdict = Verdict::Sink(Bytes::from(request.body));
                out.up.push(Reply { request: request.head.request, verdict });
            }
            _ => out.down.push(encoded(&request)),
        }
    }

    /// The request that was held back, and the one behind it.
    fn pair(&self, first: Request, second: Request, out: &mut Out) {
        let (mut first, mut second) = (first, second);
        match &self.hostility {
            Hostility::Edit(Edit::SwapBodies) => std::mem::swap(&mut first.body, &mut second.body),
            Hostility::Edit(Edit::SwapIds) => std::mem::swap(&mut first.head.request, &mut second.head.request),
            _ => {}
        }
        if first.body.len() as u64 != first.head.wire_bytes {
            // Lengths that do not fit break the connection and nothing else: give both what fits.
            (first.head.wire_bytes, second.head.wire_bytes) = (second.head.wire_bytes, first.head.wire_bytes);
            (first.head.raw_bytes, second.head.raw_bytes) = (second.head.raw_bytes, first.head.raw_bytes);
            (first.head.manifest_bytes, second.head.manifest_bytes) =
                (second.head.manifest_bytes, first.head.manifest_bytes);
        }
        out.down.extend([encoded(&second), encoded(&first)]);
    }

    /// A request that waits for a next one that never comes goes on alone.
    fn release(&self) -> Option<Vec<u8>> {
        self.counts.lock().unwrap().held.take().map(|request| encoded(&request))
    }

    fn replies(&self, replies: Vec<Reply>) -> Vec<Frame> {
        let mut counts = self.counts.lock().unwrap();
        let mut frames = Vec::new();
        for reply in replies {
            let count = counts.replies;
            counts.replies += 1;
            let edit = match &self.hostility {
                Hostility::Edit(edit) if !edit.is_down() && self.is_due(count) => Some(edit),
                _ => None,
            };
            let before = counts.last_verdict.replace(reply.verdict.clone());
            counts.done += usize::from(edit.is_some());
            let edited = match edit {
                None => vec![reply],
                Some(Edit::DropReply) => vec![],
                Some(Edit::RepeatReply) => vec![reply.clone(), reply],
                Some(Edit::ReplayVerdict) => vec![Reply { verdict: before.unwrap_or(reply.verdict), ..reply }],
                Some(Edit::ForgeFailure(fault)) => {
                    let (kind, message) = ("forbidden".to_owned(), "says the relay".to_owned());
                    vec![Reply { verdict: Verdict::Failed { fault: *fault, kind, message, unsent: true }, ..reply }]
                }
                Some(Edit::ForgeWords(words)) => vec![Reply { verdict: Verdict::Sink(words.clone().into()), ..reply }],
                Some(Edit::ReplyField(path, change)) => vec![changed(&reply, path, *change).unwrap_or(reply)],
                Some(Edit::Drain) => {
                    frames.push(Frame::Drain);
                    vec![reply]
                }
                Some(_) => vec![reply],
            };
            if !edited.is_empty() {
                frames.push(Frame::Replies(edited));
            }
        }
        frames
    }
}

/// A request that removes the upload of another object, sealed as well as a relay can: it does not have the run's key.
fn forged(request: &Request) -> Request {
    let manifest = Manifest::Abort { target: 0, key: "large".to_owned(), upload: UploadId("1".to_owned()) };
    let Head { request: id, route, .. } = request.head;
    let parcel = Parcel { request: id, route, manifest, data: Payload::default(), computed: Vec::new(), held: None };
    let seal = Seal::from_hex(&"00".repeat(32)).unwrap();
    let coded = parcel.encode(None, request.head.seal).unwrap();
    let mut body = vec![0; coded.head.wire_bytes as usize];
    seal.sealing(&coded).fill(&mut body).unwrap();
    Request { head: coded.head, body }
}

fn encoded_head(head: &Head) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame::Head(head.clone()).encode(&mut bytes);
    bytes
}

fn append_data(bytes: &mut Vec<u8>, body: &[u8]) {
    for piece in body.chunks(DATA_BYTES_MAX) {
        let header = Header { kind: Kind::Data, route: tradewind_wire::RouteId(0), length: piece.len() };
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(piece);
    }
}

pub(crate) fn encoded(request: &Request) -> Vec<u8> {
    let mut bytes = encoded_head(&request.head);
    append_data(&mut bytes, &request.body);
    bytes
}

/// Relays until the test drops it.
pub(crate) async fn relay(listener: TcpListener, sink: SocketAddr, mischief: Arc<Mischief>) {
    while let Ok((upstream, _)) = listener.accept().await {
        tokio::spawn(connection(upstream, sink, mischief.clone()));
    }
}

pub(crate) fn hello(end: HopEnd) -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = Hello { version: WIRE_VERSION_MAJOR, job: "job".to_owned(), node: "relay".to_owned(), end };
    Frame::Hello(hello).encode(&mut bytes);
    bytes
}

async fn connection(upstream: TcpStream, sink: SocketAddr, mischief: Arc<Mischief>) -> Option<()> {
    let downstream = TcpStream::connect(sink).await.ok()?;
    upstream.set_nodelay(true).ok()?;
    downstream.set_nodelay(true).ok()?;
    let ((mut from_upstream, mut to_upstream), (mut from_downstream, mut to_downstream)) =
        (upstream.into_split(), downstream.into_split());
    read(&mut from_upstream).await?;
    to_upstream.write_all(&hello(HopEnd::Downstream)).await.ok()?;
    to_downstream.write_all(&hello(HopEnd::Upstream)).await.ok()?;
    read(&mut from_downstream).await?;
    let (answers_in, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let down = pump_down(&mut from_upstream, &mut to_downstream, answers_in, &mischief);
    let up = async {
        loop {
            let frames = tokio::select! {
                forged = answers.recv() => vec![Frame::Replies(vec![forged?])],
                frame = read(&mut from_downstream) => match frame? {
                    (header, payload) if header.kind == Kind::Replies => match Frame::parse(&header, payload).ok()? {
                        Frame::Replies(replies) => mischief.replies(replies),
                        _ => return None,
                    },
                    (header, payload) => vec![Frame::parse(&header, payload).ok()?],
                },
            };
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            to_upstream.write_all(&bytes).await.ok()?;
        }
    };
    // When one side ends, the other ends too.
    tokio::select! {
        ended = down => ended,
        ended = up => ended,
    }
}

async fn pump_down(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    answers: tokio::sync::mpsc::UnboundedSender<Reply>,
    mischief: &Mischief,
) -> Option<()> {
    let mut begun: Option<Request> = None;
    loop {
        let (header, payload) = read(from).await?;
        match header.kind {
            Kind::Data => begun.as_mut()?.body.extend_from_slice(&payload),
            Kind::Head => match Frame::parse(&header, payload).ok()? {
                Frame::Head(head) => begun = Some(Request { head, body: Vec::new() }),
                _ => return None,
            },
            _ => {
                // A ping: the source sends nothing else for a while.
                if let Some(held) = mischief.release() {
                    to.write_all(&held).await.ok()?;
                }
                let mut bytes = Vec::new();
                Frame::parse(&header, payload).ok()?.encode(&mut bytes);
                to.write_all(&bytes).await.ok()?;
            }
        }
        if let Some(whole) = begun.take_if(|request| request.body.len() as u64 == request.head.wire_bytes) {
            let out = mischief.request(whole);
            for bytes in out.down {
                to.write_all(&bytes).await.ok()?;
            }
            for reply in out.up {
                answers.send(reply).ok()?;
            }
        }
    }
}

pub(crate) async fn read(from: &mut OwnedReadHalf) -> Option<(Header, Bytes)> {
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header).await.ok()?;
    let header = Header::parse(&header).ok()?;
    let mut payload = vec![0; header.length];
    from.read_exact(&mut payload).await.ok()?;
    Some((header, payload.into()))
}

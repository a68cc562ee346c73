//! Incoming hops: requests from other gateways, and the relay's work on them.
//!
//! Connections arrive at the data port, or are opened from here ([`super::dial`]). The data port also accepts the
//! connections of our outgoing hops whose other ends open them.
//!
//! One task per connection reads; it also forwards for the relay, so a relay holds only one piece of a chunk at a time.
//! While the task waits for memory or for a free downstream connection it does not read, so that TCP slows down the
//! upstream hop.

use super::budget::MemoryBudget;
use super::clock::{FreezeDetector, next_connection_id};
use super::hop::{Hop, Sending, lost_downstream};
use super::hop_reports::Awaited;
use super::reply::{AnswerQueue, Answers, Peers, ReplyTo, Upstream, verdict_of};
use super::sink::Sink;
use super::source::Source;
use super::table::RouteTable;
use super::work::{Order, parse_exactly};
use crate::limits::{
    DATA_CONNECTIONS_MAX, DATA_CONNECTIONS_PER_PEER_MAX, DATA_HANDSHAKES_MAX, DATA_HANDSHAKES_PER_ADDRESS_MAX,
    HOP_CONNECTIONS_MAX,
};
use crate::net::gate::{Admission, Gate, GateLimits};
use crate::net::refusals::Refusals;
use crate::net::{Connection, ConnectionError, DataPort, FrameReader, FrameWriter, Incoming, Link, Security};
use bytes::{Bytes, BytesMut};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tradewind_wire::frame::{CONTROL_BYTES_MAX, Codec, Frame, Head, Hello, HopEnd, Reply};
use tradewind_wire::liveness::Liveness;
use tradewind_wire::scheduler::SLOWEST_BYTES_PER_S;

/// Pause after the system refused a connection (no file descriptors), to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of answers in one frame.
const REPLIES_PER_FRAME_MAX: usize = 256;
/// Maximum bytes of answers in one frame, by estimate.
const REPLY_BYTES_PER_FRAME_MAX: usize = CONTROL_BYTES_MAX / 2;

/// Minimum rate of a body, measured over the time that a peer may be silent. A slower body ends its connection, because
/// it holds memory or a downstream connection. It is the slowest rate of a route, divided among the maximum number of
/// connections of a hop.
const BODY_BYTES_PER_S_MIN: u64 = SLOWEST_BYTES_PER_S / HOP_CONNECTIONS_MAX as u64;

/// How this gateway handles the requests of a route.
#[derive(Clone)]
pub enum Station {
    /// Forwards them.
    Relay(Arc<Hop>),
    /// Carries them out.
    Sink(Arc<Sink>),
}

/// Data shared by all connections.
pub struct Inbound {
    /// TLS or plain TCP.
    pub security: Security,
    /// Our greeting.
    pub hello: Hello,
    /// Gateways that may send requests.
    pub upstream: RwLock<HashSet<String>>,
    /// Outgoing hops whose connections are opened by the gateway at the other end, by the name of that gateway.
    pub awaited: RwLock<HashMap<String, Arc<Hop>>>,
    /// By route: which gateway may bring its requests, and how they are handled.
    pub stations: RouteTable<(Arc<str>, Station)>,
    /// By route that begins here: which gateway may bring its orders.
    pub leads: RouteTable<Arc<str>>,
    /// The source, which executes orders.
    pub source: Option<Arc<Source>>,
    /// Upstream connections.
    pub peers: Peers,
    /// The memory for bodies that a sink collects.
    pub budget: MemoryBudget,
    /// A peer that is silent for this long counts as dead.
    pub silence_max: Duration,
    /// A request that takes longer to arrive ends its connection. The time that its bytes take at
    /// [`SLOWEST_BYTES_PER_S`] is added to this.
    pub request_max: Duration,
    /// Detects whether this process itself was frozen, in which case the silence of peers means nothing.
    pub freezes: Arc<FreezeDetector>,
    /// Ends everything.
    pub stop: CancellationToken,
}

impl Inbound {
    /// Accepts connections until stopped.
    pub async fn listen(self: Arc<Self>, listener: Box<dyn DataPort>) {
        let gate = Gate::new(GateLimits {
            handshakes_max: DATA_HANDSHAKES_MAX,
            per_address_max: DATA_HANDSHAKES_PER_ADDRESS_MAX,
        });
        let places = Arc::new(Semaphore::new(DATA_CONNECTIONS_MAX));
        let refusals = Refusals::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok(link) => {
                    let admission = gate.enter(address_of(&link));
                    tokio::spawn(self.clone().accepted(link, admission, places.clone(), refusals.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    // Strangers may be using up the file descriptors: evict one of them to make room.
                    gate.evict();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accepted(self: Arc<Self>, link: Link, admission: Admission, places: Arc<Semaphore>, refusals: Refusals) {
        let Some(connection) = self.accept(link, admission, &refusals).await else { return };
        let Ok(_place) = places.try_acquire_owned() else {
            if refusals.may_log() {
                tracing::warn!(peer = connection.peer, "refused: {DATA_CONNECTIONS_MAX} connections are open");
            }
            return;
        };
        match connection.peer_end {
            HopEnd::Upstream => self.serve(connection).await,
            HopEnd::Downstream => {
                if let Some(hop) = self.awaited_hop(&connection.peer) {
                    hop.serve(connection).await;
                }
            }
        }
    }

    /// Runs the handshake. If the peer is refused, logs that and returns `None`.
    async fn accept(&self, link: Link, admission: Admission, refusals: &Refusals) -> Option<Connection> {
        let from = link.peer().to_owned();
        let accepting = admission.hold(Connection::accept(link, &self.security, self.hello.clone()));
        match self.stop.run_until_cancelled(accepting).await? {
            Ok(Ok(connection)) => match self.admit(&connection) {
                Ok(()) => Some(connection),
                Err(why) => {
                    if refusals.may_log() {
                        tracing::warn!(from, peer = connection.peer, "refused: {why}");
                    }
                    None
                }
            },
            Ok(Err(error)) => {
                if refusals.may_log() {
                    tracing::warn!(from, %error, "refused a connection");
                }
                None
            }
            Err(evicted) => {
                // Not a warning: strangers must not be able to fill the log, nor to block us if nobody reads it.
                tracing::debug!(from, %evicted, "refused a connection");
                None
            }
        }
    }

    fn admit(&self, connection: &Connection) -> Result<(), &'static str> {
        let peer = &connection.peer;
        let open = match connection.peer_end {
            HopEnd::Upstream if !self.is_upstream(peer) => return Err("not upstream of this gateway"),
            HopEnd::Upstream => self.peers.count_of(peer),
            HopEnd::Downstream => self.awaited_hop(peer).ok_or("no hop waits for its connections")?.connections(),
        };
        if open >= DATA_CONNECTIONS_PER_PEER_MAX { Err("it has too many connections") } else { Ok(()) }
    }

    fn awaited_hop(&self, peer: &str) -> Option<Arc<Hop>> {
        self.awaited.read().unwrap_or_else(PoisonError::into_inner).get(peer).cloned()
    }

    /// Serves the requests of a connection until it ends.
    pub(super) async fn serve(self: Arc<Self>, connection: Connection) {
        let (id, peer): (_, Arc<str>) = (next_connection_id(), connection.peer.into());
        let reply = ReplyTo::peer(self.peers.clone(), peer.clone(), id, self.freezes.clone());
        let closed = CancellationToken::new();
        let (queue, answers) = AnswerQueue::new(closed.clone());
        let writing = write_answers(connection.writer, answers, closed.clone(), self.silence_max / 3);
        let _writer = AbortOnDropHandle::new(tokio::spawn(writing));
        let _connected = self.peers.connected(peer.clone(), id, queue);
        let ended = tokio::select! {
            ended = self.read(connection.reader, &peer, &reply) => ended,
            () = closed.cancelled() => ConnectionError::Closed,
            () = self.stop.cancelled() => ConnectionError::Closed,
        };
        match ended {
            ConnectionError::Closed => tracing::debug!(peer = &*peer, "connection closed"),
            error => tracing::warn!(peer = &*peer, %error, "connection ended"),
        }
    }

    async fn read(&self, reader: FrameReader, peer: &str, reply: &ReplyTo) -> ConnectionError {
        let heard_ms = self.freezes.clock().now_ms();
        let liveness = Liveness::new(heard_ms, self.silence_max.as_millis() as u64);
        let freezes = self.freezes.clone();
        let silence_max = self.silence_max;
        let mut incoming =
            Reading { reader, freezes, liveness, heard_ms, silence_max, advance: Advance::since(heard_ms) };
        loop {
            let done = match incoming.next().await {
                Ok(Incoming::Begin(head)) => self.request_in_time(head, &mut incoming, peer, reply).await,
                Ok(Incoming::Frame(Frame::Orders(orders))) => self.orders(&orders, peer, reply),
                Ok(Incoming::Frame(Frame::Ping(_) | Frame::Pong(_) | Frame::Drain)) => Ok(()),
                Ok(_) => Err(ConnectionError::Peer("an unexpected frame came downstream".to_owned())),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    fn is_upstream(&self, peer: &str) -> bool {
        self.upstream.read().unwrap_or_else(PoisonError::into_inner).contains(peer)
    }

    fn orders(&self, payload: &Bytes, peer: &str, reply: &ReplyTo) -> Result<(), ConnectionError> {
        let broken = |why: &str| ConnectionError::Peer(why.to_owned());
        let source = self.source.as_ref().ok_or_else(|| broken("orders came to a gateway that is not a source"))?;
        let orders = parse_orders(payload).ok_or_else(|| broken("orders do not parse"))?;
        if let Some(order) = orders.iter().find(|order| self.leads.get(order.route).as_deref() != Some(peer)) {
            return Err(ConnectionError::Peer(format!("orders of route {} do not come from {peer}", order.route.0)));
        }
        for order in orders {
            source.execute(order, reply.clone());
        }
        Ok(())
    }

    /// Handles a request within a time limit. It also ends a request that the peer leaves unfinished while sending a
    /// few bytes now and then.
    async fn request_in_time(
        &self,
        head: Head,
        incoming: &mut Reading,
        peer: &str,
        reply: &ReplyTo,
    ) -> Result<(), ConnectionError> {
        incoming.advance = Advance::since(self.freezes.clock().now_ms());
        let moving = Duration::from_millis(head.wire_bytes.saturating_mul(1000) / SLOWEST_BYTES_PER_S);
        let limit = self.request_max.saturating_add(moving);
        let done = tokio::time::timeout(limit, self.request(head, incoming, peer, reply)).await;
        done.unwrap_or_else(|_| Err(ConnectionError::Peer(format!("a request took longer than {} s", limit.as_secs()))))
    }

    async fn request(
        &self,
        head: Head,
        incoming: &mut Reading,
        peer: &str,
        reply: &ReplyTo,
    ) -> Result<(), ConnectionError> {
        match self.stations.get(head.route) {
            Some((from, _)) if *from != *peer => {
                Err(ConnectionError::Peer(format!("requests of route {} do not come from {peer}", head.route.0)))
            }
            Some((_, Station::Sink(sink))) => self.collect(&sink, head, incoming, reply).await,
            Some((_, Station::Relay(hop))) => relay(&hop, head, incoming, reply).await,
            None => Err(ConnectionError::Peer(format!("route {} does not pass this gateway", head.route.0))),
        }
    }

    /// Collects the whole body and passes it to the sink. Waiting for memory creates back-pressure.
    async fn collect(
        &self,
        sink: &Arc<Sink>,
        head: Head,
        incoming: &mut Reading,
        reply: &ReplyTo,
    ) -> Result<(), ConnectionError> {
        let busy_ms = incoming.now_ms();
        let held = self.budget.hold(head.route, bytes_to_decode(&head)).await;
        incoming.was_busy(busy_ms);
        let mut opening = sink.opening(&head).map_err(|failure| ConnectionError::Peer(failure.message))?;
        if head.wire_bytes > 0 && !incoming.body(|piece| opening.push(piece)).await? {
            return Ok(());
        }
        sink.accept_sealed(opening, held, reply.clone());
        // Otherwise this task reads on while there is input, and bodies pile up that could have been written already,
        // while they are in the cache.
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// The peer's address for the gate. All links without one (pipes of a simulator) share one address.
fn address_of(link: &Link) -> IpAddr {
    link.peer().parse::<SocketAddr>().map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip())
}

/// Maximum memory for a body: a compressed one exists twice while it is decoded, and new bytes of one with a recipe are
/// copied for the window.
fn bytes_to_decode(head: &Head) -> u64 {
    let restored_bytes = if head.recipe_bytes == 0 { 0 } else { head.raw_bytes + head.referenced_bytes };
    let decoded_bytes = if head.codec == Codec::Raw { 0 } else { head.raw_bytes };
    head.wire_bytes + decoded_bytes.max(restored_bytes)
}

/// Parses a batch of orders, without side effects; also used by the fuzzer.
pub fn parse_orders(payload: &[u8]) -> Option<Vec<Order>> {
    parse_exactly(payload)
}

/// The reading side of a connection, with the liveness of its peer.
struct Reading {
    reader: FrameReader,
    freezes: Arc<FreezeDetector>,
    liveness: Liveness,
    heard_ms: u64,
    silence_max: Duration,
    advance: Advance,
}

/// Bytes of a body that arrived recently.
#[derive(Clone, Copy, Debug)]
struct Advance {
    since_ms: u64,
    bytes: u64,
}

impl Advance {
    fn since(now_ms: u64) -> Self {
        Self { since_ms: now_ms, bytes: 0 }
    }

    /// Leaves out a time in which nothing was read.
    fn paused(&mut self, pause_ms: u64) {
        self.since_ms += pause_ms;
    }

    /// Counts bytes that arrived at `now_ms`. Returns false if too few arrived over the last `span_ms`.
    fn arrived(&mut self, bytes: u64, now_ms: u64, span_ms: u64) -> bool {
        self.bytes += bytes;
        let waited_ms = now_ms.saturating_sub(self.since_ms);
        if waited_ms < span_ms {
            return true;
        }
        let enough = self.bytes.saturating_mul(1000) >= BODY_BYTES_PER_S_MIN.saturating_mul(waited_ms);
        *self = Self::since(now_ms);
        enough
    }
}

impl Reading {
    async fn next(&mut self) -> Result<Incoming, ConnectionError> {
        match tokio::time::timeout(self.silence_max, self.reader.next()).await {
            Err(_elapsed) => Err(self.silent()),
            Ok(incoming) => {
                let now_ms = self.freezes.clock().now_ms();
                // If this process was frozen, the peer has abandoned the connection, and any buffered data is stale.
                if self.freezes.was_frozen_since(self.heard_ms) || !self.liveness.heard(now_ms) {
                    return Err(self.silent());
                }
                self.heard_ms = now_ms;
                incoming
            }
        }
    }

    /// Notes that this side has not read since `busy_ms`, on purpose.
    fn was_busy(&mut self, busy_ms: u64) {
        let now_ms = self.now_ms();
        self.liveness.not_listening(now_ms);
        self.advance.paused(now_ms.saturating_sub(busy_ms));
    }

    fn now_ms(&self) -> u64 {
        self.freezes.clock().now_ms()
    }

    /// As [`Reading::next`], inside a body, which must make progress. Pings are not progress.
    async fn next_of_body(&mut self) -> Result<Incoming, ConnectionError> {
        let incoming = self.next().await?;
        let (bytes, is_last) = match &incoming {
            Incoming::Piece { bytes, last, .. } => (bytes.len() as u64, *last),
            Incoming::Piped { length, last, .. } => (*length as u64, *last),
            _ => (0, false),
        };
        let (now_ms, span_ms) = (self.freezes.clock().now_ms(), self.silence_max.as_millis() as u64);
        if self.advance.arrived(bytes, now_ms, span_ms) || is_last {
            return Ok(incoming);
        }
        let seconds = self.silence_max.as_secs();
        Err(ConnectionError::Peer(format!("a body did not advance at {BODY_BYTES_PER_S_MIN} bytes/s for {seconds} s")))
    }

    fn silent(&self) -> ConnectionError {
        ConnectionError::Silent(self.silence_max.as_secs())
    }

    /// Reads the body that has begun. Returns false if the sender aborted it.
    async fn body(&mut self, mut take: impl FnMut(BytesMut)) -> Result<bool, ConnectionError> {
        self.reader.end_splicing();
        loop {
            match self.next_of_body().await? {
                Incoming::Piece { bytes, last, .. } => {
                    take(bytes);
                    if last {
                        return Ok(true);
                    }
                }
                Incoming::GiveUp => return Ok(false),
                Incoming::Frame(Frame::Ping(_) | Frame::Pong(_)) => {}
                _ => return Err(ConnectionError::Peer("an unexpected frame came inside a body".to_owned())),
            }
        }
    }
}

/// Forwards a request while it arrives.
async fn relay(hop: &Hop, head: Head, incoming: &mut Reading, reply: &ReplyTo) -> Result<(), ConnectionError> {
    let has_body = head.wire_bytes > 0;
    let request = head.request;
    let busy_ms = incoming.now_ms();
    let waiting = hop.relay_meter().waiting(Awaited::Downstream);
    let checked_out = hop.checkout(request, reply).await;
    drop(waiting);
    incoming.was_busy(busy_ms);
    let Some(mut sending) = checked_out else {
        // Upstream has been answered, but the body must still be read, because other requests follow it.
        return if has_body { incoming.body(drop).await.map(drop) } else { Ok(()) };
    };
    sending.head(&head);
    let intact = if has_body {
        match pump(hop, &mut sending, incoming).await {
            Ok(Pumped::Whole) => true,
            Ok(Pumped::GivenUp) => {
                sending.abort().await;
                return Ok(());
            }
            Ok(Pumped::LostDownstream { ended }) => {
                if !ended {
                    incoming.body(drop).await?;
                }
                false
            }
            Err(error) => {
                sending.abort().await;
                return Err(error);
            }
        }
    } else {
        sending.flush().await.is_ok()
    };
    if intact {
        sending.finish();
    } else if sending.lost() {
        reply.send(request, verdict_of(lost_downstream(hop)));
    }
    Ok(())
}

enum Pumped {
    Whole,
    GivenUp,
    LostDownstream { ended: bool },
}

async fn pump(hop: &Hop, sending: &mut Sending<'_>, incoming: &mut Reading) -> Result<Pumped, ConnectionError> {
    if sending.splices() {
        incoming.reader.begin_splicing();
    }
    loop {
        // The frame is passed on as it came, so that all gateways of a route read and write as much at a time.
        let waiting = hop.relay_meter().waiting(Awaited::Upstream);
        let arrived = incoming.next_of_body().await?;
        drop(waiting);
        let _waiting = hop.relay_meter().waiting(Awaited::Downstream);
        let busy_ms = incoming.now_ms();
        let (sent, last) = match arrived {
            Incoming::Piece { bytes, more, last } => (sending.piece(&bytes, more).await, last),
            Incoming::Piped { length, more, last } => match incoming.reader.pipe() {
                Some(pipe) => (sending.piped(pipe, length, more).await, last),
                None => (Err(ConnectionError::Closed), last),
            },
            Incoming::GiveUp => return Ok(Pumped::GivenUp),
            // Keeps the downstream connection alive while the upstream one stalls.
            Incoming::Frame(Frame::Ping(token)) => {
                drop(sending.frame(&Frame::Ping(token)).await);
                (Ok(()), false)
            }
            Incoming::Frame(Frame::Pong(_)) => (Ok(()), false),
            _ => return Err(ConnectionError::Peer("an unexpected frame came inside a body".to_owned())),
        };
        incoming.was_busy(busy_ms);
        if sent.is_err() {
            incoming.reader.end_splicing();
            return Ok(Pumped::LostDownstream { ended: last });
        }
        if last {
            return Ok(Pumped::Whole);
        }
    }
}

/// Sends answers upstream, many in one frame, and a ping when there have been none for a while. When the keys are near
/// their limit, asks the peer to replace the connection.
async fn write_answers(mut writer: FrameWriter, mut answers: Answers, closed: CancellationToken, ping_every: Duration) {
    // Also ends the connection if this task panics: a connection that is read but never answered would hang its peer.
    let _closing = closed.drop_guard();
    let (mut next, mut asked_for_another) = (None, false);
    loop {
        let answer = match next.take() {
            Some(answer) => Ok(Some(answer)),
            None => tokio::time::timeout(ping_every, answers.next()).await,
        };
        let frame = match answer {
            Ok(None) => return,
            Ok(Some(Upstream::Frame(frame))) => frame,
            Ok(Some(Upstream::Reply(reply))) => {
                let (replies, rest) = gather(reply, &mut answers);
                next = rest;
                Frame::Replies(replies)
            }
            Err(_elapsed) => Frame::Ping(0),
        };
        if writer.frame(&frame).await.is_err() {
            return;
        }
        if writer.is_worn() && !asked_for_another {
            asked_for_another = true;
            if writer.frame(&Frame::Drain).await.is_err() {
                return;
            }
        }
    }
}

/// Takes waiting answers after `first`, as many as fit into one frame. Returns them, and the one taken that did not
/// fit.
fn gather(first: Reply, answers: &mut Answers) -> (Vec<Reply>, Option<Upstream>) {
    let mut bytes = reply_bytes(&first);
    let mut replies = vec![first];
    while replies.len() < REPLIES_PER_FRAME_MAX {
        match answers.next_now() {
            Some(Upstream::Reply(reply)) if bytes + reply_bytes(&reply) <= REPLY_BYTES_PER_FRAME_MAX => {
                bytes += reply_bytes(&reply);
                replies.push(reply);
            }
            Some(other) => return (replies, Some(other)),
            None => break,
        }
    }
    (replies, None)
}

fn reply_bytes(reply: &Reply) -> usize {
    use tradewind_wire::frame::Verdict;
    64 + match &reply.verdict {
        Verdict::Sink(words) => words.len(),
        Verdict::Failed { kind, message, .. } => kind.len() + message.len(),
    }
}

#[cfg(test)]
mod tests;

//! An outgoing hop: a bundle of connections to one gateway, and what was sent on it and not yet answered.
//!
//! Dynamic partition: a request takes whichever connection is free first, so a slow connection holds one request and no
//! more. A lost connection gives its requests back upstream as `Lost`; a hop without any connection says `RouteDown`.

use super::clock::Clock;
use super::parcel::Coded;
use super::reply::{ReplyTo, verdict_of};
use super::work::Failure;
use crate::net::{Connection, ConnectionError, FrameReader, FrameWriter, Incoming, Network, Security};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tradewind_contract::HopSpec;
use tradewind_wire::frame::{Frame, Hello, Reply};
use tradewind_wire::hop::{Flights, Liveness};
use tradewind_wire::{ConnectionId, Fault, RequestId};

/// A connection that is not made by then has failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// First pause before connecting again; doubled up to the longest.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before connecting again.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a connection that shall take no more requests is looked at, whether its last answers have come.
const RETIRE_PAUSE: Duration = Duration::from_millis(500);

/// How often, until a request is overdue, it is looked whether it is.
const OVERDUE_LOOKS: u32 = 8;
/// Longest pause between two such looks.
const OVERDUE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How a hop is set up.
pub struct HopSetup {
    /// Peer, address, number of connections.
    pub spec: HopSpec,
    /// TLS or plain.
    pub security: Security,
    /// Our first words.
    pub hello: Hello,
    /// A peer silent for so long is dead.
    pub silence_max: Duration,
    /// A request that the peer does not answer for so long, or a piece of one that it does not take, is given up.
    pub request_max: Duration,
    /// Reaches the peer.
    pub network: Arc<dyn Network>,
}

/// See the module's head.
pub struct Hop {
    setup: HopSetup,
    flights: Mutex<Flights<ReplyTo>>,
    idle_in: mpsc::UnboundedSender<Outgoing>,
    idle_out: AsyncMutex<mpsc::UnboundedReceiver<Outgoing>>,
    health: watch::Sender<Health>,
    stop: CancellationToken,
    clock: Clock,
    counts: HopCounts,
    /// Connections that are kept.
    wanted: AtomicU16,
}

/// What crossed a hop.
#[derive(Debug, Default)]
pub struct HopCounts {
    /// Bytes of bodies sent.
    pub sent_bytes: AtomicU64,
    /// Requests sent.
    pub requests: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Health {
    connections: usize,
    /// Connecting failed since the last success, so waiting for a connection is waiting for a repair.
    failing: bool,
}

/// The sending side of one live connection. Whoever holds it may send one request.
#[derive(Clone)]
struct Outgoing {
    id: ConnectionId,
    writer: Arc<AsyncMutex<FrameWriter>>,
    closed: CancellationToken,
    /// The peer wants no more requests, or the keys are worn.
    retired: Arc<AtomicBool>,
}

/// A request being sent piece by piece, as a relay does. Dropped before its end, it is answered `Lost`, and its
/// connection is closed if a part of a request may be on it.
pub struct Sending<'a> {
    // Fields are dropped in this order: the connection is free for others only when nobody writes on it.
    writer: OwnedMutexGuard<FrameWriter>,
    flight: InFlight<'a, [RequestId; 1]>,
    lent: Lent<'a>,
}

/// Requests that are registered as sent. Dropped before the end of the sending, they are answered `Lost`.
struct InFlight<'a, R: AsRef<[RequestId]>> {
    hop: &'a Hop,
    requests: R,
    sent: bool,
}

impl<R: AsRef<[RequestId]>> InFlight<'_, R> {
    /// All of it has been sent: the peer answers, or the loss of the connection.
    fn sent(mut self) {
        self.sent = true;
        let now_ms = self.hop.clock.now_ms();
        let mut flights = self.hop.flights();
        self.requests.as_ref().iter().for_each(|request| flights.whole(*request, now_ms));
    }
}

impl<R: AsRef<[RequestId]>> Drop for InFlight<'_, R> {
    fn drop(&mut self) {
        if self.sent {
            return;
        }
        for request in self.requests.as_ref() {
            let asker = self.hop.flights().answered(*request);
            if let Some(asker) = asker {
                asker.send(*request, verdict_of(lost_below(self.hop)));
            }
        }
    }
}

/// A connection out of the queue of free ones. Dropped, it goes back there if nothing was begun on it; otherwise it is
/// closed, because nobody knows how much of a frame was written.
struct Lent<'a> {
    hop: &'a Hop,
    outgoing: Outgoing,
    begun: bool,
}

impl Lent<'_> {
    /// Marks the request as complete, so that the connection is kept.
    fn give_back(mut self) {
        self.begun = false;
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.begun {
            self.outgoing.closed.cancel();
        } else {
            self.hop.give_back(self.outgoing.clone());
        }
    }
}

/// A connection that is lent out. Dropped, it is closed, and what is on it is answered `Lost`.
struct Live<'a> {
    hop: &'a Hop,
    id: ConnectionId,
    closed: CancellationToken,
    ended: ConnectionError,
}

impl<'a> Live<'a> {
    fn begin(hop: &'a Hop, outgoing: Outgoing) -> Self {
        let live = Self { hop, id: outgoing.id, closed: outgoing.closed.clone(), ended: ConnectionError::Closed };
        hop.health.send_modify(|health| *health = Health { connections: health.connections + 1, failing: false });
        hop.give_back(outgoing);
        live
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.closed.cancel();
        self.hop.health.send_modify(|health| health.connections -= 1);
        let lost = self.hop.flights().connection_lost(self.id);
        for (request, reply) in lost {
            let (from, to, ended) = (&self.hop.setup.hello.node, self.hop.peer(), &self.ended);
            let message = format!("lost the connection from {from} to {to}: {ended}");
            reply.fail(request, Fault::Lost, "unavailable", message);
        }
    }
}

impl Hop {
    /// Starts connecting. Ends with `stop`.
    pub fn start(setup: HopSetup, stop: CancellationToken) -> Arc<Self> {
        let (idle_in, idle_out) = mpsc::unbounded_channel();
        let hop = Arc::new(Self {
            setup,
            flights: Mutex::default(),
            idle_in,
            idle_out: AsyncMutex::new(idle_out),
            health: watch::Sender::new(Health::default()),
            stop,
            clock: Clock::start(),
            counts: HopCounts::default(),
            wanted: AtomicU16::new(0),
        });
        hop.widen(hop.setup.spec.connections);
        tokio::spawn(hop.clone().give_up_overdue());
        hop
    }

    /// Answers requests that the peer does not answer. The lead gives up sooner; this ends what it leaves behind here.
    async fn give_up_overdue(self: Arc<Self>) {
        let limit_ms = self.setup.request_max.as_millis() as u64;
        let every = (self.setup.request_max / OVERDUE_LOOKS).min(OVERDUE_PAUSE_MAX);
        while self.stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            let overdue = self.flights().overdue(self.clock.now_ms(), limit_ms);
            for (request, asker) in overdue {
                let message = format!("{} has not answered for {} s", self.peer(), limit_ms / 1000);
                asker.fail(request, Fault::Lost, "unavailable", message);
            }
        }
    }

    /// Keeps so many connections from now on; never fewer than before.
    pub fn widen(self: &Arc<Self>, connections: u16) {
        let before = self.wanted.fetch_max(connections, Ordering::Relaxed);
        for _ in before..connections {
            tokio::spawn(self.clone().keep_connected());
        }
    }

    /// Ends when nothing that was sent on it waits for an answer any more.
    pub async fn end_when_idle(self: Arc<Self>) {
        while self.in_flight() > 0 && !self.stop.is_cancelled() {
            tokio::time::sleep(RETIRE_PAUSE).await;
        }
        self.stop.cancel();
    }

    /// Where it leads to.
    pub fn address(&self) -> &str {
        &self.setup.spec.address
    }

    /// Name of the gateway at the other end.
    pub fn peer(&self) -> &str {
        &self.setup.spec.to
    }

    /// Connections that are up.
    pub fn connections(&self) -> usize {
        self.health.borrow().connections
    }

    /// Requests sent and not answered.
    pub fn in_flight(&self) -> usize {
        self.flights().len()
    }

    /// What crossed it.
    pub fn counts(&self) -> &HopCounts {
        &self.counts
    }

    /// Sends a whole request, from its source. Every request is answered to `reply` in the end, whatever happens. What a
    /// lost connection cuts off is not sent again from here: only the lead may spend those bytes a second time.
    pub async fn send(&self, coded: &Coded, reply: &ReplyTo) {
        let request = coded.head.request;
        let mut sending = match self.begin(request, reply).await {
            Ok(sending) => sending,
            Err(why) => return reply.fail_unsent(request, self.refusal(why)),
        };
        let mut sent = sending.head(coded).await;
        for segment in &coded.body {
            if sent.is_ok() {
                sent = sending.piece(segment).await;
            }
        }
        if sent.is_ok() {
            sending.finish();
        } else if sending.lost() {
            // Some of it has left by now.
            reply.send(request, verdict_of(lost_below(self)));
        }
    }

    /// Sends a frame that asks for answers to `requests` (a batch of orders).
    pub async fn send_orders(&self, frame: &Frame, requests: &[RequestId], reply: &ReplyTo) {
        let (mut lent, flight) = match self.lend(requests, reply).await {
            Ok(begun) => begun,
            Err(why) => {
                for request in requests {
                    reply.fail_unsent(*request, self.refusal(why));
                }
                return;
            }
        };
        let mut writer = lent.outgoing.writer.clone().lock_owned().await;
        lent.begun = true;
        if self.guarded(&lent.outgoing, writer.frame(frame)).await.is_ok() {
            drop(writer);
            flight.sent();
            lent.give_back();
        }
    }

    /// Takes the next free connection for `request`; `None` if there is none and `reply` has been told.
    pub async fn checkout(&self, request: RequestId, reply: &ReplyTo) -> Option<Sending<'_>> {
        let begun = self.begin(request, reply).await;
        begun.inspect_err(|why| reply.send(request, verdict_of(self.refusal(*why)))).ok()
    }

    async fn begin(&self, request: RequestId, reply: &ReplyTo) -> Result<Sending<'_>, NotBegun> {
        let (lent, flight) = self.lend([request], reply).await?;
        let writer = lent.outgoing.writer.clone().lock_owned().await;
        Ok(Sending { writer, flight, lent })
    }

    /// The next free connection, with `requests` registered on it before the first byte, so that no answer is early.
    async fn lend<R: AsRef<[RequestId]>>(
        &self,
        requests: R,
        reply: &ReplyTo,
    ) -> Result<(Lent<'_>, InFlight<'_, R>), NotBegun> {
        loop {
            let lent = Lent { hop: self, outgoing: self.next_connection().await?, begun: false };
            if self.register(requests.as_ref(), &lent.outgoing, reply)? {
                return Ok((lent, InFlight { hop: self, requests, sent: false }));
            }
        }
    }

    /// Returns false if the connection has ended. Under the lock: [`Hop::serve`] closes a connection first and then
    /// gives back what is registered on it, so nothing is registered behind its back.
    fn register(&self, requests: &[RequestId], outgoing: &Outgoing, reply: &ReplyTo) -> Result<bool, NotBegun> {
        let mut flights = self.flights();
        if outgoing.closed.is_cancelled() {
            return Ok(false);
        }
        if requests.iter().any(|request| flights.is_in_flight(*request)) {
            return Err(NotBegun::Twice);
        }
        for request in requests {
            flights.sent(*request, outgoing.id, reply.clone());
        }
        Ok(true)
    }

    async fn next_connection(&self) -> Result<Outgoing, NotBegun> {
        let mut health = self.health.subscribe();
        let mut idle = tokio::select! {
            idle = self.idle_out.lock() => idle,
            () = until_down(&mut health) => return Err(NotBegun::Down),
            () = self.stop.cancelled() => return Err(NotBegun::Down),
        };
        loop {
            let outgoing = tokio::select! {
                biased;
                Some(outgoing) = idle.recv() => outgoing,
                () = until_down(&mut health) => return Err(NotBegun::Down),
                () = self.stop.cancelled() => return Err(NotBegun::Down),
            };
            if !outgoing.closed.is_cancelled() && !outgoing.retired.load(Ordering::Relaxed) {
                return Ok(outgoing);
            }
        }
    }

    /// A write that ends when the connection is given up, or when the peer takes nothing for too long.
    async fn guarded(
        &self,
        outgoing: &Outgoing,
        write: impl Future<Output = Result<(), ConnectionError>>,
    ) -> Result<(), ConnectionError> {
        let in_time = tokio::time::timeout(self.setup.request_max, guarded(&outgoing.closed, write));
        in_time.await.unwrap_or(Err(ConnectionError::Silent(self.setup.request_max.as_secs())))
    }

    fn refusal(&self, why: NotBegun) -> Failure {
        let (peer, here) = (self.peer(), &self.setup.hello.node);
        match why {
            NotBegun::Down => {
                Failure::new(Fault::RouteDown, "unavailable", format!("{peer} cannot be reached from {here}"))
            }
            NotBegun::Twice => {
                Failure::new(Fault::Lost, "unavailable", format!("a request came to {here} a second time"))
            }
        }
    }

    fn give_back(&self, outgoing: Outgoing) {
        drop(self.idle_in.send(outgoing));
    }

    fn flights(&self) -> std::sync::MutexGuard<'_, Flights<ReplyTo>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep_connected(self: Arc<Self>) {
        let mut pause = RECONNECT_PAUSE_MIN;
        while !self.stop.is_cancelled() {
            let connected = tokio::select! {
                connected = self.connect() => connected,
                () = self.stop.cancelled() => return,
            };
            match connected {
                Ok(connection) => {
                    pause = RECONNECT_PAUSE_MIN;
                    self.serve(connection).await;
                }
                Err(error) => {
                    tracing::debug!(peer = self.peer(), %error, "cannot connect");
                    self.health.send_modify(|health| health.failing = true);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return,
            }
            pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
        }
    }

    async fn connect(&self) -> Result<Connection, ConnectionError> {
        let connecting = self.setup.network.connect(&self.setup.spec.address);
        let timed_out = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let timeout = CONNECT_TIMEOUT.min(self.setup.silence_max);
        let link = tokio::time::timeout(timeout, connecting).await.map_err(timed_out)??;
        let opening = Connection::open(link, &self.setup.security, self.setup.hello.clone(), self.peer());
        // A frozen peer takes connections, because its kernel does, and says nothing.
        tokio::time::timeout(self.setup.silence_max, opening)
            .await
            .unwrap_or(Err(ConnectionError::Silent(self.setup.silence_max.as_secs())))
    }

    /// Lends the connection out until it ends, then gives back what was on it.
    async fn serve(&self, connection: Connection) {
        let outgoing = Outgoing {
            id: super::clock::next_connection_id(),
            writer: Arc::new(AsyncMutex::new(connection.writer)),
            closed: CancellationToken::new(),
            retired: Arc::default(),
        };
        let (id, closed, retired) = (outgoing.id, outgoing.closed.clone(), outgoing.retired.clone());
        let pinging = keep_alive(outgoing.writer.clone(), closed.clone(), self.setup.silence_max / 3);
        let _pinging = AbortOnDropHandle::new(tokio::spawn(pinging));
        let mut live = Live::begin(self, outgoing);
        let ended = tokio::select! {
            ended = self.read_answers(connection.reader, &retired) => ended,
            () = self.until_retired(id, &retired) => ConnectionError::Closed,
            () = closed.cancelled() => ConnectionError::Closed,
            () = self.stop.cancelled() => ConnectionError::Closed,
        };
        tracing::debug!(peer = self.peer(), %ended, "connection ended");
        live.ended = ended;
    }

    async fn read_answers(&self, mut reader: FrameReader, retired: &AtomicBool) -> ConnectionError {
        let clock = Clock::start();
        let silence_ms = self.setup.silence_max.as_millis() as u64;
        let mut liveness = Liveness::new(clock.now_ms(), silence_ms);
        loop {
            let incoming = match tokio::time::timeout(self.setup.silence_max, reader.next()).await {
                Ok(Ok(incoming)) => incoming,
                Ok(Err(error)) => return error,
                Err(_elapsed) => return ConnectionError::Silent(self.setup.silence_max.as_secs()),
            };
            if !liveness.heard(clock.now_ms()) {
                return ConnectionError::Silent(self.setup.silence_max.as_secs());
            }
            match incoming {
                Incoming::Frame(Frame::Replies(replies)) => self.answer(replies),
                Incoming::Frame(Frame::Drain) => retired.store(true, Ordering::Relaxed),
                Incoming::Frame(Frame::Ping(_) | Frame::Pong(_)) => {}
                _ => return ConnectionError::Peer("an unexpected frame came upstream".to_owned()),
            }
        }
    }

    fn answer(&self, replies: Vec<Reply>) {
        for Reply { request, verdict } in replies {
            let asker = self.flights().answered(request);
            if let Some(asker) = asker {
                asker.send(request, verdict);
            }
        }
    }

    /// Returns when the connection shall take no more requests and has answered those it took.
    async fn until_retired(&self, id: ConnectionId, retired: &AtomicBool) {
        loop {
            tokio::time::sleep(RETIRE_PAUSE.max(self.setup.silence_max / 30)).await;
            if retired.load(Ordering::Relaxed) && !self.flights().is_on(id) {
                return;
            }
        }
    }
}

impl Sending<'_> {
    /// Writes the header.
    pub async fn head(&mut self, coded: &Coded) -> Result<(), ConnectionError> {
        self.lent.begun = true;
        self.frame(&Frame::Head(coded.head.clone())).await
    }

    /// Writes a frame between pieces (the header, an abort, a ping).
    pub async fn frame(&mut self, frame: &Frame) -> Result<(), ConnectionError> {
        self.lent.hop.guarded(&self.lent.outgoing, self.writer.frame(frame)).await
    }

    /// Writes bytes of the body.
    pub async fn piece(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.lent.hop.guarded(&self.lent.outgoing, self.writer.data(bytes)).await?;
        self.lent.hop.counts.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The request is on its way: the connection is free for the next one.
    pub fn finish(self) {
        let Self { writer, flight, lent } = self;
        if writer.is_worn() {
            lent.outgoing.retired.store(true, Ordering::Relaxed);
        }
        lent.hop.counts.requests.fetch_add(1, Ordering::Relaxed);
        drop(writer);
        flight.sent();
        lent.give_back();
    }

    /// The body will not come: tells the peer to forget it, and nobody is answered.
    pub async fn abort(mut self) {
        self.forget();
        if self.frame(&Frame::Abort).await.is_ok() {
            self.finish();
        }
    }

    /// The connection broke. Returns whether the request is still ours to answer; if not, it has been answered.
    pub fn lost(self) -> bool {
        self.lent.outgoing.closed.cancel();
        self.forget()
    }

    /// Nobody below shall answer it any more. Returns whether it was unanswered.
    fn forget(&self) -> bool {
        let [request] = self.flight.requests;
        self.lent.hop.flights().answered(request).is_some()
    }
}

/// Why a request was not begun.
#[derive(Clone, Copy)]
enum NotBegun {
    /// No connection, and connecting fails.
    Down,
    /// A request of this id is in flight already: somebody above sent it twice.
    Twice,
}

async fn until_down(health: &mut watch::Receiver<Health>) {
    // The sender lives in the hop that is borrowed here, so waiting cannot fail.
    drop(health.wait_for(|health| health.connections == 0 && health.failing).await);
}

/// A write that ends at once when the connection is given up.
async fn guarded(
    closed: &CancellationToken,
    write: impl Future<Output = Result<(), ConnectionError>>,
) -> Result<(), ConnectionError> {
    tokio::select! {
        biased;
        () = closed.cancelled() => Err(ConnectionError::Closed),
        written = write => written,
    }
}

/// Pings when nobody is sending, so that the peer does not take us for dead.
async fn keep_alive(writer: Arc<AsyncMutex<FrameWriter>>, closed: CancellationToken, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if let Ok(mut writer) = writer.try_lock()
            && guarded(&closed, writer.frame(&Frame::Ping(0))).await.is_err()
        {
            closed.cancel();
            return;
        }
    }
}

/// The words of a source or a relay when the way below is lost in the middle of a body.
pub fn lost_below(hop: &Hop) -> Failure {
    Failure::new(
        Fault::Lost,
        "unavailable",
        format!("lost the connection from {} to {}", hop.setup.hello.node, hop.peer()),
    )
}

#[cfg(test)]
mod tests;

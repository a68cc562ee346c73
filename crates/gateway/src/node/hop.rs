//! An outgoing hop: a bundle of connections to one gateway, and what was sent on it and not yet answered.
//!
//! This end opens the connections, or waits for the other end to open them where only that end can ([`super::dial`]).
//!
//! Dynamic partition: a request takes whichever connection is free first, so a slow connection holds one request and no
//! more. A lost connection gives its requests back upstream as `Lost`; a hop without any connection says `RouteDown`.
//! [`connecting`](self::connecting) makes the connections and reads their answers; [`sending`](self::sending) holds one
//! while a request is written to it.

mod connecting;
mod sending;
#[cfg(test)]
mod tests;

use super::clock::Clock;
use super::dial::Dial;
use super::parcel::Coded;
use super::reply::{ReplyTo, verdict_of};
use super::work::Failure;
use crate::net::{ConnectionError, FrameWriter, Network, Security};
pub use sending::Sending;
use sending::{InFlight, Lent, guarded};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tradewind_contract::HopSpec;
use tradewind_wire::flights::Flights;
use tradewind_wire::frame::{Frame, Hello, HopEnd};
use tradewind_wire::{ConnectionId, Fault, RequestId};

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
    /// `None` where the other end opens the connections.
    dial: Option<Dial>,
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

impl HopSetup {
    fn dial(&self) -> Option<Dial> {
        Some(Dial {
            peer: self.spec.to.clone(),
            address: self.spec.address.clone()?,
            security: self.security.clone(),
            hello: Hello { end: HopEnd::Upstream, ..self.hello.clone() },
            silence_max: self.silence_max,
            network: self.network.clone(),
        })
    }
}

impl Hop {
    /// Starts connecting. Ends with `stop`.
    pub fn start(setup: HopSetup, stop: CancellationToken) -> Arc<Self> {
        let (idle_in, idle_out) = mpsc::unbounded_channel();
        let dial = setup.dial();
        let hop = Arc::new(Self {
            setup,
            flights: Mutex::default(),
            idle_in,
            idle_out: AsyncMutex::new(idle_out),
            health: watch::Sender::new(Health::default()),
            stop,
            clock: Clock::start(),
            counts: HopCounts::default(),
            dial,
            wanted: AtomicU16::new(0),
        });
        hop.widen(hop.setup.spec.connections);
        tokio::spawn(hop.clone().give_up_overdue());
        if hop.dial.is_none() {
            tokio::spawn(hop.clone().watch_for_absence());
        }
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
        if self.dial.is_some() {
            for _ in before..connections {
                tokio::spawn(self.clone().keep_connected());
            }
        }
    }

    /// Ends when nothing that was sent on it waits for an answer any more.
    pub async fn end_when_idle(self: Arc<Self>) {
        while self.in_flight() > 0 && !self.stop.is_cancelled() {
            tokio::time::sleep(RETIRE_PAUSE).await;
        }
        self.stop.cancel();
    }

    /// Data port of the gateway at the other end; `None` where that gateway opens the connections.
    pub fn address(&self) -> Option<&str> {
        self.setup.spec.address.as_deref()
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
            reply.send(request, verdict_of(lost_downstream(self)));
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

/// The failure of a source or a relay whose downstream connection is lost in the middle of a body.
pub fn lost_downstream(hop: &Hop) -> Failure {
    Failure::new(
        Fault::Lost,
        "unavailable",
        format!("lost the connection from {} to {}", hop.setup.hello.node, hop.peer()),
    )
}

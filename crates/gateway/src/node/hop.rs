//! An outgoing hop: a bundle of connections to one gateway, and the unanswered requests on it.
//!
//! This end opens the connections, or waits for the other end to open them where only that end can ([`super::dial`]).
//!
//! Dynamic partition: a request takes the connection that is free first, so a slow connection holds no more than one
//! request. When a connection is lost, its requests are answered `Lost` upstream; a hop without any connection answers
//! `RouteDown`. [`connecting`](self::connecting) makes the connections and reads their answers;
//! [`sending`](self::sending) reserves one while a request is written to it.

mod connecting;
mod sending;
#[cfg(test)]
mod tests;

use super::clock::Clock;
use super::dial::Dial;
use super::hop_reports::{HopReports, RelayMeter};
use super::load::{StageAt, StageMeter};
use super::parcel::Coded;
use super::reply::{ReplyTo, verdict_of};
use super::seal::Seal;
use super::throttle::Throttle;
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

/// Interval of the check whether a retired connection has received its last answers.
const RETIRE_PAUSE: Duration = Duration::from_millis(500);
/// Number of checks in the time after which a request is overdue.
const OVERDUE_LOOKS: u32 = 8;
/// Longest pause between two such checks.
const OVERDUE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Errors lower the number of connections that send at the same time to no less than the hop's divided by this.
const SENDERS_MIN_DIVISOR: u16 = 4;

/// Settings of a hop.
pub struct HopSetup {
    /// Peer, address, number of connections.
    pub spec: HopSpec,
    /// TLS or plain TCP.
    pub security: Security,
    /// Our greeting.
    pub hello: Hello,
    /// A peer that is silent for this long counts as dead.
    pub silence_max: Duration,
    /// A request is abandoned if the peer does not answer it, or does not accept a piece of it, within this time.
    pub request_max: Duration,
    /// The network to connect through.
    pub network: Arc<dyn Network>,
    /// Where reports of relays downstream go.
    pub reports: Arc<HopReports>,
}

/// See the module's documentation.
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
    /// Number of connections to keep open.
    wanted: AtomicU16,
    /// Limits the connections that send at the same time.
    throttle: Arc<Throttle>,
    meter: Arc<StageMeter>,
    relay_meter: Arc<RelayMeter>,
}

/// Counters of the traffic on a hop.
#[derive(Debug, Default)]
pub struct HopCounts {
    /// Bytes of bodies sent.
    pub sent_bytes: AtomicU64,
    /// Requests sent.
    pub requests: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct Health {
    connections: usize,
    /// Why connecting has failed since the last success, if it has: requests should not wait for a connection.
    failing: Option<Arc<str>>,
}

impl Health {
    /// Returns why the hop is down, if it is.
    fn down(&self) -> Option<&Arc<str>> {
        self.failing.as_ref().filter(|_| self.connections == 0)
    }
}

/// The sending side of one open connection. Its holder may send one request.
#[derive(Clone)]
struct Outgoing {
    id: ConnectionId,
    writer: Arc<AsyncMutex<FrameWriter>>,
    closed: CancellationToken,
    /// Whether the peer wants no more requests, or the keys are used up.
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
    /// Starts connecting. The hop ends with `stop`.
    pub fn start(setup: HopSetup, stop: CancellationToken) -> Arc<Self> {
        let (idle_in, idle_out) = mpsc::unbounded_channel();
        let dial = setup.dial();
        let connections = setup.spec.connections;
        // A connection may stand still, so some others always remain.
        let senders_min = u32::from(connections / SENDERS_MIN_DIVISOR).max(1);
        let throttle = Throttle::new(connections.into(), senders_min..=connections.into());
        let at = StageAt::Network { peer: setup.spec.to.clone() };
        let meter = StageMeter::new(&setup.hello.node, at, throttle.clone());
        let relay_meter = RelayMeter::new(&setup.hello.node, &setup.spec.to, throttle.clone());
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
            throttle,
            meter,
            relay_meter,
        });
        hop.widen(connections);
        tokio::spawn(hop.clone().give_up_overdue());
        if hop.dial.is_none() {
            tokio::spawn(hop.clone().watch_for_absence());
        }
        hop
    }

    /// Answers requests that the peer does not answer. The lead abandons them sooner; this removes what they leave
    /// behind here.
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

    /// Raises the number of connections to keep open. It is never lowered.
    pub fn widen(self: &Arc<Self>, connections: u16) {
        let before = self.wanted.fetch_max(connections, Ordering::Relaxed);
        self.throttle.raise_max(connections.into());
        if self.dial.is_some() {
            for _ in before..connections {
                tokio::spawn(self.clone().keep_connected());
            }
        }
    }

    /// Ends the hop when no sent request waits for an answer any more.
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

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.health.borrow().connections
    }

    /// Number of requests sent and not answered.
    pub fn in_flight(&self) -> usize {
        self.flights().len()
    }

    /// The hop in a source's answers to the lead.
    pub(super) fn meter(&self) -> &Arc<StageMeter> {
        &self.meter
    }

    /// The hop in a relay's reports to the lead.
    pub fn relay_meter(&self) -> &Arc<RelayMeter> {
        &self.relay_meter
    }

    /// Connections that may send at the same time now.
    pub fn concurrency(&self) -> u32 {
        self.throttle.limit()
    }

    /// Counters of the traffic on the hop.
    pub fn counts(&self) -> &HopCounts {
        &self.counts
    }

    /// Sends a whole request, from its source. Every request is finally answered to `reply`, whatever happens. A
    /// request cut off by a lost connection is not sent again from here: only the lead may spend those bytes a second
    /// time.
    pub async fn send(&self, coded: &Coded, seal: &Seal, reply: &ReplyTo) {
        let request = coded.head.request;
        let mut sending = match self.begin(request, reply).await {
            Ok(sending) => sending,
            Err(why) => return self.refuse_unsent(request, &why, reply),
        };
        if sending.body(seal.sealing(coded)).await.is_ok() {
            sending.finish();
        } else if sending.lost() {
            // Part of it may have been sent already.
            reply.send(request, verdict_of(lost_downstream(self)));
        }
    }

    /// Sends a frame that asks for answers to `requests` (a batch of orders).
    pub async fn send_orders(&self, frame: &Frame, requests: &[RequestId], reply: &ReplyTo) {
        let (mut lent, flight) = match self.lend(requests, reply).await {
            Ok(begun) => begun,
            Err(why) => {
                for request in requests {
                    self.refuse_unsent(*request, &why, reply);
                }
                return;
            }
        };
        let mut writer = lent.outgoing.writer.clone().lock_owned().await;
        lent.begun = true;
        if self.guarded(&lent.outgoing, writer.frame(frame)).await.is_ok() {
            lent.retire_if_worn(&writer);
            drop(writer);
            flight.sent();
            lent.give_back();
        }
    }

    /// Reserves the next free connection for `request`; `None` if there is none, in which case `reply` has the answer.
    pub async fn checkout(&self, request: RequestId, reply: &ReplyTo) -> Option<Sending<'_>> {
        let begun = self.begin(request, reply).await;
        begun.inspect_err(|why| reply.send(request, verdict_of(self.refusal(why)))).ok()
    }

    async fn begin(&self, request: RequestId, reply: &ReplyTo) -> Result<Sending<'_>, NotBegun> {
        let (lent, flight) = self.lend([request], reply).await?;
        let writer = lent.outgoing.writer.clone().lock_owned().await;
        Ok(Sending { writer, flight, lent, body_left: 0 })
    }

    /// Reserves the next free connection, with `requests` registered on it before the first byte, so that no answer
    /// comes too early.
    async fn lend<R: AsRef<[RequestId]>>(
        &self,
        requests: R,
        reply: &ReplyTo,
    ) -> Result<(Lent<'_>, InFlight<'_, R>), NotBegun> {
        loop {
            let slot = self.throttle.slot().await;
            let outgoing = self.throttle.counted(self.next_connection()).await?;
            let lent = Lent { hop: self, outgoing, begun: false, sent_bytes: 0, _slot: slot };
            if self.register(requests.as_ref(), &lent.outgoing, reply)? {
                return Ok((lent, InFlight { hop: self, requests, sent: false }));
            }
        }
    }

    /// Registers requests on a connection. Returns false if the connection has ended. The lock makes this safe:
    /// [`Hop::serve`] first closes a connection and then answers the requests registered on it, so none can be
    /// registered after that.
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
            why = until_down(&mut health) => return Err(NotBegun::Down(why)),
            () = self.stop.cancelled() => return Err(NotBegun::Down(None)),
        };
        loop {
            let outgoing = tokio::select! {
                biased;
                Some(outgoing) = idle.recv() => outgoing,
                why = until_down(&mut health) => return Err(NotBegun::Down(why)),
                () = self.stop.cancelled() => return Err(NotBegun::Down(None)),
            };
            if !outgoing.closed.is_cancelled() && !outgoing.retired.load(Ordering::Relaxed) {
                return Ok(outgoing);
            }
        }
    }

    /// Runs a write that ends when the connection is closed, or when the peer accepts nothing for too long.
    async fn guarded(
        &self,
        outgoing: &Outgoing,
        write: impl Future<Output = Result<(), ConnectionError>>,
    ) -> Result<(), ConnectionError> {
        let in_time = tokio::time::timeout(self.setup.request_max, guarded(&outgoing.closed, write));
        in_time.await.unwrap_or(Err(ConnectionError::Silent(self.setup.request_max.as_secs())))
    }

    /// Answers a request of this process that was not begun. Its twin in flight may have been sent.
    fn refuse_unsent(&self, request: RequestId, why: &NotBegun, reply: &ReplyTo) {
        match why {
            NotBegun::Down(_) => reply.fail_unsent(request, self.refusal(why)),
            NotBegun::Twice => reply.send(request, verdict_of(self.refusal(why))),
        }
    }

    fn refusal(&self, why: &NotBegun) -> Failure {
        let (peer, here) = (self.peer(), &self.setup.hello.node);
        match why {
            NotBegun::Down(why) => {
                let why = why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
                Failure::new(Fault::RouteDown, "unavailable", format!("{peer} cannot be reached from {here}{why}"))
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
enum NotBegun {
    /// There is no connection, and connecting fails, for this reason.
    Down(Option<Arc<str>>),
    /// A request with this id is already in flight: an upstream gateway sent it twice.
    Twice,
}

/// Returns why the hop is down, once it is.
async fn until_down(health: &mut watch::Receiver<Health>) -> Option<Arc<str>> {
    // The sender belongs to the hop that is borrowed here, so waiting cannot fail.
    let health = health.wait_for(|health| health.down().is_some()).await.ok()?;
    health.down().cloned()
}

/// The failure of a source or a relay whose downstream connection is lost in the middle of a body.
pub fn lost_downstream(hop: &Hop) -> Failure {
    Failure::new(
        Fault::Lost,
        "unavailable",
        format!("lost the connection from {} to {}", hop.setup.hello.node, hop.peer()),
    )
}

//! The proxy: accepts connections, and runs each flow to its end.

use crate::admission::{Admission, Key, Place};
use crate::allow::AllowList;
use crate::config::{Config, Listener, Way};
use crate::conn::{Conn, reset_when_dropped, set_accepted_options};
use crate::dial::{self, Caller};
use crate::entrance::{Door, Entrance, entrances};
use crate::files::within_files;
use crate::handle::Handle;
use crate::header::Request;
use crate::hops::HopCounts;
use crate::limits::{ACCEPT_RETRY_PAUSE, ENDED_FLOWS_INTERVAL, LISTENERS_MAX, LOOKUPS_MAX};
use crate::pace::{FlowPace, Paces};
use crate::pool::Pools;
use crate::probe::probe;
use crate::refusal::{Cause, Refusal, SplitError};
use crate::relay::{End, relay};
use crate::tls::HopTls;
use crate::traffic::Tallies;
use crate::ways::{self, Opened, answers};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    pub(crate) closed: u64,
    pub(crate) reset: u64,
    pub(crate) idle: u64,
    pub(crate) waiting: usize,
    pub(crate) unused: u64,
    pub(crate) refused: BTreeMap<Cause, u64>,
    pub(crate) hops: BTreeMap<String, HopCounts>,
}

/// The state that all connections of a proxy share. A connection keeps the configuration with which it was accepted;
/// the limits and counts are those of the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) tls: Option<Arc<dyn HopTls>>,
    /// In the order of the listeners.
    pub(crate) entrances: Vec<Entrance>,
    /// The bound addresses of the listeners, in their order.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) admission: Arc<Admission>,
    /// The places of name lookups.
    pub(crate) lookups: Arc<Semaphore>,
    pub(crate) tallies: Arc<Tallies>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) client_paces: Arc<Paces<IpAddr>>,
    pub(crate) destination_paces: Arc<Paces<String>>,
    pub(crate) counts: Arc<Mutex<Counts>>,
}

impl Shared {
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts something about a next proxy.
    pub(crate) fn hop(&self, name: &str, count: impl FnOnce(&mut HopCounts)) {
        count(self.counts().hops.entry(name.to_owned()).or_default());
    }

    /// The index of the listener of an entrance, which a new configuration may have closed.
    fn entrance(&self, id: u64) -> Option<usize> {
        self.entrances.iter().position(|each| each.id == id)
    }

    fn refuse(&self, refusal: &Refusal) {
        tracing::debug!(%refusal, "connection refused");
        *self.counts().refused.entry(refusal.cause).or_default() += 1;
    }

    fn ended(&self, end: End) {
        let mut counts = self.counts();
        match end {
            End::Closed => counts.closed += 1,
            End::Reset => counts.reset += 1,
            End::Idle => counts.idle += 1,
            End::Unused => counts.unused += 1,
        }
    }
}

/// A proxy and its present configuration.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) current: RwLock<Arc<Shared>>,
    /// Takes listeners that a new configuration adds.
    pub(crate) added: mpsc::Sender<Door>,
    /// Time that flows have after their listener is closed.
    pub(crate) drain: watch::Sender<Duration>,
}

impl Live {
    pub(crate) fn current(&self) -> Arc<Shared> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A split proxy whose listeners are bound.
#[derive(Debug)]
pub struct Proxy {
    live: Arc<Live>,
    doors: Vec<Door>,
    added: mpsc::Receiver<Door>,
}

impl Proxy {
    /// Checks the configuration, reads its tokens, and binds its listeners, within a Tokio runtime. `tls` is the
    /// identity of the proxy. `lent` is a listener that is bound already, for the listener with its address.
    ///
    /// # Errors
    /// The configuration or a file of tokens is refused, or an address cannot be bound.
    pub fn bind(config: Config, tls: Option<Arc<dyn HopTls>>, lent: Option<TcpListener>) -> Result<Self, SplitError> {
        config.check(tls.is_some())?;
        let (entrances, doors) = entrances(&config, &[], lent)?;
        let addresses = entrances.iter().map(|entrance| entrance.address).collect();
        let admission = Admission::new(within_files(&config.limits));
        let drain = watch::Sender::new(config.limits.drain_timeout());
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        let (tallies, counts) = (Arc::default(), Arc::default());
        let pools = Arc::new(Pools::new(&config, &Pools::default()));
        let client_paces = Arc::new(Paces::new(config.limits.bytes_per_second_per_client_max));
        let destination_paces = Arc::new(Paces::new(config.limits.bytes_per_second_per_destination_max));
        let shared = Shared {
            config,
            tls,
            entrances,
            addresses,
            admission,
            lookups,
            tallies,
            pools,
            client_paces,
            destination_paces,
            counts,
        };
        let (sender, added) = mpsc::channel(LISTENERS_MAX);
        let live = Live { current: RwLock::new(Arc::new(shared)), added: sender, drain };
        Ok(Self { live: Arc::new(live), doors, added })
    }

    /// A handle that reads the state and replaces the configuration.
    pub fn handle(&self) -> Handle {
        Handle::new(self.live.clone())
    }

    /// Accepts connections until `stop`. Then flows may end on their own for the drain timeout; the others are reset,
    /// as all are if this future is dropped.
    pub async fn run(self, stop: CancellationToken) {
        let Self { live, doors, mut added } = self;
        let _pools = ClosePools(live.clone());
        let closing = async {
            stop.cancelled().await;
            live.current().pools.close();
            std::future::pending::<()>().await
        };
        let mut closing = pin!(closing);
        let probing = async {
            stop.run_until_cancelled(probe(live.clone())).await;
            std::future::pending::<()>().await
        };
        let mut probing = pin!(probing);
        let mut accepting = JoinSet::new();
        for door in doors {
            accepting.spawn(accept(live.clone(), door, stop.clone()));
        }
        loop {
            tokio::select! {
                biased;
                () = &mut closing => {}
                () = &mut probing => {}
                Some(door) = added.recv() => drop(accepting.spawn(accept(live.clone(), door, stop.clone()))),
                ended = accepting.join_next() => if ended.is_none() { break },
            }
        }
    }
}

/// Closes the pools when the proxy ends, however it ends.
struct ClosePools(Arc<Live>);

impl Drop for ClosePools {
    fn drop(&mut self) {
        self.0.current().pools.close();
    }
}

/// Accepts the connections of one listener. Flows run in the set, so that they end with it.
async fn accept(live: Arc<Live>, door: Door, stop: CancellationToken) {
    let mut flows = JoinSet::new();
    let Door { id, listener, closed } = door;
    // Cancelled also if this future is dropped.
    let closing = CancellationToken::new();
    let _closing = closing.clone().drop_guard();
    // Now and then, and not at the end of each flow, which would wake this task for each.
    let mut forgetting = tokio::time::interval(ENDED_FLOWS_INTERVAL);
    forgetting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = closed.cancelled() => break,
            _ = forgetting.tick(), if !flows.is_empty() => while flows.try_join_next().is_some() {},
            accepted = listener.accept() => match accepted {
                Ok((tcp, client)) => drop(flows.spawn(serve(live.clone(), id, tcp, client, closing.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    closing.cancel();
    let ended = async { while flows.join_next().await.is_some() {} };
    tokio::select! {
        () = ended => {}
        () = drained(live.drain.subscribe()) => {}
    }
    flows.shutdown().await;
}

/// Returns when the drain timeout has passed since the call. The timeout may change meanwhile.
async fn drained(mut timeout: watch::Receiver<Duration>) {
    let closed = tokio::time::Instant::now();
    loop {
        let deadline = closed + *timeout.borrow_and_update();
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => return,
            // The sender lives as long as the proxy.
            _ = timeout.changed() => {}
        }
    }
}

async fn serve(live: Arc<Live>, entrance: u64, tcp: TcpStream, client: SocketAddr, closing: CancellationToken) {
    let shared = live.current();
    // A new configuration may have closed the listener just now.
    let Some(index) = shared.entrance(entrance) else { return Conn::Plain(tcp).reset() };
    shared.counts().accepted += 1;
    let ended = match shared.config.listeners[index].way {
        Way::Hop => from_proxy(&live, &shared, index, tcp, client, &closing).await,
        _ => from_client(&shared, index, tcp, client).await,
    };
    match ended {
        Ok(end) => shared.ended(end),
        Err(refusal) => shared.refuse(&refusal),
    }
}

/// Runs the flow of a client. A refused client has got its answer when this returns.
async fn from_client(shared: &Arc<Shared>, index: usize, tcp: TcpStream, peer: SocketAddr) -> Result<End, Refusal> {
    let (listener, tokens) = (&shared.config.listeners[index], shared.entrances[index].tokens.as_ref());
    let mut admitted = admit(shared, listener, &tcp, peer).inspect_err(|_| reset(&tcp))?;
    // Boxed, so that its memory is free while bytes are relayed.
    let opened = Box::pin(ways::open(shared, listener, tokens, tcp, peer)).await;
    let judged = admitted.judge(shared, listener, peer, opened.as_ref().err());
    let opened = opened?;
    if let Err(refusal) = judged {
        opened.client.reset();
        return Err(refusal);
    }
    flow(shared, listener, opened).await
}

/// Runs the flow of another proxy, which may send its request long after it has connected. The configuration at that time
/// holds. A refused proxy has got its answer when this returns.
async fn from_proxy(
    live: &Live,
    shared: &Arc<Shared>,
    index: usize,
    tcp: TcpStream,
    peer: SocketAddr,
    closing: &CancellationToken,
) -> Result<End, Refusal> {
    let listener = &shared.config.listeners[index];
    let mut admitted = admit(shared, listener, &tcp, peer).inspect_err(|_| reset(&tcp))?;
    let requested = Box::pin(async {
        let known = ways::hop::identify(shared, tcp).await;
        let judged = admitted.judge(shared, listener, peer, known.as_ref().err());
        let mut known = known?;
        judged?;
        let waiting = Waiting::new(shared);
        let Some(first) = known.first_byte(closing).await else { return Ok(None) };
        drop(waiting);
        known.request(first, shared.config.limits.request_timeout()).await.map(Some)
    });
    let Some(opened) = requested.await? else { return Ok(End::Unused) };
    drop(admitted.opening.take());
    let now = live.current();
    let index = now.entrance(shared.entrances[index].id);
    let listener = index.map(|index| &now.config.listeners[index]).filter(|listener| listener.way == Way::Hop);
    let Some(listener) = listener else { return Ok(End::Unused) };
    check_network(listener, peer)?;
    flow(&now, listener, opened).await
}

/// Counts a connection that another proxy keeps ready.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.counts().waiting += 1;
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.counts().waiting -= 1;
    }
}

/// Establishes a flow whose request was read, and runs it.
async fn flow(shared: &Arc<Shared>, listener: &Listener, opened: Opened) -> Result<End, Refusal> {
    let (mut client, request, requested) = (opened.client, opened.request, Instant::now());
    // Boxed, as in `from_client`.
    let destination = request.destination.to_string();
    let established = Box::pin(async {
        let enter = |key| shared.admission.enter(key, requested);
        let proxy = opened.proxy.as_deref();
        let allow = proxy.map_or(Ok(None), |name| listener.caller(name));
        let by_proxy = proxy.map(|name| enter(Key::Proxy(name.to_owned()))).transpose()?;
        let claimed = names_clients(listener).then_some(Key::Client(request.client.ip().to_canonical()));
        let by_client = claimed.map(enter).transpose()?;
        let allow = allow?;
        if !allow.is_none_or(|allow| may_ask(allow, &request)) || !serves(&shared.config, &request) {
            return Err(Refusal::new(Cause::NotAllowed, &*destination));
        }
        let to = enter(Key::Destination(destination.clone()))?;
        let far = dial::establish(shared, &request, proxy.map(|name| Caller { name, allow })).await;
        let far = far.inspect_err(|refusal| {
            // A destination that refuses a connection was reached.
            if refusal.cause != Cause::Refused {
                shared.tallies.failed(listener.name.as_deref(), &request.route, &destination);
            }
        })?;
        Ok((far, (by_proxy, by_client, to)))
    });
    match established.await {
        Ok(((far, source), _places)) => {
            if let Err(error) = ways::accepted(listener.way, &mut client).await {
                far.reset();
                return Err(Refusal::of_read(&error));
            }
            let tally = shared.tallies.established(listener.name.as_deref(), &request.route, &destination);
            let began = || {
                if let (Some(next), Some(source)) = (request.route.first(), source) {
                    shared.hop(next, |hop| hop.first_byte(source, requested.elapsed()));
                }
            };
            let of_client = shared.client_paces.of(request.client.ip().to_canonical(), requested);
            let pace = FlowPace::new(of_client, shared.destination_paces.of(destination, requested));
            let idle = shared.config.limits.idle_timeout();
            Ok(relay(client, far, opened.prefix, &tally.bytes, &pace, idle, began).await)
        }
        Err(refusal) => {
            let answer = ways::refused(listener.way, client, refusal.cause);
            // A client that does not read its answer keeps its place no longer than one that sends no request.
            let _ = tokio::time::timeout(shared.config.limits.request_timeout(), answer).await;
            Err(refusal)
        }
    }
}

/// True if a caller's flows may go to a destination. Names are resolved by the exit only, so a proxy on the way passes on
/// those that have a rule.
fn may_ask(caller: &AllowList, request: &Request) -> bool {
    match request.route.is_empty() {
        true => caller.allows_request(&request.destination),
        false => caller.lists(&request.destination),
    }
}

/// True if this proxy serves a destination. An upstream proxy resolves names itself, and tells nobody their addresses, so
/// rules of some addresses allow no name there.
fn serves(config: &Config, request: &Request) -> bool {
    match request.route.first() {
        Some(next) if config.upstreams.contains_key(next) => config.allow.allows_unresolved(&request.destination),
        _ => config.allow.allows_request(&request.destination),
    }
}

/// True if connections come from a proxy or load balancer, which names its client after the connection is accepted.
fn names_clients(listener: &Listener) -> bool {
    listener.way == Way::Hop || listener.proxy_protocol
}

fn reset(tcp: &TcpStream) {
    reset_when_dropped(tcp, true);
}

fn check_network(listener: &Listener, peer: SocketAddr) -> Result<(), Refusal> {
    let address = peer.ip().to_canonical();
    if !listener.clients.is_empty() && !listener.clients.iter().any(|network| network.contains(address)) {
        return Err(Refusal::new(Cause::Unauthenticated, format!("{address} is not in the networks of clients")));
    }
    Ok(())
}

/// The places of a connection.
struct Admitted {
    place: Place,
    _client: Option<Place>,
    /// The place of an address from which proxies connect, until its request is read.
    opening: Option<Place>,
}

impl Admitted {
    /// Lets the proof that a peer has shown count for its address, or against it. Without a refusal, the proof was good.
    fn judge(
        &mut self,
        shared: &Shared,
        listener: &Listener,
        peer: SocketAddr,
        refusal: Option<&Refusal>,
    ) -> Result<(), Refusal> {
        let address = peer.ip().to_canonical();
        match refusal.map(|refusal| refusal.cause) {
            _ if !needs_proof(listener) => {}
            None => return self.place.proven(address, Instant::now()),
            Some(Cause::Unauthenticated) => shared.admission.unproven(address),
            Some(_) => {}
        }
        Ok(())
    }
}

/// True if a listener serves only those who show a token or a certificate.
fn needs_proof(listener: &Listener) -> bool {
    listener.way == Way::Hop || listener.tokens.is_some()
}

/// Takes the places of a new connection, and sets its options.
fn admit(shared: &Shared, listener: &Listener, tcp: &TcpStream, peer: SocketAddr) -> Result<Admitted, Refusal> {
    check_network(listener, peer)?;
    let (address, now) = (peer.ip().to_canonical(), Instant::now());
    let place = shared.admission.accept(address, needs_proof(listener), now)?;
    let client = (!names_clients(listener)).then(|| shared.admission.enter(Key::Client(address), now)).transpose()?;
    let opening = (listener.way == Way::Hop).then(|| shared.admission.enter(Key::Opening(address), now)).transpose()?;
    set_accepted_options(tcp, address, shared.config.congestion_control.as_deref())
        .map_err(|error| Refusal::of_read(&error))?;
    if !answers(listener.way) {
        // An orderly end would look like an empty answer of the destination, which may not have been reached.
        reset(tcp);
    }
    Ok(Admitted { place, _client: client, opening })
}

//! The proxy: accepts connections, and runs each flow to its end.

use crate::admission::{Admission, Key, Place};
use crate::config::{Config, Listener, Way};
use crate::conn::set_options;
use crate::dial;
use crate::header::Request;
use crate::limits::{ACCEPT_RETRY_PAUSE, BACKLOG, LOOKUPS_MAX};
use crate::refusal::{Cause, Refusal, SplitError};
use crate::relay::{Bytes, End, relay};
use crate::status::{Hop, Status, UpstreamBytes};
use crate::tls::HopTls;
use crate::token::Tokens;
use crate::ways;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
struct Counts {
    accepted: u64,
    closed: u64,
    reset: u64,
    idle: u64,
    refused: BTreeMap<Cause, u64>,
    hops: BTreeMap<String, Hop>,
}

/// The state that all connections of a proxy share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) tls: Option<Arc<dyn HopTls>>,
    /// In the order of the listeners.
    tokens: Vec<Option<Tokens>>,
    /// The bound addresses of the listeners, in their order.
    pub(crate) addresses: Vec<SocketAddr>,
    admission: Arc<Admission>,
    /// The places of name lookups.
    pub(crate) lookups: Arc<Semaphore>,
    /// Of flows that pass no proxy outside the fleet.
    bytes: Bytes,
    upstream_bytes: Bytes,
    counts: Mutex<Counts>,
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hop_connected(&self, name: &str, time: Duration) {
        self.counts().hops.entry(name.to_owned()).or_default().connected(time.as_secs_f64() * 1e3);
    }

    /// True if a flow passes a proxy outside the fleet.
    fn leaves_fleet(&self, request: &Request) -> bool {
        request.route.first().is_some_and(|name| self.config.upstreams.contains_key(name))
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
        }
    }
}

/// Reads the state of a proxy while it runs.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// The state now.
    pub fn status(&self) -> Status {
        let open = self.0.admission.open();
        let counts = self.0.counts();
        let moved = |bytes: &Bytes| (bytes.up.load(Ordering::Relaxed), bytes.down.load(Ordering::Relaxed));
        let ((own_up, own_down), (up, down)) = (moved(&self.0.bytes), moved(&self.0.upstream_bytes));
        Status {
            open,
            accepted: counts.accepted,
            closed: counts.closed,
            reset: counts.reset,
            idle: counts.idle,
            refused: counts.refused.clone(),
            bytes_up: own_up + up,
            bytes_down: own_down + down,
            upstream_bytes: UpstreamBytes { up, down },
            hops: counts.hops.clone(),
        }
    }
}

/// A split proxy whose listeners are bound.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
}

impl Proxy {
    /// Checks the configuration, reads its tokens, and binds its listeners, within a Tokio runtime. `tls` is the
    /// identity of `config.identity`.
    ///
    /// # Errors
    /// The configuration or a file of tokens is refused, or an address cannot be bound.
    pub fn bind(config: Config, tls: Option<Arc<dyn HopTls>>) -> Result<Self, SplitError> {
        config.check()?;
        let tokens = config.listeners.iter().map(Listener::read_tokens).collect::<Result<_, _>>()?;
        let bound = config.listeners.iter().map(|listener| listen(listener.listen));
        let (listeners, addresses) = bound.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let admission = Admission::new(config.limits.clone());
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        let (bytes, upstream_bytes, counts) = (Bytes::default(), Bytes::default(), Mutex::default());
        let shared = Shared { config, tls, tokens, addresses, admission, lookups, bytes, upstream_bytes, counts };
        Ok(Self { shared: Arc::new(shared), listeners })
    }

    /// The bound addresses, in the order of the configuration.
    ///
    /// # Errors
    /// The operating system cannot name one.
    pub fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// A handle that reads the state.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }

    /// Accepts connections until `stop`. Then flows may end on their own for the drain timeout; the others are reset,
    /// as all are if this future is dropped.
    pub async fn run(self, stop: CancellationToken) {
        let mut accepting = JoinSet::new();
        for (index, listener) in self.listeners.into_iter().enumerate() {
            accepting.spawn(accept(self.shared.clone(), index, listener, stop.clone()));
        }
        while accepting.join_next().await.is_some() {}
    }
}

/// Binds a listener. Returns it with its address, whose port the kernel may have chosen.
fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), SplitError> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bound().map_err(|source| SplitError::Listen { address: address.to_string(), source })
}

/// Accepts the connections of one listener. Flows run in the set, so that they end with it.
async fn accept(shared: Arc<Shared>, index: usize, listener: TcpListener, stop: CancellationToken) {
    let mut flows = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_ended) = flows.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, client)) => drop(flows.spawn(serve(shared.clone(), index, tcp, client))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while flows.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(shared.config.limits.drain_timeout(), ended).await;
    flows.shutdown().await;
}

async fn serve(shared: Arc<Shared>, index: usize, tcp: TcpStream, client: SocketAddr) {
    shared.counts().accepted += 1;
    match flow(&shared, index, tcp, client).await {
        Ok(end) => shared.ended(end),
        Err(refusal) => shared.refuse(&refusal),
    }
}

/// Runs one flow. A refused client has got its answer when this returns.
async fn flow(shared: &Shared, index: usize, tcp: TcpStream, peer: SocketAddr) -> Result<End, Refusal> {
    let (listener, tokens) = (&shared.config.listeners[index], shared.tokens[index].as_ref());
    let admitted = admit(shared, listener, &tcp, peer);
    let (_places, opening) = match admitted {
        Ok(places) => places,
        Err(refusal) => {
            crate::conn::Conn::Plain(tcp).reset();
            return Err(refusal);
        }
    };
    let opened = ways::open(shared, listener, tokens, tcp, peer).await?;
    drop(opening);
    let (mut client, request) = (opened.client, opened.request);
    let established = async {
        let by_proxy = opened.proxy.map(|name| shared.admission.enter(Key::Proxy(name))).transpose()?;
        let claimed = names_clients(listener).then_some(Key::Client(request.client.ip().to_canonical()));
        let by_client = claimed.map(|client| shared.admission.enter(client)).transpose()?;
        if !shared.config.allow.allows_request(&request.destination) {
            return Err(Refusal::new(Cause::NotAllowed, request.destination.to_string()));
        }
        let to = shared.admission.enter(Key::Destination(request.destination.to_string()))?;
        Ok((dial::establish(shared, &request).await?, (by_proxy, by_client, to)))
    };
    match established.await {
        Ok((far, _places)) => {
            if let Err(error) = ways::accepted(listener.way, &mut client).await {
                far.reset();
                return Err(Refusal::of_read(&error));
            }
            let bytes = if shared.leaves_fleet(&request) { &shared.upstream_bytes } else { &shared.bytes };
            Ok(relay(client, far, opened.prefix, bytes, shared.config.limits.idle_timeout()).await)
        }
        Err(refusal) => {
            let answer = ways::refused(listener.way, client, refusal.cause);
            // A client that does not read its answer keeps its place no longer than one that sends no request.
            let _ = tokio::time::timeout(shared.config.limits.request_timeout(), answer).await;
            Err(refusal)
        }
    }
}

/// True if connections come from a proxy or load balancer, which names its client after the connection is accepted.
fn names_clients(listener: &Listener) -> bool {
    listener.way == Way::Hop || listener.proxy_protocol
}

/// Takes the places of a new connection, and sets its options. The second place is held only until its request is read.
fn admit(
    shared: &Shared,
    listener: &Listener,
    tcp: &TcpStream,
    peer: SocketAddr,
) -> Result<(impl Sized + use<>, Option<Place>), Refusal> {
    let address = peer.ip().to_canonical();
    if !listener.clients.is_empty() && !listener.clients.iter().any(|network| network.contains(address)) {
        return Err(Refusal::new(Cause::Unauthenticated, format!("{address} is not in the networks of clients")));
    }
    let place = shared.admission.accept(Instant::now())?;
    let client = (!names_clients(listener)).then(|| shared.admission.enter(Key::Client(address))).transpose()?;
    let opening = (listener.way == Way::Hop).then(|| shared.admission.enter(Key::Opening(address))).transpose()?;
    set_options(tcp, shared.config.congestion_control.as_deref()).map_err(|error| Refusal::of_read(&error))?;
    Ok(((place, client), opening))
}

//! Establishes the far side of a flow: dials the destination, or passes the request to the next proxy.

use crate::admission::Place;
use crate::allow::{AllowList, Pattern};
use crate::conn::{Conn, set_dialed_options};
use crate::destination::{Destination, Host};
use crate::files::used_up;
use crate::handshake;
use crate::header::{self, Request};
use crate::hops::Source;
use crate::limits::{ADDRESSES_MAX, DIAL_SHARE_PERCENT, POOL_ACKNOWLEDGED_WITHIN};
use crate::lookup::look_up;
use crate::own::leads_here;
use crate::pool::Opened;
use crate::proxy::Shared;
use crate::proxy_protocol;
use crate::refusal::{Cause, Refusal};
use crate::sealed::Sealed;
use crate::upstream::{self, Upstream};
use rustls_pki_types::ServerName;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

type LookupPlaces = (Place, Option<Place>);

/// The far side of a flow, and where the connection to the next proxy came from, if it goes through one.
pub(crate) type Far = (Conn, Option<Source>);

/// The proxy that requests a flow.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// As its certificate has it.
    pub(crate) name: &'a str,
    /// Its destinations, if they are limited.
    pub(crate) allow: Option<&'a AllowList>,
}

/// Establishes the far side within the dial timeout. `caller` is `None` for the flow of a client.
pub(crate) async fn establish(
    shared: &Arc<Shared>,
    request: &Request,
    caller: Option<Caller<'_>>,
) -> Result<Far, Refusal> {
    let timeout = shared.config.limits.dial_timeout().min(Duration::from_millis(request.within_ms.into()));
    let deadline = Instant::now() + timeout;
    let established = async {
        let Some((next, rest)) = request.route.split_first() else {
            return Ok((direct(shared, request, caller).await?, None));
        };
        match shared.config.upstreams.get(next) {
            Some(proxy) => Ok((outside(shared, next, proxy, &request.destination).await?, None)),
            None => through(shared, next, Request { route: rest.to_vec(), ..request.clone() }, deadline).await,
        }
    };
    tokio::time::timeout(timeout, established).await.unwrap_or_else(|_elapsed| {
        Err(Refusal::new(Cause::TimedOut, format!("{} in {timeout:?}", request.destination)))
    })
}

/// Dials the destination itself, at the addresses that the allow-list and that of the caller permit, and never at its own
/// listeners.
async fn direct(shared: &Shared, request: &Request, caller: Option<Caller<'_>>) -> Result<Conn, Refusal> {
    let destination = &request.destination;
    let name = caller.map(|caller| caller.name);
    let looking_up = || shared.admission.look_up(request.client.ip(), name, Instant::now()).map(Some);
    let addresses = resolve(shared, destination, looking_up).await?;
    let limited = caller.and_then(|caller| caller.allow);
    let allowed = |address: &&SocketAddr| {
        shared.config.allow.allows_address(destination, address.ip())
            && limited.is_none_or(|allow| allow.allows_address(destination, address.ip()))
            && !leads_here(&shared.addresses, **address)
    };
    let mut last = Refusal::new(Cause::NotAllowed, destination.to_string());
    for address in addresses.iter().filter(allowed).take(ADDRESSES_MAX) {
        match connect(shared, *address).await {
            Ok(tcp) => return introduce(shared, request, *address, tcp).await,
            Err(error) => last = Refusal::new(Cause::of_dial(&error), format!("{destination}: {error}")),
        }
    }
    Err(last)
}

/// Names the client to a destination that expects it.
async fn introduce(
    shared: &Shared,
    request: &Request,
    address: SocketAddr,
    mut tcp: TcpStream,
) -> Result<Conn, Refusal> {
    let (destination, resolved) = (&request.destination, Destination::from(address));
    let expects = |pattern: &Pattern| pattern.matches(destination) || pattern.matches(&resolved);
    if shared.config.proxy_protocol.iter().any(expects) {
        let header = proxy_protocol::encode(request.client, request.entry);
        tcp.write_all(&header).await.map_err(|error| Refusal::new(Cause::of_dial(&error), error.to_string()))?;
    }
    Ok(Conn::Plain(tcp))
}

/// The addresses of a destination. `looking_up` gives the places of the client and proxy for which its name is looked up;
/// this proxy itself needs none.
async fn resolve(
    shared: &Shared,
    destination: &Destination,
    looking_up: impl FnOnce() -> Result<Option<LookupPlaces>, Refusal>,
) -> Result<Vec<SocketAddr>, Refusal> {
    match &destination.host {
        Host::Address(address) => Ok(vec![SocketAddr::new(*address, destination.port)]),
        Host::Name(name) => {
            let target = (name.clone(), destination.port);
            let places = looking_up()?;
            let found = look_up(&shared.lookups, move || {
                let _places = places;
                Ok(target.to_socket_addrs()?.collect())
            })
            .await;
            found.map_err(|Refusal { cause, detail }| Refusal::new(cause, format!("{destination}: {detail}")))
        }
    }
}

async fn connect(shared: &Shared, address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    set_dialed_options(&tcp, address.ip(), shared.config.congestion_control.as_deref())?;
    Ok(tcp)
}

/// Connects to a proxy at the first of its addresses that answers, and counts the connection under its name.
async fn connect_proxy(shared: &Shared, name: &str, address: &Destination) -> Result<TcpStream, Refusal> {
    let mut tcp = Err(Refusal::new(Cause::NameNotFound, name));
    let started = Instant::now();
    for address in resolve(shared, address, || Ok(None)).await?.into_iter().take(ADDRESSES_MAX) {
        tcp = connect(shared, address)
            .await
            .map_err(|error| Refusal::new(cause_of_hop(&error), format!("{name}: {error}")));
        if tcp.is_ok() {
            shared.hop(name, |hop| hop.connected(started.elapsed()));
            break;
        }
    }
    tcp
}

/// The cause of an error while dialing a proxy. Without a free file, it is not the proxy's.
fn cause_of_hop(error: &io::Error) -> Cause {
    if used_up(error) { Cause::Limit } else { Cause::Hop }
}

/// Passes a flow to a proxy outside the fleet, and waits for its answer.
async fn outside(shared: &Shared, name: &str, proxy: &Upstream, to: &Destination) -> Result<Conn, Refusal> {
    let mut tcp = connect_proxy(shared, name, &proxy.address).await?;
    upstream::ask(&mut tcp, proxy, to).await?;
    Ok(Conn::Plain(tcp))
}

/// Opens a connection to a proxy of the fleet, TLS included, and counts whether that succeeds.
pub(crate) async fn open_hop(shared: &Shared, name: &str, address: &Destination) -> Result<Opened, Refusal> {
    let opened = opened_hop(shared, name, address).await;
    match &opened {
        Ok(_) => shared.hop(name, |hop| hop.reached(Instant::now())),
        Err(refusal) if refusal.cause == Cause::Limit => {}
        Err(refusal) => shared.hop(name, |hop| hop.failed(&refusal.detail)),
    }
    opened
}

async fn opened_hop(shared: &Shared, name: &str, address: &Destination) -> Result<Opened, Refusal> {
    let broken = |error: &dyn std::fmt::Display| Refusal::new(Cause::Hop, format!("{name}: {error}"));
    let tls = shared.tls.as_ref().ok_or_else(|| broken(&"this proxy has no identity"))?;
    let server = ServerName::try_from(name.to_owned()).map_err(|error| broken(&error))?;
    let tcp = connect_proxy(shared, name, address).await?;
    let (identity, at) = (tls.client(), Instant::now());
    let stream = handshake::connect(identity.clone(), server, tcp).await.map_err(|error| broken(&error))?;
    Ok(Opened { stream: Box::new(stream), identity, at })
}

/// Passes a request to the next proxy, and waits for its answer.
async fn through(shared: &Arc<Shared>, next: &str, mut request: Request, deadline: Instant) -> Result<Far, Refusal> {
    let unknown = || Refusal::new(Cause::Route, format!("{next} is not a proxy of this one"));
    let broken = |error: io::Error| Refusal::new(Cause::Hop, format!("{next}: {error}"));
    let address = shared.config.proxies.get(next).ok_or_else(unknown)?;
    if let Some(ready) = shared.pools.of(next).and_then(|pool| pool.take(shared)) {
        // If it is broken, this flow has sent nothing over it yet but its request, and sends that again.
        match ask_ready(ready, &mut request, deadline).await {
            Ok(answer) => {
                shared.hop(next, |hop| hop.used(Source::Taken));
                return Ok((answered(next, answer)?, Some(Source::Taken)));
            }
            Err(error) => {
                tracing::debug!(%error, next, "a connection that was ready is broken");
                shared.hop(next, |hop| hop.died(1));
            }
        }
    }
    let opened = open_hop(shared, next, address).await?;
    shared.hop(next, |hop| hop.used(Source::Missed));
    let answer = ask(opened.stream, &mut request, deadline).await.map_err(broken)?;
    Ok((answered(next, answer)?, Some(Source::Missed)))
}

fn answered(next: &str, answer: Result<Conn, Cause>) -> Result<Conn, Refusal> {
    answer.map_err(|cause| Refusal::new(cause, format!("{next} refused")))
}

/// As [`ask`], over a connection that was ready. The path may have lost it without a word, so that nothing is answered:
/// then this fails soon.
async fn ask_ready(ready: Opened, request: &mut Request, deadline: Instant) -> io::Result<Result<Conn, Cause>> {
    acknowledged_within(&ready.stream, Some(POOL_ACKNOWLEDGED_WITHIN))?;
    let answer = ask(ready.stream, request, deadline).await?;
    if let Ok(Conn::Tls(stream)) = &answer {
        acknowledged_within(stream, None)?;
    }
    Ok(answer)
}

#[cfg(target_os = "linux")]
fn acknowledged_within(stream: &Sealed, time: Option<Duration>) -> io::Result<()> {
    socket2::SockRef::from(stream.tcp()).set_tcp_user_timeout(time)
}

#[cfg(not(target_os = "linux"))]
fn acknowledged_within(_stream: &Sealed, _time: Option<Duration>) -> io::Result<()> {
    Ok(())
}

/// Sends a request to a proxy, and returns its answer.
async fn ask(mut stream: Box<Sealed>, request: &mut Request, deadline: Instant) -> io::Result<Result<Conn, Cause>> {
    let left = deadline.saturating_duration_since(Instant::now()) * DIAL_SHARE_PERCENT / 100;
    request.within_ms = left.as_millis().try_into().unwrap_or(u32::MAX);
    request.write(&mut stream).await?;
    Ok(header::read_answer(&mut stream).await?.map(|()| Conn::Tls(stream)))
}

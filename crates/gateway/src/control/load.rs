//! `POST /v1/probe/receive` and `/send`: measure the throughput between two gateways.
//!
//! The receiving end measures: it waits until all connections are open, lets them reach their rate, counts for a while,
//! and closes, which ends the sender. Both are gateways without a program. The bytes go through the same TLS as a
//! hop's, so the result is the rate of data and not of packets.

use super::answer::Refused;
use crate::failure::counted;
use crate::limits::{
    HOP_CONNECTIONS_MAX, LOAD_BUFFER_BYTES, LOAD_CONNECT_TIMEOUT, LOAD_CONNECTS, LOAD_HANDSHAKES_MAX, LOAD_MS_MAX,
    LOAD_SEND_MS_MAX, PROBE_TIMEOUT,
};
use crate::names::check_node_name;
use crate::tls::{self, Identity};
use axum::http::StatusCode;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tradewind_contract::{ReceiveReport, ReceiveRequest, Refusal, SendReport, SendRequest};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Accepts the sender's connections and counts the bytes that arrive.
pub(super) async fn receive(
    request: ReceiveRequest,
    listener: TcpListener,
    identity: Option<&Arc<Identity>>,
) -> Result<ReceiveReport, Refused> {
    check_node_name(&request.from).map_err(|error| refuse(error, "name the gateway as its certificate does"))?;
    check_connections(request.connections)?;
    for (name, value) in [("warmup_ms", request.warmup_ms), ("measure_ms", request.measure_ms)] {
        check_time(name, value, LOAD_MS_MAX)?;
    }
    let accepted = accept_all(&request, listener, identity);
    let Ok(streams) = tokio::time::timeout(LOAD_CONNECT_TIMEOUT, accepted).await else {
        let connections = counted(request.connections.into(), "connection", "connections");
        let error = format!("{} did not open its {connections} in time", request.from);
        return Err(Refused::new(
            StatusCode::GATEWAY_TIMEOUT,
            error,
            "check that it got a send request and can reach this gateway",
        ));
    };
    let arrived = Arc::new(AtomicU64::new(0));
    // Dropped at the end, which closes the connections.
    let mut readers = JoinSet::new();
    for stream in streams {
        readers.spawn(count(stream, arrived.clone()));
    }
    tokio::time::sleep(Duration::from_millis(request.warmup_ms.into())).await;
    let (before, start) = (arrived.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_millis(request.measure_ms.into())).await;
    let (bytes, seconds) = (arrived.load(Ordering::Relaxed) - before, start.elapsed().as_secs_f64());
    Ok(ReceiveReport { from: request.from, connections: request.connections, bytes, seconds })
}

/// Accepts all connections of the sender. Connections of others, and those that do not finish their handshake, are
/// closed.
async fn accept_all(
    request: &ReceiveRequest,
    listener: TcpListener,
    identity: Option<&Arc<Identity>>,
) -> Vec<Box<dyn Stream>> {
    let wanted = usize::from(request.connections);
    let (mut streams, mut handshakes) = (Vec::with_capacity(wanted), JoinSet::new());
    while streams.len() < wanted {
        tokio::select! {
            accepted = listener.accept(), if handshakes.len() < LOAD_HANDSHAKES_MAX => match accepted {
                Ok((tcp, _)) => drop(handshakes.spawn(shake(tcp, identity.cloned(), request.from.clone()))),
                Err(_) => tokio::time::sleep(crate::limits::ACCEPT_RETRY_PAUSE).await,
            },
            Some(shaken) = handshakes.join_next() => streams.extend(shaken.ok().flatten()),
        }
    }
    streams
}

async fn shake(tcp: TcpStream, identity: Option<Arc<Identity>>, from: String) -> Option<Box<dyn Stream>> {
    let Some(identity) = identity else {
        // A connection that only timed its handshake sends nothing.
        return matches!(tcp.peek(&mut [0]).await, Ok(1..)).then(|| Box::new(tcp) as Box<dyn Stream>);
    };
    let (stream, name) = tls::accept(&identity, tcp).await.ok()?;
    (name == from).then(|| Box::new(stream) as Box<dyn Stream>)
}

async fn count(mut stream: Box<dyn Stream>, arrived: Arc<AtomicU64>) {
    let mut buffer = vec![0; LOAD_BUFFER_BYTES];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        arrived.fetch_add(read as u64, Ordering::Relaxed);
    }
}

/// Opens connections and fills them until the other side closes.
pub(super) async fn send(request: SendRequest, identity: Option<&Arc<Identity>>) -> Result<SendReport, Refused> {
    check_node_name(&request.to).map_err(|error| refuse(error, "name the gateway as its certificate does"))?;
    check_connections(request.connections)?;
    check_time("at_most_ms", request.at_most_ms, LOAD_SEND_MS_MAX)?;
    let address = request.address.parse::<SocketAddr>();
    let address =
        address.map_err(|_| refuse(format!("{:?} is not an address", request.address), "an address is ip:port"))?;
    let before = Segments::now();
    let rtt = connect_time(address).await.map_err(|error| unreachable(&request.to, address, &error))?;
    let sent = Arc::new(AtomicU64::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..request.connections {
        writers.spawn(fill(address, identity.cloned(), request.to.clone(), sent.clone()));
    }
    let finished = tokio::time::timeout(Duration::from_millis(request.at_most_ms.into()), async {
        let mut unreachable = None;
        while let Some(ended) = writers.join_next().await {
            unreachable = unreachable.or_else(|| ended.ok().and_then(Result::err));
        }
        unreachable
    });
    if let Ok(Some(error)) = finished.await {
        return Err(unreachable(&request.to, address, &error));
    }
    let moved = before.zip(Segments::now()).map(|(before, after)| after.since(before));
    Ok(SendReport {
        to: request.to,
        bytes: sent.load(Ordering::Relaxed),
        rtt_ms_min: rtt.as_secs_f64() * 1000.0,
        segments: moved.map(|moved| moved.out),
        segments_again: moved.map(|moved| moved.again),
    })
}

/// Returns the shortest of a few handshakes, made one after the other; the receiver drops these connections.
async fn connect_time(address: SocketAddr) -> Result<Duration, String> {
    let mut least = Duration::MAX;
    for _ in 0..LOAD_CONNECTS {
        let start = Instant::now();
        let connected = tokio::time::timeout(PROBE_TIMEOUT, TcpStream::connect(address)).await;
        connected.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())?;
        least = least.min(start.elapsed());
    }
    Ok(least)
}

fn unreachable(to: &str, address: SocketAddr, error: &str) -> Refused {
    let hint = "check that it runs and that it got a receive request";
    Refused::new(StatusCode::BAD_GATEWAY, format!("{to} at {address}: {error}"), hint)
}

/// When an open connection ends, the measurement is over, which is not an error.
async fn fill(
    address: SocketAddr,
    identity: Option<Arc<Identity>>,
    to: String,
    sent: Arc<AtomicU64>,
) -> Result<(), String> {
    let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let mut stream: Box<dyn Stream> = match identity {
        None => Box::new(tcp),
        Some(identity) => Box::new(tls::connect(&identity, &to, tcp).await.map_err(|error| error.to_string())?),
    };
    let zeros = vec![0; LOAD_BUFFER_BYTES];
    while let Ok(written @ 1..) = stream.write(&zeros).await {
        sent.fetch_add(written as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// TCP segments that this machine, or its network namespace, has sent since it started.
#[derive(Clone, Copy)]
struct Segments {
    out: u64,
    again: u64,
}

impl Segments {
    /// Reads the counts from Linux's table; `None` elsewhere.
    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/net/snmp").ok()?)
    }

    fn parse(table: &str) -> Option<Self> {
        let mut tcp = table.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = (tcp.next()?, tcp.next()?);
        let value = |wanted: &str| {
            let place = names.split_whitespace().position(|name| name == wanted)?;
            values.split_whitespace().nth(place)?.parse().ok()
        };
        Some(Self { out: value("OutSegs")?, again: value("RetransSegs")? })
    }

    fn since(self, before: Self) -> Self {
        Self { out: self.out.saturating_sub(before.out), again: self.again.saturating_sub(before.again) }
    }
}

fn check_connections(connections: u16) -> Result<(), Refused> {
    if (1..=HOP_CONNECTIONS_MAX).contains(&connections) {
        return Ok(());
    }
    Err(refuse(format!("connections is {connections}"), &format!("1 to {HOP_CONNECTIONS_MAX}, as of a hop")))
}

fn check_time(name: &str, given_ms: u32, most_ms: u32) -> Result<(), Refused> {
    let least_ms = u32::from(name != "warmup_ms");
    if (least_ms..=most_ms).contains(&given_ms) {
        return Ok(());
    }
    Err(refuse(format!("{name} is {given_ms}"), &format!("{least_ms} to {most_ms}")))
}

fn refuse(error: String, hint: &str) -> Refused {
    Refused::unprocessable(Refusal { error, hint: Some(hint.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_found_by_name() {
        let table = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm OutSegs RetransSegs InErrs\nTcp: 1 900 7 0\n";
        let read = Segments::parse(table).unwrap();
        assert_eq!((read.out, read.again), (900, 7));
        assert!(Segments::parse("Tcp: OutSegs\n").is_none());
    }
}

//! Opens the connections of a hop. The upstream end opens them, unless only the downstream end can: a private sink, a
//! pod without its own port, a machine behind NAT.

use super::inbound::Inbound;
use crate::net::{Connection, ConnectionError, Network, Security};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tradewind_wire::frame::Hello;

/// Time limit for making a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// First pause before reconnecting. It doubles up to the maximum.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before connecting again.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How to reach the other end of a hop.
pub struct Dial {
    /// Name of the gateway at the other end.
    pub peer: String,
    /// Its data port, `ip:port`.
    pub address: String,
    /// TLS or plain TCP.
    pub security: Security,
    /// Our greeting.
    pub hello: Hello,
    /// A peer that is silent for this long counts as dead.
    pub silence_max: Duration,
    /// The network to connect through.
    pub network: Arc<dyn Network>,
}

impl Dial {
    /// Opens one connection.
    ///
    /// # Errors
    /// No gateway answers in time, or the wrong one does.
    pub async fn connect(&self) -> Result<Connection, ConnectionError> {
        let connecting = self.network.connect(&self.address);
        let timed_out = |_| io::Error::from(io::ErrorKind::TimedOut);
        let timeout = CONNECT_TIMEOUT.min(self.silence_max);
        let link = tokio::time::timeout(timeout, connecting).await.map_err(timed_out)??;
        let opening = Connection::open(link, &self.security, self.hello.clone(), &self.peer);
        // A frozen peer still accepts connections, because its kernel does, but sends nothing.
        tokio::time::timeout(self.silence_max, opening)
            .await
            .unwrap_or(Err(ConnectionError::Silent(self.silence_max.as_secs())))
    }
}

/// Pauses between attempts to connect. Each is twice as long as the one before, until an attempt succeeds.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(RECONNECT_PAUSE_MIN)
    }

    pub(super) fn reset(&mut self) {
        self.0 = RECONNECT_PAUSE_MIN;
    }

    pub(super) async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RECONNECT_PAUSE_MAX);
    }
}

/// An incoming hop whose connections this gateway, its downstream end, opens.
pub struct DialledHop {
    dial: Dial,
    inbound: Arc<Inbound>,
    stop: CancellationToken,
    /// Number of connections to keep open.
    wanted: AtomicU16,
}

impl DialledHop {
    /// Keeps `connections` open until [`DialledHop::retire`] or `stop`.
    pub fn start(dial: Dial, connections: u16, inbound: Arc<Inbound>, stop: CancellationToken) -> Arc<Self> {
        let hop = Arc::new(Self { dial, inbound, stop, wanted: AtomicU16::new(0) });
        hop.widen(connections);
        hop
    }

    /// Raises the number of connections to keep open. It is never lowered.
    pub fn widen(self: &Arc<Self>, connections: u16) {
        let before = self.wanted.fetch_max(connections, Ordering::Relaxed);
        for _ in before..connections {
            tokio::spawn(self.clone().keep_connected());
        }
    }

    /// Opens no more connections. The open ones last until the upstream end closes them.
    pub fn retire(&self) {
        self.stop.cancel();
    }

    /// Data port of the gateway at the upstream end.
    pub fn address(&self) -> &str {
        &self.dial.address
    }

    async fn keep_connected(self: Arc<Self>) {
        let mut backoff = Backoff::new();
        while !self.stop.is_cancelled() {
            let connected = tokio::select! {
                connected = self.dial.connect() => connected,
                () = self.stop.cancelled() => return,
            };
            match connected {
                Ok(connection) => {
                    backoff.reset();
                    self.inbound.clone().serve(connection).await;
                }
                Err(error) => tracing::debug!(peer = self.dial.peer, %error, "cannot connect"),
            }
            tokio::select! {
                () = backoff.pause() => {}
                () = self.stop.cancelled() => return,
            }
        }
    }
}

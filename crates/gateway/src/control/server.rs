//! The sockets below the control API: which connections are accepted, how many, and for how long.

use super::connections::{ConnectionPlace, ConnectionPlaces};
use super::gateway::Gateway;
use super::routes::{self, Peer};
use crate::home;
use crate::limits::{
    ACCEPT_RETRY_PAUSE, CONNECTIONS_AT_EXIT_TIMEOUT, CONTROL_HANDSHAKES_MAX, CONTROL_HANDSHAKES_PER_ADDRESS_MAX,
    CONTROL_PEER_CONNECTION_TIMEOUT, IDLE_CALLS, REQUEST_HEAD_BYTES_MAX, REQUEST_HEAD_TIMEOUT, REQUEST_HEADERS_MAX,
};
use crate::net::gate::{Admission, Gate, GateLimits};
use crate::net::refusals::Refusals;
use crate::tls::{self, Identity};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tradewind_contract::OWNER_NAME;

/// Where control connections come from.
pub enum Listener {
    /// A socket file that only its owner may open.
    Unix(UnixListener),
    /// TCP on the loopback interface, without TLS.
    Plain(TcpListener),
    /// TCP with mutual TLS.
    Tls(TcpListener, Arc<Identity>),
    /// Connections that the gateway opens to the owner at this address, with mutual TLS, and that the owner takes.
    Home(String, Arc<Identity>),
}

/// The running control API.
pub struct Server {
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// State that all connections share.
#[derive(Clone)]
struct Shared {
    router: Router,
    controllers: Arc<[String]>,
    places: ConnectionPlaces,
    gate: Gate,
    refusals: Refusals,
    stop: CancellationToken,
}

impl Server {
    /// Starts to accept connections. `controllers` are the fleet's identities that may control the gateway.
    pub fn start(listener: Listener, gateway: Arc<Gateway>, controllers: Arc<[String]>) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let shared = Shared {
            router: routes::router(gateway, controllers.clone()),
            controllers,
            places: ConnectionPlaces::new(),
            gate: Gate::new(GateLimits {
                handshakes_max: CONTROL_HANDSHAKES_MAX,
                per_address_max: CONTROL_HANDSHAKES_PER_ADDRESS_MAX,
            }),
            refusals: Refusals::default(),
            stop: stop.clone(),
        };
        tasks.spawn(accept_all(listener, shared, tasks.clone()));
        Self { stop, tasks }
    }

    /// Stops accepting, gives open answers [`CONNECTIONS_AT_EXIT_TIMEOUT`] to finish, and closes the rest.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(CONNECTIONS_AT_EXIT_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!(connections = self.tasks.len(), "control connections still open at exit");
        }
    }
}

async fn accept_all(listener: Listener, shared: Shared, tasks: TaskTracker) {
    let stop = shared.stop.clone();
    if let Listener::Home(owner, identity) = &listener {
        let calling = call_home(owner, identity, &shared, &tasks);
        return stop.run_until_cancelled(calling).await.unwrap_or_default();
    }
    let accepting = async {
        loop {
            if let Err(error) = accept_one(&listener, &shared, &tasks).await {
                tracing::warn!(%error, "a control connection could not be accepted");
                // Out of files, perhaps because of strangers: end one of their handshakes.
                shared.gate.evict();
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            }
        }
    };
    stop.run_until_cancelled(accepting).await;
}

async fn accept_one(listener: &Listener, shared: &Shared, tasks: &TaskTracker) -> io::Result<()> {
    match listener {
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            tasks.spawn(serve(stream, Peer::Local, shared.clone()));
        }
        Listener::Plain(listener) => {
            let (stream, _) = listener.accept().await?;
            tasks.spawn(serve(stream, Peer::Local, shared.clone()));
        }
        Listener::Tls(listener, identity) => {
            let (stream, from) = listener.accept().await?;
            tasks.spawn(serve_tls(stream, identity.clone(), shared.gate.enter(from.ip()), shared.clone()));
        }
        Listener::Home(..) => std::future::pending().await,
    }
    Ok(())
}

/// Keeps [`IDLE_CALLS`] connections to the owner open, and serves each one that the owner takes.
async fn call_home(owner: &str, identity: &Arc<Identity>, shared: &Shared, tasks: &TaskTracker) {
    let call_one = async || loop {
        let stream = home::call(owner, identity).await;
        tasks.spawn(serve(stream, Peer::Fleet(OWNER_NAME.to_owned()), shared.clone()));
    };
    futures::future::join_all((0..IDLE_CALLS).map(|_| call_one())).await;
}

async fn serve_tls(tcp: TcpStream, identity: Arc<Identity>, admission: Admission, shared: Shared) {
    let from = tcp.peer_addr().map(|address| address.to_string()).unwrap_or_default();
    let accepting = admission.hold(tls::accept(&identity, tcp));
    match shared.stop.run_until_cancelled(accepting).await {
        Some(Ok(Ok((stream, name)))) => serve(stream, Peer::Fleet(name), shared).await,
        Some(Ok(Err(error))) if shared.refusals.may_log() => {
            tracing::warn!(from, %error, "control connection refused");
        }
        Some(Ok(Err(_))) | None => {}
        // Not a warning: strangers must not be able to fill the log, or to block the gateway if nobody reads the log.
        Some(Err(evicted)) => tracing::debug!(from, %evicted, "control connection refused"),
    }
}

async fn serve<S>(mut stream: S, peer: Peer, shared: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(place) = shared.enter(&peer) else {
        if shared.refusals.may_log() {
            tracing::warn!(%peer, "control connection refused: too many are open");
        }
        let refusing = async {
            stream.write_all(BUSY).await?;
            stream.shutdown().await
        };
        if let Err(error) = refusing.await {
            tracing::debug!(%error, "nobody reads the refusal");
        }
        return;
    };
    let service = TowerToHyperService::new(shared.router.clone().layer(Extension(peer.clone())));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_HEAD_TIMEOUT)
        .max_headers(REQUEST_HEADERS_MAX)
        .max_buf_size(REQUEST_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shared.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = long_enough(&place) => {
            connection.as_mut().graceful_shutdown();
            let ending = tokio::time::timeout(CONTROL_PEER_CONNECTION_TIMEOUT, connection);
            ending.await.unwrap_or_else(|_elapsed| {
                tracing::debug!(%peer, "control connection cut off");
                Ok(())
            })
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "control connection ended");
    }
}

/// Returns when a connection has reached the longest time that its peer may keep it.
async fn long_enough(place: &ConnectionPlace) {
    match place {
        // Controllers may read events as long as the job runs.
        ConnectionPlace::Controller { .. } => std::future::pending().await,
        ConnectionPlace::Peer { .. } => tokio::time::sleep(CONTROL_PEER_CONNECTION_TIMEOUT).await,
    }
}

impl Shared {
    fn enter(&self, peer: &Peer) -> Option<ConnectionPlace> {
        match peer {
            Peer::Fleet(name) if !peer.may_control(&self.controllers) => self.places.enter_peer(name),
            _ => self.places.enter_controller(),
        }
    }
}

/// Answer to a surplus connection, written by hand because no request is read from it.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: application/json\r\n\
    content-length: 80\r\n\r\n\
    {\"error\":\"too many control connections\",\"hint\":\"close some, or try again later\"}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::gateway::Equipment;
    use crate::limits::CONTROL_CONNECTIONS_MAX;
    use crate::program::NodeRunner;
    use tokio::io::AsyncReadExt;

    fn shared(controllers: &[&str]) -> Shared {
        let gateway = Gateway::new(Box::new(NodeRunner::default()), Equipment::default()).unwrap();
        let controllers: Arc<[String]> = controllers.iter().map(ToString::to_string).collect();
        Shared {
            router: routes::router(Arc::new(gateway), controllers.clone()),
            controllers,
            places: ConnectionPlaces::new(),
            gate: Gate::new(GateLimits { handshakes_max: 1, per_address_max: 1 }),
            refusals: Refusals::default(),
            stop: CancellationToken::new(),
        }
    }

    /// The peer sends many requests and reads no answers, so hyper blocks on writing and reads no further request.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_no_answers_loses_its_place_and_never_blocks_controllers() {
        let shared = shared(&["lead"]);
        let relay = || Peer::Fleet("relay".to_owned());
        let mut clients = Vec::new();
        let mut serving = tokio::task::JoinSet::new();
        for _ in 0..CONTROL_CONNECTIONS_MAX {
            let (mut client, stream) = tokio::io::duplex(1 << 10);
            serving.spawn(serve(stream, relay(), shared.clone()));
            client.write_all(&b"GET /v1/version HTTP/1.1\r\nhost: x\r\n\r\n".repeat(20)).await.unwrap();
            // The first byte of an answer, or of a refusal.
            client.read_u8().await.unwrap();
            clients.push(client);
        }
        assert!(shared.enter(&relay()).is_none());
        assert!(shared.enter(&Peer::Fleet("lead".to_owned())).is_some() && shared.enter(&Peer::Local).is_some());
        let ended = tokio::time::timeout(3 * CONTROL_PEER_CONNECTION_TIMEOUT, serving.join_all());
        ended.await.expect("its connections stay open");
        assert!(shared.enter(&relay()).is_some());
        drop(clients);
    }

    #[test]
    fn the_busy_answer_says_its_own_length() {
        let text = std::str::from_utf8(BUSY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len()).trim_end().to_owned()), "{}", body.len());
        assert!(serde_json::from_str::<tradewind_contract::Refusal>(body).is_ok());
    }
}

//! The split proxy of a gateway: none yet, running (its configuration may change), draining, ended. After its end
//! another may start.

use super::answer::Refused;
use super::split_program::{config_of, takes_data_port};
use crate::limits::{SPLIT_DRAIN_AT_EXIT, SPLIT_TIMEOUT_MS_MAX};
use crate::split::Fleet;
use crate::tcp_buffers;
use crate::tls::Identity;
use axum::http::StatusCode;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tradewind_contract::{Refusal, SplitHop, SplitProgram, SplitState, SplitStatus, SplitTraffic};
use tradewind_split::tls::HopTls;
use tradewind_split::{Handle, Proxy, SplitError};

/// The place of a gateway's split proxy.
pub(super) struct SplitRole {
    identity: Option<Arc<Identity>>,
    /// True if the machine's maxima of TCP buffers may be raised.
    raise_tcp_buffers: bool,
    place: Mutex<Place>,
}

#[derive(Default)]
struct Place {
    /// The last proxy, which may have ended.
    proxy: Option<Running>,
    /// True if a listener of the last proxy has taken over the data port.
    on_data_port: bool,
    /// The gateway ends, and no proxy may start.
    closed: bool,
}

/// A proxy, from its start to its end and beyond.
#[derive(Clone)]
struct Running {
    handle: Handle,
    stop: CancellationToken,
    ended: watch::Receiver<bool>,
}

impl Running {
    fn start(proxy: Proxy) -> Self {
        let (handle, stop) = (proxy.handle(), CancellationToken::new());
        let (done, ended) = watch::channel(false);
        let running = proxy.run(stop.clone());
        tokio::spawn(async move {
            running.await;
            done.send_replace(true);
        });
        Self { handle, stop, ended }
    }

    fn state(&self) -> SplitState {
        match (self.stop.is_cancelled(), *self.ended.borrow()) {
            (_, true) => SplitState::Ended,
            (true, false) => SplitState::Draining,
            (false, false) => SplitState::Running,
        }
    }

    fn status(&self) -> SplitStatus {
        status_of(self.state(), &self.handle)
    }

    /// Lets the flows end, and returns when there are none. `drain` is counted from the first such call.
    async fn end(mut self, drain: Option<Duration>) -> SplitStatus {
        if let Some(drain) = drain {
            self.handle.set_drain_timeout(drain);
        }
        self.stop.cancel();
        // Fails if the task of the proxy is gone, which is an end, too.
        let _ = self.ended.wait_for(|ended| *ended).await;
        status_of(SplitState::Ended, &self.handle)
    }
}

impl SplitRole {
    pub(super) fn new(identity: Option<Arc<Identity>>, raise_tcp_buffers: bool) -> Self {
        Self { identity, raise_tcp_buffers, place: Mutex::default() }
    }

    /// Starts a proxy, or gives the running one another program. Nothing has changed if that is refused. `data_port` is
    /// a second handle on the data port, for a listener that takes it over.
    pub(super) async fn put(
        &self,
        program: &SplitProgram,
        data_port: Option<TcpListener>,
    ) -> Result<SplitStatus, Refused> {
        let mut place = self.place.lock().await;
        if place.closed {
            return Err(Refused::new(StatusCode::CONFLICT, "this gateway is ending", "use another gateway"));
        }
        let data_address = data_port.as_ref().and_then(|listener| listener.local_addr().ok());
        let config = config_of(program, data_address).map_err(Refused::unprocessable)?;
        match place.proxy.as_ref().map(|proxy| (proxy, proxy.state())) {
            Some((_, SplitState::Draining)) => {
                let error = "the split proxy of this gateway is draining";
                return Err(Refused::new(StatusCode::CONFLICT, error, "send the program again when it has ended"));
            }
            Some((running, SplitState::Running)) => {
                running.handle.replace(config, data_port).map_err(|error| unusable(&error))?;
                tracing::info!(routes = program.routes.len(), "the program of the split proxy changed");
                let status = running.status();
                place.on_data_port = takes_data_port(program);
                return Ok(status);
            }
            Some((_, SplitState::Ended)) | None => {}
        }
        if self.raise_tcp_buffers {
            tcp_buffers::raise();
        }
        let tls = self.identity.clone().map(|identity| Arc::new(Fleet::new(identity)) as Arc<dyn HopTls>);
        let running = Running::start(Proxy::bind(config, tls, data_port).map_err(|error| unusable(&error))?);
        tracing::info!(listening = ?running.handle.addresses(), "the split proxy started");
        let status = running.status();
        place.proxy = Some(running);
        place.on_data_port = takes_data_port(program);
        Ok(status)
    }

    /// True if the split proxy has taken over the data port, until it has ended.
    pub(super) async fn holds_data_port(&self) -> bool {
        let place = self.place.lock().await;
        place.on_data_port && place.proxy.as_ref().is_some_and(|proxy| proxy.state() != SplitState::Ended)
    }

    /// The state of the last proxy.
    pub(super) async fn status(&self) -> Result<SplitStatus, Refused> {
        self.proxy().await.map(|proxy| proxy.status())
    }

    /// Drains the proxy, and returns its last state. Without `drain`, it takes as long as its program says.
    pub(super) async fn end(&self, drain: Option<Duration>) -> Result<SplitStatus, Refused> {
        Ok(self.proxy().await?.end(drain).await)
    }

    /// Ends the proxy because the gateway ends. No other is accepted.
    pub(super) async fn close(&self) {
        let proxy = {
            let mut place = self.place.lock().await;
            place.closed = true;
            place.proxy.clone()
        };
        if let Some(proxy) = proxy {
            proxy.end(Some(SPLIT_DRAIN_AT_EXIT)).await;
        }
    }

    async fn proxy(&self) -> Result<Running, Refused> {
        let proxy = self.place.lock().await.proxy.clone();
        proxy.ok_or_else(|| {
            let error = "this gateway has no split proxy";
            Refused::new(StatusCode::NOT_FOUND, error, "start one with PUT /v1/split")
        })
    }
}

fn unusable(error: &SplitError) -> Refused {
    Refused::unprocessable(Refusal { error: error.to_string(), hint: Some(error.hint().to_owned()) })
}

/// The time in the query of `DELETE /v1/split`: nothing, or `drain_s=SECONDS`.
pub(super) fn drain_of(query: Option<&str>) -> Result<Option<Duration>, Refused> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let most_s = SPLIT_TIMEOUT_MS_MAX / 1000;
    let seconds = query.strip_prefix("drain_s=").and_then(|text| text.parse::<u32>().ok());
    match seconds.filter(|seconds| *seconds <= most_s) {
        Some(seconds) => Ok(Some(Duration::from_secs(seconds.into()))),
        None => {
            let hint = format!("the query is drain_s=SECONDS, with 0 to {most_s}");
            Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{query:?} is not understood"), hint))
        }
    }
}

fn status_of(state: SplitState, handle: &Handle) -> SplitStatus {
    let (status, effective) = (handle.status(), handle.effective());
    let traffic = status.traffic.into_iter().map(|each| SplitTraffic {
        listener: each.listener,
        destination: each.destination,
        through: each.through,
        connections: each.connections,
        failed: each.failed,
        bytes_up: each.bytes_up,
        bytes_down: each.bytes_down,
    });
    let hops = status.hops.into_iter().map(|(name, hop)| {
        let hop = SplitHop {
            dialed: hop.dialed,
            connect_ms_min: hop.connect_ms_min,
            connect_ms_last: hop.connect_ms_last,
            ready: hop.ready as u64,
            taken: hop.taken,
            missed: hop.missed,
            dead: hop.dead,
            failures: hop.failures,
            failure: hop.failure,
            first_byte_ms_taken: hop.first_byte_ms_taken,
            first_byte_ms_missed: hop.first_byte_ms_missed,
        };
        (name, hop)
    });
    SplitStatus {
        state,
        listening: handle.addresses().iter().map(SocketAddr::to_string).collect(),
        open: status.open as u64,
        waiting: status.waiting as u64,
        accepted: status.accepted,
        closed: status.closed,
        reset: status.reset,
        idle: status.idle,
        unused: status.unused,
        refused: status.refused.into_iter().map(|(cause, count)| (cause.name().to_owned(), count)).collect(),
        bytes_up: status.bytes_up,
        bytes_down: status.bytes_down,
        traffic: traffic.collect(),
        hops: hops.collect(),
        congestion_control: effective.congestion_control,
        receive_buffer_bytes_max: effective.receive_buffer_bytes_max,
        send_buffer_bytes_max: effective.send_buffer_bytes_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tradewind_contract::CONTRACT_VERSION;

    /// A program that forwards from this address to a destination.
    fn program(listen: &str, to: SocketAddr) -> SplitProgram {
        let forward = json!({"listen": listen, "way": "forward", "destination": to.to_string()});
        let document = json!({"contract": CONTRACT_VERSION, "listeners": [forward], "allow": [to.to_string()]});
        serde_json::from_value(document).unwrap()
    }

    async fn destination() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn carries(client: &mut TcpStream, far: &mut TcpStream) {
        client.write_all(b"hello").await.unwrap();
        let mut bytes = [0; 5];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");
    }

    #[tokio::test]
    async fn a_proxy_is_replaced_drained_and_started_again() {
        let role = SplitRole::new(None, false);
        assert_eq!(role.status().await.unwrap_err().status, StatusCode::NOT_FOUND);
        let ((first, first_at), (second, second_at)) = (destination().await, destination().await);
        let started = role.put(&program("127.0.0.1:0", first_at), None).await.unwrap();
        let at = started.listening[0].clone();
        let mut old = TcpStream::connect(&at).await.unwrap();
        let (mut old_far, _) = first.accept().await.unwrap();
        carries(&mut old, &mut old_far).await;

        let replaced = role.put(&program("127.0.0.1:0", second_at), None).await.unwrap();
        assert_eq!((replaced.state, &replaced.listening), (SplitState::Running, &started.listening));
        let mut new = TcpStream::connect(&at).await.unwrap();
        let (mut new_far, _) = second.accept().await.unwrap();
        carries(&mut new, &mut new_far).await;
        carries(&mut old, &mut old_far).await;
        let counted = role.status().await.unwrap().traffic;
        let of = |to: SocketAddr| {
            counted.iter().find(|each| each.destination == Some(to.to_string())).map(|each| each.bytes_up)
        };
        assert_eq!((of(first_at), of(second_at)), (Some(10), Some(5)));

        let ending = tokio::spawn(role.proxy().await.unwrap().end(None));
        while role.status().await.unwrap().state != SplitState::Draining {
            tokio::task::yield_now().await;
        }
        let refused = role.put(&program("127.0.0.1:0", first_at), None).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::CONFLICT);
        carries(&mut old, &mut old_far).await;
        let ended = role.end(Some(Duration::ZERO)).await.unwrap();
        assert_eq!((ended.state, ended.open, ended.bytes_up), (SplitState::Ended, 0, 20));
        assert_eq!(ending.await.unwrap(), ended);
        assert!(old.read(&mut [0]).await.is_err(), "a flow that did not end is reset");

        let again = role.put(&program(&at, first_at), None).await.unwrap();
        assert_eq!((again.state, again.bytes_up), (SplitState::Running, 0));
        role.close().await;
        let refused = role.put(&program(&at, first_at), None).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::CONFLICT);
    }

    #[tokio::test]
    async fn a_refused_program_changes_nothing() {
        let role = SplitRole::new(None, false);
        let (far, to) = destination().await;
        let started = role.put(&program("127.0.0.1:0", to), None).await.unwrap();
        let mut open = program("127.0.0.1:0", to);
        open.listeners[0].listen = "0.0.0.0:0".to_owned();
        let taken = program(&to.to_string(), to);
        let mut hop = program("127.0.0.1:0", to);
        hop.proxies.insert("exit".to_owned(), "192.0.2.1:1".to_owned());
        for (bad, reason) in [(open, "cannot authenticate"), (taken, "in use"), (hop, "identity")] {
            let refused = role.put(&bad, None).await.unwrap_err();
            assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
            assert!(refused.refusal.error.contains(reason), "{}", refused.refusal.error);
        }
        TcpStream::connect(&started.listening[0]).await.unwrap();
        far.accept().await.unwrap();
        assert_eq!(role.end(Some(Duration::ZERO)).await.unwrap().listening, started.listening);
    }

    #[test]
    fn the_query_has_seconds_or_is_refused() {
        assert_eq!(drain_of(None).unwrap(), None);
        assert_eq!(drain_of(Some("drain_s=0")).unwrap(), Some(Duration::ZERO));
        for bad in ["drain_s", "drain_s=-1", "drain_s=86401", "drain_s=1&x=2", "wait=1"] {
            assert_eq!(drain_of(Some(bad)).unwrap_err().status, StatusCode::UNPROCESSABLE_ENTITY);
        }
    }
}

//! Keeps the connections of a hop: connects, reads until the connection ends, and reconnects.

use super::sending::guarded;
use super::{Health, Hop, Outgoing, RETIRE_PAUSE};
use crate::net::{Connection, ConnectionError, FrameReader, FrameWriter, Incoming};
use crate::node::clock::{Clock, next_connection_id};
use crate::node::dial::{Backoff, CONNECT_TIMEOUT};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tradewind_wire::frame::{Frame, Reply};
use tradewind_wire::liveness::Liveness;
use tradewind_wire::{ConnectionId, Fault};

/// A connection in use. When it is dropped, it is closed, and the requests on it are answered `Lost`.
struct Live<'a> {
    hop: &'a Hop,
    id: ConnectionId,
    closed: CancellationToken,
    ended: ConnectionError,
}

impl<'a> Live<'a> {
    fn begin(hop: &'a Hop, outgoing: Outgoing) -> Self {
        let live = Self { hop, id: outgoing.id, closed: outgoing.closed.clone(), ended: ConnectionError::Closed };
        hop.health.send_modify(|health| *health = Health { connections: health.connections + 1, failing: None });
        hop.give_back(outgoing);
        live
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.closed.cancel();
        self.hop.health.send_modify(|health| health.connections -= 1);
        let lost = self.hop.flights().connection_lost(self.id);
        if !lost.is_empty() {
            self.hop.throttle.failed();
        }
        for (request, reply) in lost {
            let (from, to, ended) = (&self.hop.setup.hello.node, self.hop.peer(), &self.ended);
            let message = format!("lost the connection from {from} to {to}: {ended}");
            reply.fail(request, Fault::Lost, "unavailable", message);
        }
    }
}

impl Hop {
    /// Keeps one connection open until the hop ends. Does nothing if the other end opens the connections.
    pub(super) async fn keep_connected(self: Arc<Self>) {
        let Some(dial) = &self.dial else { return };
        let mut backoff = Backoff::new();
        while !self.stop.is_cancelled() {
            let connected = tokio::select! {
                connected = dial.connect() => connected,
                () = self.stop.cancelled() => return,
            };
            match connected {
                Ok(connection) => {
                    backoff.reset();
                    self.serve(connection).await;
                }
                Err(error) => {
                    tracing::debug!(peer = self.peer(), %error, "cannot connect");
                    self.fails(&error.reason());
                }
            }
            tokio::select! {
                () = backoff.pause() => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    fn fails(&self, why: &str) {
        self.health.send_modify(|health| health.failing = Some(why.into()));
    }

    /// Reports that the other end has opened no connection for as long as a dial may take: the counterpart of a dial
    /// that fails.
    pub(super) async fn watch_for_absence(self: Arc<Self>) {
        let patience = CONNECT_TIMEOUT.min(self.setup.silence_max);
        let mut health = self.health.subscribe();
        let watching = async {
            loop {
                // The sender belongs to the hop that is borrowed here, so waiting cannot fail.
                drop(health.wait_for(|health| health.connections == 0).await);
                let arrival = health.wait_for(|health| health.connections > 0);
                if tokio::time::timeout(patience, arrival).await.is_err() {
                    tracing::debug!(peer = self.peer(), "it opens no connection");
                    self.fails("it opens no connection");
                    drop(health.wait_for(|health| health.connections > 0).await);
                }
            }
        };
        self.stop.run_until_cancelled(watching).await;
    }

    /// Uses the connection until it ends, then answers the requests that were on it.
    pub(in crate::node) async fn serve(&self, connection: Connection) {
        let outgoing = Outgoing {
            id: next_connection_id(),
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
                Incoming::Frame(Frame::HopReports(reports)) => {
                    if !self.setup.reports.heard(self.peer(), &reports) {
                        return ConnectionError::Peer("reports about hops do not parse".to_owned());
                    }
                }
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

    /// Returns when the connection must take no more requests and has answered those it took.
    async fn until_retired(&self, id: ConnectionId, retired: &AtomicBool) {
        loop {
            tokio::time::sleep(RETIRE_PAUSE.max(self.setup.silence_max / 30)).await;
            if retired.load(Ordering::Relaxed) && !self.flights().is_on(id) {
                return;
            }
        }
    }
}

/// Sends a ping when nothing else is being sent, so that the peer does not consider us dead. A connection on which a
/// frame was begun and dropped is about to be closed.
async fn keep_alive(writer: Arc<AsyncMutex<FrameWriter>>, closed: CancellationToken, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if let Ok(mut writer) = writer.try_lock()
            && writer.data_left() == 0
            && guarded(&closed, writer.frame(&Frame::Ping(0))).await.is_err()
        {
            closed.cancel();
            return;
        }
    }
}

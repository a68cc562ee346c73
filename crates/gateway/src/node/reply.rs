//! The way back: where the answer to a request goes.

use super::seal::SealKey;
use super::work::{Failure, SinkReply};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tradewind_wire::frame::{Frame, Reply, Verdict};
use tradewind_wire::{ConnectionId, Fault, RequestId};

/// What the writer of an upstream connection is asked to send.
#[derive(Debug)]
pub enum Upstream {
    /// An answer; several are put into one frame.
    Reply(Reply),
    /// Anything else.
    Frame(Frame),
}

/// Where answers go. The queues behind are unbounded in type and bounded in fact: one answer per request in flight, and
/// those are bounded by the lead's windows.
#[derive(Clone, Debug)]
pub struct ReplyTo {
    way: Way,
    /// At a source: sinks seal their words, the lead has no key.
    unseal: Option<Arc<SealKey>>,
}

#[derive(Clone, Debug)]
enum Way {
    /// The lead, in this process.
    Memory(mpsc::UnboundedSender<Reply>),
    /// An upstream gateway.
    Peer { peers: Peers, peer: Arc<str>, connection: ConnectionId },
}

impl ReplyTo {
    /// To the lead in this process.
    pub fn memory(lead: mpsc::UnboundedSender<Reply>) -> Self {
        Self { way: Way::Memory(lead), unseal: None }
    }

    /// To `peer`, by `connection` if it still lives, else by any other of the same peer.
    pub fn peer(peers: Peers, peer: Arc<str>, connection: ConnectionId) -> Self {
        Self { way: Way::Peer { peers, peer, connection }, unseal: None }
    }

    /// The same way, for answers that a sink has sealed.
    pub fn unsealing(self, key: Option<Arc<SealKey>>) -> Self {
        Self { unseal: key, ..self }
    }

    /// Sends an answer. If the asker is gone, so is its interest.
    pub fn send(&self, request: RequestId, verdict: Verdict) {
        let verdict = self.opened(request, verdict);
        match &self.way {
            Way::Memory(lead) => drop(lead.send(Reply { request, verdict })),
            Way::Peer { peers, peer, connection } => peers.send(peer, *connection, Reply { request, verdict }),
        }
    }

    /// Says that the request could not be done on the way.
    pub fn fail(&self, request: RequestId, fault: Fault, kind: &str, message: impl Into<String>) {
        self.send(request, verdict_of(Failure::new(fault, kind, message)));
    }

    /// As [`ReplyTo::fail`], said by a lead or a source that no byte of the request has left, for certain.
    pub fn fail_unsent(&self, request: RequestId, failure: Failure) {
        let Failure { fault, kind, message, .. } = failure;
        self.send(request, Verdict::Failed { fault, kind, message, unsent: true });
    }

    /// Sends a sink's words, sealed if `key` is given.
    pub fn sink(&self, request: RequestId, reply: &SinkReply, key: Option<&SealKey>) {
        let verdict = postcard::to_stdvec(reply)
            .map_err(|error| error.to_string())
            .and_then(|words| match key {
                Some(key) => key.seal(request, &[Bytes::from(words)]),
                None => Ok(words),
            })
            .map(|words| Verdict::Sink(words.into()));
        match verdict {
            Ok(verdict) => self.send(request, verdict),
            Err(error) => {
                self.fail(request, Fault::Unavailable, "unavailable", format!("cannot write a reply: {error}"))
            }
        }
    }

    fn opened(&self, request: RequestId, verdict: Verdict) -> Verdict {
        match (&self.unseal, verdict) {
            (Some(key), Verdict::Sink(words)) => match key.open(request, &words) {
                Ok(words) => Verdict::Sink(words.into()),
                Err(message) => verdict_of(Failure::mismatch(message)),
            },
            (_, verdict) => verdict,
        }
    }
}

/// The verdict a failure makes that came about on the way, or at its end.
pub fn verdict_of(failure: Failure) -> Verdict {
    let Failure { fault, kind, message, .. } = failure;
    Verdict::Failed { fault, kind, message, unsent: false }
}

type Queues = HashMap<Arc<str>, Vec<(ConnectionId, mpsc::UnboundedSender<Upstream>)>>;

/// The upstream connections of this gateway, by peer.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    queues: Arc<Mutex<Queues>>,
}

impl Peers {
    /// A connection of `peer` is up.
    pub fn connected(&self, peer: Arc<str>, connection: ConnectionId, queue: mpsc::UnboundedSender<Upstream>) {
        self.lock().entry(peer).or_default().push((connection, queue));
    }

    /// A connection of `peer` is gone.
    pub fn disconnected(&self, peer: &str, connection: ConnectionId) {
        if let Some(queues) = self.lock().get_mut(peer) {
            queues.retain(|(id, _)| *id != connection);
        }
    }

    /// Sends a frame on every connection.
    pub fn broadcast(&self, frame: &Frame) {
        for (_, queue) in self.lock().values().flatten() {
            drop(queue.send(Upstream::Frame(frame.clone())));
        }
    }

    /// Connections that are up.
    pub fn count(&self) -> usize {
        self.lock().values().map(Vec::len).sum()
    }

    fn send(&self, peer: &str, connection: ConnectionId, reply: Reply) {
        let queues = self.lock();
        let Some(queues) = queues.get(peer) else { return };
        let same = queues.iter().find(|(id, _)| *id == connection);
        if let Some((_, queue)) = same.or_else(|| queues.first()) {
            drop(queue.send(Upstream::Reply(reply)));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

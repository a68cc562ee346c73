//! The reply path: where the answer to a request goes.

use super::clock::FreezeDetector;
use super::dedup::known::Sent;
use super::load::StageMeter;
use super::seal::Seal;
use super::work::{Failure, SinkAnswer, parse_exactly};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tradewind_wire::frame::{CONTROL_BYTES_MAX, Frame, MESSAGE_BYTES_MAX, Reply, Verdict};
use tradewind_wire::{ConnectionId, Fault, RequestId};

/// Maximum length of a sink's answer. Answers to a lead's requests are far shorter; a longer one would not fit into a
/// frame.
const ANSWER_BYTES_MAX: usize = CONTROL_BYTES_MAX - 1024;

/// Maximum length of a relay's message at a source, in characters: it comes from a gateway that is not trusted, and may
/// be kept and shown for each object of a request.
const RELAY_MESSAGE_CHARS_MAX: usize = 500;

/// A message for the writer of an upstream connection.
#[derive(Debug)]
pub enum Upstream {
    /// An answer. Several are put into one frame.
    Reply(Reply),
    /// Any other frame.
    Frame(Frame),
}

/// The recipient of answers. The lead's queue has no limit of its own: it holds at most one answer per request in flight,
/// and the lead's windows limit those. For a peer's queue see [`ANSWERS_WAITING_MAX`].
#[derive(Clone, Debug)]
pub struct ReplyTo {
    path: ReplyPath,
    trust: Trust,
    note: Note,
}

/// What this gateway adds to a sink's answer.
#[derive(Clone, Debug)]
enum Note {
    /// Nothing: it is not the source of the request.
    Nothing,
    /// At the source: the report of one of these stages, if one is due when the answer comes.
    Load([Option<Arc<StageMeter>>; 2]),
}

/// The parts of an answer that are trusted.
#[derive(Clone, Debug)]
enum Trust {
    /// Everything: relays forward answers unread, and the lead's hop ends at a source.
    All,
    /// At a source: sinks seal their answers. Relays cannot, so their failures only mean that the path is lost.
    Sealed(Arc<Seal>, Option<Arc<Sent>>),
}

#[derive(Clone, Debug)]
enum ReplyPath {
    /// The lead, in this process.
    Memory(mpsc::UnboundedSender<Reply>),
    /// An upstream gateway.
    Peer { peers: Peers, peer: Arc<str>, connection: ConnectionId, freezes: Arc<FreezeDetector>, since_ms: u64 },
}

impl ReplyTo {
    /// To the lead in this process.
    pub fn memory(lead: mpsc::UnboundedSender<Reply>) -> Self {
        Self { path: ReplyPath::Memory(lead), trust: Trust::All, note: Note::Nothing }
    }

    /// To `peer`, by `connection` if it is still open, otherwise by any other connection of the same peer. `freezes`
    /// tells whether the peer has abandoned the connection, which is new.
    pub fn peer(peers: Peers, peer: Arc<str>, connection: ConnectionId, freezes: Arc<FreezeDetector>) -> Self {
        let since_ms = freezes.clock().now_ms();
        let path = ReplyPath::Peer { peers, peer, connection, freezes, since_ms };
        Self { path, trust: Trust::All, note: Note::Nothing }
    }

    /// Returns whether the next gateway still waits for an answer, as far as is known here. It forgets the requests of a
    /// connection that ends.
    pub fn is_awaited(&self) -> bool {
        match &self.path {
            ReplyPath::Memory(lead) => !lead.is_closed(),
            ReplyPath::Peer { peers, peer, connection, freezes, since_ms } => {
                peers.has(peer, *connection) && !freezes.was_frozen_since(*since_ms)
            }
        }
    }

    /// The same path, for answers that arrive at a source over a hop. `sent` records the bytes that the sink keeps.
    pub fn from_downstream(self, seal: Arc<Seal>, sent: Option<Sent>) -> Self {
        Self { trust: Trust::Sealed(seal, sent.map(Arc::new)), ..self }
    }

    /// The same path, at the source of a request. Each answer gets a place for the report of one of the source's stages.
    pub fn from_source(self, reading: Arc<StageMeter>, sending: Option<Arc<StageMeter>>) -> Self {
        Self { note: Note::Load([Some(reading), sending]), ..self }
    }

    /// Sends an answer. If the recipient has ended, the answer is dropped.
    pub fn send(&self, request: RequestId, verdict: Verdict) {
        self.deliver(request, self.noted(self.believed(request, verdict)));
    }

    fn deliver(&self, request: RequestId, verdict: Verdict) {
        match &self.path {
            ReplyPath::Memory(lead) => drop(lead.send(Reply { request, verdict })),
            ReplyPath::Peer { peers, peer, connection, .. } => {
                peers.send(peer, *connection, Reply { request, verdict })
            }
        }
    }

    /// Answers that the request failed on the way.
    pub fn fail(&self, request: RequestId, fault: Fault, kind: &str, message: impl Into<String>) {
        self.send(request, verdict_of(Failure::new(fault, kind, message)));
    }

    /// As [`ReplyTo::fail`], from a lead or a source that knows for certain that no byte of the request has been sent.
    pub fn fail_unsent(&self, request: RequestId, failure: Failure) {
        let Failure { fault, kind, message, .. } = failure;
        self.deliver(request, Verdict::Failed { fault, kind, message: cut(message), unsent: true });
    }

    /// Sends a sink's answer, sealed if it goes over a hop.
    pub fn sink(&self, request: RequestId, answer: &SinkAnswer, seal: Option<&Seal>) {
        let verdict = postcard::to_stdvec(answer)
            .map_err(|error| error.to_string())
            .and_then(|words| match seal {
                Some(seal) => seal.seal_answer(request, &words),
                None => Ok(words),
            })
            .and_then(|words| match words.len() <= ANSWER_BYTES_MAX {
                true => Ok(Verdict::Sink(words.into())),
                false => Err(format!("it has {} bytes", words.len())),
            });
        match verdict {
            Ok(verdict) => self.send(request, verdict),
            Err(error) => {
                self.fail(request, Fault::Unavailable, "unavailable", format!("cannot write a reply: {error}"))
            }
        }
    }

    /// Makes the sink's answer the first field of an [`Answer`](super::load::Answer).
    fn noted(&self, verdict: Verdict) -> Verdict {
        match (&self.note, verdict) {
            (Note::Load(meters), Verdict::Sink(answer)) => {
                let load = meters.iter().flatten().find(|meter| meter.is_due()).map(|meter| meter.load());
                match postcard::to_extend(&load, Vec::from(answer)) {
                    Ok(words) => Verdict::Sink(words.into()),
                    Err(error) => verdict_of(Failure::new(Fault::Unavailable, "unavailable", error.to_string())),
                }
            }
            (_, verdict) => verdict,
        }
    }

    fn believed(&self, request: RequestId, verdict: Verdict) -> Verdict {
        match (&self.trust, verdict) {
            (Trust::Sealed(seal, sent), Verdict::Sink(words)) => match seal.open_answer(request, &words) {
                Ok((sealer, words)) => {
                    if let Some(sent) = sent
                        && let Some(window) = parse_exactly::<SinkAnswer>(&words).and_then(|answer| answer.window)
                    {
                        sent.answered(sealer, window);
                    }
                    Verdict::Sink(words.into())
                }
                Err(failure) => verdict_of(failure),
            },
            (Trust::Sealed(..), Verdict::Failed { fault, message, .. }) => {
                let fault = if fault == Fault::RouteDown { fault } else { Fault::Lost };
                verdict_of(Failure::new(fault, "unavailable", of_relay(&message)))
            }
            (Trust::All, verdict) => verdict,
        }
    }
}

/// A request that must be answered here. If it is dropped unanswered (its task has panicked or was dropped), it is
/// answered `Lost`.
#[derive(Debug)]
pub struct Owed {
    reply: ReplyTo,
    request: RequestId,
    open: bool,
}

impl Owed {
    /// Records that an answer to `request` is owed to `reply`.
    pub fn new(reply: ReplyTo, request: RequestId) -> Self {
        Self { reply, request, open: true }
    }

    /// The recipient of the answer. Call [`Owed::settled`] when the answer has been sent, or when another part owes it.
    pub fn reply(&self) -> &ReplyTo {
        &self.reply
    }

    /// Notes that it was answered, or that another part of this gateway has taken it over.
    pub fn settled(mut self) {
        self.open = false;
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.open {
            self.reply.fail(self.request, Fault::Lost, "unavailable", "the gateway dropped the request");
        }
    }
}

/// The verdict for a failure on the way or at its end.
pub fn verdict_of(failure: Failure) -> Verdict {
    let Failure { fault, kind, message, .. } = failure;
    Verdict::Failed { fault, kind, message: cut(message), unsent: false }
}

/// The start of a message that fits into a frame.
fn cut(mut message: String) -> String {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.truncate(end);
    message
}

/// The start of a relay's message, on one line.
fn of_relay(message: &str) -> String {
    message.chars().take(RELAY_MESSAGE_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Maximum number of answers that wait for a peer to read them: far more than a lead has requests in flight. At the
/// limit the connection ends.
pub(super) const ANSWERS_WAITING_MAX: usize = 1 << 17;

type Queues = HashMap<Arc<str>, Vec<(ConnectionId, AnswerQueue)>>;

/// Answers on their way to one upstream connection.
#[derive(Clone, Debug)]
pub struct AnswerQueue {
    out: mpsc::UnboundedSender<Upstream>,
    waiting: Arc<AtomicUsize>,
    /// Ends the connection.
    closed: CancellationToken,
}

/// The receiving end of an [`AnswerQueue`].
#[derive(Debug)]
pub struct Answers {
    incoming: mpsc::UnboundedReceiver<Upstream>,
    waiting: Arc<AtomicUsize>,
}

impl AnswerQueue {
    /// A queue for a connection that ends when `closed` is cancelled, which it does itself if the peer does not read.
    pub fn new(closed: CancellationToken) -> (Self, Answers) {
        let (out, incoming) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        (Self { out, waiting: waiting.clone(), closed }, Answers { incoming, waiting })
    }

    pub(super) fn send(&self, answer: Upstream) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= ANSWERS_WAITING_MAX {
            self.closed.cancel();
        }
        drop(self.out.send(answer));
    }
}

impl Answers {
    /// Returns the next answer; `None` when no more can come. Cancel-safe.
    pub async fn next(&mut self) -> Option<Upstream> {
        let next = self.incoming.recv().await;
        self.waiting.fetch_sub(usize::from(next.is_some()), Ordering::Relaxed);
        next
    }

    /// Returns the next answer if one is waiting.
    pub fn next_now(&mut self) -> Option<Upstream> {
        let next = self.incoming.try_recv().ok();
        self.waiting.fetch_sub(usize::from(next.is_some()), Ordering::Relaxed);
        next
    }
}

/// The upstream connections of this gateway, by peer.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    queues: Arc<Mutex<Queues>>,
}

/// An open upstream connection. When it is dropped, it gets no more answers.
#[derive(Debug)]
pub struct Connected {
    peers: Peers,
    peer: Arc<str>,
    connection: ConnectionId,
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(queues) = self.peers.lock().get_mut(&self.peer) {
            queues.retain(|(id, _)| *id != self.connection);
        }
    }
}

impl Peers {
    /// Registers an open connection of `peer` until the returned value is dropped.
    pub fn connected(&self, peer: Arc<str>, connection: ConnectionId, queue: AnswerQueue) -> Connected {
        self.lock().entry(peer.clone()).or_default().push((connection, queue));
        Connected { peers: self.clone(), peer, connection }
    }

    /// Sends a frame on every connection.
    pub fn broadcast(&self, frame: &Frame) {
        for (_, queue) in self.lock().values().flatten() {
            queue.send(Upstream::Frame(frame.clone()));
        }
    }

    /// Sends a frame to every peer, on one connection of each.
    pub fn tell_each(&self, frame: &Frame) {
        for (_, queue) in self.lock().values().filter_map(|queues| queues.first()) {
            queue.send(Upstream::Frame(frame.clone()));
        }
    }

    /// Number of open connections of `peer`.
    pub fn count_of(&self, peer: &str) -> usize {
        self.lock().get(peer).map_or(0, Vec::len)
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.lock().values().map(Vec::len).sum()
    }

    fn has(&self, peer: &str, connection: ConnectionId) -> bool {
        self.lock().get(peer).is_some_and(|queues| queues.iter().any(|(id, _)| *id == connection))
    }

    fn send(&self, peer: &str, connection: ConnectionId, reply: Reply) {
        let queues = self.lock();
        let Some(queues) = queues.get(peer) else { return };
        let same = queues.iter().find(|(id, _)| *id == connection);
        if let Some((_, queue)) = same.or_else(|| queues.first()) {
            queue.send(Upstream::Reply(reply));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The failure that a lead gets.
    fn message_of(send: impl FnOnce(ReplyTo)) -> String {
        let (lead, mut received) = mpsc::unbounded_channel();
        send(ReplyTo::memory(lead));
        match received.try_recv() {
            Ok(Reply { verdict: Verdict::Failed { message, .. }, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_source_takes_a_short_line_from_a_relay() {
        let seal = super::super::seal::of_tests();
        let hostile = format!("lost\nall objects are proven\u{1b}[2J{}", "é".repeat(1 << 20));
        let failure = Failure::new(Fault::Lost, "unavailable", hostile);
        let message = message_of(|lead| lead.from_downstream(seal, None).send(RequestId(1), verdict_of(failure)));
        assert!(message.starts_with("lost all objects are proven [2Jéé"), "{message}");
        assert_eq!(message.chars().count(), RELAY_MESSAGE_CHARS_MAX);
    }

    #[test]
    fn a_long_message_is_cut_so_that_it_fits_into_a_frame() {
        let failure = || Failure::new(Fault::Permanent, "forbidden", format!("a{}", "é".repeat(MESSAGE_BYTES_MAX)));
        let sent = [
            message_of(|lead| lead.send(RequestId(1), verdict_of(failure()))),
            message_of(|lead| lead.fail_unsent(RequestId(1), failure())),
        ];
        assert!(sent.iter().all(|message| message.len() == MESSAGE_BYTES_MAX - 1), "the last character has two bytes");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_awaited_until_its_connection_ends_or_this_process_is_frozen() {
        let stop = CancellationToken::new();
        let (peers, freezes) = (Peers::default(), FreezeDetector::start(Duration::from_secs(5), stop.clone()));
        let connected = |id| {
            let (queue, _answers) = AnswerQueue::new(stop.clone());
            peers.connected("upstream".into(), ConnectionId(id), queue)
        };
        let reply = |id| ReplyTo::peer(peers.clone(), "upstream".into(), ConnectionId(id), freezes.clone());
        let (lost, _other) = (connected(1), connected(2));
        let (to_lost, to_other) = (reply(1), reply(2));
        assert!(to_lost.is_awaited() && to_other.is_awaited());
        drop(lost);
        assert!(!to_lost.is_awaited() && to_other.is_awaited());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!to_other.is_awaited());
    }
}

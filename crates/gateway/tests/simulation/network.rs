//! Links in memory: delay, rate, a window, and every way in which a TCP connection can fail.
//!
//! A link is two pipes. Bytes arrive in order and once, as TCP promises. Everything else may happen: a pipe is cut at
//! any byte, one direction is blocked for a time (bytes wait, as they do in retransmission), or a host dies, with or
//! without a reset.

use crate::state::{HostId, Shared, State};
use async_trait::async_trait;
use bytes::{Buf, Bytes};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tradewind_gateway::net::{self, DataPort, Link};

type PipeId = u64;

/// Pause between two attempts to connect to a host that does not answer.
const SYN_PAUSE: Duration = Duration::from_millis(500);

/// Minimum bytes that arrive together; on a fast link, the bytes of this time.
const SEGMENT_BYTES_MIN: usize = 1460;
const SEGMENT_MS: usize = 20;

/// Delay, rate and window of all links of one scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkSpec {
    /// One-way delay.
    pub(crate) delay_ms_max: u64,
    /// Rate of one connection.
    pub(crate) bytes_per_ms: u64,
    /// Maximum bytes sent and not yet read.
    pub(crate) window_bytes: usize,
}

impl LinkSpec {
    /// Returns the rate of a connection with the longest delay, whose bytes are read within `read_ms` of their arrival.
    pub(crate) fn bytes_per_ms_min(&self, read_ms: u64) -> u64 {
        (self.window_bytes as u64 / (self.delay_ms_max + read_ms)).clamp(1, self.bytes_per_ms)
    }
}

/// All pipes and ports.
pub(crate) struct Network {
    spec: LinkSpec,
    pipes: BTreeMap<PipeId, Pipe>,
    next_pipe: PipeId,
    ports: BTreeMap<String, Port>,
    blocked: BTreeSet<(HostId, HostId)>,
    vanished: BTreeSet<HostId>,
    addresses: BTreeMap<String, HostId>,
}

struct Port {
    waiting: VecDeque<(PipeId, PipeId)>,
    waker: Option<Waker>,
}

struct Pipe {
    from: HostId,
    to: HostId,
    twin: PipeId,
    delay_ms: u64,
    sent_bytes: u64,
    in_flight: VecDeque<(u64, Bytes)>,
    arrived: VecDeque<Bytes>,
    buffered_bytes: usize,
    last_due_ms: u64,
    /// The writer ended the stream; its end arrives behind the last byte.
    ended: bool,
    /// Broken: both ends get an error.
    broken: bool,
    /// Bytes written are lost and nothing arrives: the other host vanished.
    swallowed: bool,
    cut_at: Option<u64>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    reader_gone: bool,
    writer_gone: bool,
}

impl Pipe {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn break_off(&mut self) {
        self.broken = true;
        self.in_flight.clear();
        self.arrived.clear();
        self.wake();
    }
}

impl Network {
    /// Creates a network without links.
    pub(crate) fn new(spec: LinkSpec) -> Self {
        Self {
            spec,
            pipes: BTreeMap::new(),
            next_pipe: 1,
            ports: BTreeMap::new(),
            blocked: BTreeSet::new(),
            vanished: BTreeSet::new(),
            addresses: BTreeMap::new(),
        }
    }

    /// Returns when the next bytes arrive, ignoring blocked directions.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let open = self.pipes.values().filter(|pipe| !self.blocked.contains(&(pipe.from, pipe.to)) && !pipe.swallowed);
        open.filter_map(|pipe| pipe.in_flight.front().map(|(due_ms, _)| *due_ms)).min()
    }

    /// Delivers the bytes that are due.
    pub(crate) fn deliver(&mut self, now_ms: u64) {
        for pipe in self.pipes.values_mut() {
            if self.blocked.contains(&(pipe.from, pipe.to)) || pipe.swallowed || pipe.broken {
                continue;
            }
            let mut any = false;
            while pipe.in_flight.front().is_some_and(|(due_ms, _)| *due_ms <= now_ms) {
                let Some((_, bytes)) = pipe.in_flight.pop_front() else { break };
                pipe.arrived.push_back(bytes);
                any = true;
            }
            if (any || (pipe.ended && pipe.in_flight.is_empty()))
                && let Some(waker) = pipe.reader.take()
            {
                waker.wake();
            }
        }
    }

    /// Blocks one direction between two hosts until [`Network::heal`].
    pub(crate) fn block(&mut self, from: HostId, to: HostId) {
        self.blocked.insert((from, to));
    }

    /// Lets bytes pass again.
    pub(crate) fn heal(&mut self, from: HostId, to: HostId) {
        self.blocked.remove(&(from, to));
    }

    /// Removes a host. With `silently` its machine vanishes; otherwise its kernel resets the connections.
    pub(crate) fn host_died(&mut self, host: HostId, silently: bool) {
        for pipe in self.pipes.values_mut().filter(|pipe| pipe.from == host || pipe.to == host) {
            if silently {
                pipe.swallowed = true;
            } else {
                pipe.break_off();
            }
        }
        if silently {
            self.vanished.insert(host);
        }
        let addresses = self.addresses.iter().filter(|(_, of)| **of == host).map(|(address, _)| address.clone());
        for address in addresses.collect::<Vec<_>>() {
            self.ports.remove(&address);
        }
    }

    /// A host starts (again) and listens.
    pub(crate) fn host_started(&mut self, host: HostId, address: &str) {
        self.vanished.remove(&host);
        // A machine that comes back resets connections that it no longer knows.
        for pipe in self.pipes.values_mut().filter(|pipe| (pipe.from == host || pipe.to == host) && pipe.swallowed) {
            pipe.swallowed = false;
            pipe.break_off();
        }
        self.addresses.insert(address.to_owned(), host);
        self.ports.insert(address.to_owned(), Port { waiting: VecDeque::new(), waker: None });
    }

    /// Pipes that carry bytes now.
    pub(crate) fn live_pipes(&self) -> Vec<PipeId> {
        self.pipes.iter().filter(|(_, pipe)| !pipe.broken && !pipe.swallowed).map(|(id, _)| *id).collect()
    }

    /// Breaks the link of a pipe when `bytes` more have been written to it.
    pub(crate) fn cut_after(&mut self, pipe: PipeId, bytes: u64) {
        if let Some(pipe) = self.pipes.get_mut(&pipe) {
            pipe.cut_at = Some(pipe.sent_bytes + bytes);
        }
    }

    fn open(&mut self, from: HostId, to: HostId, delay_ms: u64) -> (PipeId, PipeId) {
        let there = self.next_pipe;
        let back = there + 1;
        self.next_pipe += 2;
        let pipe = |from, to, twin| Pipe {
            from,
            to,
            twin,
            delay_ms,
            sent_bytes: 0,
            in_flight: VecDeque::new(),
            arrived: VecDeque::new(),
            buffered_bytes: 0,
            last_due_ms: 0,
            ended: false,
            broken: false,
            swallowed: false,
            cut_at: None,
            reader: None,
            writer: None,
            reader_gone: false,
            writer_gone: false,
        };
        self.pipes.insert(there, pipe(from, to, back));
        self.pipes.insert(back, pipe(to, from, there));
        (there, back)
    }

    fn break_link(&mut self, id: PipeId) {
        let twin = self.pipes.get(&id).map(|pipe| pipe.twin);
        for id in std::iter::once(id).chain(twin) {
            if let Some(pipe) = self.pipes.get_mut(&id) {
                pipe.break_off();
            }
        }
    }

    fn forget_unused(&mut self, id: PipeId) {
        if self.pipes.get(&id).is_some_and(|pipe| pipe.reader_gone && pipe.writer_gone) {
            self.pipes.remove(&id);
        }
    }
}

fn link(shared: &Shared, read: PipeId, write: PipeId, peer: String) -> Link {
    let reader = PipeReader { shared: shared.clone(), id: read };
    let writer = PipeWriter { shared: shared.clone(), id: write };
    Link::new(Box::new(reader), Box::new(writer), peer)
}

/// The network as one host sees it.
#[derive(Debug)]
pub(crate) struct HostNetwork {
    /// The world.
    pub(crate) shared: Shared,
    /// The connecting host.
    pub(crate) host: HostId,
}

enum Opened {
    Link(PipeId, PipeId),
    Refused,
    Unanswered,
}

impl HostNetwork {
    fn open(&self, address: &str) -> Opened {
        let mut state = self.shared.lock();
        state.activity += 1;
        let Some(to) = state.network.addresses.get(address).copied() else { return Opened::Refused };
        let network = &state.network;
        let cut_off = network.blocked.contains(&(self.host, to)) || network.blocked.contains(&(to, self.host));
        if cut_off || network.vanished.contains(&to) {
            return Opened::Unanswered;
        }
        if !network.ports.contains_key(address) {
            return Opened::Refused;
        }
        let delay_ms = delay_ms(&mut state);
        let (there, back) = state.network.open(self.host, to, delay_ms);
        if let Some(port) = state.network.ports.get_mut(address) {
            port.waiting.push_back((there, back));
            if let Some(waker) = port.waker.take() {
                waker.wake();
            }
        }
        state.trace(format!("link {there} from {} to {to}", self.host));
        Opened::Link(there, back)
    }
}

fn delay_ms(state: &mut State) -> u64 {
    let most = state.network.spec.delay_ms_max;
    state.rng.random_range(1..=most)
}

#[async_trait]
impl net::Network for HostNetwork {
    async fn connect(&self, address: &str) -> io::Result<Link> {
        let round_trip = 2 * delay_ms(&mut self.shared.lock());
        tokio::time::sleep(Duration::from_millis(round_trip)).await;
        loop {
            match self.open(address) {
                Opened::Link(there, back) => return Ok(link(&self.shared, back, there, address.to_owned())),
                Opened::Refused => return Err(io::ErrorKind::ConnectionRefused.into()),
                Opened::Unanswered => tokio::time::sleep(SYN_PAUSE).await,
            }
        }
    }
}

/// A data port; closed on drop.
pub(crate) struct HostPort {
    /// The world.
    pub(crate) shared: Shared,
    /// Where it listens.
    pub(crate) address: String,
}

#[async_trait]
impl DataPort for HostPort {
    async fn accept(&self) -> io::Result<Link> {
        let (there, back) = std::future::poll_fn(|cx| {
            let mut state = self.shared.lock();
            let Some(port) = state.network.ports.get_mut(&self.address) else { return Poll::Pending };
            match port.waiting.pop_front() {
                Some(pipes) => Poll::Ready(pipes),
                None => {
                    port.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        Ok(link(&self.shared, there, back, "10.0.0.254:7000".to_owned()))
    }
}

impl Drop for HostPort {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let waiting = state.network.ports.remove(&self.address).map(|port| port.waiting).unwrap_or_default();
        for (there, _) in waiting {
            state.network.break_link(there);
        }
    }
}

struct PipeReader {
    shared: Shared,
    id: PipeId,
}

impl AsyncRead for PipeReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        let Some(pipe) = state.network.pipes.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if pipe.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let Some(first) = pipe.arrived.front_mut() else {
            if pipe.ended && pipe.in_flight.is_empty() && !pipe.swallowed {
                return Poll::Ready(Ok(()));
            }
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let taken = first.len().min(buffer.remaining());
        buffer.put_slice(&first[..taken]);
        first.advance(taken);
        if first.is_empty() {
            pipe.arrived.pop_front();
        }
        pipe.buffered_bytes -= taken;
        if let Some(waker) = pipe.writer.take() {
            waker.wake();
        }
        state.activity += 1;
        Poll::Ready(Ok(()))
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(pipe) = state.network.pipes.get_mut(&self.id) {
            pipe.reader_gone = true;
            // A kernel resets a connection whose bytes nobody will read.
            if !pipe.ended && !pipe.swallowed {
                pipe.break_off();
            }
        }
        state.network.forget_unused(self.id);
    }
}

struct PipeWriter {
    shared: Shared,
    id: PipeId,
}

impl AsyncWrite for PipeWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.shared.lock();
        let (now_ms, spec) = (state.now_ms, state.network.spec);
        let Some(pipe) = state.network.pipes.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if pipe.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = spec.window_bytes.saturating_sub(pipe.buffered_bytes);
        // As TCP does: no tiny segments while the window is nearly full (RFC 9293 §3.8.6.2).
        if room < bytes.len().min(spec.window_bytes / 2) {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // What is sent arrives in segments, not all at once at the end.
        let segment_bytes = SEGMENT_BYTES_MIN.max(SEGMENT_MS * spec.bytes_per_ms as usize);
        let mut length = room.min(bytes.len()).min(segment_bytes);
        let cut = pipe.cut_at.is_some_and(|at| pipe.sent_bytes + length as u64 >= at);
        if let Some(at) = pipe.cut_at.filter(|_| cut) {
            length = (at - pipe.sent_bytes) as usize;
        }
        pipe.sent_bytes += length as u64;
        pipe.buffered_bytes += length;
        let sending_ms = (length as u64).div_ceil(spec.bytes_per_ms);
        pipe.last_due_ms = pipe.last_due_ms.max(now_ms + pipe.delay_ms) + sending_ms;
        pipe.in_flight.push_back((pipe.last_due_ms, Bytes::copy_from_slice(&bytes[..length])));
        let (due_ms, id) = (pipe.last_due_ms, self.id);
        state.activity += 1;
        state.trace(format!("pipe {id} takes {length}"));
        if cut {
            state.trace(format!("pipe {id} is cut"));
            state.after(due_ms + 1 - now_ms, Box::new(move |state| state.network.break_link(id)));
        }
        Poll::Ready(Ok(length.max(usize::from(!bytes.is_empty()))))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(pipe) = self.shared.lock().network.pipes.get_mut(&self.id) {
            pipe.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(pipe) = state.network.pipes.get_mut(&self.id) {
            pipe.writer_gone = true;
            pipe.ended = true;
        }
        state.activity += 1;
        state.network.forget_unused(self.id);
    }
}

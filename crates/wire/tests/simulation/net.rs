//! Simulated time and TCP: bytes arrive in order, cut anywhere, late, or not at all.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use tradewind_wire::frame::{Frame, HEADER_BYTES, Head, Header, Hello, HopEnd, Kind};
use tradewind_wire::intake::{Intake, Step};
use tradewind_wire::liveness::Liveness;
use tradewind_wire::{RouteId, WIRE_VERSION_MAJOR};

pub(crate) type NodeId = usize;
/// An end of a connection: its number, and which side it is.
pub(crate) type End = (usize, Side);

/// Silence after which a peer counts as dead.
pub(crate) const SILENCE_MS_MAX: u64 = 15_000;
/// `Data` frames of the simulation; small, so that bodies have many.
const DATA_BYTES: usize = 700;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Side {
    Upper,
    Lower,
}

impl Side {
    fn other(self) -> Self {
        if self == Side::Upper { Side::Lower } else { Side::Upper }
    }
}

#[derive(Debug)]
pub(crate) enum Event {
    Bytes {
        to: End,
        bytes: Vec<u8>,
    },
    Closed {
        to: End,
    },
    /// About once a second: dial, ping, check for silence.
    Tick {
        node: NodeId,
        epoch: u64,
    },
    /// A node's own work (a store's answer, the lead's next poll) is due.
    Due {
        node: NodeId,
        epoch: u64,
        ticket: u64,
    },
    Thaw {
        node: NodeId,
    },
    Start {
        node: NodeId,
    },
    Chaos,
}

/// Result of reading arrived bytes.
pub(crate) enum Arrival {
    Greeted,
    Begin(Head),
    Piece { bytes: Vec<u8>, ends: bool },
    GiveUp,
    Frame(Frame),
}

struct EndState {
    node: NodeId,
    epoch: u64,
    open: bool,
    greeted: bool,
    inbox: Vec<u8>,
    intake: Intake,
    live: Liveness,
    /// Arrival time of the last bytes in transit to this end; later bytes never overtake them.
    arrives_ms: u64,
}

struct Connection {
    upper: EndState,
    lower: EndState,
    cut: bool,
}

/// State of a process: whether it runs, and which of its lives it is in.
#[derive(Clone, Copy, Default)]
pub(crate) struct Life {
    pub(crate) alive: bool,
    pub(crate) epoch: u64,
    pub(crate) frozen: bool,
}

pub(crate) struct Net {
    pub(crate) now_ms: u64,
    pub(crate) rng: StdRng,
    pub(crate) lives: Vec<Life>,
    delay_ms_max: u64,
    flip_chance: f64,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    connections: Vec<Connection>,
}

impl Net {
    pub(crate) fn new(seed: u64, nodes: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let delay_ms_max = [2, 30, 300][rng.random_range(0..3)];
        let flip_chance = [0.0, 0.0, 0.01][rng.random_range(0..3)];
        Self {
            now_ms: 0,
            rng,
            lives: vec![Life::default(); nodes],
            delay_ms_max,
            flip_chance,
            queue: BTreeMap::new(),
            sequence: 0,
            connections: Vec::new(),
        }
    }

    pub(crate) fn never_flip(&mut self) {
        self.flip_chance = 0.0;
    }

    pub(crate) fn at(&mut self, at_ms: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((at_ms.max(self.now_ms), self.sequence), event);
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let ((at_ms, _), event) = self.queue.pop_first()?;
        self.now_ms = at_ms;
        Some(event)
    }

    pub(crate) fn due(&mut self, node: NodeId, at_ms: u64, ticket: u64) {
        let epoch = self.lives[node].epoch;
        self.at(at_ms, Event::Due { node, epoch, ticket });
    }

    pub(crate) fn chance(&mut self, chance: f64) -> bool {
        self.rng.random_bool(chance)
    }

    /// Returns the node that an event belongs to; `None` if its process or connection is gone.
    pub(crate) fn owner(&self, event: &Event) -> Option<NodeId> {
        let (node, epoch) = match event {
            Event::Bytes { to, .. } | Event::Closed { to } => {
                let end = self.end(*to);
                (end.node, end.epoch)
            }
            Event::Tick { node, epoch } | Event::Due { node, epoch, .. } => (*node, *epoch),
            Event::Thaw { .. } | Event::Start { .. } | Event::Chaos => return None,
        };
        (self.lives[node].alive && self.lives[node].epoch == epoch).then_some(node)
    }

    pub(crate) fn dial(&mut self, upper: NodeId, lower: NodeId) {
        let end = |node: NodeId| EndState {
            node,
            epoch: self.lives[node].epoch,
            open: true,
            greeted: false,
            inbox: Vec::new(),
            intake: Intake::new(),
            live: Liveness::new(self.now_ms, SILENCE_MS_MAX),
            arrives_ms: 0,
        };
        let connection = self.connections.len();
        self.connections.push(Connection { upper: end(upper), lower: end(lower), cut: false });
        for side in [Side::Upper, Side::Lower] {
            let node = format!("node-{}", self.end((connection, side)).node);
            let end = if side == Side::Upper { HopEnd::Upstream } else { HopEnd::Downstream };
            let hello = Hello { version: WIRE_VERSION_MAJOR, job: "simulated".into(), node, end };
            self.write((connection, side), &Frame::Hello(hello));
        }
    }

    /// Returns connections of `upper` to `lower` that are open on its side; if `usable`, only those whose peer has sent
    /// its Hello.
    pub(crate) fn open(&self, upper: NodeId, lower: NodeId, usable: bool) -> Vec<usize> {
        let epoch = self.lives[upper].epoch;
        let fits = |connection: &Connection| {
            let (up, low) = (&connection.upper, &connection.lower);
            up.open && up.node == upper && up.epoch == epoch && low.node == lower && (up.greeted || !usable)
        };
        (0..self.connections.len()).filter(|at| fits(&self.connections[*at])).collect()
    }

    pub(crate) fn is_open(&self, end: End) -> bool {
        self.end(end).open
    }

    pub(crate) fn write(&mut self, from: End, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.transmit(from, bytes);
    }

    pub(crate) fn write_data(&mut self, from: End, body: &[u8]) {
        for piece in body.chunks(DATA_BYTES) {
            let header = Header { kind: Kind::Data, route: RouteId(0), length: piece.len() };
            let mut bytes: Vec<u8> = header.encode().into_iter().chain(piece.iter().copied()).collect();
            if self.chance(self.flip_chance) {
                let at = self.rng.random_range(HEADER_BYTES..bytes.len());
                bytes[at] ^= 1 << self.rng.random_range(0..8);
            }
            self.transmit(from, bytes);
        }
    }

    fn transmit(&mut self, from: End, bytes: Vec<u8>) {
        let now_ms = self.now_ms;
        let end = self.end_mut(from);
        if !end.open {
            return;
        }
        end.live.sent(now_ms);
        let split_at = if self.chance(0.3) { self.rng.random_range(0..bytes.len()) } else { 0 };
        let (first, second) = bytes.split_at(split_at);
        for bytes in [first, second] {
            if !bytes.is_empty() {
                let to = (from.0, from.1.other());
                let at_ms = self.arrival_ms(to);
                self.at(at_ms, Event::Bytes { to, bytes: bytes.to_vec() });
            }
        }
    }

    fn arrival_ms(&mut self, to: End) -> u64 {
        let delay_ms = self.rng.random_range(1..=self.delay_ms_max);
        let now_ms = self.now_ms;
        let end = self.end_mut(to);
        end.arrives_ms = end.arrives_ms.max(now_ms + delay_ms);
        end.arrives_ms
    }

    /// Reads arrived bytes; `None` if they came too late, which ends the connection. Bits flip only in bodies, so every
    /// frame must parse and come at a valid point.
    pub(crate) fn arrived(&mut self, to: End, bytes: &[u8]) -> Option<Vec<Arrival>> {
        let now_ms = self.now_ms;
        let cut = self.connections[to.0].cut;
        let end = self.end_mut(to);
        if cut || !end.open {
            return Some(Vec::new());
        }
        if !end.live.heard(now_ms) {
            return None;
        }
        end.inbox.extend_from_slice(bytes);
        let mut arrivals = Vec::new();
        while let Some(arrival) = self.parse_one(to).unwrap_or_else(|why| panic!("{why}")) {
            match arrival {
                Arrival::Frame(Frame::Ping(token)) => self.write(to, &Frame::Pong(token)),
                Arrival::Frame(Frame::Pong(_)) => {}
                other => arrivals.push(other),
            }
        }
        Some(arrivals)
    }

    fn parse_one(&mut self, at: End) -> Result<Option<Arrival>, tradewind_wire::frame::FrameError> {
        let end = self.end_mut(at);
        let Some(header) = end.inbox.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::parse(header)?;
        if end.inbox.len() < HEADER_BYTES + header.length {
            return Ok(None);
        }
        let bytes = end.inbox[HEADER_BYTES..HEADER_BYTES + header.length].to_vec();
        end.inbox.drain(..HEADER_BYTES + header.length);
        if header.kind == Kind::Data {
            let ends = end.intake.data(&header)?;
            return Ok(Some(Arrival::Piece { bytes, ends }));
        }
        Ok(Some(match end.intake.frame(Frame::parse(&header, bytes.into())?)? {
            Step::Begin(head) => Arrival::Begin(head),
            Step::GiveUp => Arrival::GiveUp,
            Step::Other(Frame::Hello(_)) => {
                end.greeted = true;
                Arrival::Greeted
            }
            Step::Other(frame) => Arrival::Frame(frame),
        }))
    }

    /// Closes this side of the connection; the other side notices it after the bytes in transit.
    pub(crate) fn close(&mut self, end: End) {
        self.end_mut(end).open = false;
        let to = (end.0, end.1.other());
        let at_ms = self.arrival_ms(to);
        self.at(at_ms, Event::Closed { to });
    }

    /// Breaks the connection: the bytes in transit are lost. If `silently`, neither side notices.
    pub(crate) fn cut(&mut self, connection: usize, silently: bool) {
        self.connections[connection].cut = true;
        for side in [Side::Upper, Side::Lower] {
            if !silently {
                let at_ms = self.now_ms + self.rng.random_range(0..=self.delay_ms_max);
                self.at(at_ms, Event::Closed { to: (connection, side) });
            }
        }
    }

    /// Records that the peer is gone. Returns whether this side still held the connection open.
    pub(crate) fn closed(&mut self, end: End) -> bool {
        std::mem::replace(&mut self.end_mut(end).open, false)
    }

    /// Returns all open ends of a node's present life.
    pub(crate) fn ends_of(&self, node: NodeId) -> Vec<End> {
        let epoch = self.lives[node].epoch;
        let all = (0..self.connections.len()).flat_map(|at| [(at, Side::Upper), (at, Side::Lower)]);
        all.filter(|end| {
            let state = self.end(*end);
            state.open && state.node == node && state.epoch == epoch
        })
        .collect()
    }

    /// Returns the connections that some side holds open.
    pub(crate) fn open_connections(&self) -> Vec<usize> {
        let open = |connection: &Connection| !connection.cut && (connection.upper.open || connection.lower.open);
        (0..self.connections.len()).filter(|at| open(&self.connections[*at])).collect()
    }

    /// Pings where due; returns the ends whose peer has been silent for too long.
    pub(crate) fn look_for_silence(&mut self, node: NodeId) -> Vec<End> {
        let (mut dead, now_ms) = (Vec::new(), self.now_ms);
        for end in self.ends_of(node) {
            let live = self.end(end).live;
            if live.is_dead(now_ms) {
                dead.push(end);
            } else if live.ping_due(now_ms) {
                self.write(end, &Frame::Ping(now_ms));
            }
        }
        dead
    }

    fn end(&self, (connection, side): End) -> &EndState {
        let connection = &self.connections[connection];
        if side == Side::Upper { &connection.upper } else { &connection.lower }
    }

    fn end_mut(&mut self, (connection, side): End) -> &mut EndState {
        let connection = &mut self.connections[connection];
        if side == Side::Upper { &mut connection.upper } else { &mut connection.lower }
    }
}

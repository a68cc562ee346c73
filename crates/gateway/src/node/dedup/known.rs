//! A source's record of the windows of its sinks.

use super::PieceHash;
use super::cutting::Piece;
use super::window::WindowState;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tradewind_wire::RouteId;
use tradewind_wire::frame::SEALER_ID_BYTES;

/// A window counts as this fraction smaller than it is: bodies of other sources, and those that overtake, fill it too.
const MARGIN_DIVISOR: u64 = 8;
/// Most pieces of one sink that a source remembers, whatever the sink says of its window: those of 64 GiB at the average
/// length, in some 130 MiB.
pub(super) const PIECES_MAX: usize = 1 << 20;

/// The sealer id of a sink process, which its answers name and authenticate. A sink that was started again has another.
type SinkId = [u8; SEALER_ID_BYTES];

/// Where a sink keeps a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Count in the seal of the body.
    pub body: u64,
    /// Offset in its new bytes.
    pub at: u32,
    /// Position of the body in the stream of the sink's window.
    start_bytes: u64,
}

/// The pieces that each sink has confirmed. Memory: one entry for each piece of at least
/// [`REFERENCED_BYTES_MIN`](super::REFERENCED_BYTES_MIN) in a window, [`PIECES_MAX`] for each sink.
#[derive(Debug, Default)]
pub struct Known {
    state: Mutex<State>,
    referenced_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The sink that answered last on each route.
    by_route: HashMap<RouteId, SinkId>,
    by_sink: HashMap<SinkId, Pieces>,
}

#[derive(Debug)]
struct Pieces {
    places: HashMap<PieceHash, Place>,
    /// Hashes in the order of the window, with the position of their bodies.
    order: VecDeque<(u64, PieceHash)>,
    window: WindowState,
    /// New bytes sent to the sink and not answered: they may push others out of the window.
    pending_bytes: u64,
}

impl Known {
    /// Returns the places of the pieces, as far as the sink of `route` keeps them.
    pub fn places(&self, route: RouteId, pieces: &[Piece]) -> Vec<Option<Place>> {
        let state = self.state();
        let Some(known) = state.by_route.get(&route).and_then(|sink| state.by_sink.get(sink)) else {
            return vec![None; pieces.len()];
        };
        let more_bytes = known.pending_bytes + known.window.bytes_max / MARGIN_DIVISOR;
        let place = |hash| known.places.get(&hash).filter(|place| known.window.keeps(place.start_bytes, more_bytes));
        pieces.iter().map(|piece| piece.hash.and_then(place).copied()).collect()
    }

    /// Notes a body that is sent on `route`, until its answer comes or the result is dropped. `body` is the count in its
    /// seal.
    pub fn sending(self: &Arc<Self>, route: RouteId, body: u64, contents: Contents) -> Sent {
        let Contents { new_pieces, new_bytes, referenced_bytes } = contents;
        self.referenced_bytes.fetch_add(referenced_bytes, Ordering::Relaxed);
        let mut state = self.state();
        let sink = state.by_route.get(&route).copied();
        if let Some(pieces) = sink.and_then(|sink| state.by_sink.get_mut(&sink)) {
            pieces.pending_bytes += new_bytes;
        }
        Sent { known: self.clone(), route, sink, body, new_bytes, new_pieces }
    }

    /// Forgets the sinks of all routes but these.
    pub fn retain_routes(&self, is_used: impl Fn(RouteId) -> bool) {
        let mut state = self.state();
        state.by_route.retain(|route, _| is_used(*route));
        state.forget_unused_sinks();
    }

    /// Returns how many pieces are remembered.
    #[cfg(test)]
    pub(super) fn pieces(&self) -> usize {
        self.state().by_sink.values().map(|pieces| pieces.order.len()).sum()
    }

    /// Returns the bytes for which references were sent.
    pub fn referenced_bytes(&self) -> u64 {
        self.referenced_bytes.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_unused_sinks(&mut self) {
        let by_route = &self.by_route;
        self.by_sink.retain(|sink, _| by_route.values().any(|used| used == sink));
    }
}

/// The contents of a body with a recipe.
#[derive(Debug, Default)]
pub struct Contents {
    /// The pieces among its new bytes; `at` is the offset in these.
    pub new_pieces: Vec<Piece>,
    /// Its new bytes.
    pub new_bytes: u64,
    /// Bytes that its references stand for.
    pub referenced_bytes: u64,
}

/// A body in flight, with the pieces among its new bytes.
#[derive(Debug)]
pub struct Sent {
    known: Arc<Known>,
    route: RouteId,
    sink: Option<SinkId>,
    body: u64,
    new_bytes: u64,
    new_pieces: Vec<Piece>,
}

impl Sent {
    /// Notes the answer of the sink process `sink`. From now on its pieces can be referred to, if they are kept.
    pub fn answered(&self, sink: SinkId, window: WindowState) {
        let mut state = self.known.state();
        if state.by_route.insert(self.route, sink) != Some(sink) {
            state.forget_unused_sinks();
        }
        let pieces = state.by_sink.entry(sink).or_insert_with(|| Pieces::new(window));
        pieces.advance(window);
        if let Some(start_bytes) = window.start_bytes {
            pieces.add(start_bytes, self.body, &self.new_pieces);
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let mut state = self.known.state();
        if let Some(pieces) = self.sink.and_then(|sink| state.by_sink.get_mut(&sink)) {
            pieces.pending_bytes = pieces.pending_bytes.saturating_sub(self.new_bytes);
        }
    }
}

impl Pieces {
    fn new(window: WindowState) -> Self {
        Self { places: HashMap::new(), order: VecDeque::new(), window, pending_bytes: 0 }
    }

    /// Takes a newer state of the window, and forgets what has left it. Answers may overtake each other.
    fn advance(&mut self, window: WindowState) {
        self.window.total_bytes = self.window.total_bytes.max(window.total_bytes);
        while let Some((start_bytes, _)) = self.order.front()
            && !self.window.keeps(*start_bytes, 0)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((start_bytes, hash)) = self.order.pop_front() else { return };
        if self.places.get(&hash).is_some_and(|place| place.start_bytes == start_bytes) {
            self.places.remove(&hash);
        }
    }

    fn add(&mut self, start_bytes: u64, body: u64, pieces: &[Piece]) {
        for piece in pieces {
            let Some(hash) = piece.hash else { continue };
            let newer = self.places.get(&hash).is_none_or(|place| place.start_bytes < start_bytes);
            if newer {
                self.places.insert(hash, Place { body, at: piece.at, start_bytes });
                self.order.push_back((start_bytes, hash));
            }
            if self.order.len() > PIECES_MAX {
                self.forget_oldest();
            }
        }
    }
}

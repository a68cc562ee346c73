//! The last new bytes that a sink has received, in memory only.

use super::REFERENCED_BYTES_MIN;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tradewind_wire::frame::SealId;

/// The new bytes of the last bodies, up to a number of bytes. The oldest body is dropped first. All kept bytes form one
/// stream, in the order of their arrival; a position in it tells whether they are still kept.
#[derive(Debug)]
pub struct Window {
    bytes_max: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bodies: HashMap<SealId, Bytes>,
    /// Start of each body in the stream, oldest first.
    order: VecDeque<(u64, SealId)>,
    /// Length of the stream.
    total_bytes: u64,
    /// Bodies that referred to bytes which were gone.
    refused: u64,
}

/// The state of a sink's window, which the sink sends to a source in the answer to a body with a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowState {
    /// Position in the stream at which the new bytes of this body begin; `None` if they are not kept.
    pub start_bytes: Option<u64>,
    /// Length of the stream so far.
    pub total_bytes: u64,
    /// How many of its last bytes are kept.
    pub bytes_max: u64,
}

impl WindowState {
    /// Returns whether a body that begins at `start_bytes` is kept until `more_bytes` have come.
    pub(super) fn keeps(&self, start_bytes: u64, more_bytes: u64) -> bool {
        self.total_bytes.saturating_add(more_bytes) <= start_bytes.saturating_add(self.bytes_max)
    }
}

impl Window {
    /// An empty window for this many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// Returns the new bytes of a body, if they are kept.
    pub fn find(&self, id: SealId) -> Option<Bytes> {
        self.kept().bodies.get(&id).cloned()
    }

    /// Keeps the new bytes of a body. Returns where they begin in the stream; `None` if they are too few to be referred to,
    /// or more than the window may hold, or if this body is kept already.
    pub fn keep(&self, id: SealId, new: Bytes) -> Option<u64> {
        let (mut kept, bytes) = (self.kept(), new.len() as u64);
        if new.len() < REFERENCED_BYTES_MIN || bytes > self.bytes_max || kept.bodies.contains_key(&id) {
            return None;
        }
        let start = kept.total_bytes;
        kept.total_bytes += bytes;
        kept.bodies.insert(id, new);
        kept.order.push_back((start, id));
        while let Some((start, oldest)) = kept.order.front().copied()
            && kept.total_bytes - start > self.bytes_max
        {
            kept.order.pop_front();
            kept.bodies.remove(&oldest);
        }
        Some(start)
    }

    /// Counts a body that referred to bytes which were gone.
    pub fn count_refused(&self) {
        self.kept().refused += 1;
    }

    /// Returns the state for the answer to a body whose new bytes begin at `start_bytes`.
    pub fn state(&self, start_bytes: Option<u64>) -> WindowState {
        WindowState { start_bytes, total_bytes: self.kept().total_bytes, bytes_max: self.bytes_max }
    }

    /// Returns the bytes kept now, and the number of bodies that were refused because bytes were gone; `None` if no body
    /// with a recipe has come.
    pub fn usage(&self) -> Option<(u64, u64)> {
        let kept = self.kept();
        let bytes = kept.order.front().map_or(0, |(start, _)| kept.total_bytes - start);
        (kept.total_bytes > 0 || kept.refused > 0).then_some((bytes, kept.refused))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(count: u64) -> SealId {
        SealId { sealer: [1; 16], count }
    }

    #[test]
    fn the_oldest_bodies_are_dropped_and_the_state_says_which() {
        let (window, bytes) = (Window::new(20_000), 6_000);
        for count in 0..20 {
            let start = window.keep(id(count), Bytes::from(vec![count as u8; bytes as usize])).unwrap();
            assert_eq!(start, bytes * count);
            assert!(window.usage().unwrap().0 <= 20_000);
            let state = window.state(Some(start));
            for earlier in 0..=count {
                assert_eq!(window.find(id(earlier)).is_some(), state.keeps(bytes * earlier, 0), "{earlier} of {count}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_or_is_kept_already_is_not_kept() {
        let window = Window::new(5_000);
        assert_eq!(window.keep(id(0), Bytes::from(vec![0; 5_001])), None);
        assert_eq!(window.keep(id(1), Bytes::new()), None);
        assert_eq!(window.keep(id(1), Bytes::from(vec![0; REFERENCED_BYTES_MIN - 1])), None, "nothing can refer to it");
        assert_eq!(window.keep(id(2), Bytes::from(vec![0; 5_000])), Some(0));
        assert_eq!(window.keep(id(2), Bytes::from(vec![1; 5_000])), None);
        assert_eq!(window.find(id(2)), Some(Bytes::from(vec![0; 5_000])));
    }
}

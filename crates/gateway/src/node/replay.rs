//! Remembers the requests that a sink has accepted. Each attempt of the lead has its own id, so none is accepted twice.
//!
//! The memory is one bit per id, in blocks, separately for each route: a relay can only bring requests of its own
//! routes, so it cannot use up the ids of others. When a route has [`BLOCKS_MAX`] blocks, the lowest is dropped, and
//! all ids in it or below it count as accepted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use tradewind_wire::{RequestId, RouteId};

/// Number of ids in one block.
const BLOCK_IDS: u64 = 4096;
/// Maximum number of blocks kept for each route: 17 million requests in 2 MiB.
const BLOCKS_MAX: usize = 4_096;

type Block = [u64; (BLOCK_IDS / 64) as usize];

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Taken(Mutex<HashMap<RouteId, Blocks>>);

#[derive(Debug, Default)]
struct Blocks {
    blocks: BTreeMap<u64, Box<Block>>,
    /// The lowest block that has not been dropped.
    floor: u64,
}

impl Taken {
    /// Records the request. Returns false if it was accepted before, or is too old to know.
    pub fn is_first(&self, route: RouteId, request: RequestId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(route).or_default().is_first(request)
    }
}

impl Blocks {
    fn is_first(&mut self, request: RequestId) -> bool {
        let (block, id) = (request.0 / BLOCK_IDS, request.0 % BLOCK_IDS);
        if block < self.floor {
            return false;
        }
        let bits = self.blocks.entry(block).or_insert_with(|| Box::new([0; (BLOCK_IDS / 64) as usize]));
        let (word, bit) = ((id / 64) as usize, 1 << (id % 64));
        let is_first = bits[word] & bit == 0;
        bits[word] |= bit;
        if self.blocks.len() > BLOCKS_MAX
            && let Some((lowest, _)) = self.blocks.pop_first()
        {
            self.floor = lowest + 1;
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: RouteId = RouteId(3);

    #[test]
    fn a_request_is_taken_once_in_any_order_and_never_after_it_was_forgotten() {
        let taken = Taken::default();
        for id in [5, 4096, 0, 1 << 40, 4095, 63, 64] {
            assert!(taken.is_first(ROUTE, RequestId(id)), "{id}");
            assert!(!taken.is_first(ROUTE, RequestId(id)), "{id} twice");
        }
        let last = BLOCKS_MAX as u64 + 8;
        for block in 0..last {
            taken.is_first(ROUTE, RequestId(block * BLOCK_IDS + 7));
        }
        assert!(!taken.is_first(ROUTE, RequestId(1)), "forgotten");
        assert!(taken.is_first(ROUTE, RequestId(last * BLOCK_IDS)));
        assert!(taken.0.lock().unwrap()[&ROUTE].blocks.len() <= BLOCKS_MAX);
    }

    #[test]
    fn who_brings_one_route_takes_no_request_of_another() {
        let taken = Taken::default();
        for block in 0..2 * BLOCKS_MAX as u64 {
            taken.is_first(ROUTE, RequestId(u64::MAX - block * BLOCK_IDS));
            taken.is_first(ROUTE, RequestId(block));
        }
        assert!(taken.is_first(RouteId(4), RequestId(7)));
    }
}

//! Which requests a sink has taken. Each try of the lead has an id of its own, so none is taken twice.
//!
//! One bit per id, in blocks; at [`BLOCKS_MAX`] blocks the lowest is forgotten, and what would lie in it or below it
//! counts as taken.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tradewind_wire::RequestId;

/// Ids of one block.
const BLOCK_IDS: u64 = 4096;
/// Blocks that are kept: 134 million requests in 16 MiB.
const BLOCKS_MAX: usize = 32_768;

type Block = [u64; (BLOCK_IDS / 64) as usize];

/// See the module's head.
#[derive(Debug, Default)]
pub struct Taken(Mutex<Blocks>);

#[derive(Debug, Default)]
struct Blocks {
    blocks: BTreeMap<u64, Box<Block>>,
    /// The first block that is not forgotten.
    floor: u64,
}

impl Taken {
    /// Notes the request. Returns false if it was taken before, or is too old to know.
    pub fn is_first(&self, request: RequestId) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (block, id) = (request.0 / BLOCK_IDS, request.0 % BLOCK_IDS);
        if block < state.floor {
            return false;
        }
        let bits = state.blocks.entry(block).or_insert_with(|| Box::new([0; (BLOCK_IDS / 64) as usize]));
        let (word, bit) = ((id / 64) as usize, 1 << (id % 64));
        let is_first = bits[word] & bit == 0;
        bits[word] |= bit;
        if state.blocks.len() > BLOCKS_MAX
            && let Some((lowest, _)) = state.blocks.pop_first()
        {
            state.floor = lowest + 1;
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_once_in_any_order_and_never_after_it_was_forgotten() {
        let taken = Taken::default();
        for id in [5, 4096, 0, 1 << 40, 4095, 63, 64] {
            assert!(taken.is_first(RequestId(id)), "{id}");
            assert!(!taken.is_first(RequestId(id)), "{id} twice");
        }
        let last = BLOCKS_MAX as u64 + 8;
        for block in 0..last {
            taken.is_first(RequestId(block * BLOCK_IDS + 7));
        }
        assert!(!taken.is_first(RequestId(1)), "forgotten");
        assert!(taken.is_first(RequestId(last * BLOCK_IDS)));
        assert!(taken.0.lock().unwrap().blocks.len() <= BLOCKS_MAX);
    }
}

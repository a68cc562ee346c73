//! Buffers of relays, and the count of the bytes that the flows of this process hold while a reader blocks them.

use crate::limits::{HELD_BYTES_MAX, RELAY_BUFFER_BYTES, RELAY_BUFFERS_PER_THREAD_MAX, SCARCE_READ_BYTES};
use crate::records::RECORD_BYTES_MAX;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So that a flow with small reads does not hold a large buffer.
const SIZES: [usize; 3] = [SCARCE_READ_BYTES, RECORD_BYTES_MAX, RELAY_BUFFER_BYTES];

thread_local! {
    static FREE: RefCell<[Vec<Box<[u8]>>; SIZES.len()]> = const { RefCell::new([const { Vec::new() }; SIZES.len()]) };
}

static HELD: AtomicUsize = AtomicUsize::new(0);

/// A buffer for a read of so many bytes.
pub(crate) fn take_buffer(bytes: usize) -> Box<[u8]> {
    let size = SIZES.partition_point(|size| *size < bytes).min(SIZES.len() - 1);
    let free = FREE.with_borrow_mut(|free| free[size].pop());
    free.unwrap_or_else(|| vec![0; SIZES[size]].into_boxed_slice())
}

pub(crate) fn give_back(buffer: Box<[u8]>) {
    let Some(size) = SIZES.iter().position(|size| *size == buffer.len()) else { return };
    FREE.with_borrow_mut(|free| {
        if free[size].len() < RELAY_BUFFERS_PER_THREAD_MAX {
            free[size].push(buffer);
        }
    });
}

/// Bytes that the flows of this process hold now because their readers are slower than their senders.
pub fn held_bytes() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// True if flows hold so many bytes that each must do with small reads.
pub(crate) fn is_scarce() -> bool {
    held_bytes() > HELD_BYTES_MAX
}

/// The part of one direction of a flow.
#[derive(Debug, Default)]
pub(crate) struct Held(usize);

impl Held {
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes > self.0 {
            HELD.fetch_add(bytes - self.0, Ordering::Relaxed);
        } else if bytes < self.0 {
            HELD.fetch_sub(self.0 - bytes, Ordering::Relaxed);
        }
        self.0 = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_gets_the_smallest_buffer_that_is_large_enough() {
        for (bytes, size) in [
            (1, SCARCE_READ_BYTES),
            (SCARCE_READ_BYTES, SCARCE_READ_BYTES),
            (SCARCE_READ_BYTES + 1, RECORD_BYTES_MAX),
            (RECORD_BYTES_MAX + 1, RELAY_BUFFER_BYTES),
            (RELAY_BUFFER_BYTES, RELAY_BUFFER_BYTES),
        ] {
            for _ in 0..2 {
                let buffer = take_buffer(bytes);
                assert_eq!(buffer.len(), size, "{bytes}");
                give_back(buffer);
            }
        }
    }
}

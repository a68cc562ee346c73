//! Bytes that were read and wait to be written.

use crate::buffers::give_back;
use std::io;
use std::ops::Range;

/// The result of a read.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) data: Option<Pending>,
    /// Why nothing follows, if that is known already: an orderly end, or the error.
    pub(crate) end: Option<io::Result<()>>,
}

/// Parts of one buffer, in their order. The buffer goes back to its thread when this is dropped.
#[derive(Debug)]
pub(crate) struct Pending {
    buffer: Box<[u8]>,
    parts: Vec<Range<usize>>,
    /// The part that is written next.
    next: usize,
}

impl Pending {
    /// The `parts` of a buffer that are not empty.
    pub(crate) fn new(buffer: Box<[u8]>, parts: Vec<Range<usize>>) -> Self {
        Self { buffer, parts, next: 0 }
    }

    /// All `bytes`; `None` if there are none.
    pub(crate) fn all(bytes: Vec<u8>) -> Option<Self> {
        let end = bytes.len();
        Self::start_of(bytes.into_boxed_slice(), end)
    }

    /// The first bytes of a buffer; `None` if there are none.
    pub(crate) fn start_of(buffer: Box<[u8]>, end: usize) -> Option<Self> {
        let pending = Self::new(buffer, std::iter::once(0..end).collect());
        (end > 0).then_some(pending)
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.parts[self.next..].iter().map(Range::len).sum()
    }

    /// True if no byte waits any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.parts.len()
    }

    /// The bytes that wait, in their order.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts[self.next..].iter().map(|part| &self.buffer[part.clone()])
    }

    /// Forgets the first `bytes`, which are written.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        while let Some(part) = self.parts.get_mut(self.next) {
            let done = bytes.min(part.len());
            part.start += done;
            bytes -= done;
            if part.start < part.end {
                return;
            }
            self.next += 1;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.buffer));
    }
}

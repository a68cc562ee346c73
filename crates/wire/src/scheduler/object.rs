//! The scheduler's view of an object, and how it is cut into parts.

/// A new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewObject {
    /// Length in bytes.
    pub bytes: u64,
    /// How the object is written.
    pub layout: Layout,
    /// True if it may restart when its source changed during the transfer.
    pub may_restart: bool,
    /// False for server-side copies, whose bytes use no route's window and cost nothing.
    pub travels: bool,
}

/// How an object is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In one write.
    Whole,
    /// In parts of equal size, except the last.
    Parts {
        /// Size of a part, not zero.
        part_bytes: u64,
        /// True if the upload is already open (resume).
        opened: bool,
        /// Numbers (from 1) of parts that are already written (resume).
        done: Vec<u32>,
        /// Parts that an earlier run sent and that a sink must check (resume). They carry no bytes, unless
        /// [`Scheduler::must_carry`](super::Scheduler::must_carry) reports them lost.
        to_check: Vec<u32>,
    },
}

impl NewObject {
    /// Returns the number of parts; 1 for a whole object.
    pub fn parts(&self) -> u32 {
        match self.layout {
            Layout::Whole => 1,
            // The caller chooses part sizes for at most 10,000 parts, so this fits.
            Layout::Parts { part_bytes, .. } => self.bytes.div_ceil(part_bytes).max(1) as u32,
        }
    }

    /// Returns offset and length of `part` (from 1, at most [`NewObject::parts`]).
    pub fn part_range(&self, part: u32) -> (u64, u64) {
        match self.layout {
            Layout::Whole => (0, self.bytes),
            Layout::Parts { part_bytes, .. } => {
                let offset = u64::from(part - 1) * part_bytes;
                (offset, part_bytes.min(self.bytes - offset))
            }
        }
    }

    /// Sorts the lists of parts done and parts to check, and removes duplicates and numbers that the object does not
    /// have. A part in both lists stays only in the list of parts done.
    pub(super) fn tidy(&mut self) {
        let parts = self.parts();
        if let Layout::Parts { done, to_check, .. } = &mut self.layout {
            for known in [&mut *done, &mut *to_check] {
                known.retain(|part| (1..=parts).contains(part));
                known.sort_unstable();
                known.dedup();
            }
            to_check.retain(|part| done.binary_search(part).is_err());
        }
    }

    /// See [`NewObject::tidy`], which must have been called.
    pub(super) fn parts_done(&self) -> &[u32] {
        match &self.layout {
            Layout::Whole => &[],
            Layout::Parts { done, .. } => done,
        }
    }

    fn parts_to_check(&self) -> &[u32] {
        match &self.layout {
            Layout::Whole => &[],
            Layout::Parts { to_check, .. } => to_check,
        }
    }

    /// Returns the bytes that a route carries for `part`: none for one that is only checked.
    pub(super) fn carried_bytes(&self, part: u32) -> u64 {
        let is_carried = self.travels && self.parts_to_check().binary_search(&part).is_err();
        if is_carried { self.part_range(part).1 } else { 0 }
    }

    /// Records that `part` is missing after all. Returns the additional bytes that a route now has to carry.
    pub(super) fn must_carry(&mut self, part: u32) -> u64 {
        let before_bytes = self.carried_bytes(part);
        if let Layout::Parts { to_check, .. } = &mut self.layout {
            to_check.retain(|other| *other != part);
        }
        self.carried_bytes(part) - before_bytes
    }

    /// Returns the bytes that routes have to carry when the object is added.
    pub(super) fn bytes_to_carry(&self) -> u64 {
        let known = self.parts_done().iter().chain(self.parts_to_check());
        let there: u64 = known.map(|part| self.part_range(*part).1).sum();
        if self.travels { self.bytes - there } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_parts(bytes: u64, part_bytes: u64, done: Vec<u32>) -> NewObject {
        let layout = Layout::Parts { part_bytes, opened: false, done, to_check: Vec::new() };
        NewObject { bytes, layout, may_restart: true, travels: true }
    }

    proptest! {
        #[test]
        fn parts_cover_the_object_exactly(bytes in 0u64..1 << 44, part_bytes in (1u64 << 32)..1 << 40) {
            let object = in_parts(bytes, part_bytes, Vec::new());
            let mut end = 0;
            for part in 1..=object.parts() {
                let (offset, length) = object.part_range(part);
                prop_assert_eq!(offset, end);
                prop_assert!(length == part_bytes || part == object.parts());
                prop_assert!(length > 0 || bytes == 0);
                end += length;
            }
            prop_assert_eq!(end, bytes);
        }

        #[test]
        fn what_is_there_or_only_looked_at_is_not_carried(
            bytes in 1u64..10_000,
            part_bytes in 1u64..500,
            done in prop::collection::vec(0u32..400, 0..50),
            to_check in prop::collection::vec(0u32..400, 0..50),
        ) {
            let layout = Layout::Parts { part_bytes, opened: true, done: done.clone(), to_check: to_check.clone() };
            let mut object = NewObject { layout, ..in_parts(bytes, part_bytes, Vec::new()) };
            object.tidy();
            let sum = |object: &NewObject| -> u64 {
                (1..=object.parts()).filter(|part| !done.contains(part)).map(|part| object.carried_bytes(part)).sum()
            };
            let unknown = |part: &u32| !done.contains(part) && !to_check.contains(part);
            let to_carry: u64 = (1..=object.parts()).filter(unknown).map(|part| object.part_range(part).1).sum();
            prop_assert_eq!(object.bytes_to_carry(), to_carry);
            prop_assert_eq!(sum(&object), to_carry);
            let parts = object.parts();
            let lost = to_check.iter().filter(|part| (1..=parts).contains(*part) && !done.contains(*part));
            let more: u64 = lost.map(|part| object.must_carry(*part)).sum();
            prop_assert_eq!(sum(&object), to_carry + more, "parts that are lost are carried, each once");
        }
    }

    #[test]
    fn the_largest_object_has_ten_thousand_parts() {
        let object = in_parts(5 << 40, (5u64 << 40).div_ceil(10_000), Vec::new());
        assert_eq!(object.parts(), 10_000);
        let (offset, length) = object.part_range(10_000);
        assert_eq!(offset + length, 5 << 40);
    }
}

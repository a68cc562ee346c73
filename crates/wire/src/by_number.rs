//! A table of objects by their numbers, which are given out in ascending order.
//!
//! Objects that were added after one another mostly end after one another. So the table is a ring: the entry of an object
//! is next to that of the one before it, and the processor finds it in its cache, which it would not in a hash table. The
//! ring has no room for an object that stays much longer than others, so that one moves to a hash table of its own.

use crate::ObjectId;
use std::collections::HashMap;

/// Length of the first ring; it doubles while it is more than half full. A power of two.
const SLOTS_MIN: usize = 64;

/// See the module's documentation. It takes memory for the objects that it has had at the same time.
#[derive(Debug)]
pub struct ByNumber<T> {
    /// An object's slot is its number modulo the length of the ring, which is zero or a power of two.
    slots: Vec<Option<(ObjectId, T)>>,
    /// Objects whose slots were needed for later ones.
    displaced: HashMap<ObjectId, T>,
    len: usize,
}

impl<T> Default for ByNumber<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), displaced: HashMap::new(), len: 0 }
    }
}

impl<T> ByNumber<T> {
    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an object, or replaces the one of the same number.
    pub fn insert(&mut self, id: ObjectId, value: T) {
        if self.get(id).is_some() {
            self.remove(id);
        }
        if self.slots.is_empty() || self.slots[self.slot(id)].is_some() && self.len > self.slots.len() / 2 {
            self.grow();
        }
        self.put(id, value);
        self.len += 1;
    }

    /// Returns an object.
    #[inline]
    pub fn get(&self, id: ObjectId) -> Option<&T> {
        match self.slots.get(self.slot(id))? {
            Some((found, value)) if *found == id => Some(value),
            _ if self.displaced.is_empty() => None,
            _ => self.displaced.get(&id),
        }
    }

    /// Returns an object to change it.
    #[inline]
    pub fn get_mut(&mut self, id: ObjectId) -> Option<&mut T> {
        let slot = self.slot(id);
        match self.slots.get_mut(slot)? {
            Some((found, value)) if *found == id => Some(value),
            _ if self.displaced.is_empty() => None,
            _ => self.displaced.get_mut(&id),
        }
    }

    /// Removes an object and returns it.
    pub fn remove(&mut self, id: ObjectId) -> Option<T> {
        let slot = self.slot(id);
        let in_ring = self.slots.get_mut(slot)?.take_if(|(found, _)| *found == id).map(|(_, value)| value);
        let removed = match in_ring {
            None if !self.displaced.is_empty() => self.displaced.remove(&id),
            in_ring => in_ring,
        };
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Returns all objects to change them, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten().map(|(_, value)| value).chain(self.displaced.values_mut())
    }

    #[inline]
    fn slot(&self, id: ObjectId) -> usize {
        id.0 as usize & self.slots.len().wrapping_sub(1)
    }

    fn put(&mut self, id: ObjectId, value: T) {
        let slot = self.slot(id);
        if let Some((earlier, value)) = self.slots[slot].replace((id, value)) {
            self.displaced.insert(earlier, value);
        }
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        let former = std::mem::replace(&mut self.slots, std::iter::repeat_with(|| None).take(slots).collect());
        for (id, value) in former.into_iter().flatten() {
            self.put(id, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add,
        /// Removes one of the numbers given out, counted from the latest.
        Remove(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![5 => Just(Step::Add), 3 => (0u64..40).prop_map(Step::Remove), 1 => (0u64..2000).prop_map(Step::Remove)]
    }

    proptest! {
        #[test]
        fn it_has_what_a_hash_table_has(steps in prop::collection::vec(step(), 0..2000), first in 0u64..300) {
            let (mut table, mut model, mut next) = (ByNumber::default(), HashMap::new(), first);
            for step in steps {
                match step {
                    Step::Add => {
                        table.insert(ObjectId(next), next * 3);
                        model.insert(next, next * 3);
                        next += 1;
                    }
                    Step::Remove(back) => {
                        let number = next.saturating_sub(back);
                        prop_assert_eq!(table.remove(ObjectId(number)), model.remove(&number));
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for number in first..=next {
                prop_assert_eq!(table.get(ObjectId(number)), model.get(&number));
                prop_assert_eq!(table.get_mut(ObjectId(number)), model.get_mut(&number));
            }
            let mut values: Vec<u64> = table.values_mut().map(|value| *value).collect();
            let mut expected: Vec<u64> = model.into_values().collect();
            values.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(values, expected);
        }
    }

    #[test]
    fn an_object_that_stays_does_not_make_it_grow() {
        let mut table = ByNumber::default();
        table.insert(ObjectId(1), 1);
        for number in 2..100_000 {
            table.insert(ObjectId(number), number);
            table.remove(ObjectId(number.saturating_sub(10).max(2)));
        }
        assert_eq!((table.get(ObjectId(1)), table.slots.len(), table.len()), (Some(&1), SLOTS_MIN, 11));
    }

    #[test]
    fn an_object_of_the_same_number_is_replaced() {
        let mut table = ByNumber::default();
        for value in 1..3 {
            table.insert(ObjectId(7), value);
        }
        assert_eq!((table.len(), table.remove(ObjectId(7)), table.remove(ObjectId(7))), (1, Some(2), None));
    }
}

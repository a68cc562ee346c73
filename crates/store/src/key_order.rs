//! The order in which a store lists its keys, and the keys that a listing in byte order can skip.
//!
//! Some compatible servers list folder by folder: `a/x` before `a.txt`, whose bytes are smaller. A listing that skipped
//! the rest of `a/` there, by a start key, would lose `a.txt`. So an unknown server counts as ordered only after it has
//! listed two keys in an order that shows the difference.

use crate::{ListPage, ListRequest, ObjectInfo, Store};
use std::sync::atomic::{AtomicBool, Ordering};

/// After all keys of a directory: a character that compares greater than all that keys have in practice.
const LAST: char = '\u{10FFFD}';

/// Knowledge of a store's order.
#[derive(Debug, Default)]
pub(crate) struct KeyOrder {
    is_by_bytes: AtomicBool,
}

impl KeyOrder {
    /// The order of a store that documents that it lists by bytes.
    pub(crate) fn by_bytes() -> Self {
        Self { is_by_bytes: AtomicBool::new(true) }
    }

    /// Returns whether the store is known to list by bytes.
    pub(crate) fn is_by_bytes(&self) -> bool {
        self.is_by_bytes.load(Ordering::Relaxed)
    }

    /// Learns from a page.
    pub(crate) fn learn(&self, objects: &[ObjectInfo]) {
        let mut pairs = objects.windows(2).map(|pair| (pair[0].key.as_str(), pair[1].key.as_str()));
        if !self.is_by_bytes() && ascends(objects) && pairs.any(|(one, next)| tells_bytes_from_folders(one, next)) {
            self.is_by_bytes.store(true, Ordering::Relaxed);
        }
    }
}

fn ascends(objects: &[ObjectInfo]) -> bool {
    objects.is_sorted_by(|one, next| one.key < next.key)
}

/// Returns whether a store that lists folder by folder would list the two keys the other way round: `next` is in a
/// folder, and the name beside that folder in `one` begins with the folder's.
fn tells_bytes_from_folders(one: &str, next: &str) -> bool {
    let differing = one.bytes().zip(next.bytes()).find(|(one, next)| one != next);
    matches!(differing, Some((one, b'/')) if one < b'/')
}

/// The key after which a listing goes on if `page` ends in a directory that need not be listed.
pub(crate) fn after_skipped(store: &(impl Store + ?Sized), request: &ListRequest, page: &ListPage) -> Option<String> {
    let last = page.objects.last().filter(|_| ascends(&page.objects))?;
    end_of_skipped(store, request, &last.key)
}

/// A key after all keys of the directory that `key` is in, if that directory need not be listed and the store can begin
/// a listing there.
pub(crate) fn end_of_skipped(store: &(impl Store + ?Sized), request: &ListRequest, key: &str) -> Option<String> {
    if request.delimited || !store.lists_in_key_order() || !store.lists_from_any_key() {
        return None;
    }
    let skipped = request.skips.directory_of(&request.prefix, key)?;
    let end = format!("{skipped}{LAST}");
    (end.as_str() > key && end.len() <= store.limits().key_bytes_max).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_known_after_a_pair_that_shows_it() {
        let learnt = |keys: &[&str]| {
            let order = KeyOrder::default();
            let object = |key: &&str| ObjectInfo { key: (*key).to_owned(), ..ObjectInfo::default() };
            order.learn(&keys.iter().map(object).collect::<Vec<_>>());
            order.is_by_bytes()
        };
        assert!(learnt(&["a-b/x", "a/x"]) && learnt(&["d/a", "d/a.txt", "d/a/x", "e"]));
        for keys in [&["a/x", "a.txt"][..], &["a", "a/x"], &["a/x", "a0"], &["b", "a.txt", "a/x"], &["a/x", "b/y"], &[]]
        {
            assert!(!learnt(keys), "{keys:?}");
        }
        assert!(KeyOrder::by_bytes().is_by_bytes());
    }
}

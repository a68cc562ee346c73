//! Detects different names that a destination may treat as one.
//!
//! A server that keeps objects as files may treat `a//b`, `a/./b` or `A/B` as `a/b`
//! ([`name_form`](tradewind_store::name_form)). The later of two such names of one job is a twin. It waits until
//! everything else is written, and is written only if it does not lead to an object with another name.
//!
//! The first [`EXACT_NAMES_MAX`] names are kept as hashes, and all later ones as bits of their hashes (a Bloom filter),
//! so that any number of them fits into [`FILTER_BYTES`]. No twin is missed; a false positive costs one check at the
//! destination.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use tradewind_store::NameChanges;

/// Memory for all names of a job. With 10 million names, fewer than one in 50 is a false positive.
pub const FILTER_BYTES: usize = 16 << 20;
/// Names whose hashes are kept. The bits of so many names would lie in nearly every page of the filter, and those of a
/// thousand in a thousand pages.
pub const EXACT_NAMES_MAX: usize = 1 << 16;
/// All bits of one name lie within one block of this size.
const BLOCK_BITS: usize = 512;
const WORD_BITS: usize = 64;
const BLOCKS: usize = FILTER_BYTES * 8 / BLOCK_BITS;
const BITS_OF_A_NAME: usize = 5;

/// The hash of a name and its destination.
type NameHash = [u8; 16];

/// The names seen so far.
#[derive(Debug, Default)]
pub struct Names(Mutex<Hashes>);

#[derive(Debug, Default)]
struct Hashes {
    /// Empty once the filter is in use.
    exact: HashSet<NameHash>,
    /// Empty up to [`EXACT_NAMES_MAX`] names.
    filter: Vec<u64>,
}

impl Names {
    /// Adds the form of a name at the destination with index `target`. Returns whether it may have been added before.
    pub fn has_twin(&self, target: u16, form: &str) -> bool {
        let mut hashes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.insert(name_hash(target, form))
    }

    /// Like [`has_twin`](Self::has_twin). For a twin, returns how it or an earlier name of this form may be changed.
    pub fn twin_by(&self, target: u16, form: &str, changes: NameChanges) -> Option<NameChanges> {
        // No form has an empty segment or a backslash, so these are the forms of nothing else. They are added before the
        // form, and looked for after it, because names are added concurrently.
        let [segments, backslash] = ["//", "\\"].map(|end| format!("{form}{end}"));
        if changes.segments {
            self.has_twin(target, &segments);
        }
        if changes.backslash {
            self.has_twin(target, &backslash);
        }
        self.has_twin(target, form).then(|| NameChanges {
            segments: self.may_have(target, &segments),
            backslash: self.may_have(target, &backslash),
        })
    }

    /// Returns whether the form of a name may have been added.
    pub fn may_have(&self, target: u16, form: &str) -> bool {
        let (hash, hashes) = (name_hash(target, form), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        match hashes.filter.is_empty() {
            true => hashes.exact.contains(&hash),
            false => bits(&hash).into_iter().all(|(word, mask)| hashes.filter[word] & mask != 0),
        }
    }

    /// Removes all names.
    pub fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Hashes::default();
    }
}

impl Hashes {
    /// Returns whether the hash may have been added before.
    fn insert(&mut self, hash: NameHash) -> bool {
        if !self.filter.is_empty() {
            return self.set_bits(&hash);
        }
        if self.exact.len() < EXACT_NAMES_MAX {
            return !self.exact.insert(hash);
        }
        self.filter = vec![0; FILTER_BYTES / size_of::<u64>()];
        for earlier in std::mem::take(&mut self.exact) {
            self.set_bits(&earlier);
        }
        self.set_bits(&hash)
    }

    fn set_bits(&mut self, hash: &NameHash) -> bool {
        let mut were_set = true;
        for (word, mask) in bits(hash) {
            were_set &= self.filter[word] & mask != 0;
            self.filter[word] |= mask;
        }
        were_set
    }
}

/// The name in a line of a list. For files it may begin with `./`, as `find .` prints it; in a store that is another key.
pub fn listed_name<'a>(source_url: &str, line: &'a str) -> &'a str {
    if !source_url.starts_with("file://") {
        return line;
    }
    let mut name = line;
    while let Some(rest) = name.strip_prefix("./") {
        name = rest.trim_start_matches('/');
    }
    if name == "." { "" } else { name }
}

/// A hash that stands for a name where many must be remembered.
pub fn short_hash(name: &str) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..16]);
    hash
}

/// Returns the last part of a name, which `--flatten` keeps: `c` of `a/b/c`. A final slash belongs to it.
pub fn last_part(name: &str) -> &str {
    let end = name.trim_end_matches('/').len();
    &name[name[..end].rfind('/').map_or(0, |slash| slash + 1)..]
}

fn name_hash(target: u16, form: &str) -> NameHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&target.to_le_bytes()).update(form.as_bytes());
    let mut hash = NameHash::default();
    hash.copy_from_slice(&hasher.finalize().as_bytes()[..size_of::<NameHash>()]);
    hash
}

/// The bits of a name: for each, its word and its place there.
fn bits(hash: &NameHash) -> [(usize, u64); BITS_OF_A_NAME] {
    let number = |at: usize| usize::from(hash[at]) | usize::from(hash[at + 1]) << 8 | usize::from(hash[at + 2]) << 16;
    let block = number(0) % BLOCKS * (BLOCK_BITS / WORD_BITS);
    std::array::from_fn(|index| {
        let bit = number(3 + 2 * index) % BLOCK_BITS;
        (block + bit / WORD_BITS, 1 << (bit % WORD_BITS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_may_begin_as_find_prints_them() {
        for (line, name) in [("./a/b", "a/b"), ("././/a", "a"), ("./", ""), (".", ""), (".a", ".a"), ("../a", "../a")] {
            assert_eq!(listed_name("file:///d/", line), name);
            assert_eq!(listed_name("s3://b", line), line);
        }
    }

    #[test]
    fn the_last_part_of_a_name_has_its_final_slash() {
        assert_eq!(["a", "a/b", "a//b", "a/b/", "/", ""].map(last_part), ["a", "b", "b", "b/", "/", ""]);
    }

    #[test]
    fn a_name_that_was_seen_is_never_overlooked_and_others_are_seldom_taken_for_it() {
        let names = Names::default();
        let by_chance = (0..200_000).filter(|index| names.has_twin(0, &format!("name {index}"))).count();
        assert!(by_chance < 20, "{by_chance}");
        assert!((0..200_000).all(|index| names.has_twin(0, &format!("name {index}"))));
        assert!(names.may_have(0, "name 0") && !names.may_have(0, "another"));
        assert!(!names.has_twin(1, "name 0"), "each destination has names of its own");
        names.clear();
        assert!(!names.has_twin(0, "name 0"));
    }

    #[test]
    fn no_name_is_lost_when_the_filter_takes_over() {
        let names = Names::default();
        let name = |index: usize| format!("name {index}");
        assert!(!(0..EXACT_NAMES_MAX).any(|index| names.has_twin(0, &name(index))), "the first names are exact");
        assert!((0..EXACT_NAMES_MAX).all(|index| names.may_have(0, &name(index))));
        names.has_twin(0, "one more");
        assert!((0..EXACT_NAMES_MAX).all(|index| names.may_have(0, &name(index)) && names.has_twin(0, &name(index))));
    }

    #[test]
    fn a_twin_may_be_changed_only_as_a_name_of_its_form_may_be() {
        let names = Names::default();
        for (form, key, twin) in [
            ("name", "name", None),
            ("name", "name", Some(NameChanges::default())),
            ("name", "/name", Some(NameChanges { segments: true, backslash: false })),
            ("name", "name", Some(NameChanges { segments: true, backslash: false })),
            ("other/name", "other//name", None),
            ("other/name", "other\\name", Some(NameChanges { segments: true, backslash: true })),
        ] {
            assert_eq!(names.twin_by(0, form, NameChanges::of(key)), twin, "{key}");
        }
    }
}

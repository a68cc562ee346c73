//! Divides listings into key ranges.

use crate::{KeyRange, ListPage, ListRequest, ObjectInfo, Result, Skips, Store};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use std::sync::Arc;

/// Most probes that [`split_ranges`] may send; the listing must be long enough to pay for them.
const PROBES_MAX: u32 = 64;
/// Entries per probe for folded prefixes.
const PROBE_KEYS: u32 = 1000;
/// Characters tried as the next one of a key in a flat space: digits, letters and separators, in byte order.
const ALPHABET: &[u8] = b"-./0123456789=ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// Pages of the keys under `prefix` within `range`, in key order. The next page is fetched while one is processed, so
/// at most two pages are in memory. Ends after the first error.
pub fn list_range(
    store: Arc<dyn Store>,
    prefix: &str,
    range: &KeyRange,
) -> impl Stream<Item = Result<ListPage>> + Send + use<> {
    let request = ListRequest {
        prefix: prefix.to_owned(),
        start_after: range.after.clone(),
        end_at: range.until.clone(),
        ..ListRequest::default()
    };
    let first = Some(AbortOnDrop(tokio::spawn(fetch(Arc::clone(&store), request.clone()))));
    let pages: BoxStream<'static, Result<ListPage>> = futures::stream::unfold(first, move |fetching| {
        let (store, request) = (Arc::clone(&store), request.clone());
        async move {
            let mut fetching: AbortOnDrop = fetching?;
            let page = match (&mut fetching.0).await {
                Ok(page) => page,
                Err(error) => {
                    let kind = crate::ErrorKind::Server;
                    Err(crate::Error::new(kind, "list", store.url().to_owned(), error))
                }
            };
            let continuation = page.as_ref().ok().and_then(|page| page.continuation.clone());
            let next = continuation.map(|continuation| {
                let request = ListRequest { continuation: Some(continuation), ..request };
                AbortOnDrop(tokio::spawn(fetch(store, request)))
            });
            Some((page, next))
        }
    })
    .boxed();
    pages
}

/// A task that is aborted when its handle is dropped.
struct AbortOnDrop(tokio::task::JoinHandle<Result<ListPage>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn fetch(store: Arc<dyn Store>, request: ListRequest) -> Result<ListPage> {
    store.list(&request).await
}

/// The keys under a prefix, divided into ranges.
#[derive(Debug)]
pub struct Split {
    /// Adjacent ranges that cover all keys.
    pub ranges: Vec<KeyRange>,
    /// The first page of the keys, if they were not divided and it was fetched to find that out.
    pub first: Option<ListPage>,
}

impl Split {
    fn whole(first: Option<ListPage>) -> Self {
        Self { ranges: vec![KeyRange::default()], first }
    }
}

/// Cuts the keys under `prefix` into at most `ranges_max` adjacent ranges that cover all of them. As far as a few cheap
/// requests can tell, ranges are of similar size, with at least `range_keys_min` keys each. A tree is cut at its folded
/// prefixes, a flat space at the first characters that occur. Returns one range where dividing would not pay (a single
/// page, files on disk). `skips` are the directories whose keys do not matter: no range begins in one.
pub async fn split_ranges(
    store: &dyn Store,
    prefix: &str,
    ranges_max: usize,
    range_keys_min: usize,
    skips: &Skips,
) -> Result<Split> {
    if ranges_max < 2 || !store.url().contains("://") || store.url().starts_with("file:") {
        return Ok(Split::whole(None));
    }
    let mut prober = Prober { store, range_keys_min, skips, left: PROBES_MAX };
    let first = prober.page(prefix, None, PROBE_KEYS, false).await?;
    let Some(page) = first.as_ref().filter(|page| page.continuation.is_some() && store.lists_from_any_key()) else {
        return Ok(Split::whole(first));
    };
    let (bounds, cuts) = prober.bounds(prefix, page, ranges_max - 1).await?;
    if !store.lists_from_any_key() {
        return Ok(Split::whole(first));
    }
    let ranges = ranges_of(&thin_out(bounds, cuts));
    let first = first.filter(|_| ranges.len() == 1);
    Ok(Split { ranges, first })
}

/// The number of worthwhile cuts, estimated from how many of `bounds` the first page passed, whose `keys` matter. `None`
/// if it did not reach the first of them, so nothing is known.
fn cuts_worth(first: &ListPage, keys: usize, bounds: &[String], range_keys_min: usize) -> Option<usize> {
    let last = &first.objects.last()?.key;
    let passed = bounds.iter().filter(|bound| *bound <= last).count();
    let keys = keys * (bounds.len() + 1) / passed.max(1);
    (passed > 0).then_some(keys / range_keys_min)
}

/// Keeps at most `count` of sorted bounds, evenly spaced.
fn thin_out(mut bounds: Vec<String>, count: usize) -> Vec<String> {
    bounds.sort_unstable();
    bounds.dedup();
    if bounds.len() <= count {
        return bounds;
    }
    let length = bounds.len();
    (1..=count).map(|index| bounds[index * length / (count + 1)].clone()).collect()
}

/// Adjacent ranges with sorted, distinct inner bounds.
fn ranges_of(bounds: &[String]) -> Vec<KeyRange> {
    let mut ranges = Vec::with_capacity(bounds.len() + 1);
    let mut after = None;
    for bound in bounds {
        ranges.push(KeyRange { after: after.replace(bound.clone()), until: Some(bound.clone()) });
    }
    ranges.push(KeyRange { after, until: None });
    ranges
}

struct Prober<'a> {
    store: &'a dyn Store,
    range_keys_min: usize,
    skips: &'a Skips,
    left: u32,
}

impl Prober<'_> {
    async fn page(
        &mut self,
        prefix: &str,
        after: Option<String>,
        keys: u32,
        delimited: bool,
    ) -> Result<Option<ListPage>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let request = ListRequest {
            prefix: prefix.to_owned(),
            start_after: after,
            max_keys: Some(keys),
            delimited,
            skips: self.skips.clone(),
            ..ListRequest::default()
        };
        self.store.list(&request).await.map(Some)
    }

    /// Candidate bounds, and how many cuts are worthwhile. `first` is the first page.
    async fn bounds(&mut self, prefix: &str, first: &ListPage, cuts_max: usize) -> Result<(Vec<String>, usize)> {
        let matters = |object: &&ObjectInfo| self.skips.directory_of(prefix, &object.key).is_none();
        let keys = first.objects.iter().filter(matters).count();
        let mut bounds = Vec::new();
        let mut cuts = cuts_max;
        let mut level = vec![prefix.to_owned()];
        // Descend the tree level by level until there are enough prefixes.
        while bounds.len() < cuts && !level.is_empty() {
            let mut below = Vec::new();
            for parent in &level {
                let Some(page) = self.page(parent, None, PROBE_KEYS, true).await? else { break };
                if page.continuation.is_some() && page.prefixes.is_empty() {
                    bounds.extend(self.flat_bounds(parent).await?);
                }
                below.extend(page.prefixes.into_iter().filter(|prefix| !self.skips.has(prefix)));
            }
            if self.left == 0 && below.is_empty() {
                break;
            }
            bounds.extend(below.iter().cloned());
            cuts = cuts_worth(first, keys, &bounds, self.range_keys_min).unwrap_or(cuts_max).min(cuts_max);
            level = below;
        }
        Ok((bounds, cuts))
    }

    /// First keys for each character that may follow `prefix`; skips the longest common beginnings.
    async fn flat_bounds(&mut self, prefix: &str) -> Result<Vec<String>> {
        let mut bounds = Vec::new();
        let mut stem = prefix.to_owned();
        while self.left > 0 {
            let before = bounds.len();
            let mut next_stem = None;
            let mut index = 0;
            while index < ALPHABET.len() {
                let after = format!("{stem}{}", char::from(ALPHABET[index]));
                let Some(page) = self.page(&stem, Some(after), 1, false).await? else { break };
                let Some(key) = page.objects.into_iter().next().map(|object| object.key) else { break };
                let Some(next) = key.as_bytes().get(stem.len()).copied() else { break };
                let group = key.get(..stem.len() + 1).map(str::to_owned);
                if let Some(group) = group {
                    bounds.push(group.clone());
                    next_stem = Some(group);
                }
                // Continue with the first character after the one that was found.
                index = ALPHABET.iter().position(|byte| *byte > next).unwrap_or(ALPHABET.len()).max(index + 1);
            }
            match (bounds.len() - before, next_stem) {
                // All keys continue with the same character: search after it.
                (1, Some(only)) => stem = only,
                _ => break,
            }
        }
        Ok(bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_few_pages_are_cut_into_a_few_ranges() {
        let key = |number: usize| format!("{:02}/{number}", number / 100);
        let numbered = |number| crate::ObjectInfo { key: key(number), ..Default::default() };
        let first = ListPage { objects: (0..1000).map(numbered).collect(), ..ListPage::default() };
        let bounds = |count: usize| (0..count).map(|number| format!("{number:02}/")).collect::<Vec<_>>();
        assert_eq!(cuts_worth(&first, 1000, &bounds(50), 2000), Some(2));
        assert_eq!(cuts_worth(&first, 1000, &bounds(99), 2000), Some(5));
        assert_eq!(cuts_worth(&first, 1000, &["10/".to_owned()], 2000), None);
    }

    proptest! {
        #[test]
        fn ranges_cover_each_key_once(bounds in proptest::collection::vec("[a-f]{0,3}", 0..20), count in 1usize..8, key in "[a-f]{1,4}") {
            let ranges = ranges_of(&thin_out(bounds, count));
            prop_assert!(ranges.len() <= count + 1);
            prop_assert_eq!(ranges.iter().filter(|range| range.contains(&key)).count(), 1);
        }
    }
}

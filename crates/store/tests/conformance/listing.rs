//! Listings: order, pages, bounds, folding, key ranges.

use crate::harness::{Ability, Subject, bytes, each};
use futures::TryStreamExt;
use std::sync::Arc;
use tradewind_store::{KeyRange, ListRequest, Skips, Split, list_range, split_ranges};

async fn fill(s: &Subject, names: &[String]) {
    for names in names.chunks(50) {
        futures::future::join_all(names.iter().map(|name| s.put(name, bytes(name.len(), 0)))).await;
    }
}

fn tree() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for directory in ["", "a/", "a-/", "b/c/", "b/c.d/", "zz/"] {
        names.extend((0..12).map(|index| format!("{directory}f{index:02}")));
    }
    names.sort_unstable();
    names
}

#[tokio::test]
async fn pages_join_to_the_whole_in_order() {
    each(&[Ability::ByteOrder], async |s| {
        fill(s, &tree()).await;
        for max_keys in [1, 7, 36, 72, 100] {
            let request = ListRequest { prefix: s.prefix.clone(), max_keys: Some(max_keys), ..ListRequest::default() };
            let objects = s.list(request).await;
            let names: Vec<&str> = objects.iter().map(|object| &object.key[s.prefix.len()..]).collect();
            assert_eq!(names, tree(), "pages of {max_keys}");
            assert!(objects.iter().all(|object| object.size_bytes as usize == object.key.len() - s.prefix.len()));
        }
    })
    .await;
}

#[tokio::test]
async fn prefixes_are_bytes_not_directories() {
    each(&[Ability::ByteOrder], async |s| {
        fill(s, &tree()).await;
        for prefix in ["a", "a/", "a/f0", "b/c", "b/c/", "b/c.", "f1", "zz/f11", "none", "none/x", "a/f00/x"] {
            let expected: Vec<String> = tree().into_iter().filter(|name| name.starts_with(prefix)).collect();
            assert_eq!(s.names(prefix).await, expected, "{prefix}");
        }
    })
    .await;
}

#[tokio::test]
async fn bounds_are_exclusive_below_and_inclusive_above() {
    each(&[Ability::ByteOrder], async |s| {
        fill(s, &tree()).await;
        let probes = ["", "a", "a/", "a/f05", "a/f05x", "b/c", "b/c/f03", "b/c.d/f11", "zz", "zzz"];
        for after in probes {
            for until in probes {
                let request = ListRequest {
                    prefix: s.prefix.clone(),
                    start_after: (!after.is_empty()).then(|| s.key(after)),
                    end_at: (!until.is_empty()).then(|| s.key(until)),
                    max_keys: Some(10),
                    ..ListRequest::default()
                };
                let listed: Vec<String> =
                    s.list(request).await.into_iter().map(|object| object.key[s.prefix.len()..].to_owned()).collect();
                let range = |name: &String| {
                    (after.is_empty() || name.as_str() > after) && (until.is_empty() || name.as_str() <= until)
                };
                let expected: Vec<String> = tree().into_iter().filter(range).collect();
                assert_eq!(listed, expected, "after {after:?} until {until:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn folding_shows_each_prefix_once() {
    each(&[Ability::ByteOrder], async |s| {
        fill(s, &tree()).await;
        for max_keys in [None, Some(3)] {
            let (mut objects, mut prefixes) = (Vec::new(), Vec::new());
            let mut request =
                ListRequest { prefix: s.prefix.clone(), delimited: true, max_keys, ..ListRequest::default() };
            loop {
                let page = s.store.list(&request).await.unwrap();
                objects.extend(page.objects.into_iter().map(|object| object.key[s.prefix.len()..].to_owned()));
                prefixes.extend(page.prefixes.into_iter().map(|prefix| prefix[s.prefix.len()..].to_owned()));
                match page.continuation {
                    Some(next) => request.continuation = Some(next),
                    None => break,
                }
            }
            assert_eq!(prefixes, ["a-/", "a/", "b/", "zz/"]);
            assert_eq!(objects.len(), 12);
            assert!(objects.iter().all(|name| !name.contains('/')));
        }
    })
    .await;
}

#[tokio::test]
async fn an_empty_prefix_is_an_empty_listing() {
    each(&[], async |s| {
        s.put("there", bytes(1, 0)).await;
        assert!(s.names("nothing-here/").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn shared_out_ranges_cover_everything_once() {
    each(&[Ability::ByteOrder], async |s| {
        let mut names = Vec::new();
        names.extend((0..1100).map(|index| format!("flat/{:02x}-{index}", index % 251)));
        names.extend((0..300).map(|index| format!("tree/d{}/e{}/f", index % 10, index)));
        names.sort_unstable();
        fill(s, &names).await;
        for (prefix, ranges_max) in [("", 8), ("flat/", 4), ("tree/", 3), ("", 1)] {
            let Split { ranges, first } =
                split_ranges(s.store.as_ref(), &s.key(prefix), ranges_max, 100, &Skips::default()).await.unwrap();
            let listed_first = ListRequest { prefix: s.key(prefix), ..ListRequest::default() };
            let listed_first = s.store.list(&listed_first).await.unwrap().objects;
            assert!(first.iter().all(|page| ranges.len() == 1 && listed_first.starts_with(&page.objects)));
            assert!(!ranges.is_empty() && ranges.len() <= ranges_max, "{ranges:?}");
            // A server that loses keys after a bound is never sent one.
            let can_split = s.name != "file" && s.store.lists_from_any_key();
            if can_split && prefix != "tree/" && ranges_max > 1 {
                assert!(ranges.len() > 1, "a listing of {prefix:?} was not shared out");
            }
            let mut listed = Vec::new();
            for range in &ranges {
                let pages: Vec<_> =
                    list_range(Arc::clone(&s.store), &s.key(prefix), range).try_collect().await.unwrap();
                listed.extend(pages.into_iter().flat_map(|page| page.objects).map(|object| object.key));
            }
            let expected: Vec<String> =
                names.iter().filter(|name| name.starts_with(prefix)).map(|name| s.key(name)).collect();
            assert_eq!(listed.len(), expected.len(), "{prefix:?} {ranges:?}");
            assert_eq!(listed, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_listing_can_be_dropped_half_way() {
    each(&[], async |s| {
        fill(s, &tree()).await;
        let mut pages = Box::pin(list_range(Arc::clone(&s.store), &s.prefix, &KeyRange::default()));
        assert!(pages.try_next().await.unwrap().is_some());
    })
    .await;
}

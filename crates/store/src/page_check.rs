//! Checks each page of a listing against the request. [`Store::list`] of every back end goes through here.
//!
//! A listing decides what is copied and what is deleted. If a server, or a proxy in front of it, answers a different
//! request, the listing must fail. Each page is checked by itself:
//!
//! - every key begins with the prefix and lies after `start_after`;
//! - keys are folded if, and only if, the request asks for it;
//! - with a bound (`start_after`, `end_at`) keys ascend strictly, within a page and from page to page, because the
//!   bounds mean nothing otherwise. Without one any order is accepted: some compatible servers keep none.
//!
//! The pages are also checked together: no page repeats; no key repeats on a page or across the border of two pages;
//! the server does not return one continuation twice in a row; at most [`EMPTY_PAGES_MAX`] consecutive pages are empty.
//!
//! If a page ends in a directory that need not be listed, the listing goes on after that directory
//! ([`key_order`](crate::key_order)). From there on it has a bound.
//!
//! State that must survive from page to page is part of the continuation, so a page can be requested again.

use crate::key_order::{after_skipped, end_of_skipped};
use crate::rounds::Rounds;
use crate::{Error, ErrorKind, Identity, ListPage, ListRequest, Result, Store};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Consecutive empty pages after which the listing fails. Stores send some: a page may hold only deleted keys.
const EMPTY_PAGES_MAX: u32 = 1000;
/// Empty pages that one call of [`Store::list`] skips before it returns an empty page to show progress to the caller.
const EMPTY_PAGES_PER_CALL_MAX: u32 = 16;

/// The position of a listing after a page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Position {
    /// The back end's own continuation.
    token: Option<String>,
    /// The end of the latest directory that was skipped: the token is that of a listing which began there.
    start_after: Option<String>,
    /// Greatest key, and greatest folded prefix, so far.
    last_key: Option<String>,
    last_prefix: Option<String>,
    /// Last key, and last folded prefix, of the latest non-empty page.
    border_key: Option<String>,
    border_prefix: Option<String>,
    /// Pages with entries.
    rounds: Rounds,
    /// Empty pages since the last one with entries.
    empty_pages: u32,
}

/// Returns the page of `store` for `request`, checked and cut at `end_at`.
pub(crate) async fn list<S: Store + ?Sized>(store: &S, request: &ListRequest) -> Result<ListPage> {
    let mut position = match &request.continuation {
        None => Position::default(),
        Some(text) => serde_json::from_str(text).map_err(|_| {
            Error::new(ErrorKind::BadRequest, "list", store.url(), "this is not a continuation of a listing")
        })?,
    };
    let mut skipped = 0;
    if let (None, Some(after)) = (&request.continuation, &request.start_after) {
        position.start_after = end_of_skipped(store, request, after);
        skipped += u64::from(position.start_after.is_some());
        if position.has_skipped_to_the_end(request) {
            return Ok(ListPage { skipped, ..ListPage::default() });
        }
    }
    let mut calls = 0;
    loop {
        let asked = position.next_request(request);
        let mut page = store.list_page(&asked).await?;
        // Azure may fold one directory on both sides of a page border.
        page.prefixes.retain(|prefix| position.border_prefix.as_ref() != Some(prefix));
        position
            .advance(&page, &asked)
            .map_err(|fault| Error::new(ErrorKind::Protocol, "list", store.url(), format!("bad listing: {fault}")))?;
        let mut is_last = position.token.is_none();
        if !is_last && let Some(end) = after_skipped(store, request, &page) {
            skipped += 1;
            (position.token, position.start_after) = (None, Some(end));
            is_last = position.has_skipped_to_the_end(request);
        }
        is_last |= request.end_at.as_deref().is_some_and(|until| page.cut(until));
        refuse_replaced(store, &mut page);
        calls += 1;
        let is_empty = page.objects.is_empty() && page.prefixes.is_empty() && page.refused.is_empty();
        if !is_empty || is_last || calls == EMPTY_PAGES_PER_CALL_MAX {
            // Serializing a struct of text and numbers cannot fail.
            page.continuation = if is_last { None } else { serde_json::to_string(&position).ok() };
            page.skipped += skipped;
            return Ok(page);
        }
    }
}

/// Moves keys that the server may have altered to the refused entries. Some servers write U+FFFD for characters that
/// XML cannot carry; a request for that name would hit no object, or a different one.
fn refuse_replaced<S: Store + ?Sized>(store: &S, page: &mut ListPage) {
    if !matches!(store.identity(), Identity::Bucket(bucket) if !bucket.decisive) {
        return;
    }
    let root = store.url();
    let refused = |key: &str| {
        let why =
            "the key has U+FFFD, which this server may have put in place of a character that listings cannot show";
        Error::new(ErrorKind::InvalidKey, "list", format!("{root}/{key}"), why)
    };
    let is_replaced = |key: &str| key.contains(char::REPLACEMENT_CHARACTER);
    page.refused
        .extend(page.objects.extract_if(.., |object| is_replaced(&object.key)).map(|object| refused(&object.key)));
    page.refused.extend(page.prefixes.extract_if(.., |prefix| is_replaced(prefix)).map(|prefix| refused(&prefix)));
}

impl Position {
    /// The request for the next page.
    fn next_request(&self, request: &ListRequest) -> ListRequest {
        let start_after = self.start_after.clone().or_else(|| request.start_after.clone());
        ListRequest { start_after, continuation: self.token.clone(), ..request.clone() }
    }

    /// Returns whether nothing of the request comes after the directory that was skipped.
    fn has_skipped_to_the_end(&self, request: &ListRequest) -> bool {
        matches!((&self.start_after, &request.end_at), (Some(after), Some(until)) if until <= after)
    }

    /// Advances past `page`, or returns what is wrong with it.
    fn advance(&mut self, page: &ListPage, request: &ListRequest) -> Result<(), String> {
        check_asked(page, request)?;
        if request.start_after.is_some() || request.end_at.is_some() {
            let keys = page.objects.iter().map(|object| object.key.as_str());
            check_order(&mut self.last_key, keys)?;
            check_order(&mut self.last_prefix, page.prefixes.iter().map(String::as_str))?;
        }
        if page.continuation.is_some() && page.continuation == self.token {
            return Err("the server repeats its continuation token, so the listing does not advance".to_owned());
        }
        self.token.clone_from(&page.continuation);
        if page.objects.is_empty() && page.prefixes.is_empty() {
            self.empty_pages += 1;
            if self.empty_pages > EMPTY_PAGES_MAX {
                return Err(format!(
                    "{EMPTY_PAGES_MAX} pages in a row are empty, but the server says that more follow"
                ));
            }
            return Ok(());
        }
        self.empty_pages = 0;
        if self.rounds.repeats(&hash_of(page)) {
            return Err("the server repeats a page".to_owned());
        }
        check_once(page, self.border_key.as_deref())?;
        let keys = page.objects.last().map(|object| object.key.clone());
        self.border_key = keys.or(self.border_key.take());
        self.border_prefix = page.prefixes.last().cloned().or(self.border_prefix.take());
        Ok(())
    }
}

/// Returns an error if an entry was not requested.
fn check_asked(page: &ListPage, request: &ListRequest) -> Result<(), String> {
    let ListRequest { prefix, start_after, delimited, .. } = request;
    let keys = page.objects.iter().map(|object| &object.key);
    if let Some(key) = keys.clone().chain(&page.prefixes).find(|key| !key.starts_with(prefix.as_str())) {
        return Err(format!("the server ignores the prefix: it lists {key:?} below {prefix:?}"));
    }
    if let Some(after) = start_after {
        // The keys after the bound may share a folded prefix with it.
        let mut folded = page.prefixes.iter().filter(|folded| !after.starts_with(folded.as_str()));
        let early = keys.clone().find(|key| *key <= after).or_else(|| folded.find(|folded| *folded <= after));
        if let Some(key) = early {
            return Err(format!(
                "the server ignores the start key: it lists {key:?}, which does not come after {after:?}"
            ));
        }
    }
    let is_folded = |key: &str| key[prefix.len()..].contains('/');
    if *delimited && let Some(key) = keys.clone().find(|key| is_folded(key)) {
        return Err(format!("the server ignores the delimiter: it lists {key:?}"));
    }
    if !*delimited && let Some(folded) = page.prefixes.first() {
        return Err(format!("the server hides the keys below {folded:?}, although no delimiter was sent"));
    }
    Ok(())
}

/// Returns an error unless `entries` ascend strictly after `last`. Sets `last` to the last of them.
fn check_order<'a>(last: &mut Option<String>, entries: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut previous = last.as_deref();
    for entry in entries {
        if let Some(previous) = previous.filter(|previous| entry <= *previous) {
            return Err(format!(
                "the server does not list in the order of the keys: {entry:?} comes after {previous:?}"
            ));
        }
        previous = Some(entry);
    }
    let moved = previous.map(str::to_owned);
    *last = moved;
    Ok(())
}

/// Returns an error if a key repeats on the page, or repeats the last key of the previous page.
fn check_once(page: &ListPage, border: Option<&str>) -> Result<(), String> {
    let keys = || page.objects.iter().map(|object| object.key.as_str());
    let repeated = |key: &str| Err(format!("the server lists the key {key:?} twice"));
    if let Some(key) = keys().find(|key| Some(*key) == border) {
        return repeated(key);
    }
    if keys().zip(keys().skip(1)).all(|(one, next)| one < next) {
        return Ok(());
    }
    let mut seen = HashSet::with_capacity(page.objects.len());
    keys().find(|key| !seen.insert(*key)).map_or(Ok(()), repeated)
}

/// Stable within a process, which is as long as a continuation is valid.
fn hash_of(page: &ListPage) -> u64 {
    let mut hasher = DefaultHasher::new();
    page.objects.iter().for_each(|object| object.key.hash(&mut hasher));
    page.prefixes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectInfo;

    fn page(keys: &[&str], prefixes: &[&str], continuation: Option<&str>) -> ListPage {
        let object = |key: &&str| ObjectInfo { key: (*key).to_owned(), ..ObjectInfo::default() };
        ListPage {
            objects: keys.iter().map(object).collect(),
            prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
            refused: Vec::new(),
            continuation: continuation.map(str::to_owned),
            skipped: 0,
        }
    }

    fn request(prefix: &str, start_after: Option<&str>, end_at: Option<&str>, delimited: bool) -> ListRequest {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (start_after, end_at) = (owned(start_after), owned(end_at));
        ListRequest { prefix: prefix.to_owned(), start_after, end_at, delimited, ..ListRequest::default() }
    }

    /// The fault found in consecutive pages, if any.
    fn fault(request: &ListRequest, pages: &[ListPage]) -> Option<String> {
        let mut position = Position::default();
        pages.iter().find_map(|page| position.advance(page, request).err())
    }

    #[test]
    fn keys_outside_the_request_are_refused() {
        let listed =
            |keys: &[&str], prefixes: &[&str], request: &ListRequest| fault(request, &[page(keys, prefixes, None)]);
        let below = request("p/", None, None, false);
        assert_eq!(listed(&["p/", "p/a"], &[], &below), None);
        assert!(listed(&["other/secret", "p/a"], &[], &below).unwrap().contains("ignores the prefix"));
        assert!(listed(&["p/a"], &["p/b/"], &below).unwrap().contains("hides the keys"));
        let one_level = request("p/", None, None, true);
        assert_eq!(listed(&["p/", "p/a"], &["p/b/"], &one_level), None);
        assert!(listed(&["p/b/c"], &[], &one_level).unwrap().contains("ignores the delimiter"));
        assert!(listed(&[], &["q/"], &one_level).unwrap().contains("ignores the prefix"));
    }

    #[test]
    fn keys_before_the_start_are_refused() {
        let behind = request("", Some("b"), None, false);
        assert_eq!(fault(&behind, &[page(&["b0", "c"], &[], None)]), None);
        for early in ["a", "b"] {
            assert!(
                fault(&behind, &[page(&[early, "c"], &[], None)]).unwrap().contains("ignores the start key"),
                "{early}"
            );
        }
        let folded = request("", Some("b/5"), None, true);
        assert_eq!(fault(&folded, &[page(&["c"], &["b/", "d/"], None)]), None);
        assert!(fault(&folded, &[page(&[], &["a/"], None)]).is_some());
    }

    #[test]
    fn within_bounds_keys_ascend_from_page_to_page() {
        let bounded = request("", None, Some("z"), false);
        let pages = |second: &[&str]| [page(&["a", "c"], &[], Some("1")), page(second, &[], None)];
        assert_eq!(fault(&bounded, &pages(&["d"])), None);
        for second in [&["c", "d"], &["b", "d"], &["e", "d"]] {
            assert!(fault(&bounded, &pages(second)).unwrap().contains("order of the keys"), "{second:?}");
        }
        assert_eq!(fault(&request("", None, None, false), &pages(&["b", "d"])), None, "cp needs no order");
    }

    #[test]
    fn listings_that_never_end_are_refused() {
        let whole = request("", None, None, false);
        let same_token = [page(&["a"], &[], Some("1")), page(&["b"], &[], Some("1"))];
        assert!(fault(&whole, &same_token).unwrap().contains("repeats its continuation"));
        let empty = (0..2000).map(|number| page(&[], &[], Some(&number.to_string()))).collect::<Vec<_>>();
        assert!(fault(&whole, &empty).unwrap().contains("empty"));
        for length in 1..20 {
            let cycle = |number: usize| page(&[&format!("{}", number % length)], &[], Some(&number.to_string()));
            let pages: Vec<_> = (0..100).map(cycle).collect();
            let mut position = Position::default();
            let found = pages.iter().position(|page| position.advance(page, &whole).is_err());
            assert!(found.is_some_and(|at| at <= 3 * length), "a cycle of {length} pages, found at {found:?}");
        }
    }

    #[test]
    fn a_key_comes_once() {
        let whole = request("", None, None, false);
        let border = [page(&["a", "b"], &[], Some("1")), page(&["b", "c"], &[], None)];
        assert!(fault(&whole, &border).unwrap().contains("twice"));
        let overlap = [page(&["a", "b", "c"], &[], Some("1")), page(&["b", "c", "d"], &[], None)];
        assert!(fault(&whole, &overlap).unwrap().contains("twice"));
        assert!(fault(&whole, &[page(&["c", "a", "c"], &[], None)]).unwrap().contains("twice"));
        assert_eq!(fault(&whole, &[page(&["c", "a", "b"], &[], Some("1")), page(&["d"], &[], None)]), None);
    }

    #[test]
    fn a_page_is_cut_at_the_end() {
        let whole = page(&["a", "b", "c"], &["b/", "d/"], Some("1"));
        for (until, objects, prefixes, is_reached) in
            [("A", 0, 0, true), ("b", 2, 0, true), ("b/x", 2, 1, true), ("d", 3, 1, true), ("d/", 3, 2, false)]
        {
            let mut page = whole.clone();
            assert_eq!(page.cut(until), is_reached, "{until}");
            assert_eq!((page.objects.len(), page.prefixes.len()), (objects, prefixes), "{until}");
        }
        assert!(page(&["a", "b"], &[], Some("1")).cut("b"), "no key comes after it");
    }
}

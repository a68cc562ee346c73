//! Lists the keys below a prefix, page by page. Pages are fetched a little ahead, and each is retried as the policy
//! allows.
//!
//! A listing can be divided into key ranges, so that several pages are fetched at once. Memory is bounded by (ranges
//! listed at once) × ([`PAGES_AHEAD_MAX`] + 2) pages, or ([`PAGES_AHEAD_IN_ORDER_MAX`] + 2) if the pages come in key
//! order.

use crate::retry::RetryPolicy;
use futures::{Stream, StreamExt};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tradewind_store::{Error, ErrorKind, KeyRange, ListPage, ListRequest, Result, Skips, Split, Store};

/// Pages fetched ahead of their use; at the limit the fetching task waits.
pub const PAGES_AHEAD_MAX: usize = 2;

/// Key ranges of one prefix that are listed at once.
pub const RANGES_AT_ONCE_MAX: usize = 8;

/// [`PAGES_AHEAD_MAX`] where pages must come in key order: there, ranges listed at once wait for those before them. A
/// page of a thousand keys takes about 250 KB.
pub const PAGES_AHEAD_IN_ORDER_MAX: usize = 32;

/// Number of ranges a prefix is divided into: more than are listed at once, because some hold far more keys than
/// others.
pub const RANGES_MAX: usize = 32;

/// Estimated minimum of keys in a range: two pages. A smaller range is not worth its own requests.
pub const RANGE_KEYS_MIN: usize = 2000;

/// Names per slice of a listing of files: a page of S3 and of Google, so that each slice costs one request at a
/// destination that has the same names.
pub const SLICE_NAMES: usize = 1000;

/// All keys of one store below one prefix.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Only keys that begin with this.
    pub prefix: String,
    /// Retry policy of a page.
    pub policy: RetryPolicy,
    /// The names that matter, by the wildcards of the place.
    pub span: NameSpan,
    /// Directories that the user's rules exclude.
    pub skips: Skips,
    /// The first page, from the search for ranges to the first fetch.
    first: FirstPage,
}

/// The first page of a listing, fetched to find out whether it can be divided. It is taken once.
#[derive(Clone, Debug, Default)]
struct FirstPage(Arc<Mutex<Option<ListPage>>>);

impl FirstPage {
    fn put(&self, page: Option<ListPage>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = page;
    }

    fn take(&self) -> Option<ListPage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The part of a listing that can hold names that a user's wildcards match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSpan {
    /// All names are in this range.
    pub range: NameRange,
    /// True if no name has a `/`, so that one level is listed.
    pub is_level: bool,
}

/// A part of a listing that was read before the listings that it is compared with.
#[derive(Debug)]
pub struct Slice {
    /// The names that it covers: after the last name of the slice before it, up to its own last name.
    pub range: NameRange,
    /// Its entries.
    pub page: ListPage,
}

/// The pages of one range, in order.
#[derive(Debug)]
pub struct Pages {
    receiver: mpsc::Receiver<Fetched>,
    /// Whether the last page, or an error, has been received.
    ended: bool,
    url: String,
    _fetching: Option<AbortOnDropHandle<()>>,
}

/// A message from the fetching task. A closed channel does not mean the end of the listing: the task may have panicked.
#[derive(Debug)]
struct Fetched {
    page: Result<ListPage>,
    is_last: bool,
}

/// A range of names relative to a prefix, so that it applies to listings below several prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameRange {
    /// Names after this one; from the first if `None`.
    pub after: Option<String>,
    /// Names up to this one, and it too; to the last if `None`.
    pub until: Option<String>,
}

impl NameRange {
    /// The same range with `prefix` removed from its bounds. A bound outside the prefix becomes an open end, because
    /// all names begin with the prefix.
    pub fn below(prefix: &str, range: &KeyRange) -> Self {
        let cut = |bound: &Option<String>| bound.as_deref().and_then(|key| key.strip_prefix(prefix)).map(str::to_owned);
        Self { after: cut(&range.after), until: cut(&range.until) }
    }

    /// The bounds of the range as keys below `prefix`.
    pub fn keys_below(&self, prefix: &str) -> KeyRange {
        let put = |bound: &Option<String>| bound.as_deref().map(|name| format!("{prefix}{name}"));
        KeyRange { after: put(&self.after), until: put(&self.until) }
    }

    /// The part that is in `other` too; `None` if there is none.
    fn common(self, other: &Self) -> Option<Self> {
        let after = self.after.max(other.after.clone());
        let until = match (self.until, other.until.clone()) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        let is_empty = matches!((&after, &until), (Some(after), Some(until)) if after >= until);
        (!is_empty).then_some(Self { after, until })
    }

    /// The part up to `name`, a name of this range, and the part after it.
    pub fn split_after(self, name: &str) -> [Self; 2] {
        let name = Some(name.to_owned());
        [Self { after: self.after, until: name.clone() }, Self { after: name, until: self.until }]
    }
}

impl Listing {
    /// A listing of which nothing has been fetched yet.
    pub fn new(store: Arc<dyn Store>, prefix: String, policy: RetryPolicy, span: NameSpan, skips: Skips) -> Self {
        Self { store, prefix, policy, span, skips, first: FirstPage::default() }
    }

    /// Divides the prefix into ranges that together hold every key of the span once.
    ///
    /// # Errors
    /// The store cannot be listed.
    pub async fn ranges(&self) -> Result<Vec<NameRange>> {
        if self.span.is_level {
            return Ok(vec![NameRange::default()]);
        }
        let Split { ranges, first } = self
            .policy
            .run("list", self.store.url(), || {
                let store = self.store.as_ref();
                tradewind_store::split_ranges(store, &self.prefix, RANGES_MAX, RANGE_KEYS_MIN, &self.skips)
            })
            .await?;
        self.first.put(first);
        let names = ranges.iter().map(|range| NameRange::below(&self.prefix, range));
        Ok(names.filter_map(|names| names.common(&self.span.range)).collect())
    }

    /// Returns whether the store is a tree of files, whose listing is cheap and cannot be divided.
    pub fn is_of_files(&self) -> bool {
        self.store.url().starts_with("file:")
    }

    /// Returns whether a page has about as many keys as a slice. Azure's have 5,000, so fewer requests list it in sequence.
    pub fn has_pages_of_a_slice(&self) -> bool {
        !self.is_of_files() && !self.store.url().starts_with("az:")
    }

    /// Fetches the first page, and returns whether others follow that can be listed in ranges at the same time. The
    /// page is kept for the fetch that begins at the first name.
    ///
    /// # Errors
    /// The store cannot be listed.
    pub async fn has_ranges(&self) -> Result<bool> {
        let (prefix, skips) = (self.prefix.clone(), self.skips.clone());
        let request = ListRequest { prefix, skips, ..ListRequest::default() };
        let page = self.policy.run("list", self.store.url(), || self.store.list(&request)).await?;
        let has_more = page.continuation.is_some();
        self.first.put(Some(page));
        Ok(has_more && self.store.lists_from_any_key())
    }

    /// All entries in slices of [`SLICE_NAMES`] names, whose ranges cover every name once. Ends after an error.
    pub fn slices(&self) -> impl Stream<Item = Result<Slice>> + Send + use<> {
        let slicer = Slicer { pages: Some(self.pages(&NameRange::default())), ..Slicer::new(self.prefix.len()) };
        futures::stream::try_unfold(slicer, |mut slicer| async move {
            let slice = slicer.next().await?;
            Ok(slice.map(|slice| (slice, slicer)))
        })
    }

    /// Starts to fetch the pages of `range`.
    pub fn pages(&self, range: &NameRange) -> Pages {
        self.fetch(range, self.span.is_level, PAGES_AHEAD_MAX)
    }

    /// Starts to fetch one level: keys with another `/` after the prefix are folded into prefixes.
    pub fn level(&self) -> Pages {
        self.fetch(&NameRange::default(), true, PAGES_AHEAD_MAX)
    }

    /// All pages in the order of their arrival, from [`RANGES_AT_ONCE_MAX`] ranges at once.
    ///
    /// # Errors
    /// As [`Listing::ranges`].
    pub async fn in_any_order(&self) -> Result<impl Stream<Item = Result<ListPage>> + Send + use<>> {
        let (listing, ranges) = (self.clone(), self.ranges().await?);
        let pages = futures::stream::iter(ranges).map(move |range| listing.pages(&range).into_stream().boxed());
        Ok(pages.flatten_unordered(RANGES_AT_ONCE_MAX))
    }

    /// All pages in key order, from [`RANGES_AT_ONCE_MAX`] ranges at once, each up to [`PAGES_AHEAD_IN_ORDER_MAX`]
    /// pages ahead.
    ///
    /// # Errors
    /// As [`Listing::ranges`].
    pub async fn in_order(&self) -> Result<impl Stream<Item = Result<ListPage>> + Send + use<>> {
        let (listing, mut ranges) = (self.clone(), self.ranges().await?.into_iter());
        let mut begun = VecDeque::new();
        Ok(futures::stream::poll_fn(move |context| {
            loop {
                while begun.len() < RANGES_AT_ONCE_MAX
                    && let Some(range) = ranges.next()
                {
                    begun.push_back(listing.fetch(&range, listing.span.is_level, PAGES_AHEAD_IN_ORDER_MAX));
                }
                let Some(first) = begun.front_mut() else { return Poll::Ready(None) };
                match std::task::ready!(first.poll_next(context)) {
                    Some(page) => return Poll::Ready(Some(page)),
                    None => drop(begun.pop_front()),
                }
            }
        }))
    }

    fn fetch(&self, range: &NameRange, delimited: bool, pages_ahead_max: usize) -> Pages {
        let KeyRange { after, until } = range.keys_below(&self.prefix);
        let request = ListRequest {
            prefix: self.prefix.clone(),
            start_after: after,
            end_at: until,
            delimited,
            skips: self.skips.clone(),
            ..ListRequest::default()
        };
        let mut first = if range.after.is_none() && !delimited { self.first.take() } else { None };
        if let (Some(page), Some(until)) = (&mut first, &request.end_at)
            && page.cut(until)
        {
            page.continuation = None;
        }
        let (sender, receiver) = mpsc::channel(pages_ahead_max);
        let fetching = tokio::spawn(fetch_pages(self.store.clone(), self.policy, request, first, sender));
        let url = self.store.url().to_owned();
        Pages { receiver, ended: false, url, _fetching: Some(AbortOnDropHandle::new(fetching)) }
    }
}

impl Pages {
    /// One page that was fetched before.
    pub fn of_one(page: ListPage) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver is here.
        sender.try_send(Fetched { page: Ok(page), is_last: true }).ok();
        Self { receiver, ended: false, url: String::new(), _fetching: None }
    }

    /// Slices of `listing` that were listed before, and those that follow them, as one listing.
    pub fn of_slices(
        listing: &Listing,
        before: Vec<Slice>,
        after: impl Stream<Item = Result<Slice>> + Send + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(PAGES_AHEAD_MAX);
        let forwarding = tokio::spawn(async move {
            let mut slices = std::pin::pin!(futures::stream::iter(before).map(Ok).chain(after));
            while let Some(slice) = slices.next().await {
                let page = slice.map(|slice| slice.page);
                let is_last = page.is_err();
                if sender.send(Fetched { page, is_last }).await.is_err() || is_last {
                    return;
                }
            }
            sender.send(Fetched { page: Ok(ListPage::default()), is_last: true }).await.ok();
        });
        let url = listing.store.url().to_owned();
        Self { receiver, ended: false, url, _fetching: Some(AbortOnDropHandle::new(forwarding)) }
    }

    /// Returns the next page; `None` after the last page or after an error.
    pub async fn next(&mut self) -> Option<Result<ListPage>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ListPage>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let broke_off = || Fetched {
            page: Err(Error::new(
                ErrorKind::Protocol,
                "list",
                &self.url,
                "the listing ended unexpectedly inside the gateway",
            )),
            is_last: true,
        };
        let Fetched { page, is_last } = std::task::ready!(self.receiver.poll_recv(context)).unwrap_or_else(broke_off);
        self.ended = is_last;
        Poll::Ready(Some(page))
    }

    /// The pages as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<ListPage>> {
        futures::stream::unfold(self, |mut pages| async { pages.next().await.map(|page| (page, pages)) })
    }
}

/// Divides the pages of one listing into slices. Holds a page and a slice at most.
struct Slicer {
    pages: Option<Pages>,
    prefix_len: usize,
    /// Last name of the slice before.
    after: Option<String>,
    held: ListPage,
    is_over: bool,
}

impl Slicer {
    fn new(prefix_len: usize) -> Self {
        Self { pages: None, prefix_len, after: None, held: ListPage::default(), is_over: false }
    }

    /// Returns the next slice; `None` after the last one. The last one has no upper bound.
    async fn next(&mut self) -> Result<Option<Slice>> {
        if self.is_over {
            return Ok(None);
        }
        // One name more shows that this is not the last slice.
        while self.held.objects.len() <= SLICE_NAMES {
            let Some(pages) = &mut self.pages else { break };
            match pages.next().await.transpose()? {
                Some(page) => {
                    self.held.objects.extend(page.objects);
                    self.held.refused.extend(page.refused);
                    self.held.skipped += page.skipped;
                }
                None => self.pages = None,
            }
        }
        self.is_over = self.held.objects.len() <= SLICE_NAMES;
        let mut page = std::mem::take(&mut self.held);
        let until = match self.is_over {
            true => None,
            false => {
                self.held.objects = page.objects.split_off(SLICE_NAMES);
                page.objects.last().and_then(|object| object.key.get(self.prefix_len..)).map(str::to_owned)
            }
        };
        let after = std::mem::replace(&mut self.after, until.clone());
        Ok(Some(Slice { range: NameRange { after, until }, page }))
    }
}

async fn fetch_pages(
    store: Arc<dyn Store>,
    policy: RetryPolicy,
    mut request: ListRequest,
    mut first: Option<ListPage>,
    sender: mpsc::Sender<Fetched>,
) {
    loop {
        let mut page = match first.take() {
            Some(page) => Ok(page),
            None => policy.run("list", store.url(), || store.list(&request)).await,
        };
        let next = match &mut page {
            Ok(page) => page.continuation.take(),
            Err(_) => None,
        };
        let is_last = next.is_none();
        if sender.send(Fetched { page, is_last }).await.is_err() || is_last {
            return;
        }
        request.continuation = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory_tree::DirectoryTree;
    use crate::stepped::{Stepped, Steps};
    use tradewind_contract::Limits;

    #[tokio::test]
    async fn a_listing_that_panics_is_an_error_and_not_an_end() {
        let tree = DirectoryTree::with(&[("a", b"1"), ("b", b"2")]);
        for steps in 0.. {
            let steps = Steps::panicking(steps);
            let store: Arc<dyn Store> = Stepped::with(&tree.store, &steps);
            let policy = RetryPolicy::from(&Limits::default());
            let listing = Listing::new(store, String::new(), policy, NameSpan::default(), Skips::default());
            let mut pages = listing.pages(&NameRange::default());
            let page = pages.next().await.expect("a page or an error");
            if !steps.are_over() {
                assert_eq!(page.unwrap().objects.len(), 2);
                assert!(pages.next().await.is_none());
                return;
            }
            assert_eq!(page.unwrap_err().kind, ErrorKind::Protocol);
            assert!(pages.next().await.is_none());
        }
    }

    #[tokio::test]
    async fn slices_cover_every_name_once() {
        for count in [0, 1, SLICE_NAMES, SLICE_NAMES + 1, 2 * SLICE_NAMES + 1, 4096, 5000] {
            let names: Vec<_> = (0..count).map(|number| format!("in/{:02}/{number:05}", number / 100)).collect();
            let tree = DirectoryTree::new();
            names.iter().for_each(|name| tree.write(name, b""));
            let policy = RetryPolicy::from(&Limits::default());
            let (store, prefix) = (tree.store.clone(), "in/".to_owned());
            let listing = Listing::new(store, prefix, policy, NameSpan::default(), Skips::default());
            let slices: Vec<_> = listing.slices().map(Result::unwrap).collect().await;
            assert_eq!(slices.len(), count.div_ceil(SLICE_NAMES).max(1));
            let (mut listed, mut after) = (Vec::new(), None);
            for Slice { range, page } in slices {
                assert_eq!(range.after, after);
                let last = page.objects.last().map(|object| object.key["in/".len()..].to_owned());
                listed.extend(page.objects.into_iter().map(|object| object.key));
                assert!(range.until.is_none() || range.until == last);
                after = range.until;
            }
            assert_eq!((listed, after), (names, None));
        }
    }

    #[tokio::test]
    async fn an_excluded_folder_of_files_is_not_listed() {
        let tree = DirectoryTree::with(&[("d/e/x", b"1"), ("d/y", b"1"), ("f", b"1")]);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let skips = Skips::new(move |key| {
            log.lock().unwrap().push(key.to_owned());
            key == "d/"
        });
        let policy = RetryPolicy::from(&Limits::default());
        let (store, prefix) = (tree.store.clone(), String::new());
        let listing = Listing::new(store, prefix, policy, NameSpan::default(), skips);
        let mut pages = listing.pages(&NameRange::default());
        let page = pages.next().await.unwrap().unwrap();
        assert_eq!(page.objects.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["f"]);
        assert_eq!((page.skipped, asked.lock().unwrap().as_slice()), (1, ["d/".to_owned()].as_slice()));
    }

    #[test]
    fn a_range_moves_to_another_prefix() {
        let range = KeyRange { after: Some("src/b".into()), until: Some("src/m/x".into()) };
        let moved = NameRange::below("src/", &range).keys_below("dst/deep/");
        assert_eq!(moved.after.as_deref(), Some("dst/deep/b"));
        assert_eq!(moved.until.as_deref(), Some("dst/deep/m/x"));
    }

    #[test]
    fn open_ends_stay_open() {
        assert_eq!(NameRange::below("src/", &KeyRange::default()).keys_below("dst/"), KeyRange::default());
    }
}

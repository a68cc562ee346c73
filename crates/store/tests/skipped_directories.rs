//! Listings that skip directories, at a server with folders in the order of bytes or one after the other.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tradewind_store::{ListRequest, Skips, Split, Store, StoreConfig, open, split_ranges};

/// The order of a server's listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// `a.txt`, `a/x`.
    Bytes,
    /// `a/x`, `a.txt`, as servers above a file system list.
    Folders,
}

/// An S3 server that only lists, pages of `page_keys` keys.
struct Server {
    keys: Vec<String>,
    page_keys: usize,
    requests: AtomicU64,
    /// The keys that it listed.
    listed: Mutex<Vec<String>>,
}

impl Server {
    /// Starts to listen, and returns a store at the server.
    fn start(keys: &BTreeSet<String>, order: Order, page_keys: usize) -> (Arc<Self>, Arc<dyn Store>) {
        let mut keys: Vec<String> = keys.iter().cloned().collect();
        if order == Order::Folders {
            keys.sort_by(|one, other| one.split('/').cmp(other.split('/')));
        }
        let server = Arc::new(Self { keys, page_keys, requests: AtomicU64::new(0), listed: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
        let serving = Arc::clone(&server);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let Some(first) = lines.next() else { continue };
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let body = serving.answer(&query_of(first.split(' ').nth(1).unwrap()));
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                (&stream).write_all((head + &body).as_bytes()).ok();
            }
        });
        let url = "s3://bucket".to_owned();
        let store = open(&StoreConfig { url, endpoint, anonymous: true, ..StoreConfig::default() }).unwrap();
        (server, store)
    }

    fn answer(&self, query: &BTreeMap<String, String>) -> String {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let text = |name: &str| query.get(name).cloned().unwrap_or_default();
        let (prefix, after) = (text("prefix"), text("start-after"));
        let from: usize = text("continuation-token").parse().unwrap_or(0);
        let max = text("max-keys").parse().unwrap_or(self.page_keys).min(self.page_keys);
        let is_asked =
            |key: &str| key.starts_with(&prefix) && (query.contains_key("continuation-token") || *key > *after);
        let found: Vec<_> = self.keys.iter().enumerate().skip(from).filter(|(_, key)| is_asked(key)).collect();
        let (mut folded, mut entries) = (BTreeSet::new(), String::new());
        for (_, key) in found.iter().take(max) {
            let rest = &key[prefix.len()..];
            match rest.find('/').filter(|_| query.contains_key("delimiter")) {
                Some(at) if folded.insert(&rest[..=at]) => {
                    entries += &format!("<CommonPrefixes><Prefix>{prefix}{}</Prefix></CommonPrefixes>", &rest[..=at])
                }
                Some(_) => {}
                None => {
                    self.listed.lock().unwrap().push((*key).clone());
                    entries += &format!(
                        "<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>\
                         <ETag>\"e\"</ETag><Size>1</Size></Contents>"
                    );
                }
            }
        }
        let next = found.get(max).map(|(at, _)| format!("<NextContinuationToken>{at}</NextContinuationToken>"));
        format!(
            "<ListBucketResult><KeyCount>1</KeyCount><IsTruncated>{}</IsTruncated>{}{entries}</ListBucketResult>",
            next.is_some(),
            next.unwrap_or_default()
        )
    }
}

fn query_of(path: &str) -> BTreeMap<String, String> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        (bytes, rest) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                (bytes, after)
            }
            _ => {
                bytes.push(*first);
                (bytes, after)
            }
        };
    }
    String::from_utf8(bytes).unwrap()
}

fn skipping(directories: &BTreeSet<String>) -> Skips {
    let directories = directories.clone();
    Skips::new(move |key| directories.contains(key))
}

async fn listed(store: &dyn Store, mut request: ListRequest) -> Vec<String> {
    let mut keys = Vec::new();
    loop {
        let page = store.list(&request).await.unwrap();
        keys.extend(page.objects.into_iter().map(|object| object.key));
        match page.continuation {
            Some(next) => request.continuation = Some(next),
            None => return keys,
        }
    }
}

fn texts(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn large_directory() -> BTreeSet<String> {
    let mut keys: BTreeSet<_> = (0..1000).map(|number| format!("node_modules/{number:03}/x")).collect();
    keys.extend(texts(&["a-b/x", "a/x", "node_modules.txt", "src/x", "z"]));
    keys
}

#[tokio::test]
async fn the_rest_of_a_directory_costs_no_requests() {
    let skips = skipping(&texts(&["node_modules/"]));
    for (order, requests_max) in [(Order::Bytes, 2), (Order::Folders, 101)] {
        let (server, store) = Server::start(&large_directory(), order, 10);
        let request = ListRequest { skips: skips.clone(), ..ListRequest::default() };
        let mut keys = listed(store.as_ref(), request).await;
        keys.retain(|key| !key.starts_with("node_modules/"));
        assert_eq!(
            keys.into_iter().collect::<BTreeSet<_>>(),
            texts(&["a-b/x", "a/x", "node_modules.txt", "src/x", "z"])
        );
        assert_eq!(store.lists_in_key_order(), order == Order::Bytes);
        assert_eq!(server.requests.load(Ordering::Relaxed), requests_max, "{order:?}");
    }
}

#[tokio::test]
async fn no_range_begins_in_a_skipped_directory() {
    let skips = skipping(&texts(&["node_modules/"]));
    let (server, store) = Server::start(&large_directory(), Order::Bytes, 10);
    let Split { ranges, .. } = split_ranges(store.as_ref(), "", 8, 1, &skips).await.unwrap();
    let bounds: Vec<_> = ranges.iter().filter_map(|range| range.after.as_deref()).collect();
    assert!(!bounds.is_empty() && bounds.iter().all(|bound| !bound.starts_with("node_modules/0")), "{bounds:?}");
    assert!(server.listed.lock().unwrap().len() < 100);
    // A range that lies in such a directory asks for nothing.
    let before = server.requests.load(Ordering::Relaxed);
    let (start_after, end_at) = (Some("node_modules/3".to_owned()), Some("node_modules/5".to_owned()));
    let keys = listed(store.as_ref(), ListRequest { start_after, end_at, skips, ..ListRequest::default() }).await;
    assert!(keys.is_empty() && server.requests.load(Ordering::Relaxed) == before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever a server's order, a listing has each key outside the skipped directories once.
    #[test]
    fn only_keys_of_skipped_directories_are_missing(
        keys in prop::collection::btree_set("[ab]{1,2}[.-]?[ab]?(/[ab]{1,2}[.-]?[ab]?){0,3}", 1..60),
        skipped in prop::collection::btree_set("[ab]{1,2}/([ab]{1,2}/)?", 0..6),
        is_by_bytes: bool,
        page_keys in 1_usize..8,
    ) {
        let order = if is_by_bytes { Order::Bytes } else { Order::Folders };
        let (_server, store) = Server::start(&keys, order, page_keys);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let request = ListRequest { skips: skipping(&skipped), ..ListRequest::default() };
        let found = runtime.block_on(listed(store.as_ref(), request));
        let matters = |key: &&String| !skipped.iter().any(|directory| key.starts_with(directory.as_str()));
        let mut found: Vec<_> = found.iter().filter(matters).collect();
        found.sort_unstable();
        prop_assert_eq!(found, keys.iter().filter(matters).collect::<Vec<_>>());
    }
}

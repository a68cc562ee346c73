//! Lists objects and unfinished uploads.

use super::Bucket;
use super::xml::{Listing, Next, parse_listing, parse_uploads};
use crate::{Error, ErrorKind, ListPage, ListRequest, ObjectInfo, PendingUpload, Result, UploadId};
use http::header::SERVER;
use http::{HeaderMap, Method};
use std::sync::atomic::Ordering;

/// Most pages of unfinished uploads read for one key; more are an error.
const UPLOAD_PAGES_MAX: usize = 100;
/// First letter of a continuation: a token (version 2 of the listing) or a key (version 1).
const TOKEN: char = 't';
const MARKER: char = 'm';
/// Name of the server whose listings end early if they begin after a key in a directory `c` beside a directory `c.d`
/// (version of February 2026). Its tokens work.
const MINIO: &[u8] = b"MinIO";
/// Header with the host that answered, which MinIO names by a SHA-256 in hexadecimal, AWS in Base64.
const HOST_ID: &str = "x-amz-id-2";

/// The start of a page.
#[derive(Clone, Copy, Debug)]
enum From<'a> {
    Start,
    /// After a key (version 2).
    StartAfter(&'a str),
    /// At a token (version 2).
    Token(&'a str),
    /// After a key (version 1).
    Marker(&'a str),
}

/// Returns whether MinIO answered. A proxy before it, such as nginx, may have put its own name in place of MinIO's.
fn is_of_minio(headers: &HeaderMap) -> bool {
    let is_named = headers.get(SERVER).is_some_and(|server| server.as_bytes().starts_with(MINIO));
    let is_sha256 = |id: &[u8]| id.len() == 64 && id.iter().all(u8::is_ascii_hexdigit);
    is_named || headers.get(HOST_ID).is_some_and(|id| is_sha256(id.as_bytes()))
}

impl Bucket {
    /// Returns one page. If a server answers in version 1 whatever it is asked, that is remembered, and later requests
    /// use version 1. Version 1 begins at `marker` and ignores `start-after`. A server that loses keys after a bound, or
    /// ignores it, gets no other one.
    pub(super) async fn list_objects(&self, request: &ListRequest) -> Result<ListPage> {
        if let (None, Some(after)) = (&request.continuation, &request.start_after)
            && self.must_list_from_start.load(Ordering::Relaxed)
        {
            return self.list_past(request, after).await;
        }
        let knows_v1_only = self.lists_v1_only.load(Ordering::Relaxed);
        let from = match (&request.continuation, &request.start_after) {
            (Some(text), _) => self.read_continuation(text)?,
            (None, Some(after)) if knows_v1_only => From::Marker(after),
            (None, Some(after)) => From::StartAfter(after),
            (None, None) => From::Start,
        };
        let mut listing = self.list_from(request, from).await?;
        if let From::StartAfter(after) = from
            && self.must_list_from_start.load(Ordering::Relaxed)
        {
            return self.list_past(request, after).await;
        }
        if let From::StartAfter(after) = from
            && !listing.is_v1()
            && listing.begins_before(after)
        {
            tracing::debug!(store = %self.url, "the server ignores the start of a listing");
            self.must_list_from_start.store(true, Ordering::Relaxed);
            return self.list_past(request, after).await;
        }
        if listing.is_v1() && !knows_v1_only {
            tracing::debug!(store = %self.url, "the server lists by version 1 only");
            self.lists_v1_only.store(true, Ordering::Relaxed);
            if let From::StartAfter(after) = from {
                listing = self.list_from(request, From::Marker(after)).await?;
            }
        }
        let next = listing.next().map_err(|fault| self.bad_listing("list", fault))?;
        let continuation = next.map(|next| match next {
            Next::Token(token) => format!("{TOKEN}{token}"),
            Next::Marker(marker) => format!("{MARKER}{marker}"),
        });
        Ok(self.page_of(listing, continuation))
    }

    /// Returns the first page with an entry after a key, found from the start of the listing. It may have more than
    /// `max_keys` entries.
    async fn list_past(&self, request: &ListRequest, after: &str) -> Result<ListPage> {
        let mut next =
            ListRequest { start_after: None, end_at: None, max_keys: None, continuation: None, ..request.clone() };
        loop {
            let mut page = Box::pin(self.list_objects(&next)).await?;
            page.objects.retain(|object| object.key.as_str() > after);
            page.prefixes.retain(|prefix| prefix.as_str() > after || after.starts_with(prefix.as_str()));
            if page.continuation.is_none() || !page.objects.is_empty() || !page.prefixes.is_empty() {
                return Ok(page);
            }
            next.continuation = page.continuation;
        }
    }

    fn read_continuation<'a>(&self, text: &'a str) -> Result<From<'a>> {
        let unknown =
            || Error::new(ErrorKind::BadRequest, "list", self.url.clone(), "this is not a continuation of a listing");
        match text.strip_prefix(TOKEN) {
            Some(token) => Ok(From::Token(token)),
            None => text.strip_prefix(MARKER).map(From::Marker).ok_or_else(unknown),
        }
    }

    async fn list_from(&self, request: &ListRequest, from: From<'_>) -> Result<Listing> {
        let max_keys = request.max_keys.map(|max| max.to_string());
        let mut query = vec![("encoding-type", "url")];
        if !matches!(from, From::Marker(_)) {
            query.push(("list-type", "2"));
        }
        if !request.prefix.is_empty() {
            query.push(("prefix", &request.prefix));
        }
        if request.delimited {
            query.push(("delimiter", "/"));
        }
        if let Some(max_keys) = &max_keys {
            query.push(("max-keys", max_keys));
        }
        match from {
            From::Token(token) => query.push(("continuation-token", token)),
            From::StartAfter(after) => query.push(("start-after", after)),
            From::Marker(marker) => query.push(("marker", marker)),
            From::Start => {}
        }
        let call = self.call("list", Method::GET, "", &query);
        let (headers, body) = self.send_small(call.clone()).await?;
        if is_of_minio(&headers) {
            self.must_list_from_start.store(true, Ordering::Relaxed);
        }
        let listing = parse_listing(&body).map_err(|error| self.late_refusal(&call, &body, error))?;
        if let From::Marker(marker) = from
            && let Some(key) = listing.keys.iter().map(|entry| &entry.key).find(|key| key.as_str() <= marker)
        {
            let fault =
                format!("the server ignores the marker: it lists {key:?}, which does not come after {marker:?}");
            return Err(self.bad_listing("list", fault));
        }
        Ok(listing)
    }

    fn bad_listing(&self, operation: &'static str, fault: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Protocol, operation, self.url.clone(), format!("bad listing: {fault}"))
    }

    fn page_of(&self, listing: Listing, continuation: Option<String>) -> ListPage {
        let objects = listing.keys.into_iter().map(|entry| ObjectInfo {
            key: entry.key,
            size_bytes: entry.size_bytes,
            etag: entry.etag,
            version: entry.generation,
            modified_unix_ms: entry.modified_unix_ms,
            storage_class: entry.storage_class,
            ..ObjectInfo::default()
        });
        let refused = listing.undecodable.into_iter().map(|key| {
            let url = format!("{}/{key}", self.url);
            Error::new(ErrorKind::InvalidKey, "list", url, "the key is not UTF-8")
        });
        let (objects, refused) = (objects.collect::<Vec<_>>(), refused.collect());
        self.key_order.learn(&objects);
        ListPage { objects, prefixes: listing.prefixes, refused, continuation, skipped: 0 }
    }

    /// Returns the unfinished uploads of exactly `key`.
    pub(super) async fn list_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        let mut pending = Vec::new();
        let mut marker: Option<(String, String)> = None;
        for _ in 0..UPLOAD_PAGES_MAX {
            let mut query = vec![("uploads", ""), ("encoding-type", "url"), ("prefix", key)];
            if let Some((key_marker, upload_marker)) = &marker {
                query.extend([("key-marker", key_marker.as_str()), ("upload-id-marker", upload_marker.as_str())]);
            }
            let call = self.call("list uploads", Method::GET, "", &query);
            let (_, body) = self.send_small(call.clone()).await?;
            let listing = parse_uploads(&body).map_err(|error| self.late_refusal(&call, &body, error))?;
            let next = listing.next().map_err(|fault| self.bad_listing("list uploads", fault))?;
            // Longer keys with this prefix come after `key`.
            let is_beyond = listing.uploads.last().is_some_and(|entry| entry.key.as_str() > key);
            let of_key = listing.uploads.into_iter().filter(|entry| entry.key == key);
            let found = of_key.map(|entry| (UploadId(entry.upload), entry.opened_unix_ms));
            pending.extend(found.map(|(upload, opened_unix_ms)| PendingUpload { upload, opened_unix_ms }));
            match next {
                Some(next) if !is_beyond => {
                    if marker.as_ref() == Some(&next) {
                        let fault = "the server repeats its markers, so the listing does not advance";
                        return Err(self.bad_listing("list uploads", fault));
                    }
                    marker = Some(next);
                }
                _ => return Ok(pending),
            }
        }
        let message = format!("more than {UPLOAD_PAGES_MAX} pages of unfinished uploads");
        Err(Error::new(ErrorKind::Unsupported, "list uploads", self.url.clone(), message))
    }
}

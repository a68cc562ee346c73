//! HEAD, GET and listings.

use super::headers::object_info;
use super::xml::{Listing, parse_listing};
use super::{Bucket, cut_page};
use crate::rest::{Call, content_length, expected_bytes, stream_exactly};
use crate::{Download, Error, ErrorKind, ListPage, ListRequest, ObjectInfo, Precondition, Result};
use futures::StreamExt;
use http::Method;
use std::ops::Range;

impl Bucket {
    pub(super) async fn head_object(&self, key: &str, condition: &Precondition) -> Result<ObjectInfo> {
        self.check_key("head", key)?;
        let call = self.read_call("head", Method::HEAD, key, condition)?;
        let response = self.send(call.clone()).await?;
        let headers = response.headers();
        let size =
            content_length(headers).ok_or_else(|| call.error(ErrorKind::Server, "the answer has no Content-Length"))?;
        Ok(object_info(self.dialect, key, size, headers))
    }

    pub(super) async fn get_object(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        condition: &Precondition,
    ) -> Result<Download> {
        self.check_key("get", key)?;
        if range.as_ref().is_some_and(Range::is_empty) {
            // HTTP cannot ask for nothing.
            let info = self.head_object(key, condition).await?;
            return Ok(Download { info, body: futures::stream::empty().boxed() });
        }
        let mut call = self.read_call("get", Method::GET, key, condition)?;
        call.patient = true;
        if let Some(range) = &range {
            call.set("range", &format!("bytes={}-{}", range.start, range.end - 1))?;
        }
        let response = self.send(call.clone()).await?;
        let (head, body) = response.into_parts();
        call.headers.clear();
        let (expected, size) = expected_bytes(&call, head.status, &head.headers, range.as_ref())?;
        let info = object_info(self.dialect, key, size, &head.headers);
        Ok(Download { info, body: stream_exactly(call, body, expected) })
    }

    fn read_call(&self, operation: &'static str, method: Method, key: &str, condition: &Precondition) -> Result<Call> {
        let version = condition.version.as_deref().filter(|version| *version != "null");
        let mut call = match version {
            Some(version) if self.dialect.if_version.is_none() => {
                self.call(operation, method, key, &[("versionId", version)])
            }
            _ => self.call(operation, method, key, &[]),
        };
        if let (Some(version), Some(name)) = (version, self.dialect.if_version) {
            call.set(name, version)?;
        }
        if let Some(etag) = &condition.etag {
            call.set("if-match", &format!("\"{etag}\""))?;
        }
        if self.dialect.amz_checksums {
            call.set("x-amz-checksum-mode", "ENABLED")?;
        } else {
            // Otherwise GCS unpacks objects that are stored with `Content-Encoding: gzip`.
            call.set("accept-encoding", "gzip")?;
        }
        Ok(call)
    }

    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        let max_keys = request.max_keys.map(|max| max.to_string());
        let mut query = vec![("list-type", "2"), ("encoding-type", "url")];
        if !request.prefix.is_empty() {
            query.push(("prefix", &request.prefix));
        }
        if request.delimited {
            query.push(("delimiter", "/"));
        }
        if let Some(max_keys) = &max_keys {
            query.push(("max-keys", max_keys));
        }
        match (&request.continuation, &request.start_after) {
            (Some(token), _) => query.push(("continuation-token", token)),
            (None, Some(after)) => query.push(("start-after", after)),
            (None, None) => {}
        }
        let call = self.call("list", Method::GET, "", &query);
        let (_, body) = self.send_small(call.clone()).await?;
        let listing = parse_listing(&body).map_err(|error| self.late_refusal(&call, &body, error))?;
        let mut page = self.page_of(listing);
        cut_page(&mut page, request.end_at.as_deref());
        Ok(page)
    }

    fn page_of(&self, listing: Listing) -> ListPage {
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
            Error::new(ErrorKind::InvalidKey, "list", url, "the key is no UTF-8 text")
        });
        ListPage {
            objects: objects.collect(),
            prefixes: listing.prefixes,
            refused: refused.collect(),
            continuation: listing.continuation,
        }
    }
}

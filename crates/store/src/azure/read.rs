//! Properties, reads and listings.

use super::AzureStore;
use super::headers::object_info;
use super::xml::parse_listing;
use crate::rest::{Call, content_length, expected_bytes, header, read_error, stream_exactly};
use crate::xml::parse_tags;
use crate::{Download, ErrorKind, ListPage, ListRequest, ObjectInfo, Precondition, Result, Tags};
use futures::StreamExt;
use http::{HeaderMap, Method};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl AzureStore {
    fn read_call(&self, operation: &'static str, method: Method, key: &str, condition: &Precondition) -> Result<Call> {
        self.check_key(operation, key)?;
        // Each write gives a blob a new ETag. The version in the answer is checked too.
        let mut call = self.call(operation, method, key, &[]);
        if let Some(etag) = &condition.etag {
            call.set("if-match", &format!("\"{etag}\""))?;
        }
        Ok(call)
    }

    pub(super) async fn head_blob(&self, key: &str, condition: &Precondition) -> Result<ObjectInfo> {
        let call = self.read_call("head", Method::HEAD, key, condition)?;
        let response = self.send(call.clone()).await?;
        self.refuse_directory(&call, response.headers())?;
        let size = content_length(response.headers());
        let size = size.ok_or_else(|| call.error(ErrorKind::Server, "the answer has no Content-Length"))?;
        let info = object_info(key, size, false, response.headers());
        call.require(condition, &info)?;
        Ok(info)
    }

    pub(super) async fn blob_tags(&self, key: &str) -> Result<Tags> {
        self.check_key("get tags", key)?;
        let call = self.call("get tags", Method::GET, key, &[("comp", "tags")]);
        let (_, body) = self.send_small(call.clone()).await?;
        parse_tags(&body, "Tags").map_err(|error| call.error(ErrorKind::Server, error))
    }

    /// Refuses a directory of a hierarchical namespace, or the empty blob that Hadoop uses to mark one: neither is an
    /// object.
    fn refuse_directory(&self, call: &Call, headers: &HeaderMap) -> Result<()> {
        let says = |name: &str, value: &str| header(headers, name).is_some_and(|said| said.eq_ignore_ascii_case(value));
        let is_marker = says("x-ms-meta-hdi_isfolder", "true") && content_length(headers) == Some(0);
        match says("x-ms-resource-type", "directory") || is_marker {
            true => Err(call.error(ErrorKind::NotFound, "it is a directory")),
            false => Ok(()),
        }
    }

    pub(super) async fn get_blob(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        condition: &Precondition,
    ) -> Result<Download> {
        if range.as_ref().is_some_and(Range::is_empty) {
            // HTTP cannot request an empty range.
            let info = self.head_blob(key, condition).await?;
            return Ok(Download { info, body: futures::stream::empty().boxed() });
        }
        let mut call = self.read_call("get", Method::GET, key, condition)?;
        call.patient = true;
        if let Some(range) = &range {
            // Not `Range`: that header is part of the signature, and some proxies alter it.
            call.set("x-ms-range", &format!("bytes={}-{}", range.start, range.end - 1))?;
        }
        let sent = self.send(call.clone()).await.map_err(|error| read_error(error, condition))?;
        let (head, body) = sent.into_parts();
        call.headers.clear();
        self.refuse_directory(&call, &head.headers)?;
        let (expected, size) = expected_bytes(&call, head.status, &head.headers, range.as_ref())
            .map_err(|error| read_error(error, condition))?;
        // The status says too little: some servers answer a range with 200, and a body of the whole blob's size is whole.
        let is_range = head.status == http::StatusCode::PARTIAL_CONTENT || expected != size;
        let info = object_info(key, size, is_range, &head.headers);
        call.require(condition, &info)?;
        Ok(Download { info, body: stream_exactly(call, body, expected, self.http.availability()) })
    }

    pub(super) async fn list_blobs(&self, request: &ListRequest) -> Result<ListPage> {
        let prefix = request.prefix.as_str();
        let after = request.start_after.as_deref().filter(|after| *after >= prefix);
        if after.is_some_and(|after| !after.starts_with(prefix)) {
            // After all keys with this prefix.
            return Ok(ListPage::default());
        }
        let mut page = self.list_once(request, after, request.continuation.as_deref()).await?;
        if let Some(after) = after {
            // `startFrom` is inclusive, and old servers ignore it.
            let is_first = request.continuation.is_none();
            if is_first && page.objects.iter().any(|object| object.key.as_str() < after) {
                self.ignores_start.store(true, Ordering::Relaxed);
            }
            page.objects.retain(|object| object.key.as_str() > after);
            page.prefixes.retain(|prefix| prefix.as_str() > after);
        }
        Ok(page)
    }

    async fn list_once(&self, request: &ListRequest, after: Option<&str>, marker: Option<&str>) -> Result<ListPage> {
        let max = request.max_keys.map(|max| max.to_string());
        // Metadata is needed to recognise directory markers.
        let mut query = vec![("restype", "container"), ("comp", "list"), ("include", "metadata")];
        if !request.prefix.is_empty() {
            query.push(("prefix", &request.prefix));
        }
        if request.delimited {
            query.push(("delimiter", "/"));
        }
        if let Some(max) = &max {
            query.push(("maxresults", max));
        }
        match (marker, after) {
            (Some(marker), _) => query.push(("marker", marker)),
            (None, Some(after)) => query.push(("startFrom", after)),
            (None, None) => {}
        }
        let call = self.call("list", Method::GET, "", &query);
        let (_, body) = self.send_small(call.clone()).await?;
        let listing = parse_listing(&body).map_err(|error| call.error(ErrorKind::Server, error))?;
        let continuation = listing.next.ok_or_else(|| {
            let fault = "bad listing: the answer has no NextMarker, so more blobs may follow";
            call.error(ErrorKind::Protocol, fault)
        })?;
        self.key_order.learn(&listing.blobs);
        Ok(ListPage {
            objects: listing.blobs,
            prefixes: listing.prefixes,
            refused: Vec::new(),
            continuation: Some(continuation).filter(|marker| !marker.is_empty()),
            skipped: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Precondition, StoreConfig};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// Starts a server that answers one request with these header lines and this body.
    fn answering_once(lines: &str, body: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nLast-Modified: Mon, 06 May 2024 07:08:09 GMT\r\nx-ms-blob-type: BlockBlob\r\n\
             Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n{lines}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            head.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        origin
    }

    #[tokio::test]
    async fn the_md5_of_a_range_is_not_that_of_its_blob_whatever_the_status() {
        for (lines, knows_md5) in [("Content-Range: bytes 0-4/100\r\n", false), ("", true)] {
            let endpoint = Some(answering_once(lines, "12345"));
            let url = "az://account/container".to_owned();
            let store = crate::open(&StoreConfig { url, endpoint, anonymous: true, ..StoreConfig::default() }).unwrap();
            let got = store.get("key", Some(0..5), &Precondition::default()).await.unwrap();
            assert_eq!(got.info.checksums.md5.is_some(), knows_md5, "{lines}");
        }
    }
}

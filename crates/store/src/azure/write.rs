//! Put Blob, blocks, copies and deletes.

use super::headers::{encode_crc64, etag, set_attributes, set_metadata, set_options, set_tags, written};
use super::xml::{block_list, parse_uncommitted};
use super::{AzureStore, LIMITS};
use crate::model::stays;
use crate::rest::{Call, header, is_web_page, refuse_foreign_answer};
use crate::rest::{WorkLimits, still_at_work, work_limits};
use crate::{
    Attributes, Checksums, Crcs, Error, ErrorKind, Expect, ObjectDeletion, PartSource, PartTag, Payload, PendingUpload,
    Precondition, PutOptions, Result, UploadId, Written, look_at_written,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Most concurrent deletes.
const DELETES_IN_FLIGHT: usize = 16;
/// Interval at which a copy that Azure makes in the background is polled.
const COPY_POLL: Duration = Duration::from_millis(500);
/// Longest time that a copy may make no progress, if the caller sets no limit.
const COPY_SILENCE_MAX: Duration = Duration::from_secs(3600);
/// Why a copy is not ours any more.
const REPLACED: &str = "another write to this key replaced it";
/// Digits of an upload id.
const UPLOAD_DIGITS: usize = 16;

/// Returns a new upload id. Azure keeps none, so any unused id will do.
pub(super) fn new_upload() -> UploadId {
    UploadId(format!("{:016x}", rand::random::<u64>()))
}

/// Returns the id of a block. All block ids of a blob must have the same length.
fn block_id(upload: &UploadId, part: u32) -> String {
    BASE64_STANDARD.encode(format!("{}-{part:07}", upload.0))
}

fn is_upload(text: &str) -> bool {
    text.len() == UPLOAD_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The payload's CRC-64, given or computed, so that no byte is sent unprotected.
fn crc64_of(payload: &Payload, given: &Checksums) -> u64 {
    let computed = || payload.checksums(Crcs::Crc64).crc64nvme;
    given.crc64nvme.or_else(computed).unwrap_or_default()
}

impl AzureStore {
    pub(super) async fn put_blob(
        &self,
        key: &str,
        payload: Payload,
        checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        self.check_key("put", key)?;
        let mut call = self.call("put", Method::PUT, key, &[]);
        call.set("x-ms-blob-type", "BlockBlob")?;
        call.set("x-ms-content-crc64", &encode_crc64(crc64_of(&payload, checksums)))?;
        set_options(&mut call, options)?;
        call.body = payload;
        call.patient = true;
        let (headers, _) = self.send_expecting(call, options.expect.as_ref()).await?;
        Ok(written(&headers, true))
    }

    pub(super) async fn put_block(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        payload: Payload,
        checksums: &Checksums,
    ) -> Result<PartTag> {
        self.check_key("put part", key)?;
        let tag = block_id(upload, part);
        let mut call = self.call("put part", Method::PUT, key, &[("comp", "block"), ("blockid", &tag)]);
        if !is_upload(&upload.0) {
            return Err(call.error(ErrorKind::UploadNotFound, "no such upload"));
        }
        let crc64nvme = crc64_of(&payload, checksums);
        call.set("x-ms-content-crc64", &encode_crc64(crc64nvme))?;
        let size_bytes = payload.len();
        call.body = payload;
        call.patient = true;
        self.send_write(call).await?;
        Ok(PartTag { part, size_bytes, tag, checksums: Checksums { crc64nvme: Some(crc64nvme), ..*checksums } })
    }

    pub(super) async fn put_block_list(&self, key: &str, parts: &[PartTag], options: &PutOptions) -> Result<Written> {
        let mut call = self.call("complete upload", Method::PUT, key, &[("comp", "blocklist")]);
        set_options(&mut call, options)?;
        let body = Bytes::from(block_list(parts.iter().map(|part| part.tag.as_str())));
        call.set("x-ms-content-crc64", &encode_crc64(crc64_of(&body.clone().into(), &Checksums::default())))?;
        call.body = body.into();
        call.patient = true;
        let (headers, _) = self.send_expecting(call, options.expect.as_ref()).await?;
        Ok(written(&headers, false))
    }

    /// Sends a write under the condition that it replaces what is expected. A server that does not support conditions,
    /// as some emulators do not, gets it without; a copy is not repeated, because the refusal may concern its source.
    async fn send_expecting(&self, call: Call, expect: Option<&Expect>) -> Result<(HeaderMap, Bytes)> {
        let condition = match expect.filter(|_| !self.refuses_write_conditions.load(Ordering::Relaxed)) {
            Some(Expect::Absent) => Some(("if-none-match", "*".to_owned())),
            Some(Expect::Is(state)) => state.etag.as_ref().map(|etag| ("if-match", format!("\"{etag}\""))),
            None => None,
        };
        let Some((name, value)) = condition else { return self.send_write(call).await };
        let mut conditional = call.clone();
        conditional.set(name, &value)?;
        match self.send_write(conditional).await {
            Err(error) if error.kind == ErrorKind::Unsupported && error.operation != "copy" => {
                let done = self.send_write(call).await?;
                tracing::debug!(store = %self.url, "the server refuses conditions on writes");
                self.refuses_write_conditions.store(true, Ordering::Relaxed);
                Ok(done)
            }
            // Nothing exists to match. For a copy, 404 may also mean that the source is missing.
            Err(error) if error.kind == ErrorKind::NotFound && error.operation != "copy" => {
                Err(Error { kind: ErrorKind::PreconditionFailed, ..error })
            }
            done => done,
        }
    }

    /// Sends a write. A successful answer must have an ETag or no body.
    async fn send_write(&self, call: Call) -> Result<(HeaderMap, Bytes)> {
        let asked = Call { body: Payload::default(), ..call.clone() };
        let (headers, body) = self.send_small(call).await?;
        refuse_foreign_answer(&asked, header(&headers, "etag"), &body)?;
        Ok((headers, body))
    }

    /// Returns the uploads with uncommitted blocks. Azure does not say when they began.
    pub(super) async fn uncommitted(&self, key: &str) -> Result<Vec<PendingUpload>> {
        let query = [("comp", "blocklist"), ("blocklisttype", "uncommitted")];
        let call = self.call("list uploads", Method::GET, key, &query);
        let body = match self.send_small(call.clone()).await {
            Ok((_, body)) => body,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let names = parse_uncommitted(&body).map_err(|error| call.error(ErrorKind::Server, error))?;
        let uploads: BTreeSet<&str> = names
            .iter()
            .filter_map(|name| name.split_once('-'))
            .map(|(upload, _)| upload)
            .filter(|upload| is_upload(upload))
            .collect();
        let pending = |upload: &str| PendingUpload { upload: UploadId(upload.to_owned()), opened_unix_ms: 0 };
        Ok(uploads.into_iter().map(pending).collect())
    }

    pub(super) async fn copy_blob(&self, key: &str, source: &PartSource, options: &PutOptions) -> Result<Written> {
        self.check_key("copy", key)?;
        let mut call = self.call("copy", Method::PUT, key, &[]);
        if source.range.is_some() {
            return Err(call.error(ErrorKind::Unsupported, "a whole object is copied without a range"));
        }
        let readable = if self.foreign_source().is_some() {
            call.set("x-ms-requires-sync", "true")?;
            self.granted_readable(&call, source).await?
        } else {
            self.own_readable(&call, source).await?
        };
        readable.put_into(&mut call, source)?;
        set_metadata(&mut call, &options.attributes)?;
        set_tags(&mut call, &options.tags)?;
        if let Some(tier) = &options.storage_class {
            call.set("x-ms-access-tier", tier)?;
        }
        call.patient = true;
        let (mut headers, _) = self.send_expecting(call.clone(), options.expect.as_ref()).await?;
        if header(&headers, "x-ms-copy-status") == Some("pending") {
            let id = header(&headers, "x-ms-copy-id").map(str::to_owned);
            headers = self.wait_for_copy(&call, key, id.as_deref()).await?;
        }
        if options.attributes != Attributes::default() {
            if options.attributes.metadata.is_empty() {
                // A copy whose request names no metadata has that of its source.
                headers = self.amend_copy(self.metadata_removal(key), &headers).await?;
            }
            headers = self.amend_copy(self.properties_change(key, &options.attributes)?, &headers).await?;
        }
        // The present ETag of the copy: it changes while the copy is pending, so that of the first answer is outdated.
        let written = Written { etag: etag(&headers), ..Written::default() };
        look_at_written(self, key, &written, &Checksums::default()).await
    }

    /// Writes a range of the source as a block.
    pub(super) async fn copy_block(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        source: &PartSource,
    ) -> Result<PartTag> {
        self.check_key("copy part", key)?;
        let tag = block_id(upload, part);
        let mut call = self.call("copy part", Method::PUT, key, &[("comp", "block"), ("blockid", &tag)]);
        if !is_upload(&upload.0) {
            return Err(call.error(ErrorKind::UploadNotFound, "no such upload"));
        }
        let Some(range) = source.range.clone().filter(|range| !range.is_empty()) else {
            return Err(call.error(ErrorKind::BadRequest, "a part is copied from a range that is not empty"));
        };
        self.granted_readable(&call, source).await?.put_into(&mut call, source)?;
        call.set("x-ms-source-range", &format!("bytes={}-{}", range.start, range.end - 1))?;
        call.patient = true;
        let (headers, _) = self.send_small(call).await?;
        Ok(PartTag { part, size_bytes: range.end - range.start, tag, checksums: written(&headers, true).checksums })
    }

    /// Waits for a copy. Within one account most copies are done at once; Azure makes large ones in the background. A
    /// copy that makes no progress for too long is aborted. If the blob reports no copy, or another one, another writer
    /// replaced it.
    async fn wait_for_copy(&self, call: &Call, key: &str, id: Option<&str>) -> Result<HeaderMap> {
        let replaced = || call.error(ErrorKind::Overwritten, REPLACED);
        let limits = work_limits().unwrap_or(WorkLimits::of(COPY_SILENCE_MAX, 0));
        let (began, mut moved, mut copied) = (Instant::now(), Instant::now(), None);
        let mut is_abort_refused = false;
        loop {
            tokio::time::sleep(COPY_POLL).await;
            let response =
                self.send(self.call("copy", Method::HEAD, key, &[])).await.map_err(|error| match error.kind {
                    ErrorKind::NotFound => {
                        call.error(ErrorKind::Lost, "the store accepted the copy but does not have it")
                    }
                    _ => error,
                })?;
            if id.is_some() && header(response.headers(), "x-ms-copy-id") != id {
                return Err(replaced());
            }
            match header(response.headers(), "x-ms-copy-status") {
                Some("pending") => {
                    let now = header(response.headers(), "x-ms-copy-progress").map(str::to_owned);
                    if now != copied {
                        (moved, copied) = (Instant::now(), now);
                    }
                    let ended = if moved.elapsed() >= limits.silence_max {
                        format!("the copy has made no progress for {} s", limits.silence_max.as_secs())
                    } else if began.elapsed() >= limits.total_max {
                        format!("the store is still working after {} s", limits.total_max.as_secs())
                    } else {
                        still_at_work(call)?;
                        continue;
                    };
                    let ended = copied.as_ref().map_or(ended.clone(), |copied| format!("{ended} ({copied} bytes)"));
                    let then = match self.abort_copy(key, id).await {
                        Ok(()) => "it was aborted".to_owned(),
                        Err(error) if is_abort_refused => format!("it could not be aborted: {error}"),
                        // It may have ended in the meantime.
                        Err(_) => {
                            is_abort_refused = true;
                            continue;
                        }
                    };
                    return Err(call.error(ErrorKind::Unfinished, format!("{ended}; {then}")));
                }
                Some("success") => return Ok(response.headers().clone()),
                None => return Err(replaced()),
                Some(status) => {
                    let why = header(response.headers(), "x-ms-copy-status-description").unwrap_or_default();
                    self.remove_empty(key, etag(response.headers())).await.ok();
                    return Err(call.error(ErrorKind::Server, format!("the copy ended as {status}: {why}")));
                }
            }
        }
    }

    /// Aborts a copy and removes the empty blob that Azure leaves behind.
    async fn abort_copy(&self, key: &str, id: Option<&str>) -> Result<()> {
        let mut call = self.call("abort copy", Method::PUT, key, &[("comp", "copy"), ("copyid", id.unwrap_or(""))]);
        call.set("x-ms-copy-action", "abort")?;
        self.send_small(call).await?;
        let response = self.send(self.call("abort copy", Method::HEAD, key, &[])).await?;
        match header(response.headers(), "x-ms-copy-id") == id {
            true => self.remove_empty(key, etag(response.headers())).await,
            false => Ok(()),
        }
    }

    /// Removes the empty blob that a failed copy left under `key`, if its ETag is still `etag`.
    async fn remove_empty(&self, key: &str, etag: Option<String>) -> Result<()> {
        if etag.is_none() {
            return Ok(());
        }
        let condition = Precondition { etag, size_bytes: Some(0), ..Precondition::default() };
        self.delete_blob(&ObjectDeletion { key: key.to_owned(), condition }).await
    }

    fn metadata_removal(&self, key: &str) -> Call {
        self.call("copy", Method::PUT, key, &[("comp", "metadata")])
    }

    fn properties_change(&self, key: &str, attributes: &Attributes) -> Result<Call> {
        let mut call = self.call("copy", Method::PUT, key, &[("comp", "properties")]);
        set_attributes(&mut call, attributes)?;
        Ok(call)
    }

    /// Changes a copy, if it still has the ETag of the last answer about it. Otherwise another writer has replaced it,
    /// and its object must keep what it has.
    async fn amend_copy(&self, mut call: Call, last: &HeaderMap) -> Result<HeaderMap> {
        let etag = etag(last).ok_or_else(|| call.error(ErrorKind::Protocol, "the answer has no ETag"))?;
        call.set("if-match", &format!("\"{etag}\""))?;
        let answer = self.send_small(call.clone()).await.map_err(|error| match error.kind {
            ErrorKind::PreconditionFailed => call.error(ErrorKind::Overwritten, REPLACED),
            // Within the copy's own time, only another client can have removed it.
            ErrorKind::NotFound => call.error(ErrorKind::Lost, "the store acknowledged the copy, but no longer has it"),
            _ => error,
        });
        answer.map(|(headers, _)| headers)
    }

    pub(super) async fn delete_blobs(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>> {
        if objects.len() > LIMITS.delete_keys_max {
            let message =
                format!("the request has {} keys, but the store allows {}", objects.len(), LIMITS.delete_keys_max);
            return Err(Error::new(ErrorKind::BadRequest, "delete", self.url.clone(), message));
        }
        let deletes: Vec<_> = objects.iter().map(|deletion| self.delete_blob(deletion)).collect();
        Ok(futures::stream::iter(deletes).buffered(DELETES_IN_FLIGHT).collect().await)
    }

    async fn delete_blob(&self, deletion: &ObjectDeletion) -> Result<()> {
        let ObjectDeletion { key, condition } = deletion;
        self.check_key("delete", key)?;
        let url = || format!("{}/{key}", self.url);
        if !condition.is_any() && (!self.is_azure_itself() || condition.etag.is_none()) {
            // Other servers may ignore the condition on the delete.
            match self.head_blob(key, &Precondition::default()).await {
                Ok(now) => condition.check_for_deletion(url(), &now)?,
                Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // No `x-ms-delete-snapshots`: Azure must refuse to delete snapshots, which may be the only copies.
        let mut call = self.call("delete", Method::DELETE, key, &[]);
        if let Some(etag) = &condition.etag {
            call.set("if-match", &format!("\"{etag}\""))?;
        }
        match self.send_small(call.clone()).await {
            Ok((_, body)) if is_web_page(&body) => {
                Err(call.error(ErrorKind::Protocol, "the answer does not come from the store: it is a web page"))
            }
            Err(error) if error.kind == ErrorKind::HasSnapshots => {
                let message = "it was kept: deleting it would also delete its snapshots";
                Err(Error::new(error.kind, error.operation, error.url, message))
            }
            Err(error) if error.kind == ErrorKind::PreconditionFailed => {
                Err(stays(url(), "the store reports a different version"))
            }
            Err(error) if error.kind != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn is_azure_itself(&self) -> bool {
        self.origin.starts_with("https://") && self.origin.ends_with(".windows.net")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delegated, StoreAuthority, StoreConfig};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    /// A container in which each write gives the blob the next ETag. After `writes_kept` of them, another client
    /// replaces the blob. Returns the origin, and the writes that the blob took: their queries.
    fn container_with_another_writer(writes_kept: usize) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let writes = Arc::clone(&taken);
        std::thread::spawn(move || {
            let mut etag = "0".to_owned();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let condition = head.iter().find_map(|line| line.strip_prefix("if-match: "));
                let mut status = "200 OK";
                if head[0].starts_with("PUT") {
                    let mut writes = writes.lock().unwrap();
                    if condition.is_some_and(|condition| condition != format!("\"{etag}\"")) {
                        status = "412 Precondition Failed";
                    } else {
                        writes.push(head[0].split(['?', ' ']).nth(2).unwrap_or_default().to_owned());
                        etag = writes.len().to_string();
                    }
                }
                let answer = format!(
                    "HTTP/1.1 {status}\r\nETag: \"{etag}\"\r\nLast-Modified: Mon, 06 May 2024 07:08:09 GMT\r\n\
                     x-ms-blob-type: BlockBlob\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                if writes.lock().unwrap().len() == writes_kept {
                    etag = "other".to_owned();
                }
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (origin, taken)
    }

    async fn copy_with_a_content_type(origin: String) -> Result<Written> {
        let url = "az://account/container".to_owned();
        let config = StoreConfig { url, endpoint: Some(origin), anonymous: true, ..StoreConfig::default() };
        let attributes = Attributes { content_type: Some("text/x-test".to_owned()), ..Attributes::default() };
        let options = PutOptions { attributes: attributes.into(), ..PutOptions::default() };
        let (bucket, condition) = ("container".to_owned(), Precondition::default());
        let source = PartSource { bucket, key: "source".to_owned(), condition, range: None };
        crate::open(&config).unwrap().copy("key", &source, &options).await
    }

    #[tokio::test]
    async fn a_copy_that_another_writer_replaces_is_left_alone() {
        for (writes_kept, expected) in [(1, 1), (2, 2)] {
            let (origin, taken) = container_with_another_writer(writes_kept);
            let error = copy_with_a_content_type(origin).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Overwritten, "{error}");
            assert_eq!(taken.lock().unwrap().len(), expected, "the other writer's blob was changed");
        }
        let (origin, taken) = container_with_another_writer(usize::MAX);
        assert_eq!(copy_with_a_content_type(origin).await.unwrap().etag.as_deref(), Some("3"));
        assert_eq!(taken.lock().unwrap()[1..], ["comp=metadata", "comp=properties"]);
    }

    /// Starts a server that sends each request's source of a copy to the test.
    fn container_that_tells_sources() -> (String, std::sync::mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (sender, sources) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
                let source = head.filter_map(|line| line.strip_prefix("x-ms-copy-source: ").map(str::to_owned)).last();
                source.map(|source| sender.send(source));
                let answer = "HTTP/1.1 202 Accepted\r\nETag: \"1\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (origin, sources)
    }

    #[tokio::test]
    async fn only_a_shared_access_signature_is_in_the_address_of_a_source() {
        let signature = [("sv", "2020"), ("sig", "a+b=")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (authority, query) in [
            (StoreAuthority::AzureSas(signature.to_vec()), "?sig=a%2Bb%3D&sv=2020"),
            (StoreAuthority::AzureKey("a2V5".to_owned()), ""),
            (StoreAuthority::Bearer("token".to_owned()), ""),
        ] {
            let (origin, sources) = container_that_tells_sources();
            let config = StoreConfig {
                url: "az://account/container".to_owned(),
                endpoint: Some(origin.clone()),
                delegated: Some(Arc::new(Delegated::new(Ok(authority), None))),
                ..StoreConfig::default()
            };
            let (bucket, condition) = ("other".to_owned(), Precondition::default());
            let source = PartSource { bucket, key: "a b".to_owned(), condition, range: None };
            let store = crate::open(&config).unwrap();
            store.copy("key", &source, &PutOptions::default()).await.ok();
            assert_eq!(sources.recv().unwrap(), format!("{origin}/other/a%20b{query}"));
        }
    }

    /// A server that cannot read the source at first. Returns its origin, and for each write whether it had a condition.
    fn container_that_reads_its_source_later() -> (String, Arc<Mutex<Vec<bool>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let conditional = Arc::new(Mutex::new(Vec::new()));
        let writes = Arc::clone(&conditional);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut head = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
                let is_first = writes.lock().unwrap().is_empty();
                writes.lock().unwrap().push(head.any(|line| line.starts_with("if-none-match: ")));
                let status = match is_first {
                    true => "403 Forbidden\r\nx-ms-error-code: CannotVerifyCopySource",
                    false => "201 Created\r\nETag: \"1\"",
                };
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (origin, conditional)
    }

    #[tokio::test]
    async fn a_copy_whose_source_is_refused_is_not_repeated_without_its_condition() {
        let (origin, conditional) = container_that_reads_its_source_later();
        let url = "az://account/container".to_owned();
        let config = StoreConfig { url, endpoint: Some(origin), anonymous: true, ..StoreConfig::default() };
        let (bucket, condition) = ("container".to_owned(), Precondition::default());
        let source = PartSource { bucket, key: "source".to_owned(), condition, range: None };
        let options = PutOptions { expect: Some(Expect::Absent), ..PutOptions::default() };
        let error = crate::open(&config).unwrap().copy("key", &source, &options).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
        assert_eq!(*conditional.lock().unwrap(), [true], "an object that another writer has made would be replaced");
    }

    #[test]
    fn block_ids_have_one_length_and_name_their_upload() {
        let upload = new_upload();
        assert!(is_upload(&upload.0));
        assert_eq!(block_id(&upload, 1).len(), block_id(&upload, 50_000).len());
        let decoded = BASE64_STANDARD.decode(block_id(&upload, 7)).unwrap();
        assert_eq!(String::from_utf8(decoded).unwrap(), format!("{}-0000007", upload.0));
    }
}

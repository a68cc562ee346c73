//! PUT, multipart uploads and copies.

use super::Bucket;
use super::errors::may_refuse_checksum;
use super::expectation::Condition;
use super::headers::{LEGAL_HOLD, LOCK_MODE, checksums as header_checksums, md5_of_etag, version, written};
use super::send::Refusal;
use super::xml::{encode_crc32, encode_crc64, parse_opened, parse_write};
use crate::rest::{Call, encode_path, header};
use crate::{
    Attributes, Checksums, Crcs, Error, ErrorKind, PartSource, PartTag, Payload, PutOptions, Result, UploadId, Written,
    look_at_written,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Incoming;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Kinds of checksum in the order they are tried. The last always works: every server accepts a write without one.
const CHECKSUM_KINDS: [ChecksumKind; 3] = [ChecksumKind::Crc64Nvme, ChecksumKind::Crc32c, ChecksumKind::Nothing];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChecksumKind {
    Crc64Nvme,
    Crc32c,
    Nothing,
}

impl ChecksumKind {
    /// Sets the checksum header of the body that follows, or of the whole object at completion.
    fn set(self, call: &mut Call, sums: &Checksums) -> Result<()> {
        match (self, sums.crc64nvme, sums.crc32c) {
            (Self::Crc64Nvme, Some(crc), _) => call.set("x-amz-checksum-crc64nvme", &encode_crc64(crc)),
            (Self::Crc32c, _, Some(crc)) => call.set("x-amz-checksum-crc32c", &encode_crc32(crc)),
            _ => Ok(()),
        }
    }

    /// Returns whether the server knows this checksum for each part. It may lack those of copied parts; then it cannot
    /// combine them.
    fn is_known_of(self, parts: &[PartTag]) -> bool {
        parts.iter().all(|part| match self {
            Self::Crc64Nvme => part.checksums.crc64nvme.is_some(),
            Self::Crc32c => part.checksums.crc32c.is_some(),
            Self::Nothing => true,
        })
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Self::Crc64Nvme => Some("CRC64NVME"),
            Self::Crc32c => Some("CRC32C"),
            Self::Nothing => None,
        }
    }
}

/// The CRCs of a payload that a server may check, given or computed, so that no byte is sent unprotected. `None` if
/// the bytes are not those of the given ones.
fn guarded(payload: &Payload, given: &Checksums, wants_crc32c: bool) -> Option<Checksums> {
    match given {
        Checksums { crc64nvme: None, .. } => {
            let computed = payload.checksums(Crcs::Both);
            let is_same = computed.agrees_with(&Checksums { md5: None, ..*given }) != Some(false);
            is_same.then_some(Checksums { md5: given.md5, ..computed })
        }
        _ if wants_crc32c => payload.with_crc32c(given),
        _ => Some(*given),
    }
}

fn damaged(call: &Call) -> Error {
    call.error(ErrorKind::ChecksumMismatch, "the bytes do not match their checksum")
}

impl Bucket {
    /// Google takes and states no CRC-64/NVME. Neither do some other servers, and one that does says so when it answers a
    /// write.
    pub(super) fn wants_crc32c(&self) -> bool {
        let sends_crc64 = self.checksum_kind.load(Ordering::Relaxed) == 0;
        !self.dialect.amz_checksums || !sends_crc64 || !self.states_crc64.load(Ordering::Relaxed)
    }

    fn guard(&self, call: &Call, payload: &Payload, given: &Checksums) -> Result<Checksums> {
        guarded(payload, given, self.wants_crc32c()).ok_or_else(|| damaged(call))
    }

    /// Sends `call` with the strongest kind of checksum that this server has not refused. If a refusal may be due to
    /// the checksum, the next kind is tried; the first kind that works is remembered.
    async fn send_with_checksum(
        &self,
        call: Call,
        condition: Option<Condition>,
        decorate: impl Fn(ChecksumKind, &mut Call) -> Result<()>,
    ) -> Result<Response<Incoming>> {
        let first = usize::from(self.checksum_kind.load(Ordering::Relaxed));
        let mut first_refusal: Option<Refusal> = None;
        for (index, kind) in CHECKSUM_KINDS.iter().enumerate().skip(first) {
            let make = || {
                let mut attempt = call.clone();
                decorate(*kind, &mut attempt).map(|()| attempt)
            };
            match self.send_on(condition.as_ref(), make).await {
                Ok(response) => {
                    if index > first {
                        tracing::debug!(store = %self.url, kind = ?kind, "the server refused stronger checksums");
                        self.checksum_kind.store(index as u8, Ordering::Relaxed);
                    }
                    return Ok(response);
                }
                Err(refusal) if self.dialect.amz_checksums && may_refuse_checksum(refusal.status, &refusal.code) => {
                    first_refusal.get_or_insert(refusal);
                }
                Err(refusal) => return Err(first_refusal.unwrap_or(refusal).into()),
            }
        }
        let otherwise = || call.error(ErrorKind::Server, "refused").into();
        Err(first_refusal.unwrap_or_else(otherwise).into())
    }

    /// Sends the bytes of an object or a part with their checksum.
    async fn send_payload(
        &self,
        mut call: Call,
        payload: Payload,
        sums: &Checksums,
        condition: Option<Condition>,
    ) -> Result<HeaderMap> {
        call.patient = true;
        let asked = call.clone();
        call.body = payload;
        if !self.dialect.amz_checksums {
            set_google_hash(&mut call, sums)?;
        }
        let amz = self.dialect.amz_checksums;
        let names_kind = call.headers.contains_key(LOCK_MODE) || call.headers.contains_key(LEGAL_HOLD);
        let decorate = |kind: ChecksumKind, call: &mut Call| {
            let Some(name) = kind.name().filter(|_| amz) else { return Ok(()) };
            match kind {
                // A server that has stated a CRC-64/NVME may refuse one later.
                ChecksumKind::Crc32c => {
                    let sums = call.body.with_crc32c(sums).ok_or_else(|| damaged(call))?;
                    kind.set(call, &sums)?;
                }
                _ => kind.set(call, sums)?,
            }
            // S3 requires it of objects with a lock of their own.
            if names_kind { call.set("x-amz-sdk-checksum-algorithm", name) } else { Ok(()) }
        };
        let response = self.send_with_checksum(call, condition, decorate).await?;
        let (head, body) = response.into_parts();
        if header_checksums(self.dialect, &head.headers).crc64nvme.is_some() {
            self.states_crc64.store(true, Ordering::Relaxed);
        }
        let body = crate::rest::read_all(&asked, body).await?;
        self.refuse_late(&asked, &head, &body)?;
        crate::rest::refuse_foreign_answer(&asked, header(&head.headers, "etag"), &body)?;
        Ok(head.headers)
    }

    pub(super) async fn put_object(
        &self,
        key: &str,
        payload: Payload,
        checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        self.check_key("put", key)?;
        let mut call = self.call("put", Method::PUT, key, &[]);
        let sums = self.guard(&call, &payload, checksums)?;
        self.set_options(&mut call, options)?;
        let condition = self.condition(options.expect.as_ref());
        let headers = self.send_payload(call, payload, &sums, condition).await?;
        Ok(written(self.dialect, &headers))
    }

    pub(super) async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        self.check_key("open upload", key)?;
        let mut call = self.call("open upload", Method::POST, key, &[("uploads", "")]);
        self.set_options(&mut call, options)?;
        let amz = self.dialect.amz_checksums;
        let response = self
            .send_with_checksum(call.clone(), None, |kind, call| {
                if let Some(name) = kind.name().filter(|_| amz) {
                    call.set("x-amz-checksum-algorithm", name)?;
                    call.set("x-amz-checksum-type", "FULL_OBJECT")?;
                }
                Ok(())
            })
            .await?;
        let body = crate::rest::read_all(&call, response.into_body()).await?;
        let answer = parse_opened(&body).map_err(|error| self.late_refusal(&call, &body, error))?;
        let upload = answer.upload.filter(|upload| !upload.is_empty());
        upload.map(UploadId).ok_or_else(|| call.error(ErrorKind::Server, "the answer has no upload id"))
    }

    pub(super) async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        payload: Payload,
        checksums: &Checksums,
    ) -> Result<PartTag> {
        let size_bytes = payload.len();
        let number = part.to_string();
        let call = self.call("put part", Method::PUT, key, &[("partNumber", &number), ("uploadId", &upload.0)]);
        let error_call = call.clone();
        let sums = self.guard(&error_call, &payload, checksums)?;
        let headers = self.send_payload(call, payload, &sums, None).await?;
        let written = written(self.dialect, &headers);
        let tag = written.etag.ok_or_else(|| error_call.error(ErrorKind::Server, "the answer has no ETag"))?;
        let checksums = Checksums { crc64nvme: sums.crc64nvme, crc32c: sums.crc32c, md5: written.checksums.md5 };
        Ok(PartTag { part, size_bytes, tag, checksums })
    }

    pub(super) async fn finish_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        let mut call = self.call("complete upload", Method::POST, key, &[("uploadId", &upload.0)]);
        call.patient = true;
        let size: u64 = parts.iter().map(|part| part.size_bytes).sum();
        let amz = self.dialect.amz_checksums;
        let condition = self.condition(options.expect.as_ref()).filter(|_| self.dialect.conditional_completion);
        let response = self
            .send_with_checksum(call.clone(), condition, |kind, call| {
                let kind = if amz && kind.is_known_of(parts) { kind } else { ChecksumKind::Nothing };
                call.body = Bytes::from(completion_body(parts, kind)).into();
                kind.set(call, checksums)?;
                if kind != ChecksumKind::Nothing && (checksums.crc64nvme.is_some() || checksums.crc32c.is_some()) {
                    call.set("x-amz-checksum-type", "FULL_OBJECT")?;
                    call.set("x-amz-mp-object-size", &size.to_string())?;
                }
                Ok(())
            })
            .await
            .map_err(|error| match error.kind {
                // A store that accepted the parts supports completing an upload.
                ErrorKind::Unsupported => Error { kind: ErrorKind::Server, ..error },
                _ => error,
            })?;
        let (head, body) = response.into_parts();
        let body = crate::rest::read_all(&call, body).await?;
        // The status is sent before the work is done; if the work fails, the error is in the body.
        let answer = parse_write(&body, "CompleteMultipartUploadResult")
            .map_err(|error| self.late_refusal(&call, &body, error))?;
        let stated = header_checksums(self.dialect, &head.headers);
        let written = Written {
            etag: answer.etag,
            version: version(self.dialect, &head.headers),
            checksums: if stated == Checksums::default() { answer.checksums } else { stated },
            ..Written::default()
        };
        self.with_stated_checksums(key, written, checksums).await
    }

    /// Asks the store for the object and its checksums if the answer to the write had none.
    async fn with_stated_checksums(&self, key: &str, written: Written, sent: &Checksums) -> Result<Written> {
        if written.checksums != Checksums::default() {
            return Ok(written);
        }
        match look_at_written(self, key, &written, sent).await {
            // The write is done and must not be repeated. Without a length, the caller asks for the object again and
            // has more to compare.
            Err(error) if error.kind.is_transient() || error.kind == ErrorKind::Overwritten => Ok(written),
            looked => looked,
        }
    }

    pub(super) async fn forget_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let call = self.call("abort upload", Method::DELETE, key, &[("uploadId", &upload.0)]);
        match self.send_small(call).await {
            Ok(_) => Ok(()),
            Err(refusal) if matches!(refusal.error.kind, ErrorKind::UploadNotFound | ErrorKind::NotFound) => Ok(()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// A call whose body comes from another object of the same service.
    fn copy_call(
        &self,
        operation: &'static str,
        key: &str,
        query: &[(&str, &str)],
        source: &PartSource,
    ) -> Result<Call> {
        let mut call = self.call(operation, Method::PUT, key, query);
        call.patient = true;
        if let (Some(version), Some(name)) = (&source.condition.version, self.dialect.copy_source_if_version) {
            call.set(name, version)?;
        }
        call.set(self.dialect.copy_source, &encode_path(&format!("/{}", source.bucket), &source.key))?;
        if let Some(etag) = &source.condition.etag {
            call.set(self.dialect.copy_source_if_match, &format!("\"{etag}\""))?;
        }
        Ok(call)
    }

    pub(super) async fn copy_object(&self, key: &str, source: &PartSource, options: &PutOptions) -> Result<Written> {
        self.check_key("copy", key)?;
        let mut call = self.copy_call("copy", key, &[], source)?;
        if source.range.is_some() {
            return Err(call.error(ErrorKind::Unsupported, "a whole object is copied without a range"));
        }
        let replace = options.attributes != Attributes::default();
        call.set(self.dialect.metadata_directive, if replace { "REPLACE" } else { "COPY" })?;
        if let Some(name) =
            self.dialect.tagging_directive.filter(|_| options.drops_source_tags || !options.tags.is_empty())
        {
            call.set(name, "REPLACE")?;
        }
        self.set_options(&mut call, options)?;
        let condition = self.condition(options.expect.as_ref());
        let response = match self.send_on(condition.as_ref(), || Ok(call.clone())).await {
            Err(refusal) if self.dialect.rewrites && refusal.status == StatusCode::PAYLOAD_TOO_LARGE => {
                return self.rewrite(key, source, options, refusal).await;
            }
            answer => answer?,
        };
        let (head, body) = response.into_parts();
        let body = crate::rest::read_all(&call, body).await?;
        self.refuse_late(&call, &head, &body)?;
        let headers = head.headers;
        let answer = parse_write(&body, "CopyObjectResult").map_err(|error| self.late_refusal(&call, &body, error))?;
        refuse_other_version(&call, source, &headers)?;
        let mut stated = header_checksums(self.dialect, &headers);
        if stated == Checksums::default() {
            stated = answer.checksums;
        }
        let version = version(self.dialect, &headers);
        Ok(Written { etag: answer.etag, version, checksums: stated, ..Written::default() })
    }

    pub(super) async fn upload_part_copy(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        source: &PartSource,
    ) -> Result<PartTag> {
        let number = part.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", upload.0.as_str())];
        let mut call = self.copy_call("copy part", key, &query, source)?;
        if !self.dialect.part_copy {
            return Err(call.error(ErrorKind::Unsupported, "this store copies whole objects only"));
        }
        let Some(range) = source.range.clone().filter(|range| !range.is_empty()) else {
            return Err(call.error(ErrorKind::BadRequest, "the copy of a part needs a range"));
        };
        call.set("x-amz-copy-source-range", &format!("bytes={}-{}", range.start, range.end - 1))?;
        let (headers, body) = self.send_small(call.clone()).await?;
        let answer = parse_write(&body, "CopyPartResult").map_err(|error| self.late_refusal(&call, &body, error))?;
        refuse_other_version(&call, source, &headers)?;
        let tag = answer.etag.ok_or_else(|| call.error(ErrorKind::Server, "the answer has no ETag"))?;
        let checksums = Checksums { md5: md5_of_etag(&tag), ..answer.checksums };
        Ok(PartTag { part, size_bytes: range.end - range.start, tag, checksums })
    }
}

/// Sets `x-goog-hash`, whose checksums GCS verifies.
fn set_google_hash(call: &mut Call, sums: &Checksums) -> Result<()> {
    match sums.crc32c {
        Some(crc) => call.set("x-goog-hash", &format!("crc32c={}", encode_crc32(crc))),
        None => Ok(()),
    }
}

/// Refuses a copy of another version. In a versioned bucket the answer names the version that was copied; some servers
/// ignore the condition.
fn refuse_other_version(call: &Call, source: &PartSource, headers: &HeaderMap) -> Result<()> {
    let copied = header(headers, "x-amz-copy-source-version-id");
    match (&source.condition.version, copied) {
        (Some(wanted), Some(copied)) if wanted != copied => {
            Err(call.error(ErrorKind::PreconditionFailed, "the store copied a different version than requested"))
        }
        _ => Ok(()),
    }
}

fn completion_body(parts: &[PartTag], kind: ChecksumKind) -> String {
    let mut body = String::with_capacity(64 + parts.len() * 128);
    body.push_str("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for part in parts {
        let _ = write!(body, "<Part><PartNumber>{}</PartNumber><ETag>\"", part.part);
        crate::xml::escape_into(&mut body, &part.tag);
        body.push_str("\"</ETag>");
        match (kind, part.checksums.crc64nvme, part.checksums.crc32c) {
            (ChecksumKind::Crc64Nvme, Some(crc), _) => {
                let _ = write!(body, "<ChecksumCRC64NVME>{}</ChecksumCRC64NVME>", encode_crc64(crc));
            }
            (ChecksumKind::Crc32c, _, Some(crc)) => {
                let _ = write!(body, "<ChecksumCRC32C>{}</ChecksumCRC32C>", encode_crc32(crc));
            }
            _ => {}
        }
        body.push_str("</Part>");
    }
    body.push_str("</CompleteMultipartUpload>");
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_names_each_part_with_its_checksum() {
        let checksums = Checksums { crc64nvme: Some(1), crc32c: Some(2), md5: None };
        let parts = [PartTag { part: 3, size_bytes: 1, tag: "a\"b".to_owned(), checksums }];
        let body = completion_body(&parts, ChecksumKind::Crc32c);
        assert!(body.contains("<PartNumber>3</PartNumber><ETag>\"a&quot;b\"</ETag>"), "{body}");
        assert!(body.contains("<ChecksumCRC32C>AAAAAg==</ChecksumCRC32C>"), "{body}");
        assert!(!completion_body(&parts, ChecksumKind::Nothing).contains("Checksum"));
    }

    #[test]
    fn missing_checksums_are_computed() {
        let payload = Payload::from(Bytes::from_static(b"123456789"));
        let (crc64, crc32) = (0xae8b_1486_0a79_9888, 0xe306_9283);
        let sums = |crc64nvme, crc32c| Checksums { crc64nvme, crc32c, md5: None };
        let both = sums(Some(crc64), Some(crc32));
        for wants_crc32c in [false, true] {
            assert_eq!(guarded(&payload, &Checksums::default(), wants_crc32c), Some(both));
            assert_eq!(guarded(&payload, &sums(None, Some(crc32)), wants_crc32c), Some(both));
            assert_eq!(guarded(&payload, &sums(None, Some(1)), wants_crc32c), None);
            let given = sums(Some(1), Some(2));
            assert_eq!(guarded(&payload, &given, wants_crc32c), Some(given));
        }
        let source = sums(Some(crc64), None);
        assert_eq!(guarded(&payload, &source, false), Some(source));
        assert_eq!(guarded(&payload, &source, true), Some(both));
    }

    #[test]
    fn no_crc32c_vouches_for_damaged_bytes() {
        let payload = Payload::from(Bytes::from_static(b"123456788"));
        let given = Checksums { crc64nvme: Some(0xae8b_1486_0a79_9888), ..Checksums::default() };
        assert_eq!(guarded(&payload, &given, true), None);
    }
}

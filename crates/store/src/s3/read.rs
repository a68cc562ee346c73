//! HEAD and GET.

use super::Bucket;
use super::headers::{object_info, version};
use super::send::Refusal;
use crate::rest::{Call, content_length, expected_bytes, read_error, stream_exactly};
use crate::xml::parse_tags;
use crate::{Download, Error, ErrorKind, ObjectInfo, Precondition, Result, Tags};
use futures::StreamExt;
use http::Method;
use std::ops::Range;

impl Bucket {
    pub(super) async fn head_object(&self, key: &str, condition: &Precondition) -> Result<ObjectInfo> {
        self.check_key("head", key)?;
        let call = self.read_call("head", Method::HEAD, key, condition)?;
        let response = match self.send(call.clone()).await {
            Ok(response) => response,
            Err(refusal) => return Err(self.explained(refusal, key, condition).await),
        };
        let headers = response.headers();
        let size =
            content_length(headers).ok_or_else(|| call.error(ErrorKind::Server, "the answer has no Content-Length"))?;
        let info = object_info(self.dialect, key, size, headers);
        call.require(condition, &info)?;
        Ok(info)
    }

    /// The reason of a refused `HEAD`. Its answer has no body, so a refusal that may be about a customer's key is
    /// explained by a read of one byte.
    async fn explained(&self, refusal: Refusal, key: &str, condition: &Precondition) -> Error {
        if refusal.error.kind != ErrorKind::BadRequest {
            return refusal.into();
        }
        let explained = async {
            let mut call = self.read_call("head", Method::GET, key, condition)?;
            call.set("range", "bytes=0-0")?;
            self.send(call).await.map(drop)
        };
        match explained.await {
            Err(explained) if explained.error.kind == ErrorKind::CustomerKey => explained.into(),
            _ => refusal.into(),
        }
    }

    pub(super) async fn get_object(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        condition: &Precondition,
    ) -> Result<Download> {
        self.check_key("get", key)?;
        if range.as_ref().is_some_and(Range::is_empty) {
            // HTTP cannot request an empty range.
            let info = self.head_object(key, condition).await?;
            return Ok(Download { info, body: futures::stream::empty().boxed() });
        }
        let mut call = self.read_call("get", Method::GET, key, condition)?;
        call.patient = true;
        if let Some(range) = &range {
            call.set("range", &format!("bytes={}-{}", range.start, range.end - 1))?;
        }
        let sent = self.send(call.clone()).await.map_err(|refusal| read_error(refusal.into(), condition))?;
        let (head, body) = sent.into_parts();
        call.headers.clear();
        let (expected, size) = expected_bytes(&call, head.status, &head.headers, range.as_ref())
            .map_err(|error| read_error(error, condition))?;
        let info = object_info(self.dialect, key, size, &head.headers);
        call.require(condition, &info)?;
        Ok(Download { info, body: stream_exactly(call, body, expected, self.http.availability()) })
    }

    /// The tags of the latest version. If the answer is about another version than `condition`, the object has changed.
    pub(super) async fn object_tags(&self, key: &str, condition: &Precondition) -> Result<Tags> {
        self.check_key("get tags", key)?;
        let call = self.call("get tags", Method::GET, key, &[("tagging", "")]);
        let (headers, body) = match self.send_small(call.clone()).await {
            Ok(answer) => answer,
            Err(refusal) if refusal.code == "NoSuchTagSet" => return Ok(Tags::new()),
            Err(refusal) => return Err(refusal.into()),
        };
        let read = version(self.dialect, &headers);
        if condition.version.is_some() && read.is_some() && read != condition.version {
            return Err(call.error(ErrorKind::PreconditionFailed, "the object has a new version"));
        }
        parse_tags(&body, "Tagging").map_err(|error| call.error(ErrorKind::Server, error))
    }

    fn read_call(&self, operation: &'static str, method: Method, key: &str, condition: &Precondition) -> Result<Call> {
        let mut call = self.call(operation, method, key, &[]);
        // S3 has no condition on the version, so the version in its answer is checked. Reading by `versionId` would
        // need another permission, and would hide that the object was replaced.
        if let (Some(version), Some(name)) = (&condition.version, self.dialect.if_version) {
            call.set(name, version)?;
        }
        if let Some(etag) = &condition.etag {
            call.set("if-match", &format!("\"{etag}\""))?;
        }
        if self.dialect.amz_checksums {
            call.set("x-amz-checksum-mode", "ENABLED")?;
        } else {
            // Otherwise GCS decompresses objects that are stored with `Content-Encoding: gzip`.
            call.set("accept-encoding", "gzip")?;
        }
        Ok(call)
    }
}

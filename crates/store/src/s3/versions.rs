//! Lists and deletes versions of objects and delete markers.
//!
//! An id names one version for ever, except `null`: where a bucket keeps no versions, every write and delete replaces the
//! version `null` of its key. So that version is looked at right before it is deleted, and stays if it is not the one
//! that was listed. A write between the two requests is lost.

use super::Bucket;
use super::delete::{SINGLE_REQUESTS_IN_FLIGHT, verdicts_of};
use super::headers::object_info;
use super::xml::unquote;
use crate::model::{ObjectVersion, VersionMarker, VersionPage, stays};
use crate::rest::{ErrorAnswer, parse_rfc3339, percent_decode};
use crate::xml::{XmlError, can_hold, escape_into, walk};
use crate::{Error, ErrorKind, Result, Rounds};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use http::{Method, StatusCode};
use md5::{Digest, Md5};
use std::collections::{HashMap, HashSet};

impl Bucket {
    /// True if the bucket has the versions of S3, not the generations of Google.
    pub(crate) fn is_s3(&self) -> bool {
        self.dialect.if_version.is_none()
    }

    pub(crate) fn versions_per_delete_max(&self) -> usize {
        self.limits.delete_keys_max.max(1)
    }

    /// See [`crate::Versions::list`].
    pub(crate) async fn list_versions(&self, prefix: &str, after: Option<&VersionMarker>) -> Result<VersionPage> {
        let mut query = vec![("versions", ""), ("encoding-type", "url")];
        if !prefix.is_empty() {
            query.push(("prefix", prefix));
        }
        if let Some(after) = after {
            query.push(("key-marker", &after.key));
            if !after.version.is_empty() {
                query.push(("version-id-marker", &after.version));
            }
        }
        let call = self.call("list versions", Method::GET, "", &query);
        let (_, body) = self.send_small(call.clone()).await?;
        let page = parse_versions(&body).map_err(|error| self.late_refusal(&call, &body, error))?;
        let bad = |fault: String| call.error(ErrorKind::Protocol, format!("bad listing: {fault}"));
        if let Some(stray) = page.versions.iter().find(|version| !version.key.starts_with(prefix)) {
            return Err(bad(format!("it has {:?}, which does not begin with {prefix:?}", stray.key)));
        }
        Ok(page)
    }

    /// See [`crate::Versions::delete`].
    pub(crate) async fn delete_versions(&self, versions: &[ObjectVersion]) -> Result<Vec<Result<()>>> {
        let looks: Vec<_> = versions.iter().map(|version| self.is_left(version)).collect();
        let looked: Vec<Result<bool>> =
            futures::stream::iter(looks).buffered(SINGLE_REQUESTS_IN_FLIGHT).collect().await;
        let left = versions.iter().zip(&looked).filter(|(_, looked)| matches!(looked, Ok(true)));
        let left: Vec<&ObjectVersion> = left.map(|(version, _)| version).collect();
        let deleted = self.delete_left_versions(&left).await?;
        Ok(verdicts_of(looked, deleted, &self.url))
    }

    /// Returns whether there is such a version to delete, or an error if another one has taken its id.
    async fn is_left(&self, version: &ObjectVersion) -> Result<bool> {
        if !version.may_be_replaced() || !version.is_marker && self.is_stated_as_listed(version).await? {
            return Ok(true);
        }
        let Some(now) = self.list_version(version).await? else { return Ok(false) };
        let difference = match () {
            () if now.is_marker != version.is_marker && version.is_marker => "it was a delete marker",
            () if now.is_marker != version.is_marker => "it is a delete marker now",
            () if now.etag != version.etag => "its ETag differs",
            () if now.modified_unix_ms != version.modified_unix_ms => "its modification time differs",
            () => return Ok(true),
        };
        Err(stays(format!("{}/{}", self.url, version.key), difference))
    }

    /// Returns whether a `HEAD` states this version as its listing did. If not, or if the server refuses the question, a
    /// listing must decide: it is more exact, but costs more.
    async fn is_stated_as_listed(&self, version: &ObjectVersion) -> Result<bool> {
        let call = self.call("head", Method::HEAD, &version.key, &[("versionId", &version.version)]);
        let response = match self.send(call).await {
            Ok(response) => response,
            Err(refusal) if refusal.error.kind.is_transient() => return Err(refusal.into()),
            Err(_) => return Ok(false),
        };
        let now = object_info(self.dialect, &version.key, version.size_bytes, response.headers());
        let is_of_one_second = now.modified_unix_ms / 1000 == version.modified_unix_ms / 1000;
        Ok(now.etag.is_some() && now.etag == version.etag && is_of_one_second)
    }

    /// Lists the version that has the id of this one now; `None` if there is none.
    async fn list_version(&self, version: &ObjectVersion) -> Result<Option<ObjectVersion>> {
        let (mut after, mut rounds) = (None, Rounds::default());
        loop {
            let page = self.list_versions(&version.key, after.as_ref()).await?;
            // Longer keys with this prefix come after the key.
            let is_beyond = page.versions.last().is_some_and(|last| last.key > version.key);
            let is_it = |found: &ObjectVersion| found.key == version.key && found.version == version.version;
            let found = page.versions.into_iter().find(is_it);
            match page.next {
                Some(next) if found.is_none() && !is_beyond && !rounds.repeats(&next) => after = Some(next),
                _ => return Ok(found),
            }
        }
    }

    async fn delete_left_versions(&self, versions: &[&ObjectVersion]) -> Result<Vec<Result<()>>> {
        if self.dialect.batch_delete && versions.len() > 1 && versions.iter().all(|version| can_hold(&version.key)) {
            return self.delete_version_batch(versions).await;
        }
        let singles: Vec<_> = versions.iter().map(|version| self.delete_version(version)).collect();
        Ok(futures::stream::iter(singles).buffered(SINGLE_REQUESTS_IN_FLIGHT).collect().await)
    }

    async fn delete_version(&self, version: &ObjectVersion) -> Result<()> {
        let call = self.call("delete", Method::DELETE, &version.key, &[("versionId", &version.version)]);
        match self.send_small(call).await {
            Ok(_) => Ok(()),
            Err(refusal) if is_gone(refusal.error.kind, &refusal.code) => Ok(()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    async fn delete_version_batch(&self, versions: &[&ObjectVersion]) -> Result<Vec<Result<()>>> {
        let mut call = self.call("delete", Method::POST, "", &[("delete", "")]);
        let body = delete_body(versions);
        call.set("content-md5", &BASE64_STANDARD.encode(Md5::digest(body.as_bytes())))?;
        call.set("content-type", "application/xml")?;
        call.body = Bytes::from(body).into();
        let (_, answer) = self.send_small(call.clone()).await?;
        let answer = parse_deletions(&answer).map_err(|error| self.late_refusal(&call, &answer, error))?;
        Ok(versions.iter().map(|version| self.verdict(version, &answer)).collect())
    }

    /// A version counts as deleted only if the server says so.
    fn verdict(&self, version: &ObjectVersion, answer: &Deletions) -> Result<()> {
        let named = (version.key.clone(), version.version.clone());
        let error = |kind, message| Err(Error::new(kind, "delete", format!("{}/{}", self.url, version.key), message));
        if let Some(failure) = answer.failures.get(&named) {
            let kind = super::errors::meaning(StatusCode::INTERNAL_SERVER_ERROR, &failure.code);
            return match is_gone(kind, &failure.code) {
                true => Ok(()),
                false => error(kind, format!("{} ({})", failure.message, failure.code)),
            };
        }
        match answer.deleted.contains(&named) {
            true => Ok(()),
            false => error(ErrorKind::Server, format!("the server reported no result for version {}", version.version)),
        }
    }
}

fn is_gone(kind: ErrorKind, code: &str) -> bool {
    kind == ErrorKind::NotFound || code == "NoSuchVersion"
}

/// Key and id of a version.
type Named = (String, String);

/// `DeleteResult`, by version.
#[derive(Debug, Default)]
struct Deletions {
    deleted: HashSet<Named>,
    failures: HashMap<Named, ErrorAnswer>,
}

/// Reads a `ListVersionsResult` that is percent-encoded as requested, or is not.
fn parse_versions(xml: &[u8]) -> Result<VersionPage, XmlError> {
    let mut page = VersionPage::default();
    let mut entry = ObjectVersion::default();
    let (mut is_truncated, mut is_encoded) = (None, false);
    let mut next = VersionMarker { key: String::new(), version: String::new() };
    walk(xml, "ListVersionsResult", |at| {
        match (at.parent, at.name) {
            ("Version" | "DeleteMarker", "Key") => at.text.clone_into(&mut entry.key),
            ("Version" | "DeleteMarker", "VersionId") => at.text.clone_into(&mut entry.version),
            ("Version", "ETag") => entry.etag = unquote(at.text),
            ("Version" | "DeleteMarker", "IsLatest") => entry.is_latest = at.text.trim() == "true",
            ("Version" | "DeleteMarker", "LastModified") => {
                entry.modified_unix_ms = parse_rfc3339(at.text).unwrap_or(0);
            }
            ("Version", "Size") => entry.size_bytes = at.number()?,
            ("ListVersionsResult", "Version" | "DeleteMarker") => {
                entry.is_marker = at.name == "DeleteMarker";
                if entry.key.is_empty() || entry.version.is_empty() {
                    return Err(XmlError("an entry has no key or no version".to_owned()));
                }
                page.versions.push(std::mem::take(&mut entry));
            }
            ("ListVersionsResult", "IsTruncated") => is_truncated = Some(at.text.trim() == "true"),
            ("ListVersionsResult", "NextKeyMarker") => at.text.clone_into(&mut next.key),
            ("ListVersionsResult", "NextVersionIdMarker") => at.text.clone_into(&mut next.version),
            ("ListVersionsResult", "EncodingType") => is_encoded = at.text == "url",
            _ => {}
        }
        Ok(())
    })?;
    if is_encoded {
        let decode =
            |text: &str| percent_decode(text).ok_or_else(|| XmlError(format!("the key {text:?} is not UTF-8")));
        for version in &mut page.versions {
            version.key = decode(&version.key)?;
        }
        next.key = decode(&next.key)?;
    }
    match is_truncated {
        None => return Err(XmlError("the server does not say whether more versions follow".to_owned())),
        Some(true) if next.key.is_empty() => {
            return Err(XmlError("more versions follow, but the server sent no key marker".to_owned()));
        }
        Some(true) => page.next = Some(next),
        Some(false) => {}
    }
    Ok(page)
}

/// Reads a `DeleteResult`.
fn parse_deletions(xml: &[u8]) -> Result<Deletions, XmlError> {
    let mut answer = Deletions::default();
    let (mut named, mut failure) = (Named::default(), ErrorAnswer::default());
    walk(xml, "DeleteResult", |at| {
        match (at.parent, at.name) {
            ("Error" | "Deleted", "Key") => at.text.clone_into(&mut named.0),
            ("Error" | "Deleted", "VersionId") => at.text.clone_into(&mut named.1),
            ("Error", "Code") => at.text.clone_into(&mut failure.code),
            ("Error", "Message") => at.text.clone_into(&mut failure.message),
            ("DeleteResult", "Error") => {
                answer.failures.insert(std::mem::take(&mut named), std::mem::take(&mut failure));
            }
            ("DeleteResult", "Deleted") => {
                answer.deleted.insert(std::mem::take(&mut named));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(answer)
}

/// The body of `DeleteObjects` for versions.
fn delete_body(versions: &[&ObjectVersion]) -> String {
    let mut body = String::from("<Delete>");
    for version in versions {
        body.push_str("<Object><Key>");
        escape_into(&mut body, &version.key);
        body.push_str("</Key><VersionId>");
        escape_into(&mut body, &version.version);
        body.push_str("</VersionId></Object>");
    }
    body.push_str("</Delete>");
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_and_markers() {
        let xml = br#"<ListVersionsResult><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>
<NextKeyMarker>a%2Fb</NextKeyMarker><NextVersionIdMarker>v1</NextVersionIdMarker>
<DeleteMarker><Key>a%2Fb</Key><VersionId>v2</VersionId><IsLatest>true</IsLatest></DeleteMarker>
<Version><Key>a%2Fb</Key><VersionId>v1</VersionId><IsLatest>false</IsLatest><Size>7</Size>
<ETag>&quot;e&quot;</ETag><LastModified>2024-05-06T07:08:09.000Z</LastModified></Version></ListVersionsResult>"#;
        let page = parse_versions(xml).unwrap();
        assert_eq!(page.next, Some(VersionMarker { key: "a/b".to_owned(), version: "v1".to_owned() }));
        let [marker, version] = &page.versions[..] else { panic!("two entries") };
        assert!(marker.is_marker && marker.is_latest && !version.is_marker && !version.is_latest);
        assert_eq!((version.key.as_str(), version.version.as_str(), version.size_bytes), ("a/b", "v1", 7));
        assert_eq!((version.modified_unix_ms, version.etag.as_deref()), (1_714_979_289_000, Some("e")));
    }

    #[test]
    fn a_listing_that_does_not_say_how_it_continues_is_refused() {
        for body in
            ["", "<IsTruncated>true</IsTruncated>", "<IsTruncated>false</IsTruncated><Version><Key>k</Key></Version>"]
        {
            let xml = format!("<ListVersionsResult>{body}</ListVersionsResult>");
            assert!(parse_versions(xml.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn verdicts_are_by_key_and_version() {
        let xml = b"<DeleteResult><Deleted><Key>k</Key><VersionId>1</VersionId></Deleted><Error><Key>k</Key>
<VersionId>2</VersionId><Code>AccessDenied</Code><Message>locked</Message></Error></DeleteResult>";
        let answer = parse_deletions(xml).unwrap();
        assert!(answer.deleted.contains(&("k".to_owned(), "1".to_owned())));
        assert_eq!(answer.failures[&("k".to_owned(), "2".to_owned())].code, "AccessDenied");
    }
}

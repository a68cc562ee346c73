//! Deletes objects on the condition that they are unchanged.
//!
//! Google checks the generation during a delete, Amazon the ETag. An ETag does not distinguish a new version with the
//! same bytes, and other servers may ignore conditions. So if the condition holds more than the cloud itself will
//! check, the object's state is read right before the delete, which carries all conditions that the protocol can
//! express. If a server ignores those, a write between the two requests is lost.

use super::Bucket;
use super::errors::may_refuse_condition;
use super::send::Refusal;
use super::xml::{Deletions, delete_body, parse_deletions};
use crate::model::stays;
use crate::place::entry_of;
use crate::rest::ErrorAnswer;
use crate::rest::{Call, is_web_page};
use crate::{Error, ErrorKind, ObjectDeletion, Precondition, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use http::Method;
use md5::{Digest, Md5};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// Most concurrent checks, before and after a delete, and single-key deletes.
pub(super) const SINGLE_REQUESTS_IN_FLIGHT: usize = 32;

impl Bucket {
    pub(super) async fn delete_objects(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>> {
        if objects.len() > self.limits.delete_keys_max {
            let message =
                format!("the request has {} keys, but the store allows {}", objects.len(), self.limits.delete_keys_max);
            return Err(Error::new(ErrorKind::BadRequest, "delete", self.url.clone(), message));
        }
        let looks: Vec<_> = objects.iter().map(|deletion| self.look(deletion)).collect();
        let looked: Vec<Result<bool>> =
            futures::stream::iter(looks).buffered(SINGLE_REQUESTS_IN_FLIGHT).collect().await;
        let there: Vec<&ObjectDeletion> =
            objects.iter().zip(&looked).filter(|(_, looked)| matches!(looked, Ok(true))).map(|(one, _)| one).collect();
        let deleted = self.delete_seen(&there).await?;
        Ok(verdicts_of(looked, deleted, &self.url))
    }

    /// Returns whether there is anything to delete, or an error if the object is in another state. Sends a request only
    /// if the delete itself will not check.
    async fn look(&self, deletion: &ObjectDeletion) -> Result<bool> {
        if deletion.condition.is_any() || self.is_checked_by_cloud(&deletion.condition) {
            return Ok(true);
        }
        match self.head_object(&deletion.key, &Precondition::default()).await {
            Ok(now) => match deletion.condition.check_for_deletion(self.object_url(&deletion.key), &now) {
                Err(error) if !deletion.condition.was_written_before(&now) => Err(error),
                Err(error) if !self.is_listed_as_before(deletion).await? => Err(error),
                _ => Ok(true),
            },
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a listing still describes the object as it did before. `rclone serve s3` lists the time of a file,
    /// which its writer sets, and answers a `HEAD` with the time at which it received the object.
    async fn is_listed_as_before(&self, deletion: &ObjectDeletion) -> Result<bool> {
        let entry = entry_of(self, &deletion.key).await?.flatten();
        Ok(entry.is_some_and(|entry| deletion.condition.difference(&entry).is_none()))
    }

    /// Returns whether a cloud that is known to honour conditions checks the whole condition during the delete.
    fn is_checked_by_cloud(&self, condition: &Precondition) -> bool {
        let by_generation = condition.version.is_some() && self.is_generation_checked_by_cloud();
        let by_etag = condition.etag.is_some() && condition.version.is_none() && condition.modified_unix_ms.is_none();
        by_generation || self.at_aws && by_etag
    }

    fn is_generation_checked_by_cloud(&self) -> bool {
        self.dialect.if_version.is_some() && self.address().origin == "https://storage.googleapis.com"
    }

    /// Returns whether the cloud itself checks the state from its listing during a delete.
    pub(super) fn is_delete_checked_by_cloud(&self) -> bool {
        self.at_aws || self.is_generation_checked_by_cloud()
    }

    async fn delete_seen(&self, objects: &[&ObjectDeletion]) -> Result<Vec<Result<()>>> {
        let can_hold = |deletion: &&ObjectDeletion| crate::xml::can_hold(&deletion.key);
        if self.dialect.batch_delete && objects.len() > 1 && objects.iter().all(can_hold) {
            match self.delete_batch(objects).await {
                Err(error) if error.kind == ErrorKind::Unsupported => {}
                result => return result,
            }
        }
        let singles: Vec<_> = objects.iter().map(|deletion| self.delete_one(deletion)).collect();
        Ok(futures::stream::iter(singles).buffered(SINGLE_REQUESTS_IN_FLIGHT).collect().await)
    }

    /// The ETag to send with a delete; none if the server is known to refuse conditions.
    fn sent_etag<'a>(&self, deletion: &'a ObjectDeletion) -> Option<&'a str> {
        let refuses = self.refuses_delete_conditions.load(Ordering::Relaxed);
        deletion.condition.etag.as_deref().filter(|_| !refuses)
    }

    /// Returns whether a refused delete may be repeated without its condition: the server does not support conditions
    /// on deletes, and the object's state was checked before.
    fn may_pass_without_condition(&self, refusal: &Refusal) -> bool {
        let without = !self.at_aws && may_refuse_condition(refusal.status, &refusal.code);
        if without {
            tracing::debug!(store = %self.url, "the server refuses conditions on deletes");
            self.refuses_delete_conditions.store(true, Ordering::Relaxed);
        }
        without
    }

    async fn delete_one(&self, deletion: &ObjectDeletion) -> Result<()> {
        self.check_key("delete", &deletion.key)?;
        loop {
            let mut call = self.call("delete", Method::DELETE, &deletion.key, &[]);
            let etag = self.sent_etag(deletion);
            match (self.dialect.if_version, &deletion.condition.version) {
                (Some(name), Some(version)) => call.set(name, version)?,
                (None, _) => {
                    if let Some(etag) = etag {
                        call.set("if-match", &format!("\"{etag}\""))?;
                    }
                }
                // Google does not support ETags on deletes.
                (Some(_), None) => {}
            }
            let refusal = match self.send_small(call.clone()).await {
                Ok((_, body)) => return refuse_web_page(&call, &body),
                Err(refusal) => refusal,
            };
            match refusal.error.kind {
                ErrorKind::NotFound => return Ok(()),
                ErrorKind::PreconditionFailed => return Err(self.stays(&deletion.key)),
                _ if etag.is_some() && self.may_pass_without_condition(&refusal) => {}
                _ => return Err(refusal.into()),
            }
        }
    }

    async fn delete_batch(&self, objects: &[&ObjectDeletion]) -> Result<Vec<Result<()>>> {
        loop {
            let tagged = objects.iter().map(|deletion| (deletion.key.as_str(), self.sent_etag(deletion)));
            let tagged: Vec<(&str, Option<&str>)> = tagged.collect();
            let mut call = self.call("delete", Method::POST, "", &[("delete", "")]);
            let body = delete_body(tagged.iter().copied());
            call.set("content-md5", &BASE64_STANDARD.encode(Md5::digest(body.as_bytes())))?;
            call.set("content-type", "application/xml")?;
            call.body = Bytes::from(body).into();
            let answer = match self.send_small(call.clone()).await {
                Ok((_, answer)) => answer,
                Err(refusal)
                    if tagged.iter().any(|(_, etag)| etag.is_some()) && self.may_pass_without_condition(&refusal) =>
                {
                    continue;
                }
                Err(refusal) => return Err(refusal.into()),
            };
            let answer = parse_deletions(&answer).map_err(|error| self.late_refusal(&call, &answer, error))?;
            let deleted: HashSet<&str> = answer.deleted.iter().map(String::as_str).collect();
            let verdicts = self.deletion_verdicts(objects, &answer, &deleted);
            let checked = objects.iter().zip(verdicts).map(async |(deletion, verdict)| {
                let is_doubtful = verdict.is_ok() && is_passed_over(&deleted, &deletion.key);
                if is_doubtful { self.verify_deletion(&deletion.key).await } else { verdict }
            });
            let checked: Vec<_> = checked.collect();
            return Ok(futures::stream::iter(checked).buffered(SINGLE_REQUESTS_IN_FLIGHT).collect().await);
        }
    }

    /// Checks that an object is gone which the answer to its delete does not mention.
    async fn verify_deletion(&self, key: &str) -> Result<()> {
        match self.head_object(key, &Precondition::default()).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                let message = "the server reported no result, and still has the object";
                Err(Error::new(ErrorKind::Server, "delete", self.object_url(key), message))
            }
        }
    }

    /// The request asks for failures only, so a key that the answer does not name is deleted. But if the answer names a
    /// key that was not requested, that failure may belong to any requested key under another spelling. Then only the
    /// keys that the answer lists as deleted count as deleted.
    fn deletion_verdicts(
        &self,
        objects: &[&ObjectDeletion],
        answer: &Deletions,
        deleted: &HashSet<&str>,
    ) -> Vec<Result<()>> {
        let asked: HashSet<&str> = objects.iter().map(|deletion| deletion.key.as_str()).collect();
        let failures: HashMap<&str, &ErrorAnswer> =
            answer.failures.iter().map(|failure| (failure.key.as_str(), failure)).collect();
        let stray = answer.failures.iter().find(|failure| !asked.contains(failure.key.as_str()));
        let verdict = |deletion: &&ObjectDeletion| match (failures.get(deletion.key.as_str()), stray) {
            (Some(failure), _) => self.deletion_verdict(&deletion.key, failure),
            (None, Some(stray)) if !deleted.contains(deletion.key.as_str()) => {
                Err(stray_failure(self.object_url(&deletion.key), stray))
            }
            _ => Ok(()),
        };
        objects.iter().map(verdict).collect()
    }

    fn deletion_verdict(&self, key: &str, failure: &ErrorAnswer) -> Result<()> {
        match super::errors::meaning(http::StatusCode::INTERNAL_SERVER_ERROR, &failure.code) {
            ErrorKind::NotFound => Ok(()),
            ErrorKind::PreconditionFailed => Err(self.stays(key)),
            kind => {
                let message = format!("{} ({})", failure.message, failure.code);
                Err(Error::new(kind, "delete", self.object_url(key), message))
            }
        }
    }

    fn stays(&self, key: &str) -> Error {
        stays(self.object_url(key), "the store reports a different version")
    }

    fn object_url(&self, key: &str) -> String {
        format!("{}/{key}", self.url)
    }
}

/// The verdicts for what was `looked` at: those that were there have one in `deleted`.
pub(super) fn verdicts_of(looked: Vec<Result<bool>>, deleted: Vec<Result<()>>, url: &str) -> Vec<Result<()>> {
    let mut deleted = deleted.into_iter();
    let missing = || Error::new(ErrorKind::Server, "delete", url, "the server reported no result");
    let verdict = |looked: Result<bool>| match looked {
        Ok(true) => deleted.next().unwrap_or_else(|| Err(missing())),
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    looked.into_iter().map(verdict).collect()
}

/// Refuses a web page: it comes from a proxy and not from the store, whatever its status.
fn refuse_web_page(call: &Call, body: &[u8]) -> Result<()> {
    match is_web_page(body) {
        true => Err(call.error(ErrorKind::Protocol, "the answer does not come from the store: it is a web page")),
        false => Ok(()),
    }
}

/// Returns whether an answer that lists `deleted` keys, though it was requested not to, has nothing about this one.
fn is_passed_over(deleted: &HashSet<&str>, key: &str) -> bool {
    !deleted.is_empty() && !deleted.contains(key)
}

/// The error for a key of a batch whose answer reports a failure of a key that was not requested.
fn stray_failure(url: String, stray: &ErrorAnswer) -> Error {
    let kind = super::errors::meaning(http::StatusCode::INTERNAL_SERVER_ERROR, &stray.code);
    let kind = if kind.is_transient() { kind } else { ErrorKind::Protocol };
    let named = if stray.key.is_empty() { "without a key".to_owned() } else { format!("of the key {:?}", stray.key) };
    let message = format!(
        "the server reports a failure {named}, which was not requested, so this object may remain: {} ({})",
        stray.message, stray.code
    );
    Error::new(kind, "delete", url, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_failure_names_the_servers_fault() {
        let stray = ErrorAnswer { code: "AccessDenied".into(), key: "d%2Fk".into(), ..ErrorAnswer::default() };
        let error = stray_failure("s3://b/d/k".into(), &stray);
        assert_eq!(error.kind, ErrorKind::Protocol);
        assert!(error.message.contains("\"d%2Fk\"") && error.message.contains("AccessDenied"), "{error}");
        let busy = ErrorAnswer { code: "SlowDown".into(), ..ErrorAnswer::default() };
        assert_eq!(stray_failure(String::new(), &busy).kind, ErrorKind::SlowDown);
    }
}

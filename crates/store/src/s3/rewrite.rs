//! Copies that take Google more than one request.
//!
//! Over the XML API, a copy to another location or storage class that takes more than 30 s is refused (413), whatever the
//! size. `rewriteTo` of the JSON API copies as much as it can in one request and returns a token with which the next
//! request continues. The token is kept in memory: a copy that is interrupted starts again.

use super::Bucket;
use super::address::BucketAddress;
use super::send::Refusal;
use crate::rest::{Call, encode_query, percent_encode, read_all, still_at_work};
use crate::{Attributes, Checksums, ErrorKind, PartSource, PutOptions, Result, Written, look_at_written};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Requests in a row that copy nothing after which the copy fails.
const IDLE_REQUESTS_MAX: u32 = 20;
/// The attributes that a copy has from its source, by their names in the JSON API.
const KEPT: [&str; 6] =
    ["cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType", "metadata"];

/// The answer to one request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rewritten {
    done: bool,
    rewrite_token: Option<String>,
    /// A decimal number.
    #[serde(default)]
    total_bytes_rewritten: String,
    #[serde(default)]
    resource: Resource,
}

#[derive(Debug, Default, Deserialize)]
struct Resource {
    generation: Option<String>,
}

impl Bucket {
    /// Copies a whole object in as many requests as it takes. `refusal` is the store's to the copy in one request; it is
    /// returned if the server has no JSON API.
    pub(super) async fn rewrite(
        &self,
        key: &str,
        source: &PartSource,
        options: &PutOptions,
        refusal: Refusal,
    ) -> Result<Written> {
        let expected = self.condition(options.expect.as_ref());
        let body = self.resource_of_copy(source, options).await;
        let Ok(body) = body else { return Err(refusal.into()) };
        let (mut last, mut idle) = (Rewritten::default(), 0);
        loop {
            let mut query = Vec::new();
            query.extend(source.condition.version.as_deref().map(|version| ("ifSourceGenerationMatch", version)));
            query.extend(expected.as_ref().map(|condition| ("ifGenerationMatch", condition.value())));
            query.extend(last.rewrite_token.as_deref().map(|token| ("rewriteToken", token)));
            let path = format!("{}/rewriteTo{}", api_path(&source.bucket, &source.key), api_part(&self.bucket, key));
            let call = self.json_call(Method::POST, key, path, &query, &body);
            let answer = match self.send_json(call.clone()).await {
                Err(again) if last.rewrite_token.is_none() && is_unknown(again.status, &self.address().origin) => {
                    return Err(refusal.into());
                }
                answer => answer?,
            };
            let now: Rewritten = serde_json::from_slice(&answer)
                .map_err(|error| call.error(ErrorKind::Protocol, format!("unreadable answer: {error}")))?;
            if now.done {
                let written = Written { version: now.resource.generation, ..Written::default() };
                return look_at_written(self, key, &written, &Checksums::default()).await;
            }
            if now.rewrite_token.is_none() {
                return Err(call.error(ErrorKind::Protocol, "the copy is not done, but the answer has no token"));
            }
            idle = if now.total_bytes_rewritten == last.total_bytes_rewritten { idle + 1 } else { 0 };
            if idle == IDLE_REQUESTS_MAX {
                let why = format!("the latest requests, {idle} in a row, copied nothing");
                return Err(call.error(ErrorKind::Unfinished, why));
            }
            still_at_work(&call)?;
            last = now;
        }
    }

    /// The attributes and storage class of the copy. Nothing if it has those of its source: a request that names any
    /// must name all.
    async fn resource_of_copy(&self, source: &PartSource, options: &PutOptions) -> Result<Bytes> {
        let Some(class) = &options.storage_class else {
            let replaces = options.attributes != Attributes::default();
            let resource = replaces.then(|| Value::Object(resource_of(&options.attributes)).to_string());
            return Ok(resource.map(Bytes::from).unwrap_or_default());
        };
        let mut resource = match options.attributes == Attributes::default() {
            true => self.kept_resource(source).await?,
            false => resource_of(&options.attributes),
        };
        resource.insert("storageClass".to_owned(), json!(class));
        Ok(Value::Object(resource).to_string().into())
    }

    /// Reads the attributes of the source.
    async fn kept_resource(&self, source: &PartSource) -> Result<Map<String, Value>> {
        let query: Vec<_> =
            source.condition.version.as_deref().map(|version| ("generation", version)).into_iter().collect();
        let path = api_path(&source.bucket, &source.key);
        let call = self.json_call(Method::GET, &source.key, path, &query, &Bytes::new());
        let answer = self.send_json(call.clone()).await?;
        let resource: Map<String, Value> = serde_json::from_slice(&answer)
            .map_err(|error| call.error(ErrorKind::Protocol, format!("unreadable answer: {error}")))?;
        Ok(resource.into_iter().filter(|(name, _)| KEPT.contains(&name.as_str())).collect())
    }

    fn json_call(&self, method: Method, key: &str, path: String, query: &[(&str, &str)], body: &Bytes) -> Call {
        let mut call = self.call("copy", method, key, &[]);
        (call.path, call.query, call.patient) = (path, encode_query(query), true);
        if !body.is_empty() {
            call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            call.body = body.clone().into();
        }
        call
    }

    async fn send_json(&self, call: Call) -> Result<Bytes, Refusal> {
        let api = BucketAddress { root: String::new(), ..(*self.address()).clone() };
        let response = self.send_to(&api, call.clone()).await?.map_err(|(refusal, _)| refusal)?;
        Ok(read_all(&call, response.into_body()).await?)
    }
}

/// Returns whether a server without the JSON API may answer with this status. Google itself has it, so that its 500 is an
/// error that passes.
fn is_unknown(status: StatusCode, origin: &str) -> bool {
    let is_google = origin.ends_with(".googleapis.com");
    matches!(status.as_u16(), 400 | 401 | 404 | 405 | 501) || status == StatusCode::INTERNAL_SERVER_ERROR && !is_google
}

fn api_path(bucket: &str, key: &str) -> String {
    format!("/storage/v1{}", api_part(bucket, key))
}

fn api_part(bucket: &str, key: &str) -> String {
    format!("/b/{}/o/{}", percent_encode(bucket), percent_encode(key))
}

fn resource_of(attributes: &Attributes) -> Map<String, Value> {
    let Attributes { content_type, content_encoding, content_language, content_disposition, cache_control, metadata } =
        attributes;
    let fields = [
        ("cacheControl", cache_control),
        ("contentDisposition", content_disposition),
        ("contentEncoding", content_encoding),
        ("contentLanguage", content_language),
        ("contentType", content_type),
    ];
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
    given.chain([("metadata".to_owned(), json!(metadata))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_with_their_slashes() {
        assert_eq!(api_path("b", "a/b c//é"), "/storage/v1/b/b/o/a%2Fb%20c%2F%2F%C3%A9");
    }

    #[test]
    fn an_answer_says_how_the_copy_continues() {
        let text = r#"{"kind": "storage#rewriteResponse", "totalBytesRewritten": "7", "objectSize": "9", "done": false,
                      "rewriteToken": "t"}"#;
        let answer: Rewritten = serde_json::from_str(text).unwrap();
        assert_eq!((answer.done, answer.rewrite_token.as_deref()), (false, Some("t")));
        let text = r#"{"totalBytesRewritten": "9", "done": true, "resource": {"generation": "5", "size": "9"}}"#;
        let answer: Rewritten = serde_json::from_str(text).unwrap();
        assert_eq!((answer.done, answer.resource.generation.as_deref()), (true, Some("5")));
        assert!(serde_json::from_str::<Rewritten>("{}").is_err());
    }
}

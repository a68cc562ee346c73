//! Google: tokens behind a credential access boundary, which Cloud Storage itself enforces.
//!
//! A token of the user is exchanged at the Security Token Service for one that is limited to a role, a bucket, and the
//! names of objects there. Google accepts such tokens only for buckets with uniform bucket-level access.

use super::request::{Ask, form};
use super::{TokenClient, environment};
use crate::rest::{TlsRoots, split_endpoint};
use crate::scope::{Keys, Lent, Scope};
use crate::{StoreAuthority, StoreConfig};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

const TOKEN_URL: &str = "https://sts.googleapis.com/v1/token";
/// The variable by which `gcloud` reads another address of the service.
const URL_VARIABLE: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_STS";
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Role for the keys that a borrower reads.
const READER: &str = "inRole:roles/storage.objectViewer";
/// Role for the keys that a borrower writes. Replacing an object needs the permission to delete it.
const WRITER: &str = "inRole:roles/storage.objectUser";

/// The Security Token Service.
pub(crate) struct BoundaryService {
    client: TokenClient,
    url: String,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: Option<u64>,
}

impl BoundaryService {
    /// The service of [`URL_VARIABLE`], else Google's own for a bucket at Google. `None` for another server's bucket.
    pub(crate) fn of(config: &StoreConfig) -> Option<Self> {
        let own = config.endpoint.as_deref().is_none_or(is_of_google).then(|| TOKEN_URL.to_owned());
        let url =
            environment(URL_VARIABLE).map(|origin| format!("{}/v1/token", origin.trim_end_matches('/'))).or(own)?;
        Some(Self { client: TokenClient::new(TlsRoots::of(config, true)), url })
    }

    /// Exchanges a token for one that is limited to `scope`. It expires when `token` does, if the service does not say.
    ///
    /// # Errors
    /// One line without secrets.
    pub(crate) async fn limit(&self, token: &str, bucket: &str, scope: &Scope) -> Result<Lent, String> {
        let options = boundary(bucket, scope).to_string();
        let fields = [
            ("grant_type", EXCHANGE),
            ("requested_token_type", ACCESS_TOKEN),
            ("subject_token_type", ACCESS_TOKEN),
            ("subject_token", token),
            ("options", &options),
        ];
        let ask = Ask {
            place: "credential access boundary",
            url: &self.url,
            headers: vec![],
            body: form(&fields),
            secrets: vec![token],
            needs_tls: true,
        };
        let answer: Answer = self.client.json(&ask).await?;
        let limited = StoreAuthority::Bearer(answer.access_token);
        Ok(match answer.expires_in {
            Some(seconds) => Lent::for_a_while(limited, SystemTime::now(), Duration::from_secs(seconds)),
            None => Lent::unlimited(limited),
        })
    }
}

fn is_of_google(endpoint: &str) -> bool {
    split_endpoint(endpoint).is_ok_and(|(_, authority, _)| {
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
        host.ends_with(".googleapis.com")
    })
}

/// The options of an exchange that limit a token.
fn boundary(bucket: &str, scope: &Scope) -> Value {
    let copies = scope.copies.as_ref().map(|(from, keys)| (from.as_str(), std::slice::from_ref(keys)));
    let parts = [(bucket, &scope.reads[..], READER), (bucket, &scope.writes[..], WRITER)];
    let parts = parts.into_iter().chain(copies.map(|(from, keys)| (from, keys, READER)));
    let rules: Vec<Value> = parts
        .filter(|(_, keys, _)| !keys.is_empty())
        .map(|(bucket, keys, role)| {
            let names = keys.iter().map(|keys| condition(bucket, keys)).collect::<Vec<_>>().join(" || ");
            json!({
                "availableResource": format!("//storage.googleapis.com/projects/_/buckets/{bucket}"),
                "availablePermissions": [role],
                "availabilityCondition": { "expression": names },
            })
        })
        .collect();
    json!({ "accessBoundary": { "accessBoundaryRules": rules } })
}

/// The condition that an object is one of `keys`, in the Common Expression Language.
fn condition(bucket: &str, keys: &Keys) -> String {
    let name = |key: &str| format!("'projects/_/buckets/{bucket}/objects/{}'", quoted(key));
    match keys {
        Keys::One(key) => format!("resource.name == {}", name(key)),
        Keys::Below(prefix) => format!("resource.name.startsWith({})", name(prefix)),
    }
}

/// A key as the inside of a string literal.
fn quoted(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for char in key.chars() {
        match char {
            '\'' | '\\' => text.extend(['\\', char]),
            control if control.is_control() => text.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_limited_by_role_and_names() {
        let (reads, writes) = (vec![Keys::Below("a/".to_owned())], vec![Keys::One("it's \\ \n".to_owned())]);
        let made = boundary("bkt", &Scope { reads, writes, ..Scope::default() });
        let rules = &made["accessBoundary"]["accessBoundaryRules"];
        let expected = json!({
            "availableResource": "//storage.googleapis.com/projects/_/buckets/bkt",
            "availablePermissions": ["inRole:roles/storage.objectViewer"],
            "availabilityCondition": { "expression": "resource.name.startsWith('projects/_/buckets/bkt/objects/a/')" },
        });
        assert_eq!(rules[0], expected);
        assert_eq!(rules[1]["availablePermissions"][0], WRITER);
        let one = r"resource.name == 'projects/_/buckets/bkt/objects/it\'s \\ \u000a'";
        assert_eq!(rules[1]["availabilityCondition"]["expression"], one);
        let copies = Some(("from".to_owned(), Keys::Below(String::new())));
        let copying = boundary("bkt", &Scope { copies, ..Scope::default() });
        let rules = copying["accessBoundary"]["accessBoundaryRules"].as_array().unwrap();
        assert_eq!((rules.len(), rules[0]["availablePermissions"][0].as_str()), (1, Some(READER)));
    }

    #[test]
    fn only_buckets_at_google_have_a_token_service() {
        let of = |endpoint: Option<&str>| {
            BoundaryService::of(&StoreConfig { endpoint: endpoint.map(str::to_owned), ..StoreConfig::default() })
        };
        assert!(of(None).is_some() && of(Some("https://storage.googleapis.com")).is_some());
        assert!(of(Some("http://127.0.0.1:1")).is_none() && of(Some("https://googleapis.com.example")).is_none());
    }
}

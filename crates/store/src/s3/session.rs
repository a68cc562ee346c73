//! Sessions of the AWS Security Token Service that are limited to the keys and actions of one borrower.
//!
//! With a role: `AssumeRole`. Without: `GetFederationToken`, which only a user with long-lived keys may call. Both take a
//! session policy, so a session may do what policy and caller (or role) both allow.

use super::address::is_of_aws;
use super::sigv4::Signer;
use crate::rest::{Call, TlsRoots, parse_rfc3339, split_endpoint, unix_now_ms};
use crate::scope::{Keys, Lent, Scope};
use crate::token::request::{Ask, form};
use crate::token::{TokenClient, environment};
use crate::xml::walk;
use crate::{Payload, StoreAuthority, StoreConfig};
use http::{HeaderMap, Method};
use object_store::aws::AwsCredential;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, SystemTime};

/// Life of a session. It is the longest for a role that is assumed by a session of another role.
const SESSION_LIFE: Duration = Duration::from_secs(3600);
/// Name of the sessions in the logs of AWS.
const SESSION_NAME: &str = "tradewind";
/// Longest session policy that AWS accepts.
const POLICY_CHARS_MAX: usize = 2048;
/// Actions on the keys that a borrower reads.
const READ: [&str; 2] = ["s3:GetObject", "s3:GetObjectTagging"];
/// Actions on the keys that a borrower writes. Conditional writes and proofs need `GetObject`.
const WRITE: [&str; 4] = ["s3:PutObject", "s3:PutObjectTagging", "s3:AbortMultipartUpload", "s3:GetObject"];

/// The token service for a bucket, and the region to sign for.
pub(crate) struct TokenService {
    client: TokenClient,
    url: String,
    region: String,
    signer: Signer,
}

impl TokenService {
    /// The service of `AWS_ENDPOINT_URL_STS`, else AWS's own for a bucket at AWS. `None` for another server's bucket.
    pub(crate) fn of(config: &StoreConfig) -> Option<Self> {
        let region = config.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        let at_aws = config.endpoint.as_deref().is_none_or(is_of_aws);
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let own = at_aws.then(|| format!("https://sts.{region}.{suffix}/"));
        let url = environment("AWS_ENDPOINT_URL_STS").or(own)?;
        let url = if url.ends_with('/') { url } else { format!("{url}/") };
        Some(Self { client: TokenClient::new(TlsRoots::of(config, true)), url, region, signer: Signer::of("sts") })
    }

    /// Requests a session of `role`, or of the user whose keys these are.
    ///
    /// # Errors
    /// One line without secrets.
    pub(crate) async fn session(&self, keys: &AwsCredential, bucket: &str, scope: &Scope) -> Result<Lent, String> {
        let policy = policy(&self.region, bucket, scope)?;
        let duration = SESSION_LIFE.as_secs().to_string();
        let (action, mut fields) = match &scope.role {
            Some(role) => ("AssumeRole", vec![("RoleArn", role.as_str()), ("RoleSessionName", SESSION_NAME)]),
            None => ("GetFederationToken", vec![("Name", SESSION_NAME)]),
        };
        fields.extend([("Action", action), ("DurationSeconds", &duration), ("Policy", &policy)]);
        fields.push(("Version", "2011-06-15"));
        fields.sort_unstable();
        let body = form(&fields);
        let ask = Ask {
            place: action,
            url: &self.url,
            headers: self.signed(keys, body.as_ref().map_or("", |(_, text)| text))?,
            body,
            secrets: vec![&keys.secret_key, keys.token.as_deref().unwrap_or_default()],
            needs_tls: true,
        };
        let text = self.client.text(&ask).await?;
        let (authority, expires_ms) = parse(&text).ok_or_else(|| format!("{action}: an answer without a session"))?;
        // If this machine's clock is wrong, the life of the session could seem too long.
        let left_ms = u64::try_from(expires_ms - unix_now_ms()).unwrap_or(0);
        Ok(Lent::for_a_while(authority, SystemTime::now(), Duration::from_millis(left_ms).min(SESSION_LIFE)))
    }

    /// Headers that sign a POST of `body` to the service.
    fn signed(&self, keys: &AwsCredential, body: &str) -> Result<Vec<(String, String)>, String> {
        let (scheme, authority, root) = split_endpoint(&self.url).map_err(|error| error.message)?;
        let mut call = Call {
            operation: "get token",
            url: self.url.clone(),
            method: Method::POST,
            origin: format!("{scheme}://{authority}"),
            path: format!("{root}/"),
            query: String::new(),
            headers: HeaderMap::new(),
            body: Payload::new(vec![body.to_owned().into()]),
            patient: false,
        };
        self.signer.sign(&mut call, keys, &self.region, unix_now_ms() / 1000);
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        Ok(call.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect())
    }
}

/// The session policy of a scope.
///
/// # Errors
/// It would be longer than AWS accepts.
pub(crate) fn policy(region: &str, bucket: &str, scope: &Scope) -> Result<String, String> {
    let partition = match region {
        _ if region.starts_with("cn-") => "aws-cn",
        _ if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    };
    let resources = |bucket: &str, keys: &[Keys]| -> Vec<String> {
        keys.iter().map(|keys| format!("arn:{partition}:s3:::{bucket}/{}", pattern(keys))).collect()
    };
    let mut statements = Vec::new();
    let mut allow = |actions: &[&str], resources: Vec<String>| {
        if !resources.is_empty() {
            statements.push(json!({ "Effect": "Allow", "Action": actions, "Resource": resources }));
        }
    };
    allow(&READ, resources(bucket, &scope.reads));
    allow(&WRITE, resources(bucket, &scope.writes));
    if let Some((from, keys)) = &scope.copies {
        allow(&READ, resources(from, std::slice::from_ref(keys)));
    }
    let text = in_ascii(&json!({ "Version": "2012-10-17", "Statement": statements }));
    if text.len() > POLICY_CHARS_MAX {
        return Err(format!(
            "the policy for these keys has {} characters, and AWS accepts {POLICY_CHARS_MAX}: use a shorter prefix",
            text.len()
        ));
    }
    Ok(text)
}

/// Keys as part of a resource. The characters that are special there are written as policy variables.
fn pattern(keys: &Keys) -> String {
    let (Keys::One(key) | Keys::Below(key)) = keys;
    let mut escaped = String::with_capacity(key.len() + 1);
    for char in key.chars() {
        match char {
            '*' | '?' | '$' => {
                let _ = write!(escaped, "${{{char}}}");
            }
            other => escaped.push(other),
        }
    }
    if matches!(keys, Keys::Below(_)) { escaped + "*" } else { escaped }
}

/// A document as JSON in ASCII: AWS refuses other characters in a policy.
fn in_ascii(document: &Value) -> String {
    let mut text = String::new();
    for char in document.to_string().chars() {
        if char.is_ascii() && char != '\x7f' {
            text.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

/// The session in an answer, and its expiry in milliseconds since the Unix epoch.
fn parse(text: &str) -> Option<(StoreAuthority, i64)> {
    let (mut key_id, mut secret_key, mut token, mut expires) = Default::default();
    for root in ["AssumeRoleResponse", "GetFederationTokenResponse"] {
        let walked = walk(text.as_bytes(), root, |at| {
            if at.parent == "Credentials" {
                let field: &mut String = match at.name {
                    "AccessKeyId" => &mut key_id,
                    "SecretAccessKey" => &mut secret_key,
                    "SessionToken" => &mut token,
                    "Expiration" => &mut expires,
                    _ => return Ok(()),
                };
                at.text.trim().clone_into(field);
            }
            Ok(())
        });
        if walked.is_ok() {
            let expires = parse_rfc3339(&expires)?;
            let is_whole = ![&key_id, &secret_key, &token].into_iter().any(String::is_empty);
            return is_whole.then_some((StoreAuthority::Aws { key_id, secret_key, token: Some(token) }, expires));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope { reads: vec![Keys::Below("a/b".to_owned())], ..Scope::default() }
    }

    #[test]
    fn a_source_may_read_its_prefix_and_a_sink_may_write_but_neither_list_nor_delete() {
        let read = policy("eu-west-1", "bkt", &scope()).unwrap();
        let whole = r#"{"Statement":[{"Action":["s3:GetObject","s3:GetObjectTagging"],"Effect":"Allow","Resource":["arn:aws:s3:::bkt/a/b*"]}],"Version":"2012-10-17"}"#;
        assert_eq!(serde_json::from_str::<Value>(&read).unwrap(), serde_json::from_str::<Value>(whole).unwrap());
        let sink = Scope { writes: vec![Keys::One("k".to_owned())], ..Scope::default() };
        let write = policy("cn-north-1", "bkt", &sink).unwrap();
        assert!(write.contains("\"arn:aws-cn:s3:::bkt/k\"") && write.contains("PutObject"), "{write}");
        assert!(!write.contains("List") && !write.contains("Delete"), "{write}");
    }

    #[test]
    fn wildcards_of_keys_are_no_wildcards_of_the_policy() {
        assert_eq!(pattern(&Keys::One("a*b?${c}".to_owned())), "a${*}b${?}${$}{c}");
        assert_eq!(pattern(&Keys::Below(String::new())), "*");
    }

    #[test]
    fn a_policy_is_ascii_and_not_too_long() {
        let of = |key: &str| policy("", "b", &Scope { reads: vec![Keys::Below(key.to_owned())], ..Scope::default() });
        let text = of("prénom/😀").unwrap();
        assert!(text.is_ascii() && text.contains("pr\\u00e9nom/\\ud83d\\ude00"), "{text}");
        assert!(of(&"x".repeat(POLICY_CHARS_MAX)).unwrap_err().contains("shorter prefix"));
    }

    #[test]
    fn sessions_of_both_actions_are_read() {
        for action in ["AssumeRole", "GetFederationToken"] {
            let text = format!(
                "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials>\
                 <AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
                 <Expiration>1970-01-01T00:00:01Z</Expiration></Credentials></{action}Result></{action}Response>"
            );
            let key = ("ASIA".to_owned(), "s".to_owned(), Some("t".to_owned()));
            let expected = StoreAuthority::Aws { key_id: key.0, secret_key: key.1, token: key.2 };
            assert_eq!(parse(&text), Some((expected, 1000)));
            assert_eq!(parse(&text.replace("SessionToken", "Other")), None);
        }
        assert_eq!(parse("<html/>"), None);
    }

    #[test]
    fn only_buckets_at_aws_have_a_token_service_of_their_own() {
        let of = |endpoint: Option<&str>, region: Option<&str>| {
            let (endpoint, region) = (endpoint.map(str::to_owned), region.map(str::to_owned));
            TokenService::of(&StoreConfig { endpoint, region, ..StoreConfig::default() }).map(|service| service.url)
        };
        assert_eq!(of(None, None).as_deref(), Some("https://sts.us-east-1.amazonaws.com/"));
        assert_eq!(of(None, Some("cn-north-1")).as_deref(), Some("https://sts.cn-north-1.amazonaws.com.cn/"));
        let dual = Some("https://s3.dualstack.eu-west-1.amazonaws.com");
        assert_eq!(of(dual, Some("eu-west-1")).as_deref(), Some("https://sts.eu-west-1.amazonaws.com/"));
        assert_eq!(of(Some("https://amazonaws.com.example"), None), None);
    }

    #[test]
    fn requests_are_signed_for_the_service() {
        let keys = AwsCredential { key_id: "AKID".to_owned(), secret_key: "s".to_owned(), token: Some("t".to_owned()) };
        let headers = TokenService::of(&StoreConfig::default()).unwrap().signed(&keys, "Action=x").unwrap();
        let value = |name: &str| headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
        assert!(value("authorization").unwrap().contains("/us-east-1/sts/aws4_request, SignedHeaders=host;x-amz-"));
        assert_eq!(value("x-amz-security-token"), Some("t"));
    }
}

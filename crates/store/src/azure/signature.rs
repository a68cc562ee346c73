//! Shared access signatures (SAS): an object's or a container's permissions for a time, signed with the account's key or
//! with a user delegation key.
//!
//! See "Create a service SAS", "Create a user delegation SAS" and "Get User Delegation Key" in Microsoft's documentation.

use super::AzureStore;
use crate::rest::{Call, iso_date, parse_rfc3339, unix_now_ms};
use crate::scope::{Keys, Lent, NotLent, Scope};
use crate::xml::walk;
use crate::{Error, ErrorKind, Payload, StoreAuthority};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use std::time::{Duration, SystemTime};

/// Version of the strings that are signed.
const SAS_VERSION: &str = "2020-12-06";
/// Life of a signature for another machine, and of the user delegation key that signs it. Azure allows seven days.
const LENT_LIFE: Duration = Duration::from_secs(3600);
/// A user delegation key is valid from this long ago, so that Azure's servers may disagree about the time.
const KEY_AGE: Duration = Duration::from_secs(900);
/// Longest life of a user delegation key, counted from its start.
const KEY_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// A clock that differs more than this from Azure's is corrected, and the key requested again.
const CLOCK_ERROR_MAX_S: u64 = 60;
/// Most attempts to get one key; only errors that may pass are retried.
const ATTEMPTS_MAX: u32 = 3;
/// Pause before the second attempt; doubled before the third.
const PAUSE: Duration = Duration::from_millis(250);
/// Permissions on what a borrower reads: the bytes and the tags.
const READ: &str = "rt";
/// Permissions on what a borrower writes: read (proofs), create, write, and tags. Azure demands this order.
const WRITE: &str = "rcwt";
/// The action of a role that may request user delegation keys.
const KEY_ACTION: &str = "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action";

/// The permissions of a signature, their object or container, and their end.
pub(super) struct Grant<'a> {
    pub(super) permissions: &'a str,
    /// `None`: all blobs of the container.
    pub(super) key: Option<&'a str>,
    /// As `2024-05-06T07:08:09Z`.
    pub(super) expiry: String,
    /// `https` where signed requests must not be sent in plain text; empty otherwise.
    pub(super) protocol: &'static str,
}

/// A key of Azure that signs for a user of Entra ID. Secret.
#[derive(Default)]
pub(super) struct UserKey {
    object_id: String,
    tenant_id: String,
    start: String,
    expiry: String,
    service: String,
    version: String,
    value: String,
}

impl UserKey {
    fn parse(xml: &[u8]) -> Option<Self> {
        let mut key = Self::default();
        walk(xml, "UserDelegationKey", |at| {
            let field = match at.name {
                "SignedOid" => &mut key.object_id,
                "SignedTid" => &mut key.tenant_id,
                "SignedStart" => &mut key.start,
                "SignedExpiry" => &mut key.expiry,
                "SignedService" => &mut key.service,
                "SignedVersion" => &mut key.version,
                "Value" => &mut key.value,
                _ => return Ok(()),
            };
            at.text.trim().clone_into(field);
            Ok(())
        })
        .ok()?;
        let is_whole = !key.value.is_empty() && key.fields().iter().all(|(_, value)| !value.is_empty());
        is_whole.then_some(key)
    }

    /// The parameters by which Azure finds the key again, in the order in which they are signed.
    fn fields(&self) -> [(&'static str, &str); 6] {
        [
            ("skoid", &self.object_id),
            ("sktid", &self.tenant_id),
            ("skt", &self.start),
            ("ske", &self.expiry),
            ("sks", &self.service),
            ("skv", &self.version),
        ]
    }
}

/// The key that signs.
pub(super) enum SigningKey<'a> {
    /// The account's key, in Base64.
    Account(&'a str),
    User(&'a UserKey),
}

impl SigningKey<'_> {
    /// The parameters of the signature for a grant.
    ///
    /// # Errors
    /// The key is not Base64.
    pub(super) fn sign(
        &self,
        account: &str,
        container: &str,
        grant: &Grant<'_>,
    ) -> Result<Vec<(String, String)>, String> {
        let Grant { permissions, key, expiry, protocol } = grant;
        let (kind, path) = match key {
            Some(key) => ("b", format!("/blob/{account}/{container}/{key}")),
            None => ("c", format!("/blob/{account}/{container}")),
        };
        // Signed start is empty: a signature is valid at once.
        let mut lines = vec![permissions, "", expiry, &path];
        let secret = match self {
            Self::Account(secret) => {
                // The identifier of a stored policy.
                lines.push("");
                secret
            }
            Self::User(key) => {
                lines.extend(key.fields().map(|(_, value)| value));
                // Authorised and unauthorised user of a hierarchical namespace, and an id for correlation.
                lines.extend(["", "", ""]);
                key.value.as_str()
            }
        };
        // Address, protocol, version, kind, snapshot, encryption scope, and five headers of the answer.
        lines.extend(["", protocol, SAS_VERSION, kind, "", "", "", "", "", "", ""]);
        let secret =
            BASE64_STANDARD.decode(secret.trim()).map_err(|_| "the key that signs is not Base64".to_owned())?;
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), lines.join("\n").as_bytes());
        let signature = BASE64_STANDARD.encode(signature);
        let mut query = vec![("sv", SAS_VERSION), ("se", expiry), ("sr", kind), ("sp", permissions)];
        if !protocol.is_empty() {
            query.push(("spr", protocol));
        }
        if let Self::User(key) = self {
            query.extend(key.fields());
        }
        query.push(("sig", &signature));
        Ok(query.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl AzureStore {
    /// Returns credentials that Azure itself limits to `scope`, made with those of this machine. Azure cannot limit a
    /// signature to a prefix without a hierarchical namespace, so a scope of prefixes is the whole container.
    ///
    /// # Errors
    /// No key could be obtained, or the credentials are a signature already.
    pub(crate) async fn limited(&self, whole: &StoreAuthority, scope: &Scope) -> Result<Lent, NotLent> {
        let now = || unix_now_ms() / 1000 - self.http.clock_ahead_s().unwrap_or_default();
        let life = i64::try_from(LENT_LIFE.as_secs()).unwrap_or(i64::MAX);
        let (until, user_key) = match whole {
            StoreAuthority::AzureKey(_) => (now() + life, None),
            StoreAuthority::Bearer(_) => {
                let (key, until) = self.user_key(life).await.map_err(|error| NotLent::Missing(refusal(&error)))?;
                (until, Some(key))
            }
            _ => {
                let why = "Azure limits an account key or a sign-in to Entra ID, but not a shared access signature";
                return Err(NotLent::Unlimitable(why.to_owned()));
            }
        };
        let signing_key = match (whole, &user_key) {
            (_, Some(key)) => SigningKey::User(key),
            (StoreAuthority::AzureKey(key), None) => SigningKey::Account(key),
            _ => return Err(NotLent::Missing("no key".to_owned())),
        };
        let grant = Grant {
            permissions: if scope.writes.is_empty() { READ } else { WRITE },
            key: self.only_key(scope),
            expiry: iso_date(until),
            protocol: if self.origin.starts_with("https:") { "https" } else { "" },
        };
        let query = signing_key.sign(&self.account, &self.container, &grant).map_err(NotLent::Missing)?;
        let left = Duration::from_secs(u64::try_from(until - now()).unwrap_or(0));
        Ok(Lent::for_a_while(StoreAuthority::AzureSas(query), SystemTime::now(), left.min(LENT_LIFE)))
    }

    /// The key of the only object of a scope.
    fn only_key<'a>(&self, scope: &'a Scope) -> Option<&'a str> {
        let copied = scope.copies.iter().filter(|(container, _)| *container == self.container).map(|(_, keys)| keys);
        let mut keys = scope.reads.iter().chain(&scope.writes).chain(copied);
        match keys.next()? {
            Keys::One(first) if keys.all(|other| *other == Keys::One(first.clone())) => Some(first),
            _ => None,
        }
    }

    /// Requests a user delegation key for `life_s` from now. Returns it and the end of its life in Unix seconds, both of
    /// Azure's clock.
    pub(super) async fn user_key(&self, life_s: i64) -> Result<(UserKey, i64), Error> {
        let (mut attempt, mut is_corrected) = (1, false);
        loop {
            let ahead_s = self.http.clock_ahead_s().unwrap_or_default();
            let now = unix_now_ms() / 1000 - ahead_s;
            let call = self.key_request(now, life_s);
            let no_key = call.error(ErrorKind::Protocol, "an answer without a key");
            let answer = self.send_small(call).await;
            let error_s = (self.http.clock_ahead_s().unwrap_or_default() - ahead_s).unsigned_abs();
            if error_s > CLOCK_ERROR_MAX_S && !is_corrected {
                is_corrected = true;
                continue;
            }
            match answer {
                Ok((_, body)) => {
                    let key = UserKey::parse(&body).ok_or(no_key)?;
                    let expiry = parse_rfc3339(&key.expiry).map_or(i64::MAX, |ms| ms / 1000);
                    return Ok((key, expiry.min(now + life_s)));
                }
                Err(error) if error.kind.is_transient() && attempt < ATTEMPTS_MAX => {
                    tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn key_request(&self, now: i64, life_s: i64) -> Call {
        let age_s = i64::try_from(KEY_AGE.as_secs()).unwrap_or_default();
        let life_max_s = i64::try_from(KEY_LIFE_MAX.as_secs()).unwrap_or_default();
        let start = (now - age_s).max(now + life_s - life_max_s);
        let (start, expiry) = (iso_date(start), iso_date(now + life_s));
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><KeyInfo><Start>{start}</Start><Expiry>{expiry}</Expiry></KeyInfo>"
        );
        let query = [("comp", "userdelegationkey"), ("restype", "service")];
        Call {
            path: format!("{}/", self.account_root),
            body: Payload::new(vec![body.into()]),
            ..self.call("get user delegation key", Method::POST, "", &query)
        }
    }
}

/// Why no key was given, in one line that names the missing action.
pub(super) fn refusal(error: &Error) -> String {
    let action = match error.kind {
        ErrorKind::Forbidden => format!("; the role needs the action {KEY_ACTION}"),
        _ => String::new(),
    };
    format!("user delegation key: {}{action}", error.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreConfig;

    fn store() -> AzureStore {
        let config = StoreConfig { url: "az://acc/box".to_owned(), anonymous: true, ..StoreConfig::default() };
        AzureStore::open(&config, "acc", "box").unwrap()
    }

    fn value<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
        query.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    async fn lent(scope: &Scope) -> Vec<(String, String)> {
        let lent = store().limited(&StoreAuthority::AzureKey("a2V5".to_owned()), scope).await.unwrap();
        assert!(lent.renew.unwrap() < lent.expires.unwrap());
        let StoreAuthority::AzureSas(query) = lent.authority else { panic!("no signature") };
        query
    }

    #[tokio::test]
    async fn a_borrower_gets_its_permissions_on_one_object_or_on_the_container() {
        let (one, below) = (Keys::One("k".to_owned()), Keys::Below("p/".to_owned()));
        let source = lent(&Scope { reads: vec![one.clone()], ..Scope::default() }).await;
        assert_eq!((value(&source, "sp"), value(&source, "sr")), (Some("rt"), Some("b")));
        assert_eq!(value(&source, "spr"), Some("https"));
        let elsewhere = Some(("other".to_owned(), below.clone()));
        let sink = lent(&Scope { writes: vec![one.clone()], copies: elsewhere, ..Scope::default() }).await;
        assert_eq!((value(&sink, "sp"), value(&sink, "sr")), (Some("rcwt"), Some("b")));
        let here = Some(("box".to_owned(), below.clone()));
        let copier = lent(&Scope { writes: vec![one], copies: here, ..Scope::default() }).await;
        assert_eq!(value(&copier, "sr"), Some("c"));
        assert_eq!(value(&lent(&Scope { writes: vec![below], ..Scope::default() }).await, "sr"), Some("c"));
    }

    #[tokio::test]
    async fn a_signature_is_not_limited_further() {
        let error = store().limited(&StoreAuthority::AzureSas(vec![]), &Scope::default()).await.unwrap_err();
        assert!(matches!(error, NotLent::Unlimitable(_)));
    }

    #[test]
    fn a_user_key_is_read_whole_or_not_at_all() {
        let xml = "<?xml version=\"1.0\"?><UserDelegationKey><SignedOid>o</SignedOid><SignedTid>t</SignedTid>\
                   <SignedStart>s</SignedStart><SignedExpiry>e</SignedExpiry><SignedService>b</SignedService>\
                   <SignedVersion>v</SignedVersion><Value>a2V5</Value></UserDelegationKey>";
        let key = UserKey::parse(xml.as_bytes()).unwrap();
        assert_eq!(key.fields().map(|(_, value)| value), ["o", "t", "s", "e", "b", "v"]);
        assert!(UserKey::parse(xml.replace("Value", "Other").as_bytes()).is_none());
    }

    #[tokio::test]
    async fn a_key_lives_for_a_week_at_most_and_otherwise_began_before_now() {
        let week = 7 * 24 * 3600;
        for (life_s, start) in [(3600, 1_000_000 - 900), (week - 900, 1_000_000 - 900), (week, 1_000_000)] {
            let call = store().key_request(1_000_000, life_s);
            let body = String::from_utf8(call.body.segments().concat()).unwrap();
            let expiry = iso_date(1_000_000 + life_s);
            let wanted = format!("<Start>{}</Start><Expiry>{expiry}</Expiry>", iso_date(start));
            assert!(body.contains(&wanted), "{body}");
        }
    }

    #[test]
    fn a_refused_key_names_the_missing_action() {
        let of = |kind| refusal(&Error::new(kind, "get user delegation key", "az://acc/box", "HTTP 403"));
        assert!(of(ErrorKind::Forbidden).ends_with(KEY_ACTION));
        assert!(!of(ErrorKind::Unauthenticated).contains("action"));
    }
}

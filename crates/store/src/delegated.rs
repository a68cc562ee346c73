//! Credentials that come from another process: a gateway on another machine has none of its own.

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::azure::{AzureAccessKey, AzureCredential};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Named in messages as the source of such credentials.
pub(crate) const DELEGATED: &str = "the fleet's owner";
/// A refusal this soon after new credentials came may be of a request that was signed with the earlier ones.
const IN_FLIGHT: Duration = Duration::from_secs(60);

/// The credentials that authorise a store's requests. Secret: never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreAuthority {
    /// Requests are sent unsigned.
    Nobody,
    /// Requests are signed with an access key of AWS.
    Aws {
        /// Id of the key.
        key_id: String,
        /// The key.
        secret_key: String,
        /// Session token of a temporary key.
        token: Option<String>,
    },
    /// An OAuth token of Google or Azure.
    Bearer(String),
    /// The account key of Azure, in Base64.
    AzureKey(String),
    /// A shared access signature of Azure: the parameters of its query.
    AzureSas(Vec<(String, String)>),
}

impl fmt::Debug for StoreAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "Nobody",
            Self::Aws { .. } => "Aws",
            Self::Bearer(_) => "Bearer",
            Self::AzureKey(_) => "AzureKey",
            Self::AzureSas(_) => "AzureSas",
        })
    }
}

/// The credentials of one store in the process that uses them. They are kept in memory only.
pub struct Delegated(RwLock<Held>);

#[derive(Clone)]
struct Held {
    authority: Result<StoreAuthority, String>,
    /// When they expire, in seconds since the Unix epoch, if that is known.
    expires_unix_s: Option<u64>,
    /// When they replaced others.
    replaced: Option<Instant>,
}

impl Delegated {
    /// Holds credentials until they are replaced, or the reason why there are none.
    pub fn new(authority: Result<StoreAuthority, String>, expires_unix_s: Option<u64>) -> Self {
        Self(RwLock::new(Held { authority, expires_unix_s, replaced: None }))
    }

    /// Replaces the credentials, from the next request on.
    pub fn replace(&self, authority: Result<StoreAuthority, String>, expires_unix_s: Option<u64>) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = (held.authority != authority).then(Instant::now);
        *held = Held { authority, expires_unix_s, replaced: replaced.or(held.replaced) };
    }

    /// The credentials for the next request, or the reason why there are none.
    pub(crate) fn now(&self) -> Result<StoreAuthority, String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).authority.clone()
    }

    /// Returns whether a request may have been refused because its credentials have expired. `now_unix_s` is the
    /// store's time.
    pub(crate) fn may_have_expired(&self, now_unix_s: i64) -> bool {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_over =
            held.expires_unix_s.is_some_and(|expires| i64::try_from(expires).unwrap_or(i64::MAX) <= now_unix_s);
        is_over || held.replaced.is_some_and(|replaced| replaced.elapsed() < IN_FLIGHT)
    }
}

impl fmt::Debug for Delegated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Delegated")
    }
}

impl PartialEq for Delegated {
    fn eq(&self, other: &Self) -> bool {
        self.now() == other.now()
    }
}

impl Eq for Delegated {}

#[async_trait]
impl CredentialProvider for Delegated {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        let refused = |why: String| object_store::Error::Generic { store: "credentials", source: why.into() };
        let credential = match self.now().map_err(refused)? {
            StoreAuthority::Bearer(token) => AzureCredential::BearerToken(token),
            StoreAuthority::AzureSas(query) => AzureCredential::SASToken(query),
            StoreAuthority::AzureKey(key) => {
                let key = AzureAccessKey::try_new(&key).map_err(|_| refused("the account key is not Base64".into()))?;
                AzureCredential::AccessKey(key)
            }
            StoreAuthority::Nobody | StoreAuthority::Aws { .. } => {
                return Err(refused("delegated credentials are for another cloud".to_owned()));
            }
        };
        Ok(Arc::new(credential))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secret_key: &str) -> StoreAuthority {
        StoreAuthority::Aws { key_id: "id".to_owned(), secret_key: secret_key.to_owned(), token: None }
    }

    #[tokio::test]
    async fn the_next_request_uses_the_latest_credentials() {
        let delegated = Delegated::new(Err("nothing yet".to_owned()), None);
        assert_eq!(delegated.now().err().as_deref(), Some("nothing yet"));
        delegated.replace(Ok(keys("first")), None);
        assert_eq!(delegated.now(), Ok(keys("first")));
        delegated.replace(Ok(keys("second")), None);
        assert_eq!(delegated.now(), Ok(keys("second")));
        assert!(delegated.get_credential().await.unwrap_err().to_string().contains("another cloud"));
    }

    #[tokio::test]
    async fn azure_accepts_tokens_signatures_and_keys() {
        let sas = vec![("sig".to_owned(), "x".to_owned())];
        for authority in [
            StoreAuthority::Bearer("t".to_owned()),
            StoreAuthority::AzureSas(sas),
            StoreAuthority::AzureKey("a2V5".to_owned()),
        ] {
            assert!(Delegated::new(Ok(authority), None).get_credential().await.is_ok());
        }
        let wrong = Delegated::new(Ok(StoreAuthority::AzureKey("not Base64: secret".to_owned())), None);
        assert!(!wrong.get_credential().await.unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn a_refusal_may_mean_expiry_after_the_end_and_soon_after_a_renewal() {
        let delegated = Delegated::new(Ok(keys("first")), Some(1000));
        assert!(!delegated.may_have_expired(999) && delegated.may_have_expired(1000));
        delegated.replace(Ok(keys("first")), Some(1000));
        assert!(!delegated.may_have_expired(999), "these are the same");
        delegated.replace(Ok(keys("second")), Some(2000));
        assert!(delegated.may_have_expired(999), "the request may have been signed with the first");
        assert!(!Delegated::new(Ok(keys("first")), None).may_have_expired(i64::MAX), "these last");
    }

    #[test]
    fn delegated_credentials_are_never_printed() {
        let secret = "the-secret".to_owned();
        for authority in [
            keys(&secret),
            StoreAuthority::Bearer(secret.clone()),
            StoreAuthority::AzureKey(secret.clone()),
            StoreAuthority::AzureSas(vec![("sig".to_owned(), secret)]),
        ] {
            let delegated = Delegated::new(Ok(authority.clone()), None);
            assert!(!format!("{authority:?} {delegated:?}").contains("the-secret"));
        }
    }
}

//! The credentials of this process, for a process that has none.

use crate::open::{Remote, open_remote};
use crate::s3::{Authority, TokenService};
use crate::token::boundary::BoundaryService;
use crate::{Error, ErrorKind, Lent, NotLent, Result, Scope, StoreAuthority, StoreConfig, azure, s3};
use object_store::aws::AwsCredential;
use object_store::azure::AzureCredential;
use std::time::SystemTime;
use tokio::sync::Mutex;

/// The settings and credentials of this process for one store, for use by another process.
pub struct Delegation {
    config: StoreConfig,
    store: Remote,
    limited: Option<Limited>,
}

/// Credentials that are limited to a scope, and cached until they are about to expire.
struct Limited {
    scope: Scope,
    service: Service,
    /// The limited credentials, and those from which they were obtained.
    held: Mutex<Option<(StoreAuthority, Lent)>>,
}

/// Where limited credentials come from.
enum Service {
    Aws(TokenService),
    Google(BoundaryService),
    Unknown,
}

impl Service {
    fn of(config: &StoreConfig) -> Self {
        let found = match config.url.split_once(':') {
            Some(("s3", _)) => TokenService::of(config).map(Self::Aws),
            Some(("gs", _)) => BoundaryService::of(config).map(Self::Google),
            _ => None,
        };
        found.unwrap_or(Self::Unknown)
    }
}

impl Delegation {
    /// Opens the credential chain of a store. Makes no request. `None` for a store that needs none: files and memory.
    /// Credentials are limited to `scope`, or lent as they are if it is `None`.
    ///
    /// # Errors
    /// The configuration is wrong, or a file that it names cannot be read.
    pub fn open(config: &StoreConfig, scope: Option<Scope>) -> Result<Option<Self>> {
        if !config.is_remote() {
            return Ok(None);
        }
        let mut config =
            if config.url.starts_with("az:") { azure::with_environment(config) } else { s3::with_environment(config) };
        let store = open_remote(&config)?;
        if let Some(file) = config.ca_file.take() {
            let unreadable = |error| Error::new(ErrorKind::Configuration, "open", file.display().to_string(), error);
            config.ca_pem = Some(std::fs::read_to_string(&file).map_err(unreadable)?);
        }
        let limited = scope.map(|scope| {
            let service = Service::of(&config);
            Limited { scope, service, held: Mutex::default() }
        });
        Ok(Some(Self { config, store, limited }))
    }

    /// The configuration for another machine to open the store with: it includes the settings of this machine's
    /// environment and omits the profile.
    pub fn config(&self) -> StoreConfig {
        StoreConfig { profile: None, ..self.config.clone() }
    }

    /// The credentials for the next minutes: those of the chain, whose provider renews them, or limited ones.
    ///
    /// # Errors
    /// The chain has no credentials, or they cannot be limited as requested.
    pub async fn lend(&self) -> Result<Lent, NotLent> {
        let whole = self.authority().await.map_err(NotLent::Missing)?;
        match &self.limited {
            Some(limited) if whole != StoreAuthority::Nobody => limited.lend(whole, &self.config, &self.store).await,
            _ => Ok(Lent::unlimited(whole)),
        }
    }

    /// The credentials of the chain.
    async fn authority(&self) -> Result<StoreAuthority, String> {
        match &self.store {
            Remote::Bucket(bucket) => Ok(match bucket.authority().await? {
                Authority::Nobody => StoreAuthority::Nobody,
                Authority::Bearer(token) => StoreAuthority::Bearer(token),
                Authority::Aws(key) => StoreAuthority::Aws {
                    key_id: key.key_id.clone(),
                    secret_key: key.secret_key.clone(),
                    token: key.token.clone(),
                },
            }),
            Remote::Azure(container) => match container.credential().await?.as_deref() {
                None => Ok(StoreAuthority::Nobody),
                Some(AzureCredential::BearerToken(token)) => Ok(StoreAuthority::Bearer(token.clone())),
                Some(AzureCredential::SASToken(query)) => Ok(StoreAuthority::AzureSas(query.clone())),
                Some(AzureCredential::AccessKey(_)) => {
                    // `object_store` does not reveal the key.
                    let key = container.account_key();
                    key.map(StoreAuthority::AzureKey).ok_or_else(|| "no account key in the environment".to_owned())
                }
            },
        }
    }
}

impl Limited {
    /// Limited credentials that `whole` can obtain. If they cannot be renewed, the earlier ones are lent while they are
    /// valid.
    async fn lend(&self, whole: StoreAuthority, config: &StoreConfig, store: &Remote) -> Result<Lent, NotLent> {
        let mut held = self.held.lock().await;
        let now = SystemTime::now();
        // Those without a life of their own live as long as those from which they were obtained.
        let is_fresh = |(from, lent): &&(StoreAuthority, Lent)| lent.renew.map_or(*from == whole, |renew| now < renew);
        if let Some((_, lent)) = held.as_ref().filter(is_fresh) {
            return Ok(lent.clone());
        }
        let fresh = match self.obtain(whole.clone(), config, store).await {
            Err(NotLent::Missing(why)) => {
                let valid = held.as_ref().filter(|(_, lent)| lent.expires.is_some_and(|expires| now < expires));
                let Some((_, lent)) = valid else { return Err(NotLent::Missing(why)) };
                tracing::warn!(store = config.url, why, "limited credentials not renewed");
                return Ok(lent.clone());
            }
            other => other?,
        };
        *held = Some((whole, fresh.clone()));
        Ok(fresh)
    }

    async fn obtain(&self, whole: StoreAuthority, config: &StoreConfig, store: &Remote) -> Result<Lent, NotLent> {
        if let Remote::Azure(container) = store {
            return container.limited(&whole, &self.scope).await;
        }
        let bucket = config.url.split_once("://").map_or("", |(_, bucket)| bucket).trim_end_matches('/');
        let limited = match (&self.service, whole) {
            (Service::Aws(_), StoreAuthority::Aws { token: Some(_), .. }) if self.scope.role.is_none() => {
                return Err(NotLent::Unlimitable("AWS limits temporary credentials only by a role".to_owned()));
            }
            (Service::Aws(service), StoreAuthority::Aws { key_id, secret_key, token }) => {
                let keys = AwsCredential { key_id, secret_key, token };
                service.session(&keys, bucket, &self.scope).await
            }
            (Service::Google(service), StoreAuthority::Bearer(token)) => {
                service.limit(&token, bucket, &self.scope).await
            }
            _ => {
                let why = "its server has no token service by which Tradewind can limit them";
                return Err(NotLent::Unlimitable(why.to_owned()));
            }
        };
        limited.map_err(NotLent::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> StoreConfig {
        StoreConfig { url: "s3://b".to_owned(), ..StoreConfig::default() }
    }

    #[tokio::test]
    async fn files_need_no_credentials_and_anonymous_stores_send_none() {
        let of = |url: &str| StoreConfig { url: url.to_owned(), anonymous: true, ..StoreConfig::default() };
        assert!(Delegation::open(&of("file:///x"), None).unwrap().is_none());
        assert!(Delegation::open(&of("mem:"), None).unwrap().is_none());
        for url in ["s3://bbb", "gs://bbb", "r2://acc/bbb", "az://acc/container"] {
            let delegation = Delegation::open(&of(url), Some(Scope::default())).unwrap().unwrap();
            assert_eq!(delegation.lend().await, Ok(Lent::unlimited(StoreAuthority::Nobody)), "{url}");
            assert_eq!(delegation.config().url, url);
        }
        assert!(Delegation::open(&of("az://acc"), None).is_err());
    }

    #[test]
    fn certificates_are_delegated_but_not_their_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let authority = rcgen::generate_simple_self_signed(vec!["store".to_owned()]).unwrap();
        std::fs::write(file.path(), authority.cert.pem()).unwrap();
        let endpoint = Some("https://127.0.0.1:1".to_owned());
        let given = StoreConfig { ca_file: Some(file.path().into()), endpoint, anonymous: true, ..config() };
        let sent = Delegation::open(&given, None).unwrap().unwrap().config();
        assert_eq!((sent.ca_file.clone(), sent.ca_pem.clone()), (None, Some(authority.cert.pem())));
        assert!(crate::open(&sent).is_ok());
        let broken = StoreConfig { ca_pem: Some("nothing".to_owned()), ..sent };
        assert_eq!(crate::open(&broken).err().map(|error| error.kind), Some(ErrorKind::Configuration));
    }
}

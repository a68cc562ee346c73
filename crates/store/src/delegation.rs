//! The credentials of this process, for a process that has none.

use crate::open::{Remote, open_remote};
use crate::s3::Authority;
use crate::{Error, ErrorKind, Result, StoreAuthority, StoreConfig, azure, s3};
use object_store::azure::AzureCredential;

/// The settings and credentials of this process for one store, for use by another process.
pub struct Delegation {
    config: StoreConfig,
    store: Remote,
}

impl Delegation {
    /// Opens the credential chain of a store. Makes no request. `None` for a store that needs none: files and memory.
    ///
    /// # Errors
    /// The configuration is wrong, or a file that it names cannot be read.
    pub fn open(config: &StoreConfig) -> Result<Option<Self>> {
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
        Ok(Some(Self { config, store }))
    }

    /// The configuration for another machine to open the store with: it includes the settings of this machine's
    /// environment and omits the profile.
    pub fn config(&self) -> StoreConfig {
        StoreConfig { profile: None, ..self.config.clone() }
    }

    /// The credentials for the next minutes. Their provider renews them before they expire.
    ///
    /// # Errors
    /// One line without secrets: why the chain has no credentials.
    pub async fn authority(&self) -> Result<StoreAuthority, String> {
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
                    let key = azure::account_key();
                    key.map(StoreAuthority::AzureKey).ok_or_else(|| "no account key in the environment".to_owned())
                }
            },
        }
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
        assert!(Delegation::open(&of("file:///x")).unwrap().is_none());
        assert!(Delegation::open(&of("mem:")).unwrap().is_none());
        for url in ["s3://bbb", "gs://bbb", "r2://acc/bbb", "az://acc/container"] {
            let delegation = Delegation::open(&of(url)).unwrap().unwrap();
            assert_eq!(delegation.authority().await, Ok(StoreAuthority::Nobody), "{url}");
            assert_eq!(delegation.config().url, url);
        }
        assert!(Delegation::open(&of("az://acc")).is_err());
    }

    #[test]
    fn certificates_are_delegated_but_not_their_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let authority = rcgen::generate_simple_self_signed(vec!["store".to_owned()]).unwrap();
        std::fs::write(file.path(), authority.cert.pem()).unwrap();
        let endpoint = Some("https://127.0.0.1:1".to_owned());
        let given = StoreConfig { ca_file: Some(file.path().into()), endpoint, anonymous: true, ..config() };
        let sent = Delegation::open(&given).unwrap().unwrap().config();
        assert_eq!((sent.ca_file.clone(), sent.ca_pem.clone()), (None, Some(authority.cert.pem())));
        assert!(crate::open(&sent).is_ok());
        let broken = StoreConfig { ca_pem: Some("nothing".to_owned()), ..sent };
        assert_eq!(crate::open(&broken).err().map(|error| error.kind), Some(ErrorKind::Configuration));
    }
}

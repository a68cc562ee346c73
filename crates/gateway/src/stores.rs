//! Opens the stores that the contract describes, with the credentials of this machine or of a fleet's owner.

use crate::limits::DELEGATED_STORES_MAX;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tradewind_contract::{Authority, Refusal, StoreAccess, StoreCredentials, StoreSpec};
use tradewind_store::{Delegated, Delegation, Error, ErrorKind, Result, Store, StoreAuthority, StoreConfig};

/// The store crate's configuration for a contract's store.
pub fn config_of(spec: &StoreSpec) -> StoreConfig {
    StoreConfig {
        url: spec.url.clone(),
        endpoint: spec.endpoint.clone(),
        region: spec.region.clone(),
        profile: spec.profile.clone(),
        path_style: spec.path_style,
        anonymous: spec.anonymous,
        requester_pays: spec.requester_pays,
        ca_file: spec.ca_file.as_ref().map(PathBuf::from),
        fsync: spec.fsync,
        follow_symlinks: spec.follow_symlinks,
        extra: spec.extra.clone(),
        ..StoreConfig::default()
    }
}

/// Opens the store that `spec` describes. Makes no request.
pub fn open(spec: &StoreSpec) -> Result<Arc<dyn Store>> {
    tradewind_store::open(&config_of(spec))
}

/// Opens stores for gateways.
pub trait Stores: fmt::Debug + Send + Sync {
    /// Opens the store that `spec` describes. Makes no request.
    ///
    /// # Errors
    /// The description is invalid.
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>>;
}

/// Opens stores with the credentials of this machine.
#[derive(Clone, Copy, Debug)]
pub struct RealStores;

impl Stores for RealStores {
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>> {
        open(spec)
    }
}

/// The stores of a gateway without credentials of its own: files, and stores whose credentials the fleet's owner sent.
#[derive(Debug, Default)]
pub struct DelegatedStores {
    given: Mutex<Vec<Given>>,
}

#[derive(Debug)]
struct Given {
    store: StoreSpec,
    config: StoreConfig,
    authority: Arc<Delegated>,
}

impl DelegatedStores {
    /// Uses these credentials from the next request on, including in open stores. Other stores can no longer be opened.
    ///
    /// # Errors
    /// There are more than [`DELEGATED_STORES_MAX`] stores.
    pub fn replace(&self, credentials: StoreCredentials) -> std::result::Result<(), Refusal> {
        if credentials.stores.len() > DELEGATED_STORES_MAX {
            let error = format!("credentials of {} stores", credentials.stores.len());
            let hint = Some(format!("a gateway takes those of {DELEGATED_STORES_MAX}"));
            return Err(Refusal { error, hint });
        }
        let mut given = self.given();
        let mut earlier = std::mem::take(&mut *given);
        for access in credentials.stores {
            let StoreAccess { store, endpoint, region, ca_pem, authority } = access;
            let authority = authority_of(authority);
            let held = match earlier.iter().position(|given| given.store == store) {
                Some(place) => {
                    let held = earlier.swap_remove(place).authority;
                    held.replace(authority);
                    held
                }
                None => Arc::new(Delegated::new(authority)),
            };
            let config = StoreConfig {
                endpoint,
                region,
                ca_pem,
                profile: None,
                ca_file: None,
                delegated: Some(held.clone()),
                ..config_of(&store)
            };
            given.push(Given { store, config, authority: held });
        }
        Ok(())
    }

    fn given(&self) -> MutexGuard<'_, Vec<Given>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stores for DelegatedStores {
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>> {
        if !config_of(spec).is_remote() {
            return open(spec);
        }
        let config = self.given().iter().find(|given| given.store == *spec).map(|given| given.config.clone());
        let nothing = || Error::new(ErrorKind::Unauthenticated, "open", spec.url.clone(), "no credentials were given");
        tradewind_store::open(&config.ok_or_else(nothing)?)
    }
}

fn authority_of(authority: Authority) -> std::result::Result<StoreAuthority, String> {
    Ok(match authority {
        Authority::Nobody => StoreAuthority::Nobody,
        Authority::Aws { key_id, secret_key, token } => StoreAuthority::Aws { key_id, secret_key, token },
        Authority::Bearer { token } => StoreAuthority::Bearer(token),
        Authority::AzureKey { key } => StoreAuthority::AzureKey(key),
        Authority::AzureSas { query } => StoreAuthority::AzureSas(query),
        Authority::Missing { reason } => return Err(reason),
    })
}

/// Returns all that a gateway needs to open a store with the credentials of this machine. May request the credentials.
pub async fn access_of(store: &StoreSpec, delegation: &Delegation) -> StoreAccess {
    let StoreConfig { endpoint, region, ca_pem, .. } = delegation.config();
    let authority = match delegation.authority().await {
        Ok(StoreAuthority::Nobody) => Authority::Nobody,
        Ok(StoreAuthority::Aws { key_id, secret_key, token }) => Authority::Aws { key_id, secret_key, token },
        Ok(StoreAuthority::Bearer(token)) => Authority::Bearer { token },
        Ok(StoreAuthority::AzureKey(key)) => Authority::AzureKey { key },
        Ok(StoreAuthority::AzureSas(query)) => Authority::AzureSas { query },
        Err(reason) => Authority::Missing { reason },
    };
    StoreAccess { store: store.clone(), endpoint, region, ca_pem, authority }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(url: &str, authority: Authority) -> StoreAccess {
        let store = StoreSpec { url: url.to_owned(), ..StoreSpec::default() };
        StoreAccess { store, endpoint: None, region: None, ca_pem: None, authority }
    }

    fn opened(stores: &DelegatedStores, url: &str) -> Result<Arc<dyn Store>> {
        stores.open(&StoreSpec { url: url.to_owned(), ..StoreSpec::default() })
    }

    #[test]
    fn a_store_is_opened_only_with_credentials_for_it() {
        let stores = DelegatedStores::default();
        let folder = tempfile::tempdir().unwrap();
        assert!(opened(&stores, &format!("file://{}", folder.path().display())).is_ok());
        assert_eq!(opened(&stores, "s3://bbb").err().map(|error| error.kind), Some(ErrorKind::Unauthenticated));
        let stores_of = |urls: &[&str]| StoreCredentials {
            stores: urls.iter().map(|url| access(url, Authority::Bearer { token: "t".to_owned() })).collect(),
        };
        stores.replace(stores_of(&["s3://bbb", "gs://ccc", "az://acc/ddd", "r2://acc/eee"])).unwrap();
        for url in ["s3://bbb", "gs://ccc", "az://acc/ddd", "r2://acc/eee"] {
            assert!(opened(&stores, url).is_ok(), "{url}");
        }
        stores.replace(stores_of(&["gs://ccc"])).unwrap();
        assert!(opened(&stores, "gs://ccc").is_ok() && opened(&stores, "s3://bbb").is_err());
        let urls: Vec<String> = (0..=DELEGATED_STORES_MAX).map(|number| format!("s3://b{number}")).collect();
        assert!(stores.replace(stores_of(&urls.iter().map(String::as_str).collect::<Vec<_>>())).is_err());
    }
}

//! Opens the stores that the contract describes, with the credentials of this machine or of a fleet's owner.

use crate::limits::DELEGATED_STORES_MAX;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tradewind_contract::{
    Authority, CopyScope, KeyScope, Lending, Refusal, StoreAccess, StoreCredentials, StoreSpec, StoreUse,
};
use tradewind_store::{
    Delegated, Delegation, Error, ErrorKind, Keys, Lent, NotLent, Result, Scope, Store, StoreAuthority, StoreConfig,
};

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
        resolved_root: spec.resolved_root,
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

/// The stores of a gateway on a rented machine: files, and stores for which the fleet's owner sent credentials, or the
/// permission to use the machine's own identity.
#[derive(Debug, Default)]
pub struct DelegatedStores {
    given: Mutex<Vec<Given>>,
}

#[derive(Debug)]
struct Given {
    store: StoreSpec,
    config: StoreConfig,
    /// `None`: the identity of this machine.
    authority: Option<Arc<Delegated>>,
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
        let earlier = std::mem::take(&mut *given);
        for access in credentials.stores {
            let StoreAccess { store, endpoint, region, ca_pem, authority, expires_unix_s } = access;
            let held = match authority_of(authority) {
                None => None,
                Some(authority) => {
                    let before = earlier.iter().find(|given| given.store == store);
                    match before.and_then(|given| given.authority.clone()) {
                        Some(held) => {
                            held.replace(authority, expires_unix_s);
                            Some(held)
                        }
                        None => Some(Arc::new(Delegated::new(authority, expires_unix_s))),
                    }
                }
            };
            let config = StoreConfig {
                endpoint,
                region,
                ca_pem,
                profile: None,
                ca_file: None,
                delegated: held.clone(),
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

/// The credentials that were sent, or the reason why there are none; `None` for the identity of this machine.
fn authority_of(authority: Authority) -> Option<std::result::Result<StoreAuthority, String>> {
    Some(Ok(match authority {
        Authority::Nobody => StoreAuthority::Nobody,
        Authority::Aws { key_id, secret_key, token } => StoreAuthority::Aws { key_id, secret_key, token },
        Authority::Bearer { token } => StoreAuthority::Bearer(token),
        Authority::AzureKey { key } => StoreAuthority::AzureKey(key),
        Authority::AzureSas { query } => StoreAuthority::AzureSas(query),
        Authority::Machine => return None,
        Authority::Missing { reason } => return Some(Err(reason)),
    }))
}

/// Opens the credential chain from which a gateway's credentials for a store come. `None` for files and memory.
///
/// # Errors
/// The store's configuration is wrong.
pub fn delegation_of(wanted: &StoreUse, on_this_host: bool) -> Result<Option<Delegation>> {
    let StoreUse { store, reads, writes, copies } = wanted;
    let config = config_of(store);
    let all = |scopes: &[KeyScope]| scopes.iter().map(keys_of).collect();
    let copies = copies.as_ref().map(|CopyScope { bucket, keys }| (bucket.clone(), keys_of(keys)));
    match store.lending {
        // The machine's identity makes the chain of this one unnecessary.
        Lending::Machine => Delegation::open(&StoreConfig { anonymous: true, profile: None, ..config }, None),
        Lending::Scoped if !on_this_host => {
            let scope = Scope { reads: all(reads), writes: all(writes), copies, role: store.role.clone() };
            Delegation::open(&config, Some(scope))
        }
        Lending::Whole | Lending::Scoped => Delegation::open(&config, None),
    }
}

fn keys_of(scope: &KeyScope) -> Keys {
    match scope {
        KeyScope::Object { key } => Keys::One(key.clone()),
        KeyScope::Prefix { prefix } => Keys::Below(prefix.clone()),
    }
}

/// All that a gateway needs to open a store, and when to ask again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The credentials for the gateway.
    pub sent: StoreAccess,
    /// When to ask for new credentials, if that is known.
    pub renew: Option<SystemTime>,
}

/// Returns all that a gateway needs to open a store with the credentials of this machine. May request the credentials.
/// Missing credentials are no error: the gateway gets the reason.
///
/// # Errors
/// Why the credentials cannot be limited, in one line.
pub async fn access_of(store: &StoreSpec, delegation: &Delegation) -> std::result::Result<Access, String> {
    let StoreConfig { endpoint, region, ca_pem, .. } = delegation.config();
    let (authority, expires, renew) = match (store.lending, delegation.lend().await) {
        (Lending::Machine, _) => (Authority::Machine, None, None),
        (_, Ok(Lent { authority, expires, renew })) => (sent(authority), expires, renew),
        (_, Err(NotLent::Missing(reason))) => (Authority::Missing { reason }, None, None),
        (_, Err(NotLent::Unlimitable(why))) => return Err(why),
    };
    let unix_s = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let expires_unix_s = expires.map(unix_s);
    Ok(Access {
        sent: StoreAccess { store: store.clone(), endpoint, region, ca_pem, authority, expires_unix_s },
        renew,
    })
}

fn sent(authority: StoreAuthority) -> Authority {
    match authority {
        StoreAuthority::Nobody => Authority::Nobody,
        StoreAuthority::Aws { key_id, secret_key, token } => Authority::Aws { key_id, secret_key, token },
        StoreAuthority::Bearer(token) => Authority::Bearer { token },
        StoreAuthority::AzureKey(key) => Authority::AzureKey { key },
        StoreAuthority::AzureSas(query) => Authority::AzureSas { query },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(url: &str, authority: Authority) -> StoreAccess {
        let store = StoreSpec { url: url.to_owned(), ..StoreSpec::default() };
        StoreAccess { store, endpoint: None, region: None, ca_pem: None, authority, expires_unix_s: None }
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
        // The identity of this machine is used only if the owner allows it.
        stores.replace(StoreCredentials { stores: vec![access("s3://own", Authority::Machine)] }).unwrap();
        assert!(opened(&stores, "s3://own").is_ok() && opened(&stores, "s3://bbb").is_err());
        stores.replace(stores_of(&["s3://own"])).unwrap();
        assert!(stores.given()[0].authority.is_some(), "the owner sent credentials, so the machine's own are not used");
        let urls: Vec<String> = (0..=DELEGATED_STORES_MAX).map(|number| format!("s3://b{number}")).collect();
        assert!(stores.replace(stores_of(&urls.iter().map(String::as_str).collect::<Vec<_>>())).is_err());
    }
}

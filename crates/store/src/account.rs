//! What is above buckets: lists the buckets (or containers) of an account, makes and removes one.
//!
//! Nothing here retries; see [`crate::Store`].

use crate::azure::AzureStore;
use crate::error::PARSE;
use crate::open::{Remote, open_remote};
use crate::s3::{Bucket, open_gcs, open_r2, open_s3};
use crate::{BucketPage, Error, ErrorKind, Result, StoreConfig};

/// Placeholder for the bucket or container of an account. Nothing of this name is ever requested.
const UNUSED: &str = "unused";

/// An account: `s3://`, `gs://`, `r2://ACCOUNT` or `az://ACCOUNT`.
#[derive(Debug)]
pub struct Account {
    url: String,
    remote: Remote,
    project: Option<String>,
}

impl Account {
    /// Opens an account. Makes no request. `project` is the Google Cloud project whose buckets are listed.
    ///
    /// # Errors
    /// The URL is not that of an account, or its configuration is wrong.
    pub fn open(config: &StoreConfig, project: Option<String>) -> Result<Self> {
        let wrong = || {
            let forms = "accounts are s3://, gs://, r2://ACCOUNT and az://ACCOUNT";
            Error::new(ErrorKind::Configuration, "open", config.url.clone(), forms)
        };
        let config = StoreConfig { path_style: Some(true), ..config.clone() };
        let (scheme, name) = config.url.split_once("://").ok_or_else(wrong)?;
        let name = name.trim_end_matches('/');
        let remote = match (scheme, name) {
            ("s3", "") => bucket(open_s3(&config, UNUSED)?, "s3://"),
            ("gs", "") => bucket(open_gcs(&config, UNUSED)?, "gs://"),
            ("r2", account) if !account.is_empty() => {
                bucket(open_r2(&config, account, UNUSED)?, &format!("r2://{account}"))
            }
            ("az", account) => Remote::Azure(AzureStore::open(&config, account, UNUSED)?.of_account().into()),
            _ => return Err(wrong()),
        };
        Ok(Self { url: config.url.clone(), remote, project })
    }

    /// The URL of the account.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns one page of the account's buckets.
    ///
    /// # Errors
    /// As for a listing; [`ErrorKind::BadRequest`] if Google Cloud needs a project and none is known.
    pub async fn list(&self, continuation: Option<&str>) -> Result<BucketPage> {
        match &self.remote {
            Remote::Bucket(bucket) => bucket.list_buckets(self.project.as_deref(), continuation).await,
            Remote::Azure(store) => store.list_containers(continuation).await,
        }
    }
}

fn bucket(bucket: Bucket, url: &str) -> Remote {
    Remote::Bucket(bucket.of_account(url).into())
}

/// Makes the bucket or container that `config.url` names, in the configured region; `project` is its Google Cloud project.
///
/// # Errors
/// [`ErrorKind::Occupied`] if a bucket of this name exists.
pub async fn make_bucket(config: &StoreConfig, project: Option<&str>) -> Result<()> {
    match remote_bucket(config)? {
        Remote::Bucket(bucket) => bucket.create(project).await,
        Remote::Azure(store) => store.create().await,
    }
}

/// Removes the bucket or container that `config.url` names. The clouds keep buckets that hold objects; Azure does not, so
/// the caller must look first.
///
/// # Errors
/// [`ErrorKind::BucketNotFound`]; [`ErrorKind::Occupied`] if it is not empty.
pub async fn remove_bucket(config: &StoreConfig) -> Result<()> {
    match remote_bucket(config)? {
        Remote::Bucket(bucket) => bucket.remove().await,
        Remote::Azure(store) => store.remove().await,
    }
}

fn remote_bucket(config: &StoreConfig) -> Result<Remote> {
    if !config.is_remote() {
        let why = "only buckets and containers of object stores can be made and removed";
        return Err(Error::new(ErrorKind::Configuration, PARSE, config.url.clone(), why));
    }
    open_remote(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accounts_are_opened() {
        let open = |url: &str| {
            let config = StoreConfig { url: url.to_owned(), anonymous: true, ..StoreConfig::default() };
            Account::open(&config, None).map(|account| account.url().to_owned()).map_err(|error| error.kind)
        };
        for url in ["s3://", "gs://", "r2://acc", "az://acc", "az://acc/"] {
            assert_eq!(open(url).as_deref(), Ok(url));
        }
        for url in ["s3://b", "gs://b", "az://", "az://a/c", "r2://", "file:///", "mem:"] {
            assert_eq!(open(url), Err(ErrorKind::Configuration), "{url}");
        }
    }
}

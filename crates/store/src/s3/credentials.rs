//! The credentials that sign requests: keys from the environment, the clouds' own chains, or none.

use super::profile::ProfileChain;
use super::source::{INSTANCE_METADATA, container_variable, machine_source};
use crate::delegated::DELEGATED;
use crate::error::innermost;
use crate::token::LibraryClient;
use crate::token::environment;
use crate::{Delegated, Error, ErrorKind, Result, StoreAuthority, StoreConfig};
use object_store::aws::{AmazonS3Builder, AwsCredential, AwsCredentialProvider};
use object_store::gcp::GcpCredentialProvider;
use std::sync::{Arc, OnceLock};

/// Where the credentials of a store come from. Nothing is read or requested before the first request.
pub(crate) enum Credentials {
    /// Requests are sent unsigned.
    Anonymous,
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    Keys(Arc<AwsCredential>),
    /// A named profile or the shared configuration files: static keys, SSO, assumed roles, `credential_process`.
    Profile(ProfileChain),
    /// Web identity: `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN`.
    WebIdentity(OnceLock<AwsCredentialProvider>),
    /// Container credentials or instance metadata.
    Machine(ProfileChain),
    /// Credentials from another process.
    Delegated(Arc<Delegated>),
    /// OAuth tokens of Google Cloud, and the link of its chain that provides them.
    Google(GcpCredentialProvider, String),
}

/// The credentials that authorise a request.
pub(crate) enum Authority {
    Nobody,
    Aws(Arc<AwsCredential>),
    Bearer(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Keys(_) => "Keys",
            Self::Profile(_) => "Profile",
            Self::WebIdentity(_) => "WebIdentity",
            Self::Machine(_) => "Machine",
            Self::Delegated(_) => "Delegated",
            Self::Google(..) => "Google",
        })
    }
}

impl Credentials {
    /// Chooses in the order of AWS's own tools: a named profile, keys in the environment, shared files, web identity,
    /// container credentials, instance metadata.
    pub(crate) fn of_aws(config: &StoreConfig) -> Self {
        if let Some(delegated) = &config.delegated {
            return Self::Delegated(Arc::clone(delegated));
        }
        if config.anonymous {
            return Self::Anonymous;
        }
        if let Some(profile) = &config.profile {
            return Self::Profile(ProfileChain::new(Some(profile.clone())));
        }
        let keys = (environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"));
        if let (Some(key_id), Some(secret_key)) = keys {
            let token = environment("AWS_SESSION_TOKEN");
            return Self::Keys(Arc::new(AwsCredential { key_id, secret_key, token }));
        }
        if environment("AWS_PROFILE").is_some() || super::profile::shared_files_exist() {
            return Self::Profile(ProfileChain::new(None));
        }
        if environment("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() && environment("AWS_ROLE_ARN").is_some() {
            return Self::WebIdentity(OnceLock::new());
        }
        Self::Machine(ProfileChain::of_machine())
    }

    /// Returns whether anything on this machine configures credentials. Credentials that a cloud gives each of its
    /// machines do not count.
    pub(super) fn are_set_up(&self) -> bool {
        match self {
            Self::Anonymous => false,
            Self::Keys(_) | Self::WebIdentity(_) | Self::Delegated(_) => true,
            Self::Profile(chain) => chain.is_named(),
            Self::Machine(_) => container_variable().is_some(),
            Self::Google(_, source) => source != INSTANCE_METADATA,
        }
    }

    /// The link of the chain that gives credentials, for messages. Never a credential.
    pub(super) async fn source(&self) -> String {
        match self {
            Self::Anonymous => "none (anonymous)".to_owned(),
            Self::Keys(_) => "environment".to_owned(),
            Self::Profile(chain) => chain.source().await,
            Self::WebIdentity(_) => "web identity".to_owned(),
            Self::Machine(_) => machine_source().to_owned(),
            Self::Delegated(_) => DELEGATED.to_owned(),
            Self::Google(_, source) => source.clone(),
        }
    }

    /// Returns whether a refusal with this code may be due to credentials that another process renews. `now_unix_s` is
    /// the store's time.
    pub(super) fn may_be_renewed(&self, code: &str, now_unix_s: i64) -> bool {
        match self {
            Self::Delegated(delegated) => code == "ExpiredToken" || delegated.may_have_expired(now_unix_s),
            _ => false,
        }
    }

    /// Credentials for one request; they are cached and renewed by their provider.
    pub(crate) async fn authority(&self) -> Result<Authority, String> {
        match self {
            Self::Anonymous => Ok(Authority::Nobody),
            Self::Keys(keys) => Ok(Authority::Aws(Arc::clone(keys))),
            Self::Profile(chain) | Self::Machine(chain) => chain.credential().await.map(Authority::Aws),
            Self::WebIdentity(provider) => {
                let provider = match provider.get() {
                    Some(provider) => Arc::clone(provider),
                    None => Arc::clone(provider.get_or_init(web_identity()?)),
                };
                provider
                    .get_credential()
                    .await
                    .map(Authority::Aws)
                    .map_err(|error| format!("web identity (AWS_WEB_IDENTITY_TOKEN_FILE): {}", innermost(&error)))
            }
            Self::Delegated(delegated) => delegated_authority(delegated.now()?),
            Self::Google(provider, source) => {
                let credential = provider.get_credential().await;
                let credential = credential.map_err(|error| describe_google(source, &innermost(&error)))?;
                if credential.bearer.is_empty() {
                    return Ok(Authority::Nobody);
                }
                Ok(Authority::Bearer(credential.bearer.clone()))
            }
        }
    }
}

/// Why a link of Google's chain gave no token.
fn describe_google(source: &str, why: &str) -> String {
    if source != INSTANCE_METADATA {
        return why.to_owned();
    }
    format!(
        "no credential file is set up, and instance metadata gives none: {why}; \
         set GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth application-default login`"
    )
}

fn delegated_authority(authority: StoreAuthority) -> Result<Authority, String> {
    match authority {
        StoreAuthority::Nobody => Ok(Authority::Nobody),
        StoreAuthority::Bearer(token) => Ok(Authority::Bearer(token)),
        StoreAuthority::Aws { key_id, secret_key, token } => {
            Ok(Authority::Aws(Arc::new(AwsCredential { key_id, secret_key, token })))
        }
        StoreAuthority::AzureKey(_) | StoreAuthority::AzureSas(_) => {
            Err("delegated credentials are for another cloud".to_owned())
        }
    }
}

fn web_identity() -> Result<impl FnOnce() -> AwsCredentialProvider, String> {
    let store = AmazonS3Builder::from_env()
        .with_bucket_name("unused")
        .with_http_connector(LibraryClient)
        .build()
        .map_err(|error| innermost(&error))?;
    Ok(move || Arc::clone(store.credentials()))
}

/// Returns an error for a store that cannot be opened.
pub(crate) fn configuration(url: &str, message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Configuration, "open", url, message)
}

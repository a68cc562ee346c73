//! `aws-config`: profiles of the AWS configuration files (static keys, SSO, assumed roles, `credential_process`),
//! container credentials and instance metadata.
//!
//! Built at the first request. A process that signs with keys from its environment never uses it.

use super::source::{container_variable, profile_source};
use crate::error::innermost;
use crate::scope::RENEW_BEFORE;
use crate::token::LibraryClient;
use crate::token::environment;
use aws_config::Region;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use object_store::aws::AwsCredential;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{Mutex, OnceCell};

/// A credential, its expiry time if it has one, and how it was obtained.
type Held = (Arc<AwsCredential>, Option<SystemTime>, Vec<AwsCredentialFeature>);

/// The credentials of one profile, cached until they are about to expire.
pub(crate) struct ProfileChain {
    /// The profile that the user named; `None` for AWS's default chain.
    name: Option<String>,
    /// True if there are no configuration files, so that container credentials or instance metadata are used.
    of_machine: bool,
    provider: OnceCell<SharedCredentialsProvider>,
    held: Mutex<Option<Held>>,
}

impl ProfileChain {
    pub(super) fn new(name: Option<String>) -> Self {
        Self { name, of_machine: false, provider: OnceCell::new(), held: Mutex::new(None) }
    }

    /// Container credentials, else instance metadata.
    pub(super) fn of_machine() -> Self {
        Self { of_machine: true, ..Self::new(None) }
    }

    /// The credential to sign with now. If it must be renewed, one caller does so while the others wait.
    pub(super) async fn credential(&self) -> Result<Arc<AwsCredential>, String> {
        let mut held = self.held.lock().await;
        let now = SystemTime::now();
        if let Some((credential, expires, _)) = held.as_ref()
            && expires.is_none_or(|expires| now + RENEW_BEFORE < expires)
        {
            return Ok(Arc::clone(credential));
        }
        check_container_token()?;
        let provider = self.provider.get_or_init(|| self.build()).await;
        let fresh = match provider.provide_credentials().await {
            Ok(fresh) => fresh,
            // The provider failed, but the held credential is still valid for some minutes.
            Err(_) if held.as_ref().is_some_and(|(_, expires, _)| expires.is_none_or(|expires| now < expires)) => {
                return held.as_ref().map(|(credential, ..)| Arc::clone(credential)).ok_or_else(String::new);
            }
            Err(error) => return Err(self.describe(&error)),
        };
        let credential = Arc::new(AwsCredential {
            key_id: fresh.access_key_id().to_owned(),
            secret_key: fresh.secret_access_key().to_owned(),
            token: fresh.session_token().map(str::to_owned),
        });
        let features = fresh.get_property::<Vec<AwsCredentialFeature>>().cloned().unwrap_or_default();
        *held = Some((Arc::clone(&credential), fresh.expiry(), features));
        Ok(credential)
    }

    /// Returns whether the user or the environment named a profile.
    pub(super) fn is_named(&self) -> bool {
        self.name.is_some() || environment("AWS_PROFILE").is_some()
    }

    /// The profile, and how it obtained the held credential; or the link after it that provided one.
    pub(super) async fn source(&self) -> String {
        let held = self.held.lock().await;
        let features = held.as_ref().map_or(&[][..], |(_, _, features)| features);
        profile_source(self.name.as_deref(), environment("AWS_PROFILE").as_deref(), features)
    }

    async fn build(&self) -> SharedCredentialsProvider {
        match &self.name {
            Some(name) => {
                let provider = ProfileFileCredentialsProvider::builder()
                    .configure(&provider_config().load_default_region().await)
                    .profile_name(name)
                    .build();
                SharedCredentialsProvider::new(provider)
            }
            // Without a region the chain would ask instance metadata for one, which these two sources do not need.
            None if self.of_machine => {
                let chain = DefaultCredentialsChain::builder().region(Region::from_static("us-east-1"));
                SharedCredentialsProvider::new(chain.configure(provider_config()).build().await)
            }
            None => {
                let chain = DefaultCredentialsChain::builder().configure(provider_config());
                SharedCredentialsProvider::new(chain.build().await)
            }
        }
    }

    fn describe(&self, error: &dyn std::error::Error) -> String {
        let why = match missing_file() {
            Some((variable, path)) => format!("{}; {variable} names {path}, which does not exist", innermost(error)),
            None => innermost(error),
        };
        match &self.name {
            Some(name) => format!("profile `{name}`: {why}"),
            None if !self.of_machine => why,
            None => describe_machine(error),
        }
    }
}

/// This machine's settings, and our HTTP client.
fn provider_config() -> ProviderConfig {
    ProviderConfig::without_region().with_http_client(LibraryClient)
}

/// Why container credentials or instance metadata gave none, with the variable that selects between them.
fn describe_machine(error: &dyn std::error::Error) -> String {
    if let Some(variable) = container_variable() {
        return format!("container credentials ({variable}): {}", innermost(error));
    }
    let disabled = environment("AWS_EC2_METADATA_DISABLED").filter(|word| word.eq_ignore_ascii_case("true"));
    match disabled {
        Some(_) => {
            "no keys, profile or container is set up, and AWS_EC2_METADATA_DISABLED turns instance metadata off; \
                    set AWS_PROFILE or AWS_ACCESS_KEY_ID"
                .to_owned()
        }
        None => format!(
            "no keys, profile or container is set up, and instance metadata gives none: {}; \
             set AWS_PROFILE or AWS_ACCESS_KEY_ID",
            innermost(error).trim_end_matches('.')
        ),
    }
}

/// Refuses a container token that is not a valid header: `aws-config` would write it to the log.
fn check_container_token() -> Result<(), String> {
    const FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
    const TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
    if container_variable().is_none() {
        return Ok(());
    }
    let (token, place) = match (environment(FILE), environment(TOKEN)) {
        (Some(path), _) => {
            let token = std::fs::read(&path).map_err(|error| format!("{path} (named by {FILE}): {error}"))?;
            (token, format!("{path} (named by {FILE})"))
        }
        (None, Some(token)) => (token.into_bytes(), TOKEN.to_owned()),
        (None, None) => return Ok(()),
    };
    match http::HeaderValue::from_bytes(&token) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{place} holds a line break or another control character; write the token alone")),
    }
}

/// A file that the environment names but that does not exist. It explains why a profile is not found.
fn missing_file() -> Option<(&'static str, String)> {
    ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"].into_iter().find_map(|variable| {
        let path = environment(variable)?;
        (!std::path::Path::new(&path).exists()).then_some((variable, path))
    })
}

/// Returns whether AWS configuration files exist, at the usual place or where the environment says.
pub(super) fn shared_files_exist() -> bool {
    let usual = |name: &str| environment("HOME").map(|home| PathBuf::from(home).join(".aws").join(name));
    let files = [("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")];
    files.into_iter().any(|(variable, name)| {
        environment(variable).map(PathBuf::from).or_else(|| usual(name)).is_some_and(|path| path.exists())
    })
}

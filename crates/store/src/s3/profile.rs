//! `aws-config`: profiles of the AWS configuration files (static keys, SSO, assumed roles, `credential_process`), container
//! credentials and instance metadata.
//!
//! Built at the first request only; a process that signs with keys from its environment never comes here.

use super::source::{container_variable, profile_source};
use crate::error::innermost;
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
use std::time::{Duration, SystemTime};
use tokio::sync::{Mutex, OnceCell};

/// Credentials are renewed this long before they expire, so that a request signed now is not late when it arrives.
const RENEW_BEFORE: Duration = Duration::from_secs(300);

/// A credential, when it expires, if it does, and how it was come by.
type Held = (Arc<AwsCredential>, Option<SystemTime>, Vec<AwsCredentialFeature>);

/// The credentials of one profile, cached until they are about to expire.
pub(crate) struct ProfileChain {
    /// The profile the user named; `None` for AWS's default chain.
    name: Option<String>,
    /// There are no configuration files: container credentials or instance metadata answer.
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

    /// The credential to sign with now. One caller renews it while the others wait.
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
            // The provider failed, but what is held is still good for some minutes.
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

    /// Returns whether a profile was named, by the user or by the environment.
    pub(super) fn is_named(&self) -> bool {
        self.name.is_some() || environment("AWS_PROFILE").is_some()
    }

    /// The profile, and how it gave the credential that is held, or the link behind it that did.
    pub(super) async fn source(&self) -> String {
        let held = self.held.lock().await;
        let features = held.as_ref().map_or(&[][..], |(_, _, features)| features);
        profile_source(self.name.as_deref(), environment("AWS_PROFILE").as_deref(), features)
    }

    async fn build(&self) -> SharedCredentialsProvider {
        match &self.name {
            Some(name) => {
                let provider = ProfileFileCredentialsProvider::builder()
                    .configure(&ProviderConfig::with_default_region().await)
                    .profile_name(name)
                    .build();
                SharedCredentialsProvider::new(provider)
            }
            // Without a region the chain asks instance metadata for one, which these two do not need.
            None if self.of_machine => {
                let chain = DefaultCredentialsChain::builder().region(Region::from_static("us-east-1"));
                SharedCredentialsProvider::new(chain.build().await)
            }
            None => SharedCredentialsProvider::new(DefaultCredentialsChain::builder().build().await),
        }
    }

    fn describe(&self, error: &dyn std::error::Error) -> String {
        let why = match missing_file() {
            Some((variable, path)) => format!("{}; {variable} names {path}, which is not there", innermost(error)),
            None => innermost(error),
        };
        match &self.name {
            Some(name) => format!("profile `{name}`: {why}"),
            None if !self.of_machine => why,
            None => describe_machine(error),
        }
    }
}

/// Why container credentials or instance metadata gave none, with the variable that decides.
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
        None => format!("instance metadata: {}", innermost(error)),
    }
}

/// Refuses a container token that cannot be a header: `aws-config` would write it to the log.
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

/// A file that the environment names and that does not exist, which explains why a profile is not found.
fn missing_file() -> Option<(&'static str, String)> {
    ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"].into_iter().find_map(|variable| {
        let path = environment(variable)?;
        (!std::path::Path::new(&path).exists()).then_some((variable, path))
    })
}

/// Returns whether the user has AWS configuration files, at their usual place or where the environment says.
pub(super) fn shared_files_exist() -> bool {
    let usual = |name: &str| environment("HOME").map(|home| PathBuf::from(home).join(".aws").join(name));
    let files = [("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")];
    files.into_iter().any(|(variable, name)| {
        environment(variable).map(PathBuf::from).or_else(|| usual(name)).is_some_and(|path| path.exists())
    })
}

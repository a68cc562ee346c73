//! Opens a container from its configuration. Makes no request.

use super::AzureStore;
use super::source::{ANONYMOUS, AZ_LOGIN, CERTIFICATE, Surroundings, credential_source};
use crate::delegated::DELEGATED;
use crate::error::innermost;
use crate::key_order::KeyOrder;
use crate::rest::split_endpoint;
use crate::rest::{Http, TlsRoots};
use crate::token::azure::ClientCertificate;
use crate::token::environment;
use crate::token::{LibraryClient, Renewing, TokenClient};
use crate::{Error, ErrorKind, Result, StoreConfig};
use object_store::azure::{AzureConfigKey, AzureCredential, AzureCredentialProvider, MicrosoftAzureBuilder};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The variable that Azure's own tools read for the endpoint. Applies if the configuration has none.
const ENDPOINT_VARIABLE: &str = "AZURE_STORAGE_ENDPOINT";

impl AzureStore {
    /// Opens `az://account/container`. Credentials are found as `object_store` finds them: account key, SAS or token
    /// from `AZURE_*`, a client secret, workload identity, `az login`, managed identity. A client certificate is an
    /// addition.
    pub(crate) fn open(config: &StoreConfig, account: &str, container: &str) -> Result<Self> {
        let wrong = |why: String| Error::new(ErrorKind::Configuration, "open", config.url.clone(), why);
        let plain = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_$".contains(&byte))
        };
        if !plain(account) || !plain(container) {
            return Err(wrong("the URL must be az://account/container".to_owned()));
        }
        if config.profile.is_some() {
            return Err(wrong("Azure has no profiles: its credentials come from AZURE_* or `az login`".to_owned()));
        }
        let config = &with_environment(config);
        let endpoint = config.endpoint.clone();
        let endpoint = endpoint.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
        let (scheme, authority, account_root) = split_endpoint(&endpoint)?;
        let (credentials, credential_source) = if let Some(delegated) = &config.delegated {
            (Some(Arc::clone(delegated) as AzureCredentialProvider), DELEGATED)
        } else if config.anonymous {
            (None, ANONYMOUS)
        } else {
            let builder = settings_of(account)
                .with_account(account)
                .with_container_name(container)
                .with_use_emulator(false)
                .with_http_connector(LibraryClient);
            let source = credential_source(&builder, Surroundings::look());
            let builder = match source {
                CERTIFICATE => {
                    let credentials = certificate(config, &builder).map_err(wrong)?;
                    builder.with_credentials(credentials)
                }
                AZ_LOGIN => builder.with_use_azure_cli(true),
                _ => builder,
            };
            let store = builder.build().map_err(|error| wrong(format!("{source}: {}", innermost(&error))))?;
            (Some(Arc::clone(store.credentials())), source)
        };
        let roots = TlsRoots::of(config, scheme == "https");
        Ok(Self {
            url: format!("az://{account}/{container}"),
            account: account.to_owned(),
            http: Http::new(&roots)?,
            credentials,
            delegated: config.delegated.clone(),
            credential_source,
            origin: format!("{scheme}://{authority}"),
            account_root,
            container: container.to_owned(),
            refuses_write_conditions: AtomicBool::new(false),
            key_order: KeyOrder::default(),
            ignores_start: AtomicBool::new(false),
            foreign_source: OnceLock::new(),
        })
    }
}

/// The configuration of a container. An endpoint from this machine's environment is added if it has none.
pub(crate) fn with_environment(config: &StoreConfig) -> StoreConfig {
    let endpoint = config.endpoint.clone().or_else(|| environment(ENDPOINT_VARIABLE));
    StoreConfig { endpoint, ..config.clone() }
}

/// The account key from this machine's environment: the one for this account, else the one for all.
pub(crate) fn account_key(account: &str) -> Option<String> {
    settings_of(account).get_config_value(&AzureConfigKey::AccessKey)
}

/// The settings of this machine's environment for an account. A key or a shared access signature for this account replaces
/// all other credentials, so the two sides of a copy may have different ones.
fn settings_of(account: &str) -> MicrosoftAzureBuilder {
    let of_account = |variable: &str| environment(&format!("{variable}_{}", account.to_ascii_uppercase()));
    let given =
        [("AZURE_STORAGE_ACCOUNT_KEY", AzureConfigKey::AccessKey), ("AZURE_STORAGE_SAS_KEY", AzureConfigKey::SasKey)]
            .map(|(variable, key)| of_account(variable).map(|value| (key, value)));
    match given.into_iter().flatten().next() {
        Some((key, value)) => MicrosoftAzureBuilder::new().with_config(key, value),
        None => MicrosoftAzureBuilder::from_env(),
    }
}

/// The client certificate of `AZURE_CLIENT_CERTIFICATE_PATH`.
fn certificate(config: &StoreConfig, builder: &MicrosoftAzureBuilder) -> Result<AzureCredentialProvider, String> {
    let value = |key| builder.get_config_value(&key);
    let certificate = ClientCertificate::new(
        TokenClient::new(TlsRoots::of(config, true)),
        environment("AZURE_CLIENT_CERTIFICATE_PATH").unwrap_or_default(),
        &value(AzureConfigKey::AuthorityId).unwrap_or_default(),
        &value(AzureConfigKey::ClientId).unwrap_or_default(),
        value(AzureConfigKey::AuthorityHost).as_deref(),
    )?;
    Ok(Arc::new(Renewing::new(certificate, AzureCredential::BearerToken)))
}

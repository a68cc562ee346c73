//! Names the link of Azure's credential chain that will give credentials.

use crate::token::environment;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use std::path::{Path, PathBuf};

pub(super) const ANONYMOUS: &str = "none (anonymous)";
/// The last link of the chain.
pub(super) const MANAGED_IDENTITY: &str = "instance metadata (managed identity)";

pub(super) const AZ_LOGIN: &str = "az login";
pub(super) const CERTIFICATE: &str = "client certificate";

/// Settings of this machine that `object_store` does not read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Surroundings {
    /// `AZURE_CLIENT_CERTIFICATE_PATH` is set.
    pub(super) has_certificate: bool,
    /// `az login` was run, `az` is installed, and `AZURE_USE_AZURE_CLI` does not forbid it.
    pub(super) is_logged_in: bool,
}

impl Surroundings {
    pub(super) fn look() -> Self {
        let folder = environment("AZURE_CONFIG_DIR").map(PathBuf::from);
        let folder = folder.or_else(|| environment("HOME").map(|home| Path::new(&home).join(".azure")));
        let is_undecided = environment("AZURE_USE_AZURE_CLI").is_none();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let has_az = || std::env::split_paths(&paths).any(|folder| folder.join("az").is_file());
        Self {
            has_certificate: environment("AZURE_CLIENT_CERTIFICATE_PATH").is_some(),
            is_logged_in: is_undecided && folder.is_some_and(|folder| is_logged_in(&folder)) && has_az(),
        }
    }
}

/// Returns whether the profile of the Azure CLI lists a subscription. Logging out empties the list.
fn is_logged_in(folder: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(folder.join("azureProfile.json")) else { return false };
    // The file begins with a byte order mark.
    let profile: Option<serde_json::Value> = serde_json::from_str(text.trim_start_matches('\u{feff}')).ok();
    profile.is_some_and(|profile| profile["subscriptions"].as_array().is_some_and(|list| !list.is_empty()))
}

/// The link that will give credentials: the one that `builder` is configured for, else the first that is complete. The
/// order is that of `object_store`, with the certificate after the client secret. `az login` comes before a managed
/// identity that no setting selects.
pub(super) fn credential_source(builder: &MicrosoftAzureBuilder, surroundings: Surroundings) -> &'static str {
    use AzureConfigKey::*;
    let has = |keys: &[AzureConfigKey]| keys.iter().all(|key| builder.get_config_value(key).is_some());
    // The builder keeps a setting's text unparsed until it is built.
    let is_set = |key: &AzureConfigKey| {
        let word = builder.get_config_value(key).unwrap_or_default().to_ascii_lowercase();
        ["1", "true", "on", "yes", "y"].contains(&word.as_str())
    };
    match builder.get_config_value(&CredentialType).as_deref() {
        None | Some("auto") => {}
        Some("bearer_token") => return "token in environment",
        Some("access_key") => return "account key in environment",
        Some("client_secret") => return "client secret in environment",
        Some("workload_identity") => return "workload identity",
        Some("sas_token") => return "SAS in environment",
        Some("azure_cli") => return AZ_LOGIN,
        // Building refuses any value other than this last one.
        Some(_) => return MANAGED_IDENTITY,
    }
    let names_identity = [ClientId, ObjectId, MsiResourceId, MsiEndpoint].iter().any(|key| has(&[*key]));
    if has(&[FabricTokenServiceUrl, FabricWorkloadHost, FabricSessionToken, FabricClusterIdentifier]) {
        "Fabric token service"
    } else if has(&[Token]) {
        "token in environment"
    } else if has(&[AccessKey]) {
        "account key in environment"
    } else if has(&[ClientId, AuthorityId, FederatedTokenFile]) {
        "workload identity"
    } else if has(&[ClientId, ClientSecret, AuthorityId]) {
        "client secret in environment"
    } else if has(&[ClientId, AuthorityId]) && surroundings.has_certificate {
        CERTIFICATE
    } else if has(&[SasKey]) {
        "SAS in environment"
    } else if is_set(&UseAzureCli) || surroundings.is_logged_in && !names_identity {
        AZ_LOGIN
    } else {
        MANAGED_IDENTITY
    }
}

/// Why a link gave no credentials. The last link of the chain answers where nothing is set up.
pub(super) fn describe_missing(source: &str, why: &str) -> String {
    match source {
        MANAGED_IDENTITY => format!("{source}: {why}; set AZURE_STORAGE_ACCOUNT_KEY or sign in with `az login`"),
        _ => format!("{source}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AzureConfigKey::*;

    #[test]
    fn without_any_settings_the_way_to_credentials_is_named() {
        assert!(describe_missing(MANAGED_IDENTITY, "HTTP 404").ends_with("or sign in with `az login`"));
        assert_eq!(describe_missing(AZ_LOGIN, "it ended with 1"), "az login: it ended with 1");
    }

    #[test]
    fn the_first_link_with_all_it_needs_is_named() {
        let source = |given: &[(AzureConfigKey, &str)]| {
            let builder = given
                .iter()
                .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| builder.with_config(*key, *value));
            credential_source(&builder, Surroundings::default())
        };
        assert_eq!(source(&[]), "instance metadata (managed identity)");
        assert_eq!(source(&[(ClientId, "a")]), "instance metadata (managed identity)");
        assert_eq!(source(&[(UseAzureCli, "true")]), "az login");
        assert_eq!(source(&[(UseAzureCli, "1")]), "az login");
        assert_eq!(source(&[(UseAzureCli, "true"), (SasKey, "sv=1&sig=x")]), "SAS in environment");
        let secret = [(ClientId, "a"), (ClientSecret, "b"), (AuthorityId, "c"), (SasKey, "sv=1")];
        assert_eq!(source(&secret), "client secret in environment");
        assert_eq!(source(&[(ClientId, "a"), (AuthorityId, "c"), (FederatedTokenFile, "f")]), "workload identity");
        assert_eq!(source(&[(AccessKey, "k"), (SasKey, "sv=1")]), "account key in environment");
        assert_eq!(source(&[(Token, "t"), (AccessKey, "k")]), "token in environment");
        assert_eq!(source(&[(AccessKey, "k"), (CredentialType, "sas_token")]), "SAS in environment");
    }
    #[test]
    fn a_certificate_and_a_login_answer_where_nothing_else_is_given() {
        let new = MicrosoftAzureBuilder::new;
        let everything = Surroundings { has_certificate: true, is_logged_in: true };
        let client = new().with_config(ClientId, "a").with_config(AuthorityId, "t");
        assert_eq!(credential_source(&client, everything), CERTIFICATE);
        assert_eq!(credential_source(&client.clone().with_config(SasKey, "sv=1"), everything), CERTIFICATE);
        assert_eq!(
            credential_source(&client.with_config(ClientSecret, "s"), everything),
            "client secret in environment"
        );
        assert_eq!(credential_source(&new(), everything), AZ_LOGIN);
        assert_eq!(credential_source(&new().with_config(ClientId, "a"), everything), MANAGED_IDENTITY);
        assert_eq!(credential_source(&new().with_config(AccessKey, "k"), everything), "account key in environment");
    }

    #[test]
    fn after_logging_out_nobody_is_logged_in() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_logged_in(folder.path()));
        let write = |text: &str| std::fs::write(folder.path().join("azureProfile.json"), text).unwrap();
        write("\u{feff}{\"subscriptions\": []}");
        assert!(!is_logged_in(folder.path()));
        write("\u{feff}{\"subscriptions\": [{\"id\": \"x\"}]}");
        assert!(is_logged_in(folder.path()));
    }
}

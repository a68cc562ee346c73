//! Names the link of Azure's credential chain that will answer.

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

pub(super) const ANONYMOUS: &str = "none (anonymous)";
/// The last link of the chain.
pub(super) const MANAGED_IDENTITY: &str = "instance metadata (managed identity)";

/// The link that `builder` will choose: the one it was told to, else the first in `object_store`'s order.
pub(super) fn credential_source(builder: &MicrosoftAzureBuilder) -> &'static str {
    use AzureConfigKey::*;
    let has = |keys: &[AzureConfigKey]| keys.iter().all(|key| builder.get_config_value(key).is_some());
    // The builder keeps the word as it was given until it is built.
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
        Some("azure_cli") => return "az login",
        // Building refuses any other than this last one.
        Some(_) => return MANAGED_IDENTITY,
    }
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
    } else if has(&[SasKey]) {
        "SAS in environment"
    } else if is_set(&UseAzureCli) {
        "az login"
    } else {
        MANAGED_IDENTITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AzureConfigKey::*;

    #[test]
    fn the_first_link_with_all_it_needs_is_named() {
        let source = |given: &[(AzureConfigKey, &str)]| {
            let builder = given
                .iter()
                .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| builder.with_config(*key, *value));
            credential_source(&builder)
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
}

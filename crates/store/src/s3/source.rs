//! Names the link of a credential chain that answers. Names and paths, never a credential.

use aws_credential_types::credential_feature::AwsCredentialFeature;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use std::path::Path;

/// The last link of the chains of AWS and Google.
pub(super) const INSTANCE_METADATA: &str = "instance metadata";

/// Where `gcloud auth application-default login` leaves its file, below the home directory.
const GCLOUD_FILE: &str = ".config/gcloud/application_default_credentials.json";

/// The link of AWS's chain that stands behind a profile's credential. The profile is the one the user `named`, else the
/// one of the environment, else `default`; when none was named, the chain may have gone on to the metadata services.
pub(super) fn profile_source(named: Option<&str>, environment: Option<&str>, how: &[AwsCredentialFeature]) -> String {
    use AwsCredentialFeature::*;
    let has = |features: &[AwsCredentialFeature]| how.iter().any(|feature| features.contains(feature));
    let manner = if has(&[CredentialsSso, CredentialsProfileSso]) {
        Some("SSO")
    } else if has(&[CredentialsStsAssumeRole]) {
        Some("assumed role")
    } else if has(&[CredentialsProcess, CredentialsProfileProcess]) {
        Some("credential_process")
    } else if has(&[CredentialsProfileLogin, CredentialsLogin]) {
        Some("login")
    } else {
        None
    };
    let link = if has(&[CredentialsProfileStsWebIdToken, CredentialsEnvVarsStsWebIdToken]) {
        Some("web identity")
    } else if has(&[CredentialsHttp]) {
        Some("container metadata")
    } else if has(&[CredentialsImds]) {
        Some(INSTANCE_METADATA)
    } else {
        None
    };
    match (named, manner, link) {
        (None, None, Some(link)) => link.to_owned(),
        (_, manner, link) => {
            let profile = named.or(environment).unwrap_or("default");
            manner.or(link).map_or_else(|| format!("profile {profile}"), |how| format!("profile {profile} ({how})"))
        }
    }
}

/// The link that `object_store` chooses when there are neither keys nor profiles.
pub(super) fn ambient_source(builder: &AmazonS3Builder) -> &'static str {
    use AmazonS3ConfigKey::*;
    let has = |key: AmazonS3ConfigKey| builder.get_config_value(&key).is_some();
    if has(WebIdentityTokenFile) && has(RoleArn) {
        "web identity"
    } else if has(ContainerCredentialsRelativeUri) {
        "container metadata"
    } else if has(ContainerCredentialsFullUri) && has(ContainerAuthorizationTokenFile) {
        "pod identity"
    } else {
        INSTANCE_METADATA
    }
}

/// The link of Google's chain that `builder` chooses; `file` is the one that a profile or the environment named.
pub(super) fn google_source(builder: &GoogleCloudStorageBuilder, file: Option<&str>, home: Option<&Path>) -> String {
    use GoogleConfigKey::*;
    if let Some(path) = builder.get_config_value(&ServiceAccount) {
        return format!("service account file {path}");
    }
    if builder.get_config_value(&ServiceAccountKey).is_some() {
        return match file {
            Some(path) => format!("service account file {path}"),
            None => "service account key in environment".to_owned(),
        };
    }
    if let Some(path) = builder.get_config_value(&ApplicationCredentials) {
        return format!("credentials file {path}");
    }
    if home.is_some_and(|home| home.join(GCLOUD_FILE).exists()) {
        return "gcloud auth application-default login".to_owned();
    }
    INSTANCE_METADATA.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_named_with_its_manner() {
        use AwsCredentialFeature::*;
        assert_eq!(profile_source(Some("work"), Some("other"), &[CredentialsProfile]), "profile work");
        assert_eq!(profile_source(None, Some("other"), &[]), "profile other");
        assert_eq!(profile_source(None, None, &[CredentialsProfile, CredentialsSso]), "profile default (SSO)");
        let role = [CredentialsImds, CredentialsStsAssumeRole];
        assert_eq!(profile_source(Some("work"), None, &role), "profile work (assumed role)");
        assert_eq!(profile_source(Some("work"), None, &[CredentialsImds]), "profile work (instance metadata)");
    }

    #[test]
    fn the_default_chain_goes_on_behind_profiles() {
        use AwsCredentialFeature::*;
        assert_eq!(profile_source(None, None, &[CredentialsImds]), "instance metadata");
        assert_eq!(profile_source(None, Some("other"), &[CredentialsHttp]), "container metadata");
        assert_eq!(profile_source(None, None, &[CredentialsProfileStsWebIdToken]), "web identity");
    }

    #[test]
    fn an_ambient_link_needs_all_its_parts() {
        use AmazonS3ConfigKey::*;
        let builder = AmazonS3Builder::new();
        assert_eq!(ambient_source(&builder), "instance metadata");
        let builder = builder.with_config(ContainerCredentialsFullUri, "http://h/x");
        assert_eq!(ambient_source(&builder), "instance metadata");
        let builder = builder.with_config(ContainerAuthorizationTokenFile, "/f");
        assert_eq!(ambient_source(&builder), "pod identity");
        let builder = builder.with_config(ContainerCredentialsRelativeUri, "/x");
        assert_eq!(ambient_source(&builder), "container metadata");
        let builder = builder.with_config(WebIdentityTokenFile, "/f").with_config(RoleArn, "r");
        assert_eq!(ambient_source(&builder), "web identity");
    }

    #[test]
    fn googles_chain_goes_from_files_to_metadata() {
        let (home, new) = (tempfile::tempdir().unwrap(), GoogleCloudStorageBuilder::new);
        assert_eq!(google_source(&new(), None, None), "instance metadata");
        assert_eq!(google_source(&new(), None, Some(home.path())), "instance metadata");
        let file = home.path().join(GCLOUD_FILE);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "{}").unwrap();
        assert_eq!(google_source(&new(), None, Some(home.path())), "gcloud auth application-default login");
        let builder = new().with_application_credentials("/adc");
        assert_eq!(google_source(&builder, Some("/adc"), Some(home.path())), "credentials file /adc");
        let builder = new().with_service_account_key("a secret");
        assert_eq!(google_source(&builder, Some("/sa"), None), "service account file /sa");
        assert_eq!(google_source(&builder, None, None), "service account key in environment");
    }
}

//! Names the link of a credential chain that gives credentials. Names and paths, never a credential.

use crate::token::environment;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use std::path::{Path, PathBuf};

/// The last link of AWS's and Google's chains.
pub(super) const INSTANCE_METADATA: &str = "instance metadata";
/// Used by ECS tasks and EKS pods.
const CONTAINER: &str = "container credentials";

const GCLOUD_LOGIN: &str = "gcloud auth application-default login";

/// The link of AWS's chain that gave a profile's credential. The profile is the one that the user `named`, else the
/// environment's, else `default`. If none was named, the chain may have continued to the metadata services.
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
        Some(CONTAINER)
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

/// The variable that names the server of container credentials, if one is set.
pub(super) fn container_variable() -> Option<&'static str> {
    let variables = ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
    variables.into_iter().find(|variable| environment(variable).is_some())
}

/// The link that is used if there are no keys, no profiles and no web identity.
pub(super) fn machine_source() -> &'static str {
    if container_variable().is_some() { CONTAINER } else { INSTANCE_METADATA }
}

/// The service account that `GOOGLE_SERVICE_ACCOUNT` or a related variable gives to `builder`, for messages.
pub(super) fn google_service_account(builder: &GoogleCloudStorageBuilder) -> Option<String> {
    use GoogleConfigKey::*;
    let path = builder.get_config_value(&ServiceAccount).map(|path| format!("service account file {path}"));
    let key = builder.get_config_value(&ServiceAccountKey);
    path.or_else(|| key.map(|_| "service account key in environment".to_owned()))
}

/// Path and description of Google's credential file, named by the environment or written by `gcloud`.
pub(super) fn google_file() -> Option<(String, String)> {
    let named = environment("GOOGLE_APPLICATION_CREDENTIALS");
    let named = named.map(|file| (file.clone(), format!("credentials file {file} (GOOGLE_APPLICATION_CREDENTIALS)")));
    named.or_else(|| gcloud_file(environment("CLOUDSDK_CONFIG").as_deref(), environment("HOME").as_deref()))
}

/// The file of `gcloud auth application-default login`, if there is one.
fn gcloud_file(cloudsdk_config: Option<&str>, home: Option<&str>) -> Option<(String, String)> {
    let (folder, source) = match cloudsdk_config {
        Some(folder) => (PathBuf::from(folder), format!("{GCLOUD_LOGIN} (CLOUDSDK_CONFIG={folder})")),
        None => (Path::new(home?).join(".config/gcloud"), GCLOUD_LOGIN.to_owned()),
    };
    let file = folder.join("application_default_credentials.json");
    file.exists().then(|| (file.display().to_string(), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_named_with_its_kind() {
        use AwsCredentialFeature::*;
        assert_eq!(profile_source(Some("work"), Some("other"), &[CredentialsProfile]), "profile work");
        assert_eq!(profile_source(None, Some("other"), &[]), "profile other");
        assert_eq!(profile_source(None, None, &[CredentialsProfile, CredentialsSso]), "profile default (SSO)");
        let role = [CredentialsImds, CredentialsStsAssumeRole];
        assert_eq!(profile_source(Some("work"), None, &role), "profile work (assumed role)");
        assert_eq!(profile_source(Some("work"), None, &[CredentialsImds]), "profile work (instance metadata)");
    }

    #[test]
    fn the_default_chain_continues_after_profiles() {
        use AwsCredentialFeature::*;
        assert_eq!(profile_source(None, None, &[CredentialsImds]), "instance metadata");
        assert_eq!(profile_source(None, Some("other"), &[CredentialsHttp]), "container credentials");
        assert_eq!(profile_source(None, None, &[CredentialsProfileStsWebIdToken]), "web identity");
    }

    #[test]
    fn gcloud_leaves_its_file_in_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        assert_eq!(gcloud_file(None, None), None);
        assert_eq!(gcloud_file(None, Some(home)), None);
        let gcloud = folder.path().join(".config/gcloud");
        std::fs::create_dir_all(&gcloud).unwrap();
        std::fs::write(gcloud.join("application_default_credentials.json"), "{}").unwrap();
        let (file, source) = gcloud_file(None, Some(home)).unwrap();
        assert!(file.starts_with(home), "{file}");
        assert_eq!(source, "gcloud auth application-default login");
        assert_eq!(gcloud_file(Some(home), Some(home)), None, "only where CLOUDSDK_CONFIG says");
        assert_eq!(gcloud_file(gcloud.to_str(), None).unwrap().0, file);
    }

    #[test]
    fn a_service_account_of_the_environment_is_named() {
        let new = GoogleCloudStorageBuilder::new;
        assert_eq!(google_service_account(&new()), None);
        let source = google_service_account(&new().with_service_account_key("a secret"));
        assert_eq!(source.as_deref(), Some("service account key in environment"));
        let source = google_service_account(&new().with_service_account_path("/sa"));
        assert_eq!(source.as_deref(), Some("service account file /sa"));
    }
}

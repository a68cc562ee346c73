//! Opens a bucket from its configuration. Makes no request.

use super::address::BucketAddress;
use super::credentials::{Credentials, configuration};
use super::dialect::{Dialect, GCS, S3};
use super::source::{INSTANCE_METADATA, google_file, google_service_account};
use super::{Bucket, sigv4};
use crate::error::{PARSE, innermost};
use crate::key_order::KeyOrder;
use crate::rest::{Http, TlsRoots};
use crate::token::environment;
use crate::token::google::GoogleFile;
use crate::token::{LibraryClient, Renewing, TokenClient};
use crate::{Error, ErrorKind, Result, StoreConfig, StoreLimits};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, RwLock};
use tokio::sync::OnceCell;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

/// Limits of Amazon S3, which compatible servers share or exceed.
const S3_LIMITS: StoreLimits = StoreLimits {
    part_bytes_min: 5 * MIB,
    part_bytes_max: 5 * GIB,
    parts_max: 10_000,
    put_bytes_max: 5 * GIB,
    copy_bytes_max: 5 * GIB,
    object_bytes_max: 5 * TIB,
    key_bytes_max: 1024,
    delete_keys_max: 1000,
    equal_parts: false,
};

/// GCS copies objects of any size in one request and cannot copy parts; keys are deleted one by one.
const GCS_LIMITS: StoreLimits =
    StoreLimits { put_bytes_max: 5 * TIB, copy_bytes_max: 5 * TIB, delete_keys_max: 100, ..S3_LIMITS };

/// End of the name of an AWS directory bucket, which lists in no order.
const DIRECTORY_BUCKET: &str = "--x-s3";

/// Opens `s3://bucket`.
pub(crate) fn open_s3(config: &StoreConfig, bucket: &str) -> Result<Bucket> {
    let config = &with_environment(config);
    let region = config.region.as_deref().unwrap_or("us-east-1");
    let address = match &config.endpoint {
        Some(endpoint) => BucketAddress::custom(endpoint, bucket, region, config.path_style)?,
        None => BucketAddress::aws(bucket, region, config.path_style),
    };
    let mut store = new_bucket(config, &S3, bucket, address, Credentials::of_aws(config), S3_LIMITS)?;
    store.at_aws = config.endpoint.is_none();
    if store.at_aws && !bucket.ends_with(DIRECTORY_BUCKET) {
        store.key_order = KeyOrder::by_bytes();
    }
    store.region_known = known(!store.at_aws || config.region.is_some());
    Ok(store)
}

/// The configuration of a bucket. Endpoint, region and CA file from this machine's environment are added if it has
/// none.
pub(crate) fn with_environment(config: &StoreConfig) -> StoreConfig {
    let mut full = config.clone();
    if full.ca_pem.is_none() {
        full.ca_file = full.ca_file.or_else(|| environment("AWS_CA_BUNDLE").map(PathBuf::from));
    }
    if config.url.starts_with("s3:") {
        full.endpoint = full.endpoint.or_else(configured_endpoint);
        let region = || environment("AWS_REGION").or_else(|| environment("AWS_DEFAULT_REGION"));
        full.region = full.region.or_else(region);
    } else if config.url.starts_with("gs:") {
        full.endpoint = full.endpoint.or_else(|| environment("STORAGE_EMULATOR_HOST").map(|host| with_scheme(&host)));
    }
    full
}

/// The endpoint from AWS's variables, unless they are to be ignored. The endpoint of its configuration file comes with
/// the configuration.
fn configured_endpoint() -> Option<String> {
    let ignored =
        environment("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").is_some_and(|word| word.eq_ignore_ascii_case("true"));
    let variables = if ignored { &[][..] } else { &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] };
    variables.iter().find_map(|variable| environment(variable))
}

/// Opens `r2://account/bucket`, which is S3 at Cloudflare.
pub(crate) fn open_r2(config: &StoreConfig, account: &str, bucket: &str) -> Result<Bucket> {
    if account.is_empty() || !account.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)) {
        // It begins the name of the server, and `#` or `?` in it would end the name.
        let message = format!("`{}` is not an account of R2", account.escape_debug());
        return Err(Error::new(ErrorKind::Configuration, PARSE, config.url.clone(), message));
    }
    let config = &with_environment(config);
    let endpoint = config.endpoint.clone().unwrap_or_else(|| format!("https://{account}.r2.cloudflarestorage.com"));
    let region = config.region.as_deref().unwrap_or("auto");
    let address = BucketAddress::custom(&endpoint, bucket, region, config.path_style)?;
    let limits = StoreLimits { equal_parts: true, ..S3_LIMITS };
    let mut store = new_bucket(config, &S3, bucket, address, Credentials::of_aws(config), limits)?;
    store.url = format!("r2://{account}/{bucket}");
    Ok(store)
}

/// Opens `gs://bucket` over the XML API.
pub(crate) fn open_gcs(config: &StoreConfig, bucket: &str) -> Result<Bucket> {
    let config = &with_environment(config);
    let url = format!("gs://{bucket}");
    let endpoint = config.endpoint.as_deref().unwrap_or("https://storage.googleapis.com");
    let address = BucketAddress::custom(endpoint, bucket, "auto", config.path_style)?;
    let credentials = match &config.delegated {
        Some(delegated) => Credentials::Delegated(Arc::clone(delegated)),
        None if config.anonymous => Credentials::Anonymous,
        None => google_credentials(config, bucket, &url)?,
    };
    let mut store = new_bucket(config, &GCS, bucket, address, credentials, GCS_LIMITS)?;
    if config.endpoint.is_none() {
        store.key_order = KeyOrder::by_bytes();
    }
    Ok(store)
}

/// Google's chain: a file named by the profile or `GOOGLE_APPLICATION_CREDENTIALS`, else the file of `gcloud auth
/// application-default login`, else the metadata server. A file with a private key is a service account even without
/// the type. If it has `"disable_oauth": true`, no token is sent at all (emulators).
fn google_credentials(config: &StoreConfig, bucket: &str, url: &str) -> Result<Credentials> {
    let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    let build = |builder: GoogleCloudStorageBuilder, source: String| {
        let store = builder
            .with_http_connector(LibraryClient)
            .build()
            .map_err(|error| configuration(url, format!("{source}: {}", innermost(&error))))?;
        Ok(Credentials::Google(Arc::clone(store.credentials()), source))
    };
    let (file, source) = match (&config.profile, google_service_account(&builder)) {
        (Some(file), _) => (file.clone(), format!("credentials file {file}")),
        (None, Some(source)) => return build(builder, source),
        (None, None) => match google_file() {
            Some(found) => found,
            None => return build(builder, INSTANCE_METADATA.to_owned()),
        },
    };
    let wrong = |why: String| configuration(url, why);
    let text = std::fs::read_to_string(&file).map_err(|error| wrong(format!("{source}: {error}")))?;
    // The parser's error could repeat a secret.
    let account: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(format!("{source}: not JSON, in line {}", error.line())))?;
    if account.get("private_key").is_some() {
        let builder = GoogleCloudStorageBuilder::new().with_bucket_name(bucket).with_service_account_key(text);
        return build(builder, format!("service account file {file}"));
    }
    let client = Arc::new(TokenClient::new(TlsRoots::of(config, true)));
    let account = GoogleFile::parse(&file, account, client).map_err(wrong)?;
    Ok(Credentials::Google(Arc::new(Renewing::new(account, |bearer| GcpCredential { bearer })), source))
}

/// Adds a scheme if the host has none: the emulator's variable may omit it.
fn with_scheme(host: &str) -> String {
    if host.contains("://") { host.to_owned() } else { format!("http://{host}") }
}

fn new_bucket(
    config: &StoreConfig,
    dialect: &'static Dialect,
    bucket: &str,
    address: BucketAddress,
    credentials: Credentials,
    limits: StoreLimits,
) -> Result<Bucket> {
    let url = format!("{}://{bucket}", dialect.scheme);
    if bucket.is_empty() || !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        let message = format!("`{}` is not a bucket name", bucket.escape_debug());
        return Err(Error::new(ErrorKind::Configuration, PARSE, config.url.clone(), message));
    }
    Ok(Bucket {
        dialect,
        url,
        bucket: bucket.to_owned(),
        http: Http::new(&TlsRoots::of(config, address.origin.starts_with("https:")))?,
        credentials,
        signer: sigv4::Signer::default(),
        address: RwLock::new(Arc::new(address)),
        region_known: known(true),
        at_aws: false,
        path_style: config.path_style,
        requester_pays: config.requester_pays,
        identity: (config.profile.clone(), config.anonymous),
        limits,
        checksum_kind: AtomicU8::new(0),
        states_crc64: AtomicBool::new(false),
        lists_v1_only: AtomicBool::new(false),
        must_list_from_start: AtomicBool::new(false),
        key_order: KeyOrder::default(),
        refuses_delete_conditions: AtomicBool::new(false),
        write_conditions: Default::default(),
    })
}

pub(super) fn known(known: bool) -> OnceCell<()> {
    if known { OnceCell::new_with(Some(())) } else { OnceCell::new() }
}

#[cfg(test)]
mod tests {
    use super::super::credentials::Authority;
    use super::*;
    use crate::rest::split_endpoint;
    use crate::{ErrorKind, Store};

    fn config(endpoint: &str) -> StoreConfig {
        StoreConfig { endpoint: Some(endpoint.to_owned()), anonymous: true, ..StoreConfig::default() }
    }

    #[test]
    fn opening_checks_what_needs_no_request() {
        assert_eq!(open_s3(&config("nonsense://x"), "b").unwrap_err().kind, ErrorKind::Configuration);
        assert_eq!(open_s3(&config("http://h"), "a/b").unwrap_err().kind, ErrorKind::Configuration);
        let missing = StoreConfig { ca_file: Some("/nowhere/ca.pem".into()), ..config("https://h") };
        assert_eq!(open_s3(&missing, "bbb").unwrap_err().kind, ErrorKind::Configuration);
    }

    #[tokio::test]
    async fn r2_has_its_own_address_and_wants_equal_parts() {
        let config = StoreConfig { anonymous: true, ..StoreConfig::default() };
        let store = open_r2(&config, "acc", "bkt").unwrap();
        assert_eq!(store.address().origin, "https://acc.r2.cloudflarestorage.com");
        assert_eq!(store.address().region, "auto");
        let described = store.describe().await;
        assert_eq!(described.endpoint.as_deref(), Some("https://acc.r2.cloudflarestorage.com/bkt"));
        assert_eq!(described.region.as_deref(), Some("auto"));
        assert_eq!(described.credentials.as_deref(), Some("none (anonymous)"));
        assert_eq!(described.clock_ahead_s, None, "no answer told the time yet");
        assert!(store.limits.equal_parts);
    }

    #[test]
    fn an_account_of_r2_cannot_lead_to_another_server() {
        let config = StoreConfig { anonymous: true, ..StoreConfig::default() };
        for account in ["127.0.0.1#", "a.example?", "a.example\\", "", "a%2f", "a:1"] {
            let refused = open_r2(&config, account, "bkt").err();
            assert_eq!(refused.map(|error| error.kind), Some(ErrorKind::Configuration), "{account:?}");
        }
        assert!(open_r2(&config, "acc.eu", "bkt").is_ok(), "an account in a jurisdiction");
    }

    #[tokio::test]
    async fn a_service_account_may_send_no_token() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let account = r#"{"private_key":"","private_key_id":"","client_email":"","disable_oauth":true}"#;
        std::fs::write(file.path(), account).unwrap();
        let profile = Some(file.path().display().to_string());
        let store = open_gcs(&StoreConfig { profile, ..StoreConfig::default() }, "bbb").unwrap();
        assert!(matches!(store.credentials.authority().await, Ok(Authority::Nobody)));
        let described = store.describe().await;
        assert_eq!(described.credentials, Some(format!("service account file {}", file.path().display())));
        assert_eq!(described.region, None);
    }

    #[test]
    fn emulator_hosts_may_lack_a_scheme() {
        assert_eq!(with_scheme("127.0.0.1:1"), "http://127.0.0.1:1");
        assert!(split_endpoint(&with_scheme("https://h")).is_ok());
    }
}

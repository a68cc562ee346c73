//! Access of this machine to a cloud before any bucket is named: the credential chain's answer, and the clock
//! difference. For `doctor`.

use crate::azure::AzureStore;
use crate::rest::{Call, Http};
use crate::s3::{Bucket, open_gcs, open_s3};
use crate::{Error, ErrorKind, Payload, Result, StoreConfig};
use http::{HeaderMap, Method};
use std::time::Duration;

/// Time limit for the credentials of a cloud for which nothing is set up.
const METADATA_TIME_MAX: Duration = Duration::from_millis(1500);

/// Placeholder for the bucket, container or account in an address. Nothing of this name is ever requested.
const UNUSED: &str = "unused";

/// Result of looking for credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialState {
    /// Credentials exist. Only a request shows whether a store accepts them.
    Found,
    /// This machine has no settings for this cloud. Holds the reason that the last link of the chain gave.
    Absent(String),
    /// Settings exist but yield no credentials. Holds the reason.
    Broken(String),
}

/// Access of this machine to one cloud. Names and places, never a secret.
#[derive(Clone, Debug)]
pub struct CloudReport {
    /// Where requests go, without bucket.
    pub endpoint: String,
    /// True if the endpoint was configured, so it is not the cloud's own.
    pub endpoint_given: bool,
    /// The link of the chain that gave credentials, or the last one tried.
    pub source: String,
    /// State of the credentials for it.
    pub credentials: CredentialState,
    /// This machine's clock minus that of the endpoint in seconds, or why it is unknown. `None` if no endpoint was
    /// asked, because neither credentials nor a configured endpoint suggest that this cloud is used.
    pub clock_ahead_s: Option<Result<i64>>,
}

/// Looks for credentials, and asks the endpoint for the time if the cloud seems to be used. Each of the two steps takes
/// at most `time_max`, and [`METADATA_TIME_MAX`] where only instance metadata can have credentials. `config.url` is
/// `s3://`, `gs://` or `az://`.
///
/// # Errors
/// [`ErrorKind::Configuration`] for any other URL, an invalid endpoint, or a file that cannot be read.
pub async fn look_at_cloud(config: &StoreConfig, time_max: Duration) -> Result<CloudReport> {
    let config = &StoreConfig { path_style: Some(true), ..config.clone() };
    match config.url.as_str() {
        "s3://" => look_at_bucket(&open_s3(config, UNUSED)?, "amazonaws.com", time_max).await,
        "gs://" => look_at_bucket(&open_gcs(config, UNUSED)?, "googleapis.com", time_max).await,
        "az://" => look_at_azure(config, time_max).await,
        other => Err(Error::new(ErrorKind::Configuration, "open", other, "the clouds are s3://, gs:// and az://")),
    }
}

async fn look_at_bucket(bucket: &Bucket, domain: &str, time_max: Duration) -> Result<CloudReport> {
    let credentials = state(time_max, bucket.credentials_are_set_up(), bucket.has_credentials()).await;
    let endpoint = bucket.origin();
    let endpoint_given = !endpoint.trim_end_matches(".cn").ends_with(domain);
    let is_used = endpoint_given || credentials == CredentialState::Found;
    let clock_ahead_s = if is_used { Some(clock(bucket.http(), &endpoint, time_max).await) } else { None };
    let source = bucket.credential_source().await;
    Ok(CloudReport { endpoint, endpoint_given, source, credentials, clock_ahead_s })
}

async fn look_at_azure(config: &StoreConfig, time_max: Duration) -> Result<CloudReport> {
    let account = std::env::var("AZURE_STORAGE_ACCOUNT_NAME").ok().filter(|account| !account.is_empty());
    let store = AzureStore::open(config, account.as_deref().unwrap_or(UNUSED), UNUSED)?;
    let credentials = state(time_max, store.credentials_are_set_up(), store.has_credentials()).await;
    let endpoint = store.origin().to_owned();
    let endpoint_given = !endpoint.ends_with("windows.net");
    // Without an account no host is known.
    let is_used = endpoint_given || credentials == CredentialState::Found && account.is_some();
    let clock_ahead_s = if is_used { Some(clock(store.http(), &endpoint, time_max).await) } else { None };
    let source = store.credential_source().to_owned();
    Ok(CloudReport { endpoint, endpoint_given, source, credentials, clock_ahead_s })
}

/// Finds out whether there are credentials. Where none are set up only the metadata of an instance can provide some, and
/// their server is at most one hop away.
async fn state(
    time_max: Duration,
    is_set_up: bool,
    looking: impl Future<Output = Result<bool, String>>,
) -> CredentialState {
    let time_max = if is_set_up { time_max } else { time_max.min(METADATA_TIME_MAX) };
    let why = match tokio::time::timeout(time_max, looking).await {
        Ok(Ok(true)) => return CredentialState::Found,
        Ok(Ok(false)) => "requests go unsigned".to_owned(),
        Ok(Err(why)) => why.lines().next().unwrap_or_default().to_owned(),
        Err(_elapsed) => format!("no answer within {} s", time_max.as_secs_f32()),
    };
    if is_set_up { CredentialState::Broken(why) } else { CredentialState::Absent(why) }
}

async fn clock(http: &Http, origin: &str, time_max: Duration) -> Result<i64> {
    let fail = |kind, why: String| Error::new(kind, "read the clock of", origin, why);
    let call = Call {
        operation: "read the clock of",
        url: origin.to_owned(),
        method: Method::HEAD,
        origin: origin.to_owned(),
        path: "/".to_owned(),
        query: String::new(),
        headers: HeaderMap::new(),
        body: Payload::default(),
        patient: false,
    };
    tokio::time::timeout(time_max, http.send(call))
        .await
        .map_err(|_elapsed| fail(ErrorKind::Timeout, format!("no answer within {} s", time_max.as_secs())))??;
    http.clock_ahead_s().ok_or_else(|| fail(ErrorKind::Server, "the answer has no date".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const TIME_MAX: Duration = Duration::from_secs(20);

    fn s3(endpoint: String) -> StoreConfig {
        StoreConfig { url: "s3://".to_owned(), endpoint: Some(endpoint), anonymous: true, ..StoreConfig::default() }
    }

    #[tokio::test]
    async fn the_clock_of_a_configured_endpoint_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            let answer = "HTTP/1.1 403 Forbidden\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let report = look_at_cloud(&s3(endpoint.clone()), TIME_MAX).await.unwrap();
        assert!(report.endpoint_given);
        assert_eq!(report.endpoint, endpoint);
        assert!(matches!(report.credentials, CredentialState::Absent(_)));
        assert!(report.clock_ahead_s.unwrap().unwrap() > 1_700_000_000);
        assert!(server.await.unwrap().starts_with("HEAD / HTTP/1.1\r\n"));
    }

    #[tokio::test]
    async fn an_unreachable_endpoint_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let report = look_at_cloud(&s3(endpoint), TIME_MAX).await.unwrap();
        assert_eq!(report.clock_ahead_s.unwrap().unwrap_err().kind, ErrorKind::Connection);
    }

    #[tokio::test]
    async fn credentials_that_never_arrive_time_out() {
        let looked = state(Duration::ZERO, true, std::future::pending()).await;
        assert_eq!(looked, CredentialState::Broken("no answer within 0 s".to_owned()));
        let looked = state(TIME_MAX, false, async { Err("none\nat all".to_owned()) }).await;
        assert_eq!(looked, CredentialState::Absent("none".to_owned()));
    }

    #[tokio::test]
    async fn urls_of_other_stores_are_refused() {
        let config = StoreConfig { url: "file:///".to_owned(), ..StoreConfig::default() };
        assert_eq!(look_at_cloud(&config, TIME_MAX).await.unwrap_err().kind, ErrorKind::Configuration);
    }
}

//! `ls` of an account, `mb` and `rb`: buckets and containers.

use super::error::{TaskError, TaskResult};
use super::list::{Form, utc};
use super::rm::Rm;
use super::streams::Streams;
use super::text::escaped;
use crate::retry::RetryPolicy;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use tradewind_contract::{ObjectFilter, Outcome};
use tradewind_store::{
    Account, BucketInfo, Error, ErrorKind, ListRequest, Store, StoreConfig, make_bucket, remove_bucket,
};

#[derive(Serialize)]
struct Line<'a> {
    bucket: &'a str,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
}

/// Lists the buckets of an account, in the server's order.
pub(super) async fn list(account: &Account, form: Form, policy: RetryPolicy, streams: &mut Streams) -> TaskResult {
    let (mut continuation, mut printed) = (None::<String>, 0_u64);
    loop {
        let page = policy.run("list", account.url(), || account.list(continuation.as_deref())).await?;
        for bucket in &page.buckets {
            print(bucket, account.url(), form, streams)?;
            printed += 1;
        }
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    if printed == 0 {
        streams.say(&format!("note: {} has no buckets that these credentials may list", account.url()));
    }
    Ok(())
}

fn print(bucket: &BucketInfo, account: &str, form: Form, streams: &mut Streams) -> io::Result<()> {
    let created = bucket.created_unix_ms.map(utc);
    let name = bucket.name.as_str();
    match form {
        Form::Name => writeln!(streams.data, "{}", escaped(name)),
        Form::Long { .. } => {
            let (created, region) = (created.as_deref().unwrap_or("-"), bucket.region.as_deref().unwrap_or("-"));
            writeln!(streams.data, "{created:>20} {region:<16} {}", escaped(name))
        }
        Form::Json => {
            let root = if account.ends_with("//") {
                account.to_owned()
            } else {
                format!("{}/", account.trim_end_matches('/'))
            };
            let (url, region) = (format!("{root}{name}"), bucket.region.as_deref());
            streams.json_line(&Line { bucket: name, url, created, region })
        }
    }
}

/// Makes a bucket.
pub(super) async fn make(
    config: &StoreConfig,
    project: Option<&str>,
    json: bool,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    policy.run("make", &config.url, || make_bucket(config, project)).await?;
    print_verdict("made", &config.url, json, streams)
}

fn print_verdict(verdict: &'static str, url: &str, json: bool, streams: &mut Streams) -> TaskResult {
    #[derive(Serialize)]
    struct Line<'a> {
        url: &'a str,
        verdict: &'static str,
    }
    match json {
        true => streams.json_line(&Line { url, verdict })?,
        false => writeln!(streams.data, "{verdict} {url}")?,
    }
    Ok(())
}

/// What remains if a listing still has objects.
const NEW_OBJECTS: &str = "another client wrote objects in the meantime: run it again when none writes any more";
/// What remains if the store refuses although its listing is empty.
const UNLISTED: &str = "no object is left in it, but old versions, delete markers or unfinished uploads are: delete \
                        versions and markers with `tradewind rm -r --versions` (S3), the others with the store's own \
                        tools or a lifecycle rule, and run it again";

/// Removes a bucket that is empty; with `force` deletes its objects first.
pub(super) async fn remove(
    config: &StoreConfig,
    store: Arc<dyn Store>,
    force: bool,
    json: bool,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    if force {
        let rm = Rm { store: store.clone(), dry_run: false, json, allow_empty: true, policy };
        rm.run("", true, &ObjectFilter::default(), streams).await?;
    }
    let remain = |error, what| if force { objects_remain(error, what) } else { TaskError::from(error) };
    require_empty(store.as_ref(), policy).await.map_err(|error| remain(error, NEW_OBJECTS))?;
    let removed = policy.run("remove", &config.url, || remove_bucket(config)).await;
    removed.map_err(|error| remain(error, UNLISTED))?;
    print_verdict("removed", &config.url, json, streams)
}

/// Fails if the bucket holds an object, also one written while others were deleted: Azure removes a container with all
/// that is in it.
async fn require_empty(store: &dyn Store, policy: RetryPolicy) -> Result<(), Error> {
    let mut request = ListRequest { max_keys: Some(1), ..ListRequest::default() };
    loop {
        let page = policy.run("list", store.url(), || store.list(&request)).await?;
        if !page.objects.is_empty() || !page.refused.is_empty() {
            return Err(Error::new(ErrorKind::Occupied, "remove", store.url(), "the bucket is not empty"));
        }
        request.continuation = page.continuation;
        if request.continuation.is_none() {
            return Ok(());
        }
    }
}

/// Says what remains in a bucket whose objects were deleted.
fn objects_remain(error: Error, what: &'static str) -> TaskError {
    match error.kind {
        ErrorKind::Occupied => TaskError::ended(Outcome::Failed, error.to_string(), Some(what)),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Talk;
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::sync::Mutex;
    use tradewind_contract::Limits;

    const BLOB: &str = "<Blob><Name>new</Name><Properties><Content-Length>1</Content-Length><Etag>e</Etag>\
                        <Last-Modified>Thu, 01 Jan 1970 00:00:01 GMT</Last-Modified></Properties></Blob>";

    /// Starts an Azure account whose container gets a blob after its first listing. Returns its address and the lines of
    /// the requests.
    fn filled_after_a_listing() -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let mut seen = seen.lock().unwrap();
                let blob = if seen.is_empty() { "" } else { BLOB };
                seen.push(lines[0].clone());
                let (status, body) = match lines[0].starts_with("GET") {
                    true => (
                        "200 OK",
                        format!("<EnumerationResults><Blobs>{blob}</Blobs><NextMarker/></EnumerationResults>"),
                    ),
                    false => ("202 Accepted", String::new()),
                };
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close", body.len());
                stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
            }
        });
        (origin, requests)
    }

    /// Starts an S3 server with one bucket, whose listing is empty, and which it does not remove. Returns its address.
    fn keeping_old_versions() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let (status, body) = match lines[0].starts_with("GET") {
                    true => {
                        ("200 OK", "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>".to_owned())
                    }
                    false => ("409 Conflict", "<Error><Code>BucketNotEmpty</Code></Error>".to_owned()),
                };
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close", body.len());
                stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
            }
        });
        origin
    }

    #[tokio::test]
    async fn what_remains_in_a_bucket_without_objects_is_named() {
        let (url, endpoint) = ("s3://bucket".to_owned(), Some(keeping_old_versions()));
        let config = StoreConfig { url, endpoint, anonymous: true, ..StoreConfig::default() };
        let mut streams = Streams { input: None, data: Box::new(io::sink()), talk: Talk::new(io::sink()) };
        let store = tradewind_store::open(&config).unwrap();
        let policy = RetryPolicy::of_gateway(&Limits::default());
        let kept = remove(&config, store, true, false, policy, &mut streams).await.unwrap_err();
        let said = format!("{kept:?}");
        assert!(said.contains("the bucket is not empty") && said.contains("delete markers"), "{said}");
    }

    #[tokio::test]
    async fn a_container_is_not_removed_with_an_object_that_was_written_meanwhile() {
        let (origin, requests) = filled_after_a_listing();
        let url = "az://account/container".to_owned();
        let config = StoreConfig { url, endpoint: Some(origin), anonymous: true, ..StoreConfig::default() };
        let store = tradewind_store::open(&config).unwrap();
        let mut streams = Streams { input: None, data: Box::new(io::sink()), talk: Talk::new(io::sink()) };
        let policy = RetryPolicy::of_gateway(&Limits::default());
        let removed = remove(&config, store, true, false, policy, &mut streams).await;
        let requests = requests.lock().unwrap().clone();
        assert!(removed.is_err(), "{requests:?}");
        assert!(requests.last().unwrap().starts_with("GET /container?"), "{requests:?}");
        assert!(!requests.iter().any(|line| line.starts_with("DELETE /container?")), "{requests:?}");
    }
}

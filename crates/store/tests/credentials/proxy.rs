//! A proxy that logs what it sees gets no request for credentials over plain HTTP: it would read them, or could invent
//! some.

use super::harness::{Printed, Server, run};
use serde_json::json;
use std::path::Path;

/// A server on another machine; nobody answers there.
const ELSEWHERE: &str = "http://192.0.2.1";

/// A proxy that could answer every request.
fn proxy() -> Server {
    Server::start(|_| (200, json!({ "access_token": "of the proxy", "expires_in": 3600 }).to_string()))
}

fn ask(proxy: &Server, url: &str, home: &Path, environment: &[(&str, &str)]) -> Printed {
    let mut all = vec![("HTTP_PROXY", proxy.origin.as_str()), ("http_proxy", proxy.origin.as_str())];
    all.extend(environment);
    run(url, ELSEWHERE, home, 1, &all)
}

#[test]
fn requests_to_a_store_do_pass_through_the_proxy() {
    let (home, proxy) = (tempfile::tempdir().unwrap(), proxy());
    let keys = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "eu-west-1")];
    let printed = ask(&proxy, "s3://bucket", home.path(), &keys);
    let asked = proxy.of_tokens();
    assert!(asked.iter().any(|asked| asked.target.starts_with("http://192.0.2.1/")), "{asked:?} {}", printed.0);
}

#[test]
fn instance_metadata_is_asked_without_the_proxy() {
    let (home, proxy) = (tempfile::tempdir().unwrap(), proxy());
    let ec2 = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", ELSEWHERE), ("AWS_REGION", "eu-west-1")];
    for (url, environment) in [("s3://bucket", ec2.as_slice()), ("gs://bucket", &[("GCE_METADATA_HOST", "192.0.2.1")])]
    {
        let printed = ask(&proxy, url, home.path(), environment);
        assert_eq!(printed.answered(), 0, "{}", printed.0);
        assert!(proxy.of_tokens().is_empty(), "{url}: {:?}", proxy.of_tokens());
    }
}

#[test]
fn a_plain_token_server_is_asked_without_the_proxy() {
    let (home, proxy) = (tempfile::tempdir().unwrap(), proxy());
    let path = home.path().join("credentials.json");
    let file = json!({
        "type": "external_account",
        "audience": "a",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{}/sts", proxy.origin),
        "credential_source": { "url": format!("{ELSEWHERE}/subject") },
    });
    std::fs::write(&path, file.to_string()).unwrap();
    let environment = [("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap())];
    let printed = ask(&proxy, "gs://bucket", home.path(), &environment);
    assert!(printed.error().contains("credential_source.url"), "{}", printed.error());
    assert!(proxy.of_tokens().is_empty(), "{:?}", proxy.of_tokens());
}

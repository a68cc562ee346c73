//! AWS: container credentials with their tokens, and instance metadata that may be turned off.

use super::harness::{Printed, Server, from_now, run};
use std::path::Path;

const SECRET: &str = "the-secret-access-key";
const SESSION: &str = "the-session-token";
const TOKEN: &str = "the-authorization-token";

fn credentials(lasting_s: i64) -> String {
    let expires = from_now(lasting_s);
    format!(
        r#"{{"Code":"Success","AccessKeyId":"AKIDHANDEDOUT","SecretAccessKey":"{SECRET}","Token":"{SESSION}","Expiration":"{expires}"}}"#
    )
}

/// Issues credentials to callers that present the token.
fn container(lasting_s: i64) -> Server {
    Server::start(move |asked| match asked.header("authorization") {
        TOKEN if asked.target == "/credentials?a=b" => (200, credentials(lasting_s)),
        _ => (401, String::new()),
    })
}

fn ask(server: &Server, home: &Path, times: u32, environment: &[(&str, &str)]) -> Printed {
    let uri = format!("{}/credentials?a=b", server.origin);
    let mut all = vec![("AWS_REGION", "eu-west-1"), ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str())];
    all.extend(environment);
    let printed = run("s3://bucket", &server.origin, home, times, &all);
    printed.hides(&[SECRET, SESSION, TOKEN]);
    printed
}

fn is_signed(server: &Server) {
    for asked in server.of_store() {
        assert!(asked.header("authorization").contains("Credential=AKIDHANDEDOUT/"), "{asked:?}");
        assert_eq!(asked.header("x-amz-security-token"), SESSION);
    }
}

#[test]
fn container_credentials_with_a_token() {
    let (home, server) = (tempfile::tempdir().unwrap(), container(3600));
    let printed = ask(&server, home.path(), 3, &[("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN)]);
    assert_eq!(printed.answered(), 3, "{}", printed.0);
    assert_eq!(printed.source(), "container credentials");
    assert_eq!(server.of_tokens().len(), 1, "credentials are kept");
    is_signed(&server);
}

#[test]
fn container_credentials_with_a_token_file() {
    let (home, server) = (tempfile::tempdir().unwrap(), container(3600));
    let file = home.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let file = file.to_str().unwrap();
    let printed = ask(&server, home.path(), 1, &[("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file)]);
    assert_eq!(printed.answered(), 1, "{}", printed.0);
    is_signed(&server);
}

#[test]
fn container_credentials_are_renewed_before_they_expire() {
    let (home, server) = (tempfile::tempdir().unwrap(), container(200));
    let printed = ask(&server, home.path(), 3, &[("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN)]);
    assert_eq!(printed.answered(), 3, "{}", printed.0);
    assert_eq!(server.of_tokens().len(), 3, "200 s are too short to wait");
}

#[test]
fn container_credentials_without_a_token() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(|_| (200, credentials(3600))));
    let printed = ask(&server, home.path(), 1, &[]);
    assert_eq!(printed.answered(), 1, "{}", printed.0);
    assert_eq!(server.of_tokens()[0].header("authorization"), "");
    is_signed(&server);
}

#[test]
fn an_endless_answer_of_a_container_server_is_not_read_to_its_end() {
    let home = tempfile::tempdir().unwrap();
    for (length, answered) in [(200 << 10, 1), (300 << 10, 0)] {
        let padding = " ".repeat(length);
        let server = Server::start(move |_| (200, format!("{}{padding}", credentials(3600))));
        let printed = ask(&server, home.path(), 1, &[]);
        assert_eq!(printed.answered(), answered, "{}", printed.0);
        if answered == 0 {
            assert!(printed.error().contains("answer longer than 262144 bytes"), "{}", printed.error());
        }
    }
}

#[test]
fn a_refused_container_token_is_an_error_in_one_line() {
    let (home, server) = (tempfile::tempdir().unwrap(), container(3600));
    let printed = ask(&server, home.path(), 1, &[("AWS_CONTAINER_AUTHORIZATION_TOKEN", "another")]);
    let error = printed.error();
    assert!(error.contains("container credentials") && error.contains("401"), "{error}");
    assert!(error.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI"), "{error}");
    assert!(server.of_store().is_empty());
}

#[test]
fn a_container_token_that_is_no_header_is_not_printed() {
    let (home, server) = (tempfile::tempdir().unwrap(), container(3600));
    let file = home.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let file = file.to_str().unwrap();
    let printed = ask(&server, home.path(), 1, &[("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file)]);
    let error = printed.error();
    assert!(error.contains("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") && error.contains("line break"), "{error}");
    assert!(server.of_tokens().is_empty());
    let missing = ask(&server, home.path(), 1, &[("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nowhere/token")]);
    assert!(missing.error().contains("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), "{}", missing.error());
    assert!(missing.error().contains("/nowhere/token"), "{}", missing.error());
}

#[test]
fn a_container_address_elsewhere_needs_tls() {
    let (home, server) = (tempfile::tempdir().unwrap(), container(3600));
    let elsewhere = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/x")];
    let printed = ask(&server, home.path(), 1, &elsewhere);
    assert!(printed.error().contains("AWS_CONTAINER_CREDENTIALS_FULL_URI"), "{}", printed.error());
}

/// Instance metadata, version 2.
fn instance() -> Server {
    Server::start(|asked| match (asked.method.as_str(), asked.target.as_str()) {
        ("PUT", "/latest/api/token") => (200, "metadata-session".to_owned()),
        ("GET", "/latest/meta-data/iam/security-credentials/") => (200, "role".to_owned()),
        ("GET", "/latest/meta-data/iam/security-credentials/role") => (200, credentials(3600)),
        _ => (404, String::new()),
    })
}

#[test]
fn instance_metadata_gives_credentials() {
    let (home, server) = (tempfile::tempdir().unwrap(), instance());
    let environment = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.origin.as_str())];
    let printed = run("s3://bucket", &server.origin, home.path(), 2, &environment);
    assert_eq!(printed.answered(), 2, "{}", printed.0);
    printed.hides(&[SECRET, SESSION, "metadata-session"]);
    is_signed(&server);
}

#[test]
fn instance_metadata_may_be_turned_off() {
    let (home, server) = (tempfile::tempdir().unwrap(), instance());
    let environment =
        [("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.origin.as_str()), ("AWS_EC2_METADATA_DISABLED", "true")];
    let printed = run("s3://bucket", &server.origin, home.path(), 1, &environment);
    assert!(printed.error().contains("AWS_EC2_METADATA_DISABLED"), "{}", printed.error());
    assert!(server.of_tokens().is_empty() && server.of_store().is_empty());
}

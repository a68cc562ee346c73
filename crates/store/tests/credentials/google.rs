//! Google: workload identity federation, impersonation, and the paths of the credential file.

use super::harness::{Printed, Server, from_now, run};
use aws_lc_rs::encoding::AsDer;
use serde_json::{Value, json};
use std::path::Path;

const TOKEN: &str = "the-federated-token";
const IMPERSONATED: &str = "the-impersonated-token";
const SUBJECT: &str = "the-subject-token";
const REFRESH: &str = "the-refresh-token";
const CLIENT_SECRET: &str = "the-client-secret";
const IMPERSONATE: &str = "/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com:generateAccessToken";

/// Google's token services and another identity provider. The first exchange lasts `lasting_s`.
fn google(lasting_s: i64) -> Server {
    Server::start(move |asked| match asked.target.as_str() {
        "/sts" if asked.field("subject_token") == SUBJECT => {
            assert_eq!(asked.method, "POST");
            assert_eq!(asked.header("content-type"), "application/x-www-form-urlencoded");
            assert_eq!(asked.field("grant_type"), "urn:ietf:params:oauth:grant-type:token-exchange");
            assert_eq!(asked.field("audience"), "//iam.googleapis.com/projects/1/pool");
            assert_eq!(asked.field("subject_token_type"), "urn:ietf:params:oauth:token-type:jwt");
            assert_eq!(asked.field("requested_token_type"), "urn:ietf:params:oauth:token-type:access_token");
            assert_eq!(asked.field("scope"), "https://www.googleapis.com/auth/cloud-platform");
            (200, json!({ "access_token": TOKEN, "expires_in": lasting_s }).to_string())
        }
        "/sts" => {
            let why = format!("the token {} is not known", asked.field("subject_token"));
            (400, json!({ "error": "invalid_grant", "error_description": why }).to_string())
        }
        "/token" if asked.field("refresh_token") == REFRESH && asked.field("client_secret") == CLIENT_SECRET => {
            assert_eq!(asked.field("grant_type"), "refresh_token");
            (200, json!({ "access_token": TOKEN, "expires_in": lasting_s }).to_string())
        }
        "/subject?x=y" if asked.header("metadata") == "yes" => (200, json!({ "value": SUBJECT }).to_string()),
        IMPERSONATE if asked.header("authorization").starts_with("Bearer ") => {
            let body: Value = serde_json::from_str(&asked.body).unwrap();
            assert_eq!(body["scope"], json!(["https://www.googleapis.com/auth/cloud-platform"]));
            (200, json!({ "accessToken": IMPERSONATED, "expireTime": from_now(lasting_s) }).to_string())
        }
        _ => (403, json!({ "error": { "code": 403, "message": "not allowed" } }).to_string()),
    })
}

fn external(server: &Server, source: &Value) -> Value {
    json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{}/sts", server.origin),
        "credential_source": source,
    })
}

fn user(server: &Server) -> Value {
    json!({
        "type": "authorized_user",
        "client_id": "the-client",
        "client_secret": CLIENT_SECRET,
        "refresh_token": REFRESH,
        "token_uri": format!("{}/token", server.origin),
    })
}

fn impersonated(server: &Server, source: &Value) -> Value {
    json!({
        "type": "impersonated_service_account",
        "service_account_impersonation_url": format!("{}{IMPERSONATE}", server.origin),
        "delegates": ["d@b.iam.gserviceaccount.com"],
        "source_credentials": source,
    })
}

fn ask(server: &Server, home: &Path, times: u32, file: &Value) -> Printed {
    let path = home.join("credentials.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let environment = [("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap())];
    let printed = run("gs://bucket", &server.origin, home, times, &environment);
    printed.hides(&[TOKEN, IMPERSONATED, SUBJECT, REFRESH, CLIENT_SECRET]);
    printed
}

fn carries(server: &Server, token: &str, times: usize) {
    let asked = server.of_store();
    assert_eq!(asked.len(), times);
    for asked in asked {
        assert_eq!(asked.header("authorization"), format!("Bearer {token}"));
    }
}

#[test]
fn a_subject_token_from_a_file() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let file = home.path().join("subject");
    std::fs::write(&file, format!("{SUBJECT}\n")).unwrap();
    let printed = ask(&server, home.path(), 3, &external(&server, &json!({ "file": file })));
    assert_eq!(printed.answered(), 3, "{}", printed.0);
    carries(&server, TOKEN, 3);
    assert_eq!(server.of_tokens().len(), 1, "the token is kept");
    assert!(printed.source().starts_with("credentials file "), "{}", printed.source());
}

#[test]
fn a_token_is_renewed_before_it_expires() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(200));
    let file = home.path().join("subject");
    std::fs::write(&file, SUBJECT).unwrap();
    let printed = ask(&server, home.path(), 3, &external(&server, &json!({ "file": file })));
    assert_eq!(printed.answered(), 3, "{}", printed.0);
    assert_eq!(server.of_tokens().len(), 3, "200 s are too short to wait");
}

#[test]
fn a_subject_token_in_a_json_file() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let file = home.path().join("subject");
    std::fs::write(&file, json!({ "id_token": SUBJECT }).to_string()).unwrap();
    let format = json!({ "type": "json", "subject_token_field_name": "id_token" });
    let printed = ask(&server, home.path(), 1, &external(&server, &json!({ "file": file, "format": format })));
    assert_eq!(printed.answered(), 1, "{}", printed.0);
    carries(&server, TOKEN, 1);
}

#[test]
fn an_endless_answer_of_a_token_server_is_not_read_to_its_end() {
    let home = tempfile::tempdir().unwrap();
    for (length, answered) in [(200 << 10, 1), (300 << 10, 0)] {
        let padding = " ".repeat(length);
        let server =
            Server::start(move |_| (200, format!("{}{padding}", json!({ "access_token": TOKEN, "expires_in": 3600 }))));
        let printed = ask(&server, home.path(), 1, &user(&server));
        assert_eq!(printed.answered(), answered, "{}", printed.0);
        if answered == 0 {
            assert!(printed.error().contains("answer longer than 262144 bytes"), "{}", printed.error());
        }
    }
}

fn from_url(server: &Server) -> Value {
    let format = json!({ "type": "json", "subject_token_field_name": "value" });
    let url = format!("{}/subject?x=y", server.origin);
    external(server, &json!({ "url": url, "headers": { "Metadata": "yes" }, "format": format }))
}

#[test]
fn a_subject_token_from_a_url() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let printed = ask(&server, home.path(), 2, &from_url(&server));
    assert_eq!(printed.answered(), 2, "{}", printed.0);
    carries(&server, TOKEN, 2);
    assert_eq!(server.of_tokens().len(), 2, "one subject token, one exchange");
}

#[test]
fn a_federated_token_impersonates_a_service_account() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let mut file = from_url(&server);
    file["service_account_impersonation_url"] = json!(format!("{}{IMPERSONATE}", server.origin));
    file["service_account_impersonation"] = json!({ "token_lifetime_seconds": 1800 });
    let printed = ask(&server, home.path(), 1, &file);
    assert_eq!(printed.answered(), 1, "{}", printed.0);
    carries(&server, IMPERSONATED, 1);
    let asked = &server.of_tokens()[2];
    assert_eq!(asked.header("authorization"), format!("Bearer {TOKEN}"));
    assert!(asked.body.contains(r#""lifetime":"1800s""#), "{}", asked.body);
}

#[test]
fn a_user_impersonates_a_service_account() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let printed = ask(&server, home.path(), 2, &impersonated(&server, &user(&server)));
    assert_eq!(printed.answered(), 2, "{}", printed.0);
    carries(&server, IMPERSONATED, 2);
    let asked = server.of_tokens();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].body.contains("d@b.iam.gserviceaccount.com"), "{}", asked[1].body);
}

#[test]
fn a_service_account_impersonates_another() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let key = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = key.as_der().unwrap();
    let account = json!({
        "type": "service_account",
        "private_key": pem("PRIVATE KEY", der.as_ref()),
        "private_key_id": "1",
        "client_email": "c@b.iam.gserviceaccount.com",
    });
    let printed = ask(&server, home.path(), 1, &impersonated(&server, &account));
    assert_eq!(printed.answered(), 1, "{}", printed.0);
    carries(&server, IMPERSONATED, 1);
    assert_eq!(server.of_tokens()[0].header("authorization").split('.').count(), 3, "a signed token");
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

#[test]
fn gcloud_may_have_another_folder() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let folder = home.path().join("elsewhere");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("application_default_credentials.json"), user(&server).to_string()).unwrap();
    let environment = [("CLOUDSDK_CONFIG", folder.to_str().unwrap())];
    let printed = run("gs://bucket", &server.origin, home.path(), 1, &environment);
    printed.hides(&[TOKEN, REFRESH, CLIENT_SECRET]);
    assert_eq!(printed.answered(), 1, "{}", printed.0);
    carries(&server, TOKEN, 1);
    assert!(printed.source().contains("CLOUDSDK_CONFIG"), "{}", printed.source());
}

#[test]
fn gclouds_login_is_found_in_the_home_folder() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let folder = home.path().join(".config/gcloud");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("application_default_credentials.json"), user(&server).to_string()).unwrap();
    let printed = run("gs://bucket", &server.origin, home.path(), 1, &[]);
    assert_eq!(printed.answered(), 1, "{}", printed.0);
    carries(&server, TOKEN, 1);
    assert_eq!(printed.source(), "gcloud auth application-default login");
}

#[test]
fn a_refusal_names_the_file_and_no_token() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let file = home.path().join("subject");
    std::fs::write(&file, "a-token-nobody-knows").unwrap();
    let printed = ask(&server, home.path(), 1, &external(&server, &json!({ "file": file })));
    let error = printed.error();
    assert!(error.contains("credentials.json: token_url") && error.contains("invalid_grant"), "{error}");
    printed.hides(&["a-token-nobody-knows"]);
    std::fs::remove_file(&file).unwrap();
    let printed = ask(&server, home.path(), 1, &external(&server, &json!({ "file": file })));
    assert!(printed.error().contains(file.to_str().unwrap()), "{}", printed.error());
    assert!(printed.error().contains("No such file"), "{}", printed.error());
    assert!(server.of_store().is_empty());
}

#[test]
fn files_that_cannot_be_used_say_why() {
    let (home, server) = (tempfile::tempdir().unwrap(), google(3600));
    let error = |file: Value| ask(&server, home.path(), 1, &file).error().to_owned();
    let program = external(&server, &json!({ "executable": { "command": "/bin/false" } }));
    assert!(error(program).contains("credential_source.executable is not supported"));
    let aws = external(&server, &json!({ "environment_id": "aws1", "url": "http://169.254.169.254/x" }));
    assert!(error(aws).contains("credential_source.environment_id is not supported"));
    assert!(error(json!({ "type": "gdch_service_account" })).contains("`gdch_service_account` are not supported"));
    assert!(error(json!({ "type": "authorized_user" })).contains("missing field `client_id`"));
    assert!(error(json!({ "type": "authorized_user", "client_id": { "a": CLIENT_SECRET } })).contains("wrong type"));
    let mut plain =
        external(&server, &json!({ "url": format!("{}/subject?x=y", server.origin), "headers": {"Metadata": "yes"} }));
    plain["token_url"] = json!("http://sts.example.com/v1/token");
    assert!(error(plain).contains("must begin with https://"));
    assert!(server.of_store().is_empty());
}

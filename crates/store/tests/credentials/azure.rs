//! Azure: client certificates, and `az login` without further variables.

use super::harness::{Asked, Server, run};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::PublicKeyData;
use serde_json::{Value, json};
use std::path::Path;

const TOKEN: &str = "the-entra-token";

/// A client's certificate: its PEM file, its DER and its public key.
struct Client {
    pem: String,
    der: Vec<u8>,
    public_key: Vec<u8>,
}

impl Client {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
        let pem = key.serialize_pem() + &certificate.pem();
        Self { pem, der: certificate.der().to_vec(), public_key: key.der_bytes().to_vec() }
    }
}

/// Entra ID, which knows one client by its certificate.
fn entra(public_key: Vec<u8>, der: Vec<u8>, lasting_s: u64) -> Server {
    Server::start(move |asked| {
        assert_eq!((asked.method.as_str(), asked.target.as_str()), ("POST", "/the-tenant/oauth2/v2.0/token"));
        assert_eq!(asked.field("grant_type"), "client_credentials");
        assert_eq!(asked.field("client_id"), "the-client");
        assert_eq!(asked.field("scope"), "https://storage.azure.com/.default");
        assert_eq!(asked.field("client_assertion_type"), "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        match is_of_client(asked, &public_key, &der) {
            true => (200, json!({ "access_token": TOKEN, "expires_in": lasting_s }).to_string()),
            false => (
                401,
                json!({ "error": "invalid_client", "error_description": asked.field("client_assertion") }).to_string(),
            ),
        }
    })
}

fn is_of_client(asked: &Asked, public_key: &[u8], der: &[u8]) -> bool {
    let assertion = asked.field("client_assertion");
    let (signed, proof) = assertion.rsplit_once('.').unwrap();
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let parts: Vec<Value> = signed.split('.').map(|part| serde_json::from_slice(&decode(part)).unwrap()).collect();
    assert_eq!(parts[0]["alg"], "PS256");
    assert_eq!((&parts[1]["iss"], &parts[1]["sub"]), (&json!("the-client"), &json!("the-client")));
    let audience = parts[1]["aud"].as_str().unwrap();
    assert!(audience.ends_with("/the-tenant/oauth2/v2.0/token"), "{audience}");
    assert!(parts[1]["exp"].as_i64().unwrap() - parts[1]["nbf"].as_i64().unwrap() == 600);
    let thumbprint = URL_SAFE_NO_PAD.encode(digest(&SHA256, der));
    let key = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, public_key);
    parts[0]["x5t#S256"] == thumbprint && key.verify(signed.as_bytes(), &decode(proof)).is_ok()
}

fn environment<'a>(server: &'a Server, certificate: &'a Path) -> Vec<(&'a str, &'a str)> {
    vec![
        ("AZURE_TENANT_ID", "the-tenant"),
        ("AZURE_CLIENT_ID", "the-client"),
        ("AZURE_AUTHORITY_HOST", server.origin.as_str()),
        ("AZURE_CLIENT_CERTIFICATE_PATH", certificate.to_str().unwrap()),
    ]
}

fn endpoint(server: &Server) -> String {
    server.origin.clone()
}

fn carries(server: &Server, token: &str, times: usize) {
    let asked = server.of_store();
    assert_eq!(asked.len(), times);
    for asked in asked {
        assert_eq!(asked.header("authorization"), format!("Bearer {token}"));
    }
}

#[test]
fn a_client_certificate() {
    let (home, client) = (tempfile::tempdir().unwrap(), Client::new());
    let file = home.path().join("client.pem");
    std::fs::write(&file, &client.pem).unwrap();
    for (lasting_s, times) in [(3600, 1), (200, 3)] {
        let server = entra(client.public_key.clone(), client.der.clone(), lasting_s);
        let printed = run("az://account/bucket", &endpoint(&server), home.path(), 3, &environment(&server, &file));
        printed.hides(&[TOKEN, "BEGIN PRIVATE"]);
        assert_eq!(printed.answered(), 3, "{}", printed.0);
        assert_eq!(printed.source(), "client certificate");
        carries(&server, TOKEN, 3);
        assert_eq!(server.of_tokens().len(), times, "tokens of {lasting_s} s");
    }
}

#[test]
fn a_certificate_that_is_not_known_is_refused_in_one_line() {
    let (home, client, other) = (tempfile::tempdir().unwrap(), Client::new(), Client::new());
    let file = home.path().join("client.pem");
    std::fs::write(&file, &client.pem).unwrap();
    let server = entra(other.public_key, other.der, 3600);
    let printed = run("az://account/bucket", &endpoint(&server), home.path(), 1, &environment(&server, &file));
    let error = printed.error();
    assert!(error.contains("AZURE_CLIENT_CERTIFICATE_PATH") && error.contains("invalid_client"), "{error}");
    printed.hides(&[&server.of_tokens()[0].field("client_assertion")]);
    assert!(server.of_store().is_empty());
}

#[test]
fn certificate_files_that_cannot_be_used_say_why() {
    let (home, client) = (tempfile::tempdir().unwrap(), Client::new());
    let file = home.path().join("client.pem");
    let server = entra(vec![], vec![], 3600);
    let error = |more: &[(&str, &str)]| {
        let environment = [environment(&server, &file), more.to_vec()].concat();
        let printed = run("az://account/bucket", &endpoint(&server), home.path(), 1, &environment);
        printed.hides(&["the-password", "BEGIN"]);
        printed.error().to_owned()
    };
    let missing = error(&[]);
    assert!(missing.contains("AZURE_CLIENT_CERTIFICATE_PATH") && missing.contains("client.pem"), "{missing}");
    std::fs::write(&file, [0, 1, 2]).unwrap();
    assert!(error(&[]).contains("holds no PEM certificate"));
    std::fs::write(&file, client.pem.split_inclusive("-----END PRIVATE KEY-----").nth(1).unwrap()).unwrap();
    assert!(error(&[]).contains("holds no private key"));
    let elliptic = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&elliptic).unwrap();
    std::fs::write(&file, elliptic.serialize_pem() + &certificate.pem()).unwrap();
    assert!(error(&[]).contains("not a usable RSA key"));
    std::fs::write(&file, &client.pem).unwrap();
    let password = [("AZURE_CLIENT_CERTIFICATE_PASSWORD", "the-password")];
    assert!(error(&password).contains("AZURE_CLIENT_CERTIFICATE_PASSWORD"));
    let plain = [("AZURE_AUTHORITY_HOST", "http://login.example.com")];
    assert!(error(&plain).contains("must begin with https://"));
    assert!(server.of_tokens().is_empty() && server.of_store().is_empty());
}

#[test]
fn az_login_needs_no_variable() {
    use std::os::unix::fs::PermissionsExt;
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(|_| (404, String::new())));
    let programs = home.path().join("bin");
    std::fs::create_dir_all(home.path().join(".azure")).unwrap();
    std::fs::create_dir(&programs).unwrap();
    let profile = "\u{feff}{\"subscriptions\": [{\"id\": \"x\"}]}";
    std::fs::write(home.path().join(".azure/azureProfile.json"), profile).unwrap();
    let answer = json!({ "accessToken": TOKEN, "expiresOn": "2099-01-01 00:00:00.000000", "tokenType": "Bearer" });
    let script = format!("#!/bin/sh\necho \"$@\" >> \"$HOME/asked\"\ncat <<'END'\n{answer}\nEND\n");
    std::fs::write(programs.join("az"), script).unwrap();
    std::fs::set_permissions(programs.join("az"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let printed = run("az://account/bucket", &endpoint(&server), home.path(), 2, &[("PATH", &path)]);
    printed.hides(&[TOKEN]);
    assert_eq!(printed.answered(), 2, "{}", printed.0);
    assert_eq!(printed.source(), "az login");
    carries(&server, TOKEN, 2);
    let asked = std::fs::read_to_string(home.path().join("asked")).unwrap();
    assert_eq!(asked, "account get-access-token --output json --scope https://storage.azure.com/.default\n");
}

#[test]
fn an_account_key_is_not_printed() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(|_| (404, String::new())));
    let environment = [("AZURE_STORAGE_ACCOUNT_KEY", "dGhlLWFjY291bnQta2V5")];
    let printed = run("az://account/bucket", &endpoint(&server), home.path(), 1, &environment);
    assert_eq!(printed.answered(), 1, "{}", printed.0);
    assert!(server.of_store()[0].header("authorization").starts_with("SharedKey account:"));
    printed.hides(&["dGhlLWFjY291bnQta2V5", "116, 104, 101, 45"]);
}

//! Permissions over TCP, and the limits of strangers and stolen keys.

use crate::http::Client;
use crate::serving::{Folder, Serving};
use hyper::{Method, StatusCode};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tradewind_gateway::limits::CONTROL_CONNECTIONS_PER_PEER_MAX;
use tradewind_gateway::tls::{self, Identity};

async fn mutual(serving: &Serving, identity: &Path, wanted: &str) -> Result<Client, tls::TlsError> {
    let tcp = TcpStream::connect(serving.control()).await.unwrap();
    let stream = tls::connect(&Identity::load(identity).unwrap(), wanted, tcp).await?;
    Ok(Client::over(stream).await)
}

/// Opens connections from `from` that send nothing.
async fn strangers(from: [u8; 4], to: &str, count: usize) -> Vec<TcpStream> {
    let to: std::net::SocketAddr = to.parse().unwrap();
    let mut silent = Vec::new();
    for _ in 0..count {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        silent.push(socket.connect(to).await.unwrap());
    }
    silent
}

#[tokio::test]
async fn strangers_who_never_shake_hands_do_not_keep_a_lease_from_being_renewed() {
    const RENEWALS: usize = 4;
    let folder = Folder::new();
    folder.fleet("fleet", &["lead", "sink"]).await;
    let identity = folder.text("fleet/sink");
    let ports = ["--control", "127.0.0.1:0", "--data", "127.0.0.1:0"];
    let mut serving =
        Serving::start(&[&ports[..], &["--identity", &identity, "--lease-s", "3600", "--exit-with-stdin"]].concat())
            .await;
    // Every renewal comes behind a new crowd. A client's handshake times out before half of a crowd's do.
    let lease = json!({ "lease_s": 60 }).to_string();
    let mut idle = Vec::new();
    for renewal in 0..RENEWALS {
        idle.extend(strangers([127, 0, 0, 2], serving.control(), 120).await);
        let client = mutual(&serving, &folder.path("fleet/lead"), "sink").await;
        let mut client = client.unwrap_or_else(|error| panic!("renewal {renewal}: {error}"));
        let (status, answer) = client.call(Method::POST, "/v1/lease", lease.clone()).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "renewal {renewal}: {answer}");
    }
    assert!(serving.child.try_wait().unwrap().is_none(), "the lease lapsed");
    drop(idle);
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

/// The answer of a server to a client whose handshake it refuses: with TLS 1.3 it comes with the first read.
async fn first_read(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    match stream.read(&mut [0; 1]).await {
        Ok(0) => "closed".to_owned(),
        Ok(_) => "data".to_owned(),
        Err(error) => tls::TlsError::explain(error).to_string(),
    }
}

#[tokio::test]
async fn over_tcp_the_fleet_may_look_and_the_controller_may_act() {
    let folder = Folder::new();
    folder.fleet("fleet", &["lead", "relay", "sink"]).await;
    let identity = folder.text("fleet/sink");
    let serving = Serving::start(&[
        "--control",
        "127.0.0.1:0",
        "--data",
        "127.0.0.1:0",
        "--identity",
        &identity,
        "--exit-with-stdin",
    ])
    .await;

    let mut lead = mutual(&serving, &folder.path("fleet/lead"), "sink").await.unwrap();
    let (status, version) = lead.get("/v1/version").await;
    assert_eq!((status, &version["data_address"]), (StatusCode::OK, &serving.ready["data_address"]));
    let (status, refusal) = lead.put_program(&json!({ "contract": tradewind_contract::CONTRACT_VERSION })).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refusal}");

    let mut relay = mutual(&serving, &folder.path("fleet/relay"), "sink").await.unwrap();
    assert_eq!(relay.get("/v1/version").await.0, StatusCode::OK);
    assert_eq!(relay.get("/metrics").await.0, StatusCode::OK);
    for (method, path) in [(Method::PUT, "/v1/program"), (Method::GET, "/v1/events"), (Method::POST, "/v1/drain")] {
        let (status, refusal) = relay.call(method, path, "{}").await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert_eq!(refusal["error"], "relay may not control this gateway");
    }
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

#[tokio::test]
async fn over_tcp_nobody_else_gets_in() {
    let folder = Folder::new();
    folder.fleet("ours", &["lead", "sink"]).await;
    folder.fleet("theirs", &["lead", "sink"]).await;
    let identity = folder.text("ours/sink");
    let mut serving = Serving::start(&["--control", "127.0.0.1:0", "--identity", &identity, "--exit-with-stdin"]).await;

    // They do not trust our gateway, and if they did, it would not trust them.
    let refused = mutual(&serving, &folder.path("theirs/lead"), "sink").await.err().unwrap();
    assert_eq!(refused.to_string(), "the peer's certificate is not of this fleet");
    let refused = mutual(&serving, &folder.path("ours/lead"), "relay").await.err().unwrap();
    assert_eq!(refused.to_string(), "the peer's certificate carries another name");
    for (shown, answer) in [
        (Some("theirs/lead"), "the peer says that our certificate is not of its fleet"),
        (None, "the peer wants a certificate and got none"),
    ] {
        let config = trusting(&folder.path("ours/ca.pem"), shown.map(|name| folder.path(name)).as_deref());
        let tcp = TcpStream::connect(serving.control()).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect(ServerName::try_from("sink").unwrap(), tcp).await.unwrap();
        assert_eq!(first_read(stream).await, answer);
    }
    let mut garbage = TcpStream::connect(serving.control()).await.unwrap();
    garbage.write_all(b"GET /v1/version HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    drop(garbage.read_to_end(&mut answer).await);
    assert!(!answer.starts_with(b"HTTP"));
    serving.log_says("the peer does not speak TLS").await;

    let mut lead = mutual(&serving, &folder.path("ours/lead"), "sink").await.unwrap();
    assert_eq!(lead.get("/v1/version").await.0, StatusCode::OK);
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

/// A client that trusts one CA and shows any certificate, or none.
fn trusting(ca: &Path, shown: Option<&Path>) -> rustls::ClientConfig {
    let certificate = |path: &Path| CertificateDer::from_pem_file(path).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate(ca)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match shown {
        Some(folder) => {
            let key = rustls_pki_types::PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
            builder.with_client_auth_cert(vec![certificate(&folder.join("cert.pem"))], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    }
}

#[tokio::test]
async fn a_peer_that_may_not_control_a_gateway_is_not_told_the_names_of_its_stores() {
    let folder = Folder::new();
    folder.fleet("fleet", &["lead", "relay", "sink"]).await;
    let identity = folder.text("fleet/sink");
    let ports = ["--control", "127.0.0.1:0", "--data", "127.0.0.1:0"];
    let serving = Serving::start(&[ports.as_slice(), &["--identity", &identity, "--exit-with-stdin"]].concat()).await;
    let mut lead = mutual(&serving, &folder.path("fleet/lead"), "sink").await.unwrap();
    let program = json!({
        "contract": tradewind_contract::CONTRACT_VERSION, "job_id": "job", "node": "sink",
        "routes": [{ "id": 0, "nodes": ["lead", "source", "sink"], "share": 1.0 }],
        "sinks": [{ "url": "file:///secret-place" }], "writes": [{ "kind": "prefix", "prefix": "" }],
        "seal_key_hex": "5e".repeat(32),
    });
    assert_eq!(lead.put_program(&program).await, (StatusCode::OK, json!({})));
    let mut relay = mutual(&serving, &folder.path("fleet/relay"), "sink").await.unwrap();
    for (client, is_told) in [(&mut lead, true), (&mut relay, false)] {
        let (status, metrics) = client.get("/metrics").await;
        let metrics = metrics.as_str().unwrap().to_owned();
        assert_eq!(status, StatusCode::OK);
        assert!(metrics.contains("\ntradewind_memory_limit_bytes "), "{metrics}");
        assert_eq!(metrics.contains("secret-place"), is_told, "{metrics}");
    }
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

#[tokio::test]
async fn a_stolen_key_of_a_relay_does_not_keep_a_lease_from_being_renewed() {
    let folder = Folder::new();
    folder.fleet("fleet", &["lead", "relay", "sink"]).await;
    let identity = folder.text("fleet/sink");
    let ports = ["--control", "127.0.0.1:0", "--data", "127.0.0.1:0"];
    let flags = ["--identity", &identity, "--lease-s", "3600", "--exit-with-stdin"];
    let serving = Serving::start(&[&ports[..], &flags[..]].concat()).await;
    let mut held = Vec::new();
    for _ in 0..CONTROL_CONNECTIONS_PER_PEER_MAX {
        let mut relay = mutual(&serving, &folder.path("fleet/relay"), "sink").await.unwrap();
        assert_eq!(relay.get("/v1/version").await.0, StatusCode::OK);
        held.push(relay);
    }
    let tcp = TcpStream::connect(serving.control()).await.unwrap();
    let relay = Identity::load(&folder.path("fleet/relay")).unwrap();
    let mut answer = String::new();
    tls::connect(&relay, "sink", tcp).await.unwrap().read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("too many control connections"), "{answer}");
    let mut lead = mutual(&serving, &folder.path("fleet/lead"), "sink").await.unwrap();
    let renewed = lead.call(Method::POST, "/v1/lease", json!({ "lease_s": 60 }).to_string()).await;
    assert_eq!(renewed.0, StatusCode::NO_CONTENT);
    drop(held);
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

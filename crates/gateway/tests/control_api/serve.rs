//! The real binary: its sockets, its access control, and how it exits.

use crate::http::Client;
use hyper::{Method, StatusCode};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, ChildStderr, Command};
use tradewind_gateway::limits::CONTROL_CONNECTIONS_PER_PEER_MAX;
use tradewind_gateway::tls::{self, Identity};

pub(crate) fn gateway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind-gateway"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

pub(crate) async fn run(arguments: &[&str]) -> Output {
    gateway(arguments).output().await.unwrap()
}

/// A gateway that has reported that it is ready.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) ready: Value,
    log: Lines<BufReader<ChildStderr>>,
}

impl Serving {
    async fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[]).await
    }

    /// With these variables in its environment.
    async fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = gateway(&[&["serve"], arguments].concat());
        Self::ready(command.envs(variables.iter().copied()).spawn().unwrap()).await
    }

    /// With its control socket at this path.
    pub(crate) async fn start_at(socket: &Path) -> Self {
        Self::start(&["--control", &format!("unix:{}", socket.display())]).await
    }

    /// With this text on its standard input, which stays open, and these variables in its environment.
    pub(crate) async fn start_told(arguments: &[&str], text: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = gateway(&[&["serve"], arguments].concat()).envs(variables.iter().copied()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
        Self::ready(child).await
    }

    async fn ready(mut child: Child) -> Self {
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = stdout.next_line().await.unwrap().expect("a readiness line");
        Self { child, ready: serde_json::from_str(&line).unwrap(), log }
    }

    pub(crate) fn control(&self) -> &str {
        self.ready["control"].as_str().unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) async fn log_says(&mut self, text: &str) {
        loop {
            let line = self.log.next_line().await.unwrap().unwrap_or_else(|| panic!("the log never said {text:?}"));
            if line.contains(text) {
                return;
            }
        }
    }

    pub(crate) async fn end_of_stdin(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().await.unwrap()
    }
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.text("socket"))
    }

    /// Makes a fleet in the folder `name`, with the real command.
    async fn fleet(&self, name: &str, nodes: &[&str]) {
        let out = self.text(name);
        let made = run(&[&["identity", "--out", &out, "--name"], nodes].concat()).await;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}

/// Asserts that the command failed with `code`, and printed `error` and a hint on stderr and nothing on stdout.
fn assert_refused(output: &Output, code: i32, error: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains("error: ") && stderr.contains(error), "{stderr}");
    assert!(output.stdout.is_empty());
    if code == 1 {
        assert!(stderr.contains("\nhint: "), "{stderr}");
    }
}

#[tokio::test]
async fn a_local_gateway_answers_its_owner_and_ends_with_stdin() {
    let folder = Folder::new();
    let serving = Serving::start(&["--control", &folder.socket(), "--exit-with-stdin"]).await;
    let (version, contract) = (env!("CARGO_PKG_VERSION"), tradewind_contract::CONTRACT_VERSION);
    let ready = json!({ "control": folder.socket(), "data_address": null, "gateway": version, "contract": contract });
    assert_eq!(serving.ready, ready);
    let socket = std::fs::metadata(folder.path("socket")).unwrap();
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let (status, version) = Client::unix(&folder.path("socket")).await.get("/v1/version").await;
    assert_eq!(
        (status, version),
        (
            StatusCode::OK,
            json!({ "gateway": env!("CARGO_PKG_VERSION"), "contract": tradewind_contract::CONTRACT_VERSION })
        )
    );
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
    assert!(!folder.path("socket").exists());
}

#[tokio::test]
async fn without_the_flag_the_end_of_stdin_is_no_reason_to_end() {
    let folder = Folder::new();
    let mut serving = Serving::start(&["--control", &folder.socket()]).await;
    drop(serving.child.stdin.take());
    assert_eq!(Client::unix(&folder.path("socket")).await.get("/v1/version").await.0, StatusCode::OK);
    serving.signal(rustix::process::Signal::TERM);
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(0));
    assert!(!folder.path("socket").exists());
}

#[tokio::test]
async fn a_gateway_ends_when_nobody_renews_its_lease() {
    let folder = Folder::new();
    let mut serving = Serving::start(&["--control", &folder.socket(), "--lease-s", "3600"]).await;
    let mut client = Client::unix(&folder.path("socket")).await;
    let mut renew =
        async |lease_s: u32| client.call(Method::POST, "/v1/lease", json!({ "lease_s": lease_s }).to_string()).await;
    let (status, refusal) = renew(86_401).await;
    assert_eq!((status, &refusal["error"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("lease_s is 86401")));
    assert_eq!(renew(1).await.0, StatusCode::NO_CONTENT);
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(0));
    assert!(!folder.path("socket").exists());
}

#[tokio::test]
async fn a_gateway_without_a_lease_takes_none() {
    let folder = Folder::new();
    let serving = Serving::start(&["--control", &folder.socket(), "--exit-with-stdin"]).await;
    let mut client = Client::unix(&folder.path("socket")).await;
    let (status, _) = client.call(Method::POST, "/v1/lease", json!({ "lease_s": 60 }).to_string()).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_leaves_at_once() {
    let folder = Folder::new();
    let mut serving = Serving::start(&["--control", &folder.socket(), "--log-level", "info"]).await;
    // Half a request delays the exit.
    let mut holding = UnixStream::connect(folder.path("socket")).await.unwrap();
    holding.write_all(b"GET /v1/ver").await.unwrap();
    assert_eq!(Client::unix(&folder.path("socket")).await.get("/v1/version").await.0, StatusCode::OK);
    serving.signal(rustix::process::Signal::INT);
    serving.log_says("ending").await;
    serving.signal(rustix::process::Signal::TERM);
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(143));
    assert!(!folder.path("socket").exists());
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_living_one_or_a_file_is_not() {
    let folder = Folder::new();
    let mut killed = Serving::start(&["--control", &folder.socket()]).await;
    killed.child.kill().await.unwrap();
    assert!(folder.path("socket").exists());
    let serving = Serving::start(&["--control", &folder.socket(), "--exit-with-stdin"]).await;
    assert_refused(&run(&["serve", "--control", &folder.socket()]).await, 1, "another process already listens");
    assert_eq!(Client::unix(&folder.path("socket")).await.get("/v1/version").await.0, StatusCode::OK);
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
    std::fs::write(folder.path("socket"), "precious").unwrap();
    assert_refused(&run(&["serve", "--control", &folder.socket()]).await, 1, "is not a socket");
    assert_eq!(std::fs::read(folder.path("socket")).unwrap(), b"precious");
}

#[tokio::test]
async fn nothing_is_served_unprotected_by_accident() {
    let folder = Folder::new();
    let socket = folder.socket();
    let cases: [(&[&str], i32, &str); 7] = [
        (&["--control", "127.0.0.1:0"], 1, "would answer every process"),
        (&["--control", &socket, "--data", "127.0.0.1:0"], 1, "would answer every process"),
        (&["--control", "0.0.0.0:0", "--plain"], 1, "not a loopback address"),
        (&["--control", &socket, "--identity", "/nowhere"], 1, "/nowhere/ca.pem"),
        (&["--control", "127.0.0.1:0", "--identity", "/nowhere", "--plain"], 2, "cannot be used with"),
        (&["--control", "nowhere"], 2, "neither unix:PATH nor IP:PORT"),
        (&["--control", "unix:/nowhere/socket"], 1, "cannot listen at /nowhere/socket"),
    ];
    for (arguments, code, error) in cases {
        assert_refused(&run(&[&["serve"], arguments].concat()).await, code, error);
    }
    assert!(!folder.path("socket").exists());
}

#[tokio::test]
async fn plain_ports_are_free_ones_and_said() {
    let serving =
        Serving::start(&["--control", "127.0.0.1:0", "--data", "127.0.0.1:0", "--plain", "--exit-with-stdin"]).await;
    let mut client = Client::over(TcpStream::connect(serving.control()).await.unwrap()).await;
    let (_, version) = client.get("/v1/version").await;
    assert_eq!(version["data_address"], serving.ready["data_address"]);
    TcpStream::connect(serving.ready["data_address"].as_str().unwrap()).await.unwrap();
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

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

/// Copies `from/a` to `to/b`, both below `folder`.
fn copy_program(folder: &Folder, job_id: &str) -> Value {
    let (from, to) = (format!("file://{}", folder.text("from")), format!("file://{}", folder.text("to")));
    json!({
        "contract": tradewind_contract::CONTRACT_VERSION, "job_id": job_id, "node": "local",
        "routes": [{ "id": 0, "nodes": ["local", "local", "local"], "share": 1.0 }],
        "lead": {
            "source": { "url": from },
            "selection": { "kind": "object", "key": "a" },
            "targets": [{ "store": { "url": to }, "key": "b" }],
        },
        "source": { "url": from },
        "sinks": [{ "url": to }],
    })
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
async fn a_gateway_does_one_program_and_tells_its_end_to_early_and_late_readers() {
    let folder = Folder::new();
    for name in ["from", "to"] {
        std::fs::create_dir(folder.path(name)).unwrap();
    }
    std::fs::write(folder.path("from/a"), b"forty-two bytes").unwrap();
    let serving = Serving::start(&["--control", &folder.socket(), "--exit-with-stdin"]).await;
    let mut early = Client::unix(&folder.path("socket")).await;
    let mut early = early.events().await;
    let mut client = Client::unix(&folder.path("socket")).await;
    assert_eq!(client.put_program(&copy_program(&folder, "first")).await, (StatusCode::OK, json!({})));
    assert_eq!(client.put_program(&copy_program(&folder, "first")).await, (StatusCode::OK, json!({})));
    let (status, refusal) = client.put_program(&copy_program(&folder, "second")).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refusal["error"], "this gateway already has a program, for job first");

    let mut late = Client::unix(&folder.path("socket")).await;
    let mut late = late.events().await;
    for reader in [&mut early, &mut late] {
        let mut last = Value::Null;
        while let Some(event) = reader.next().await {
            last = event;
        }
        assert_eq!((&last["event"], &last["outcome"]), (&json!("done"), &json!("done")), "{last}");
        assert_eq!(last["progress"]["objects_done"], 1);
    }
    assert_eq!(std::fs::read(folder.path("to/b")).unwrap(), b"forty-two bytes");
    let (_, metrics) = client.get("/metrics").await;
    assert!(metrics.as_str().unwrap().contains("\ntradewind_memory_limit_bytes "), "{metrics}");
    assert_eq!(client.call(Method::POST, "/v1/drain", "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

#[tokio::test]
async fn garbage_and_oversized_bodies_do_not_hurt() {
    let folder = Folder::new();
    let serving = Serving::start(&["--control", &folder.socket(), "--exit-with-stdin"]).await;
    let mut garbage = UnixStream::connect(folder.path("socket")).await.unwrap();
    garbage.write_all(&[0xff; 4096]).await.unwrap();
    let mut answer = String::new();
    garbage.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut client = Client::unix(&folder.path("socket")).await;
    let (status, _) = client.call(Method::PUT, "/v1/program", vec![b' '; 5 << 20]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // A body that only announces its length is refused for that length, not (408) for never arriving.
    let mut announcing = UnixStream::connect(folder.path("socket")).await.unwrap();
    let head = "PUT /v1/program HTTP/1.1\r\nhost: gateway\r\ncontent-length: 99999999999\r\n\r\n";
    announcing.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 256];
    let length = announcing.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(Client::unix(&folder.path("socket")).await.get("/v1/version").await.0, StatusCode::OK);
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
}

#[tokio::test]
async fn schema_and_version_are_printed() {
    let schema = run(&["schema"]).await;
    assert_eq!(schema.stdout, include_bytes!("../../../../contract/gateway-v1.schema.json"));
    let version = run(&["--version"]).await;
    assert_eq!(
        String::from_utf8(version.stdout).unwrap(),
        format!("tradewind-gateway {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[tokio::test]
async fn identities_are_not_overwritten() {
    let folder = Folder::new();
    folder.fleet("fleet", &["a"]).await;
    let again = run(&["identity", "--out", &folder.text("fleet"), "--name", "a"]).await;
    assert_refused(&again, 1, "is not overwritten");
    let bad = run(&["identity", "--out", &folder.text("other"), "--name", "../a"]).await;
    assert_refused(&bad, 1, "is not a gateway name");
    assert!(!folder.path("other").exists());
}

#[tokio::test]
async fn two_gateways_measure_what_the_way_between_them_carries() {
    let folder = Folder::new();
    folder.fleet("fleet", &["lead", "near", "far"]).await;
    let start = async |name: &str| {
        let control = format!("unix:{}", folder.text(&format!("{name}.s")));
        let identity = folder.text(&format!("fleet/{name}"));
        let words = ["--control", &control, "--data", "127.0.0.1:0", "--identity", &identity, "--exit-with-stdin"];
        Serving::start(&words).await
    };
    let (near, far) = (start("near").await, start("far").await);
    let mut receiver = Client::unix(&folder.path("far.s")).await;
    let mut sender = Client::unix(&folder.path("near.s")).await;
    let receive = json!({ "from": "near", "connections": 3, "warmup_ms": 50, "measure_ms": 200 });
    let send = json!({ "to": "far", "address": far.ready["data_address"], "connections": 3, "at_most_ms": 60_000 });
    let (received, sent) = tokio::join!(
        receiver.call(Method::POST, "/v1/probe/receive", receive.to_string()),
        sender.call(Method::POST, "/v1/probe/send", send.to_string()),
    );
    assert_eq!((received.0, sent.0), (StatusCode::OK, StatusCode::OK), "{received:?} {sent:?}");
    assert_eq!((&received.1["from"], &received.1["connections"]), (&json!("near"), &json!(3)));
    let arrived = received.1["bytes"].as_u64().unwrap();
    assert!(arrived > 0 && sent.1["bytes"].as_u64().unwrap() > arrived && received.1["seconds"].as_f64() > Some(0.19));

    for (wrong, what) in [
        (json!({ "from": "near", "connections": 65, "warmup_ms": 0, "measure_ms": 200 }), "connections is 65"),
        (json!({ "from": "near", "connections": 1, "warmup_ms": 0, "measure_ms": 0 }), "measure_ms is 0"),
    ] {
        let (status, refusal) = receiver.call(Method::POST, "/v1/probe/receive", wrong.to_string()).await;
        assert_eq!((status, refusal["error"].as_str()), (StatusCode::UNPROCESSABLE_ENTITY, Some(what)));
    }
    let wrong = json!({ "to": "lead", "address": far.ready["data_address"], "connections": 1, "at_most_ms": 100 });
    assert!(sent.1["rtt_ms_min"].as_f64() > Some(0.0));
    let nobody = sender.call(Method::POST, "/v1/probe/send", wrong.to_string()).await;
    assert_eq!((nobody.0, &nobody.1["bytes"]), (StatusCode::OK, &json!(0)), "nobody receives there");
    for gateway in [near, far] {
        assert_eq!(gateway.end_of_stdin().await.code(), Some(0));
    }
}

/// A job that moves objects within a store that accepts connections and never answers.
pub(crate) fn silent_move(endpoint: &str) -> Value {
    let store = |bucket: &str| json!({ "url": format!("s3://{bucket}"), "endpoint": endpoint, "path_style": true });
    json!({
        "contract": tradewind_contract::CONTRACT_VERSION,
        "job_id": "silent",
        "node": "local",
        "routes": [{ "id": 0, "nodes": ["local", "local", "local"], "share": 1.0 }],
        "lead": {
            "source": store("from"),
            "delete_source": true,
            "selection": { "kind": "prefix", "prefix": "" },
            "targets": [{ "store": store("to"), "key": "" }],
            "stall_s": 3600,
        },
        "source": store("from"),
        "sinks": [store("to")],
    })
}

#[tokio::test]
async fn a_job_whose_stores_never_answer_takes_any_number_of_route_changes_and_is_drained() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let folder = Folder::new();
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_REGION", "us-east-1")];
    let _serving = Serving::start_with(&["--control", &folder.socket()], &keys).await;
    let mut client = Client::unix(&folder.path("socket")).await;
    let program = silent_move(&endpoint);
    assert_eq!(client.put_program(&program).await, (StatusCode::OK, json!({})));
    // It has sent its request and waits for the answer.
    let _asked = silent.accept().await.unwrap();
    for share in [0.9, 0.8, 0.7] {
        let mut routes = json!({ "routes": program["routes"] });
        routes["routes"][0]["share"] = share.into();
        let put = client.call(Method::PUT, "/v1/routes", routes.to_string()).await;
        assert_eq!(put, (StatusCode::OK, json!({})));
    }
    let mut events = Client::unix(&folder.path("socket")).await.events().await;
    assert_eq!(client.call(Method::POST, "/v1/drain", "").await.0, StatusCode::NO_CONTENT);
    let done = loop {
        match events.next().await.expect("the job says how it ended") {
            event if event["event"] == "done" => break event,
            _ => {}
        }
    };
    assert_eq!(done["outcome"], "interrupted", "{done}");
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

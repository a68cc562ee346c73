//! The real owner and real gateways: enrolment in both directions, control through it, renewal, and refused peers.

use crate::http::Client;
use crate::serving::{Folder, Serving, gateway, run};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::Child;

const TOKEN: &str = "5f5e5d5c5b5a59585756555453525150404142434445464748494a4b4c4d4e4f";
/// Time limit of each step, enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Owner {
    child: Child,
    folder: PathBuf,
    ready: Value,
}

impl Owner {
    pub(crate) async fn start(folder: &Folder, more: &[&str]) -> Self {
        Self::start_with(folder, more, &[]).await
    }

    /// With these variables in its environment.
    pub(crate) async fn start_with(folder: &Folder, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let place = folder.path("fleet");
        std::fs::create_dir_all(&place).unwrap();
        let fixed = ["owner", "--fleet", "fleet-1", "--home", "127.0.0.1:0", "--exit-with-stdin", "--folder"];
        let mut command = gateway(&[&fixed[..], &[place.to_str().unwrap()], more].concat());
        let mut child = command.envs(variables.iter().copied()).spawn().unwrap();
        let line = BufReader::new(child.stdout.take().unwrap()).lines().next_line().await.unwrap();
        let ready = serde_json::from_str(&line.expect("a readiness line")).unwrap();
        Self { child, folder: place, ready }
    }

    pub(crate) async fn admin(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut client = Client::unix(&self.folder.join("owner.sock")).await;
        client.call_json(method, path, body).await
    }

    pub(crate) async fn put(&self, name: &str, entry: &Value) -> (StatusCode, Value) {
        self.admin(Method::PUT, &format!("/v1/gateways/{name}"), entry).await
    }

    async fn state(&self, name: &str) -> Value {
        let (_, states) = self.admin(Method::GET, "/v1/gateways", &Value::Null).await;
        states["gateways"].as_array().unwrap().iter().find(|state| state["name"] == name).cloned().unwrap_or_default()
    }

    /// Waits until a gateway's state is as wanted.
    pub(crate) async fn wait(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            loop {
                let state = self.state(name).await;
                if wanted(&state) {
                    return state;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{name}: {what} never came"))
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.join("control").join(name)
    }

    fn document(&self, name: &str, control: &Value) -> Value {
        json!({
            "contract": tradewind_contract::CONTRACT_VERSION, "fleet": "fleet-1", "name": name, "token_hex": TOKEN, "expires_unix_s": soon(),
            "ca_pem": self.ready["ca_pem"], "control": control, "data": "127.0.0.1:0",
        })
    }

    pub(crate) fn listen(&self, name: &str) -> Value {
        self.document(name, &json!({ "kind": "listen", "address": "127.0.0.1:0" }))
    }

    fn call(&self, name: &str) -> Value {
        self.document(name, &json!({ "kind": "call", "owner": self.ready["home"] }))
    }

    /// Enrols a gateway, in either direction.
    pub(crate) async fn enrol(&self, name: &str, calls_home: bool) -> Serving {
        self.enrol_with(name, calls_home, &[]).await
    }

    /// The same, with these variables in the gateway's environment.
    pub(crate) async fn enrol_with(&self, name: &str, calls_home: bool, variables: &[(&str, &str)]) -> Serving {
        let joining = if calls_home {
            let added =
                self.put(name, &json!({ "token_hex": TOKEN, "expires_unix_s": soon(), "calls_home": true })).await;
            assert_eq!(added.0, StatusCode::NO_CONTENT, "{}", added.1);
            joining_with(&self.call(name), variables).await
        } else {
            let joining = joining_with(&self.listen(name), variables).await;
            let added = self.put(name, &entry(joining.control())).await;
            assert_eq!(added.0, StatusCode::NO_CONTENT, "{}", added.1);
            joining
        };
        self.wait(name, "its enrolment", |state| state["enrolled"] == true).await;
        joining
    }

    pub(crate) async fn end(mut self) {
        drop(self.child.stdin.take());
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0));
        assert!(!self.folder.join("owner.sock").exists());
        assert_eq!(std::fs::read_dir(self.folder.join("control")).unwrap().count(), 0);
    }
}

pub(crate) fn soon() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 300
}

pub(crate) fn entry(dial: &str) -> Value {
    json!({ "token_hex": TOKEN, "expires_unix_s": soon(), "dial": dial })
}

/// A gateway that reads its join document from standard input.
async fn joining(document: &Value) -> Serving {
    joining_with(document, &[]).await
}

async fn joining_with(document: &Value, variables: &[(&str, &str)]) -> Serving {
    let arguments = ["--join", "-", "--exit-with-stdin"];
    Serving::start_told(&arguments, &format!("{document}\n"), variables).await
}

pub(crate) async fn version(socket: &Path) -> (StatusCode, Value) {
    Client::unix(socket).await.get("/v1/version").await
}

#[tokio::test]
async fn gateways_enrol_in_both_directions_and_are_controlled_through_the_owner() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    for (name, calls_home) in [("dialled", false), ("calling", true)] {
        let serving = owner.enrol(name, calls_home).await;
        assert_eq!(serving.ready["control"].is_null(), calls_home);
        let (status, told) = version(&owner.socket(name)).await;
        assert_eq!((status, &told["data_address"]), (StatusCode::OK, &serving.ready["data_address"]));
        // Several at once: more than a gateway that calls keeps open.
        let socket = owner.socket(name);
        let many = (0..8).map(|_| version(&socket));
        assert!(futures::future::join_all(many).await.iter().all(|(status, _)| *status == StatusCode::OK));
        // Events last, and a drain ends them.
        let mut client = Client::unix(&owner.socket(name)).await;
        let mut events = client.events().await;
        let mut other = Client::unix(&owner.socket(name)).await;
        assert_eq!(other.call(Method::POST, "/v1/drain", "").await.0, StatusCode::NO_CONTENT);
        assert_eq!(events.next().await, None);
        let state = owner.state(name).await;
        assert_eq!((&state["reachable"], &state["failure"]), (&json!(true), &Value::Null));
        assert!(state["seen_unix_ms"].as_u64().unwrap() > 0);
        assert_eq!(serving.end_of_stdin().await.code(), Some(0));
    }
    owner.end().await;
}

#[tokio::test]
async fn a_gateway_beside_the_owner_has_its_own_socket_and_is_renewed_there() {
    const LIFE_S: u64 = 10;
    let folder = Folder::new();
    let owner = Owner::start(&folder, &["--identity-s", &LIFE_S.to_string()]).await;
    let entry = json!({ "token_hex": TOKEN, "expires_unix_s": soon(), "calls_home": true, "dial": "unix:lead" });
    assert_eq!(owner.put("lead", &entry).await.0, StatusCode::NO_CONTENT);
    let socket = owner.folder.join("lead");
    let control = json!({ "kind": "beside", "owner": owner.ready["home"], "socket": socket });
    let serving = joining(&owner.document("lead", &control)).await;
    assert_eq!(serving.control(), format!("unix:{}", socket.display()));
    assert_eq!(version(&socket).await.0, StatusCode::OK);
    assert!(!owner.socket("lead").exists());
    let first = owner.wait("lead", "its enrolment", |state| state["enrolled"] == true).await;
    let first = first["expires_unix_s"].as_u64().unwrap();
    let renewed = owner.wait("lead", "its renewal", |state| state["expires_unix_s"].as_u64() > Some(first)).await;
    assert_eq!((&renewed["failure"], &renewed["reachable"]), (&Value::Null, &json!(true)));
    assert_eq!(serving.end_of_stdin().await.code(), Some(0));
    owner.end().await;
}

#[tokio::test]
async fn the_enrolled_port_answers_the_owner_alone() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    let serving = owner.enrol("sink", false).await;
    // A second owner with another CA, who knows the token: it was used, and the port requires the fleet's certificates.
    let other_folder = Folder::new();
    let other = Owner::start(&other_folder, &[]).await;
    assert_eq!(other.put("sink", &entry(serving.control())).await.0, StatusCode::NO_CONTENT);
    let failed = other.wait("sink", "the refusal", |state| !state["failure"].is_null()).await;
    assert_eq!(failed["enrolled"], false);
    let mut plain = TcpStream::connect(serving.control()).await.unwrap();
    plain.write_all(b"GET /v1/version HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    drop(plain.read_to_end(&mut answer).await);
    assert!(!answer.starts_with(b"HTTP"));
    assert_eq!(version(&owner.socket("sink")).await.0, StatusCode::OK);
    other.end().await;
    owner.end().await;
}

#[tokio::test]
async fn an_owner_that_does_not_know_the_token_is_told_nothing_and_the_right_one_still_gets_in() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    let mut serving = joining(&owner.listen("sink")).await;
    let wrong = json!({ "token_hex": "ab".repeat(32), "expires_unix_s": soon(), "dial": serving.control() });
    assert_eq!(owner.put("sink", &wrong).await.0, StatusCode::NO_CONTENT);
    let failed = owner.wait("sink", "the refusal", |state| !state["failure"].is_null()).await;
    assert_eq!(failed["failure"], "not enrolled: the peer closed the connection");
    serving.log_says("refused: wrong proof").await;
    assert_eq!(owner.put("sink", &entry(serving.control())).await.0, StatusCode::CONFLICT);
    assert_eq!(owner.admin(Method::DELETE, "/v1/gateways/sink", &Value::Null).await.0, StatusCode::NO_CONTENT);
    assert_eq!(owner.put("sink", &entry(serving.control())).await.0, StatusCode::NO_CONTENT);
    owner.wait("sink", "its enrolment", |state| state["enrolled"] == true).await;
    owner.end().await;
}

#[tokio::test]
async fn a_stolen_token_that_was_used_lets_nobody_in() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &["--log-level", "warn"]).await;
    let _first = owner.enrol("sink", true).await;
    let mut thief = joining(&owner.call("sink")).await;
    thief.log_says("the peer closed the connection").await;
    assert_eq!(version(&owner.socket("sink")).await.0, StatusCode::OK);
    owner.end().await;
}

#[tokio::test]
async fn a_gateway_that_was_removed_is_not_reached_and_cannot_come_back() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    let mut calling = owner.enrol("sink", true).await;
    assert_eq!(owner.admin(Method::DELETE, "/v1/gateways/sink", &Value::Null).await.0, StatusCode::NO_CONTENT);
    assert!(UnixStream::connect(owner.socket("sink")).await.is_err());
    calling.log_says("no connection to the owner").await;
    assert_eq!(owner.state("sink").await, Value::Null);
    owner.end().await;
}

#[tokio::test]
async fn a_removed_gateway_is_refused_although_its_name_is_given_again_and_its_certificate_is_valid() {
    const NEXT: &str = "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f";
    let folder = Folder::new();
    let mut owner = Owner::start(&folder, &["--log-level", "warn"]).await;
    let mut log = BufReader::new(owner.child.stderr.take().unwrap()).lines();
    for calls_home in [true, false] {
        let earlier = owner.enrol("sink", calls_home).await;
        assert_eq!(version(&owner.socket("sink")).await.1["data_address"], earlier.ready["data_address"]);
        assert_eq!(owner.admin(Method::DELETE, "/v1/gateways/sink", &Value::Null).await.0, StatusCode::NO_CONTENT);
        let mut entry = json!({ "token_hex": NEXT, "expires_unix_s": soon(), "calls_home": calls_home });
        assert_eq!(owner.put("sink", &entry).await.0, StatusCode::NO_CONTENT);
        let (mut document, said) =
            if calls_home { (owner.call("sink"), "call refused") } else { (owner.listen("sink"), "not reached") };
        document["token_hex"] = json!(NEXT);
        let next = joining(&document).await;
        if !calls_home {
            entry["dial"] = json!(next.control());
            assert_eq!(owner.put("sink", &entry).await.0, StatusCode::NO_CONTENT);
        }
        owner.wait("sink", "the next one's enrolment", |state| state["enrolled"] == true).await;
        assert_eq!(version(&owner.socket("sink")).await.1["data_address"], next.ready["data_address"]);
        if !calls_home {
            // The earlier one answers where the owner dials.
            entry["dial"] = json!(earlier.control());
            assert_eq!(owner.put("sink", &entry).await.0, StatusCode::NO_CONTENT);
            let mut closed = UnixStream::connect(owner.socket("sink")).await.unwrap();
            assert_eq!(closed.read(&mut [0]).await.unwrap(), 0);
        }
        let refused = async {
            loop {
                let line = log.next_line().await.unwrap().expect("the log ended");
                if line.contains(said) && line.contains("its certificate is not that of the present sink") {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("it was never refused");
        assert_eq!(owner.admin(Method::DELETE, "/v1/gateways/sink", &Value::Null).await.0, StatusCode::NO_CONTENT);
    }
    owner.end().await;
}

#[tokio::test]
async fn a_connection_waits_for_a_gateway_that_enrols_later() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    assert_eq!(
        owner.put("sink", &json!({ "token_hex": TOKEN, "expires_unix_s": soon() })).await.0,
        StatusCode::NO_CONTENT
    );
    let socket = owner.socket("sink");
    let early = tokio::spawn(async move { version(&socket).await.0 });
    let serving = joining(&owner.listen("sink")).await;
    assert_eq!(owner.put("sink", &entry(serving.control())).await.0, StatusCode::NO_CONTENT);
    assert_eq!(early.await.unwrap(), StatusCode::OK);
    owner.end().await;
}

#[tokio::test]
async fn identities_are_renewed_while_a_stream_of_events_goes_on() {
    const LIFE_S: u64 = 10;
    let folder = Folder::new();
    let owner = Owner::start(&folder, &["--identity-s", &LIFE_S.to_string()]).await;
    let gateways = [owner.enrol("dialled", false).await, owner.enrol("calling", true).await];
    let mut streams = Vec::new();
    for name in ["dialled", "calling"] {
        let mut client = Client::unix(&owner.socket(name)).await;
        streams.push((name, client.events().await, client));
    }
    let first = owner.state("dialled").await["expires_unix_s"].as_u64().unwrap();
    // Beyond the life of the first identities, the owner's own included.
    for name in ["dialled", "calling"] {
        owner.wait(name, "two renewals", |state| state["expires_unix_s"].as_u64() > Some(first + LIFE_S)).await;
        assert_eq!(version(&owner.socket(name)).await.0, StatusCode::OK);
        assert_eq!(owner.state(name).await["failure"], Value::Null);
    }
    for (name, mut events, _client) in streams {
        assert_eq!(events.next_line().await.as_deref(), Some(&b"\n"[..]), "{name}: the stream broke");
    }
    drop(gateways);
    owner.end().await;
}

#[tokio::test]
async fn an_owner_whose_ca_was_kept_takes_over_a_fleet() {
    let folder = Folder::new();
    let mut first = Owner::start(&folder, &["--keep-ca"]).await;
    let serving = first.enrol("sink", false).await;
    first.child.kill().await.unwrap();
    let second = Owner::start(&folder, &["--keep-ca"]).await;
    assert_eq!(second.ready["ca_pem"], first.ready["ca_pem"]);
    let known = json!({ "expires_unix_s": 0, "dial": serving.control() });
    assert_eq!(second.put("sink", &known).await.0, StatusCode::NO_CONTENT);
    assert_eq!(version(&second.socket("sink")).await.0, StatusCode::OK);
    // It renews at once, because it does not know when the identity expires.
    second.wait("sink", "the renewal", |state| state["expires_unix_s"].as_u64() > Some(soon())).await;
    second.end().await;
}

#[tokio::test]
async fn peers_that_send_garbage_or_nothing_keep_nobody_out() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    let serving = joining(&owner.listen("sink")).await;
    let mut strangers = Vec::new();
    for address in [serving.control(), owner.ready["home"].as_str().unwrap()] {
        for number in 0..120 {
            let mut stranger = TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                drop(stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await);
            }
            strangers.push(stranger);
        }
    }
    assert_eq!(owner.put("sink", &entry(serving.control())).await.0, StatusCode::NO_CONTENT);
    owner.wait("sink", "its enrolment", |state| state["enrolled"] == true).await;
    let _calling = owner.enrol("calling", true).await;
    assert_eq!(version(&owner.socket("calling")).await.0, StatusCode::OK);
    drop(strangers);
    owner.end().await;
}

#[tokio::test]
async fn a_gateway_that_vanishes_is_unreachable_and_its_connections_end() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    let mut serving = owner.enrol("sink", false).await;
    let mut client = Client::unix(&owner.socket("sink")).await;
    let mut events = client.events().await;
    serving.child.kill().await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, tokio::spawn(async move { events.next().await })).await.unwrap();
    assert!(matches!(ended, Ok(None) | Err(_)), "the stream went on");
    let mut closed = UnixStream::connect(owner.socket("sink")).await.unwrap();
    assert_eq!(closed.read(&mut [0]).await.unwrap(), 0);
    let state = owner.state("sink").await;
    assert_eq!(state["reachable"], false);
    assert!(state["failure"].as_str().unwrap().starts_with("not reached: "), "{state}");
    owner.end().await;
}

#[tokio::test]
async fn a_token_of_a_clock_that_is_ahead_is_accepted() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    let ahead = json!({ "token_hex": TOKEN, "expires_unix_s": soon() + 86_400 });
    for _ in 0..2 {
        let (status, refusal) = owner.put("sink", &ahead).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{refusal}");
    }
    owner.end().await;
}

#[tokio::test]
async fn entries_that_contradict_themselves_are_refused() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    let cases = [
        ("Sink", entry("127.0.0.1:1"), StatusCode::UNPROCESSABLE_ENTITY),
        ("tradewind-owner", entry("127.0.0.1:1"), StatusCode::UNPROCESSABLE_ENTITY),
        ("sink", json!({ "token_hex": "aa", "expires_unix_s": soon() }), StatusCode::UNPROCESSABLE_ENTITY),
        (
            "sink",
            json!({ "token_hex": TOKEN, "expires_unix_s": soon(), "dial": "127.0.0.1:1", "calls_home": true }),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        ("sink", json!({ "token": TOKEN }), StatusCode::UNPROCESSABLE_ENTITY),
    ];
    for (name, entry, status) in cases {
        let (refused, refusal) = owner.put(name, &entry).await;
        assert_eq!(refused, status, "{refusal}");
        assert!(refusal["hint"].is_string() && !refusal.to_string().contains(TOKEN), "{refusal}");
    }
    owner.end().await;
}

#[tokio::test]
async fn a_gateway_that_cannot_join_says_why() {
    let folder = Folder::new();
    let document = folder.path("join.json");
    for (text, error) in [
        ("{", "not understood"),
        (r#"{"token_hex": "secret-token"}"#, "not understood"),
        (&" ".repeat(20 << 10), "longer than 16384 bytes"),
    ] {
        std::fs::write(&document, text).unwrap();
        let refused = run(&["serve", "--join", document.to_str().unwrap()]).await;
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(error) && stderr.contains("\nhint: ") && !stderr.contains("secret-token"), "{stderr}");
    }
    // Its token has expired: it does not wait for ever.
    let owner = Owner::start(&folder, &[]).await;
    let mut expired = owner.listen("sink");
    expired["expires_unix_s"] = json!(soon() - 300 - 3600 + 2);
    std::fs::write(&document, expired.to_string()).unwrap();
    let refused = tokio::time::timeout(PATIENCE, run(&["serve", "--join", document.to_str().unwrap()])).await.unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("did not join its fleet in time: no owner connected"));
    // A server that accepts and sends nothing is not an owner.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut calling = owner.call("sink");
    calling["control"]["owner"] = json!(silent.local_addr().unwrap().to_string());
    let mut serving = joining(&calling).await;
    serving.log_says("not enrolled yet").await;
    owner.end().await;
}

#[tokio::test]
async fn the_owner_hears_that_the_cloud_takes_a_machine_back_and_the_gateway_works_until_shortly_before() {
    let folder = Folder::new();
    let owner = Owner::start(&folder, &[]).await;
    let document = format!("{}\n", owner.listen("spot"));
    // It drains 12 s before the end.
    let arguments = ["--join", "-", "--exit-with-stdin", "--notice-s", "15", "--booted-s", "0.5"];
    let mut serving = Serving::start_told(&arguments, &document, &[]).await;
    assert_eq!(owner.put("spot", &entry(serving.control())).await.0, StatusCode::NO_CONTENT);
    let state = owner.wait("spot", "its enrolment", |state| state["enrolled"] == true).await;
    assert_eq!(state["leaves_unix_s"], Value::Null);
    let (_, told) = version(&owner.socket("spot")).await;
    assert_eq!(told["notice"], json!({ "leaves_in_s": null }));
    assert!(told["booted_ms_ago"].as_u64().unwrap() > 0);
    serving.signal(rustix::process::Signal::USR1);
    let state = owner.wait("spot", "the notice", |state| !state["leaves_unix_s"].is_null()).await;
    assert!(state["leaves_unix_s"].as_u64().unwrap() < soon());
    assert_eq!(serving.child.wait().await.unwrap().code(), Some(0));
    owner.end().await;
}

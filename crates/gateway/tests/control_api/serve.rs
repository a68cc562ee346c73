//! The real binary: its sockets, its programs, and how it exits.

use crate::http::Client;
use crate::serving::{Folder, Serving, run};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::process::Output;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

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

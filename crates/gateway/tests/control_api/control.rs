//! The control API over a real socket, with a node that the test controls.

use crate::http::Client;
use async_trait::async_trait;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;
use tradewind_contract::{Event, Program, Progress, Refusal};
use tradewind_gateway::control::events::EventSender;
use tradewind_gateway::control::gateway::{Equipment, Gateway};
use tradewind_gateway::control::metrics::{HOP_BYTES, MetricsSnapshot};
use tradewind_gateway::control::runner::{Runner, Running};
use tradewind_gateway::control::server::{Listener, Server};
use tradewind_gateway::identity::FleetCa;
use tradewind_gateway::limits::{CONTROL_CONNECTIONS_MAX, EVENT_READERS_MAX, REQUEST_BODY_BYTES_MAX};
use tradewind_gateway::net::DataPort;
use tradewind_gateway::tls::{Identity, Security};

/// Event sender and data port of a running node.
type Props = (EventSender, Option<Box<dyn DataPort>>);

/// State that the test and its node share.
#[derive(Default)]
struct Stage {
    /// Nodes started.
    started: AtomicUsize,
    /// Calls of `drain`.
    drained: AtomicUsize,
    props: std::sync::Mutex<Option<Props>>,
    rerouted: std::sync::Mutex<Vec<Program>>,
    /// A start waits for this when the job is called `slow`.
    go: Notify,
}

struct StagedRunner(Arc<Stage>);
struct StagedNode(Arc<Stage>);

#[async_trait]
impl Runner for StagedRunner {
    async fn start(
        &self,
        program: Program,
        _security: Security,
        data_listener: Option<Box<dyn DataPort>>,
        events: EventSender,
    ) -> Result<Box<dyn Running>, Refusal> {
        match program.job_id.as_str() {
            "impossible" => return Err(Refusal { error: "this cannot run".into(), hint: Some("run another".into()) }),
            "slow" => self.0.go.notified().await,
            _ => {}
        }
        self.0.started.fetch_add(1, Ordering::SeqCst);
        *self.0.props.lock().unwrap() = Some((events, data_listener));
        Ok(Box::new(StagedNode(self.0.clone())))
    }
}

#[async_trait]
impl Running for StagedNode {
    async fn drain(&self) {
        self.0.drained.fetch_add(1, Ordering::SeqCst);
    }

    fn reroute(&self, program: &Program) -> Result<(), Refusal> {
        self.0.rerouted.lock().unwrap().push(program.clone());
        Ok(())
    }

    fn metrics(&self) -> MetricsSnapshot {
        let mut snapshot = MetricsSnapshot::default();
        snapshot.add(&HOP_BYTES, [("from", "local".into()), ("to", "sink".into())], 42.0);
        snapshot
    }
}

/// A control API at a socket in its own folder.
struct Fixture {
    stage: Arc<Stage>,
    server: Server,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Equipment::default())
    }

    fn with(equipment: Equipment) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stage = Arc::new(Stage::default());
        let gateway = Arc::new(Gateway::new(Box::new(StagedRunner(stage.clone())), equipment).unwrap());
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let server = Server::start(Listener::Unix(listener), gateway, Arc::new([]));
        Self { stage, server, folder }
    }

    async fn client(&self) -> Client {
        Client::unix(&self.folder.path().join("socket")).await
    }

    async fn raw(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("socket")).await.unwrap()
    }

    fn tell(&self, event: Event) {
        self.stage.props.lock().unwrap().as_ref().unwrap().0.send(event);
    }
}

fn program(job_id: &str) -> Value {
    let text = include_str!("../../../../contract/examples/program-local-cp.json");
    let mut program: Value = serde_json::from_str(text).unwrap();
    program["job_id"] = job_id.into();
    program
}

fn notice(message: &str) -> Event {
    Event::Notice { message: message.to_owned() }
}

#[tokio::test]
async fn the_same_program_twice_is_started_once_and_another_is_refused() {
    let fixture = Fixture::new();
    let mut client = fixture.client().await;
    assert_eq!(client.put_program(&program("a")).await, (StatusCode::OK, json!({})));
    assert_eq!(client.put_program(&program("a")).await, (StatusCode::OK, json!({})));
    let (status, body) = client.put_program(&program("b")).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(body["error"], "this gateway already has a program, for job a");
    assert_eq!(fixture.stage.started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn bad_programs_get_a_status_an_error_and_a_hint() {
    let fixture = Fixture::new();
    let mut client = fixture.client().await;
    let mut invalid = program("a");
    invalid["routes"][0]["share"] = 2.into();
    let mut unknown = program("a");
    unknown["colour"] = "blue".into();
    let cases = [
        ("{".to_owned(), StatusCode::BAD_REQUEST, "EOF"),
        (unknown.to_string(), StatusCode::BAD_REQUEST, "unknown field `colour`"),
        (invalid.to_string(), StatusCode::UNPROCESSABLE_ENTITY, "route 0 has the share 2"),
        (program("impossible").to_string(), StatusCode::UNPROCESSABLE_ENTITY, "this cannot run"),
        ("x".repeat(REQUEST_BODY_BYTES_MAX + 1), StatusCode::PAYLOAD_TOO_LARGE, "too large"),
    ];
    for (body, status, error) in cases {
        // A refused body may leave its connection closed.
        let (answered, answer) = fixture.client().await.call(Method::PUT, "/v1/program", body).await;
        assert_eq!(answered, status, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(error), "{answer}");
        assert!(!answer["hint"].as_str().unwrap().is_empty());
    }
    assert_eq!(client.put_program(&program("a")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_program_that_cannot_run_leaves_the_data_port_for_the_next() {
    let data = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    data.set_nonblocking(true).unwrap();
    let address = data.local_addr().unwrap();
    let fixture = Fixture::with(Equipment { plain: true, data_listener: Some(data), ..Equipment::default() });
    let mut client = fixture.client().await;
    assert_eq!(client.get("/v1/version").await.1["data_address"], address.to_string());
    assert_eq!(client.put_program(&program("impossible")).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let early = TcpStream::connect(address).await.unwrap();
    assert_eq!(client.put_program(&program("a")).await.0, StatusCode::OK);
    let (_, listener) = fixture.stage.props.lock().unwrap().take().unwrap();
    let link = listener.unwrap().accept().await.unwrap();
    assert_eq!(link.peer(), early.local_addr().unwrap().to_string());
    // The node has dropped its listener, and the gateway keeps none: no connection waits in its backlog.
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_running_program_takes_other_routes_that_make_sense_and_keeps_the_rest() {
    let fixture = Fixture::new();
    let mut client = fixture.client().await;
    let routes = json!({"routes": program("a")["routes"], "ceiling_usd_per_gb": 0.5});
    let put =
        async |client: &mut Client, routes: &Value| client.call(Method::PUT, "/v1/routes", routes.to_string()).await;
    assert_eq!(put(&mut client, &routes).await.0, StatusCode::CONFLICT, "it has no program");
    assert_eq!(client.put_program(&program("a")).await.0, StatusCode::OK);
    let mut elsewhere = routes.clone();
    elsewhere["routes"][0]["nodes"] = json!(["local", "local", "other"]);
    let (status, answer) = put(&mut client, &elsewhere).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer["error"], "route 0 has other stations than before");
    let mut worthless = routes.clone();
    worthless["routes"][0]["share"] = 2.into();
    assert_eq!(put(&mut client, &worthless).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(put(&mut client, &routes).await, (StatusCode::OK, json!({})));
    assert_eq!(client.put_program(&program("a")).await.0, StatusCode::OK, "the first program is still the same one");
    let taken = fixture.stage.rerouted.lock().unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].lead.as_ref().unwrap().ceiling_usd_per_gb, Some(0.5));
}

#[tokio::test]
async fn a_start_goes_on_when_its_client_goes_away() {
    let fixture = Fixture::new();
    let mut stream = fixture.raw().await;
    let body = program("slow").to_string();
    let head = format!("PUT /v1/program HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    drop(stream);
    fixture.stage.go.notify_one();
    // The lock on the gateway's life makes this wait for the start.
    let mut client = fixture.client().await;
    while fixture.stage.started.load(Ordering::SeqCst) == 0 {
        assert_eq!(client.get("/v1/version").await.0, StatusCode::OK);
    }
    assert_eq!(client.put_program(&program("other")).await.0, StatusCode::CONFLICT);
}

#[tokio::test]
async fn events_come_line_by_line_as_they_are_told_and_again_to_late_readers() {
    let fixture = Fixture::new();
    let (mut caller, mut early) = (fixture.client().await, fixture.client().await);
    let mut early = early.events().await;
    assert_eq!(caller.put_program(&program("a")).await.0, StatusCode::OK);
    for message in ["one", "two"] {
        fixture.tell(notice(message));
        assert_eq!(early.next().await, Some(json!({ "event": "notice", "message": message })));
    }
    fixture.tell(Event::Progress(Progress::default()));
    assert_eq!(early.next().await.unwrap()["event"], "progress");
    let mut late = fixture.client().await;
    let mut late = late.events().await;
    for wanted in ["one", "two"] {
        assert_eq!(late.next().await.unwrap()["message"], wanted);
    }
    assert_eq!(late.next().await.unwrap()["event"], "progress");
    assert_eq!(caller.call(Method::POST, "/v1/drain", "").await.0, StatusCode::NO_CONTENT);
    assert_eq!((early.next().await, late.next().await), (None, None));
}

#[tokio::test]
async fn a_reader_of_events_is_sent_empty_lines_while_nothing_is_told() {
    let fixture = Fixture::new();
    let (mut caller, mut reader) = (fixture.client().await, fixture.client().await);
    let mut lines = reader.events().await;
    assert_eq!(caller.put_program(&program("a")).await.0, StatusCode::OK);
    for _ in 0..2 {
        assert_eq!(lines.next_line().await, Some(b"\n".to_vec()));
    }
    fixture.tell(notice("one"));
    assert_eq!(lines.next().await.unwrap()["message"], "one");
}

#[tokio::test]
async fn readers_of_events_are_counted_and_a_place_is_free_again_when_one_leaves() {
    let fixture = Fixture::new();
    let mut readers = Vec::new();
    for _ in 0..EVENT_READERS_MAX {
        let mut client = fixture.client().await;
        let lines = client.events().await;
        readers.push((client, lines));
    }
    let mut one_more = fixture.client().await;
    assert_eq!(one_more.get("/v1/events").await.0, StatusCode::TOO_MANY_REQUESTS);
    readers.pop();
    // The server notices the closed connection by itself, soon but not at once.
    loop {
        let response = one_more.send(Request::get("/v1/events").body(Default::default()).unwrap()).await;
        if response.status() == StatusCode::OK {
            break;
        }
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    }
}

#[tokio::test]
async fn a_drained_gateway_takes_no_program() {
    let fixture = Fixture::new();
    let mut client = fixture.client().await;
    assert_eq!(client.call(Method::POST, "/v1/drain", "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(client.call(Method::POST, "/v1/drain", "").await.0, StatusCode::NO_CONTENT);
    let (status, body) = client.put_program(&program("a")).await;
    assert_eq!((status, body["error"].as_str()), (StatusCode::CONFLICT, Some("this gateway was drained")));
    assert_eq!(client.events().await.next().await, None);
}

#[tokio::test]
async fn drain_reaches_the_node_each_time() {
    let fixture = Fixture::new();
    let mut client = fixture.client().await;
    client.put_program(&program("a")).await;
    for times in 1..=2 {
        assert_eq!(client.call(Method::POST, "/v1/drain", "").await.0, StatusCode::NO_CONTENT);
        assert_eq!(fixture.stage.drained.load(Ordering::SeqCst), times);
    }
}

#[tokio::test]
async fn metrics_tell_of_the_node_and_of_the_process() {
    let fixture = Fixture::new();
    let mut client = fixture.client().await;
    let before = client.get("/metrics").await.1.as_str().unwrap().to_owned();
    assert!(before.contains("\nprocess_resident_memory_bytes ") && !before.contains("tradewind_hop_"), "{before}");
    client.put_program(&program("a")).await;
    let after = client.get("/metrics").await.1.as_str().unwrap().to_owned();
    assert!(after.contains("\ntradewind_hop_bytes_total{from=\"local\",to=\"sink\"} 42\n"), "{after}");
    assert!(!after.contains("tradewind_order_retries_total"), "{after}");
    fixture.tell(Event::Progress(Progress { retries: 7, ..Progress::default() }));
    let under_way = client.get("/metrics").await.1.as_str().unwrap().to_owned();
    assert!(under_way.contains("\ntradewind_order_retries_total 7\n"), "{under_way}");
}

#[tokio::test]
async fn wrong_paths_and_methods_are_answered_as_errors() {
    let fixture = Fixture::new();
    let mut client = fixture.client().await;
    assert_eq!(client.get("/v2/program").await.0, StatusCode::NOT_FOUND);
    let (status, body) = client.get("/v1/program").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(body["error"].is_string() && body["hint"].is_string());
}

#[tokio::test]
async fn a_web_page_can_neither_steer_nor_read_a_gateway() {
    let fixture = Fixture::new();
    let request = Request::post("/v1/drain").header("origin", "https://evil.example").body(Default::default());
    let response = fixture.client().await.send(request.unwrap()).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    for path in ["/v1/version", "/metrics", "/v1/events", "/no/such/path"] {
        let request = Request::get(path).header("origin", "https://evil.example").body(Default::default());
        let response = fixture.client().await.send(request.unwrap()).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(fixture.client().await.put_program(&program("a")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_web_page_whose_name_has_come_to_mean_this_machine_is_refused() {
    let fixture = Fixture::new();
    let hosts = [
        ("evil.example:8080", StatusCode::FORBIDDEN),
        ("evil.example.", StatusCode::FORBIDDEN),
        ("127.0.0.1:8080", StatusCode::OK),
        ("[::1]:8080", StatusCode::OK),
        ("[::ffff:127.0.0.1]", StatusCode::OK),
        ("localhost:8080", StatusCode::OK),
        ("gateway", StatusCode::OK),
    ];
    for (host, status) in hosts {
        let request = Request::get("/v1/version").header("host", host).body(Default::default());
        assert_eq!(fixture.client().await.send(request.unwrap()).await.status(), status, "{host}");
    }
}

#[tokio::test]
async fn garbage_is_answered_or_closed_and_the_next_client_is_served() {
    let fixture = Fixture::new();
    let many_headers = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000));
    let long_header = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(1 << 20));
    let random: Vec<u8> = (0..100_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cases: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0\r\n\r\n",
        b"PUT /v1/program HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        many_headers.as_bytes(),
        long_header.as_bytes(),
        &random,
    ];
    for garbage in cases {
        let mut stream = fixture.raw().await;
        // The server may close before it has read everything.
        drop(stream.write_all(garbage).await);
        drop(stream.shutdown().await);
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
        assert_eq!(fixture.client().await.get("/v1/version").await.0, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_dawdles_is_closed() {
    let fixture = Fixture::new();
    let cases: [(&[u8], &str); 3] = [
        (b"", ""),
        (b"PUT /v1/program HT", ""),
        (b"PUT /v1/program HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{", "HTTP/1.1 408 "),
    ];
    for (dawdle, wanted) in cases {
        let mut stream = fixture.raw().await;
        stream.write_all(dawdle).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(wanted), "{answer}");
    }
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let fixture = Fixture::new();
    let mut open = Vec::new();
    for _ in 0..CONTROL_CONNECTIONS_MAX {
        let mut client = fixture.client().await;
        assert_eq!(client.get("/v1/version").await.0, StatusCode::OK);
        open.push(client);
    }
    let mut answer = String::new();
    fixture.raw().await.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("too many control connections"), "{answer}");
}

#[tokio::test]
async fn stopping_lets_the_last_events_be_read() {
    let fixture = Fixture::new();
    let mut client = fixture.client().await;
    client.put_program(&program("a")).await;
    let mut reader = fixture.client().await;
    let mut lines = reader.events().await;
    fixture.tell(notice("last"));
    assert_eq!(client.call(Method::POST, "/v1/drain", "").await.0, StatusCode::NO_CONTENT);
    let read = tokio::spawn(async move { (lines.next().await, lines.next().await) });
    fixture.server.stop().await;
    let (last, end) = read.await.unwrap();
    assert_eq!((last.unwrap()["message"].as_str(), end), (Some("last"), None));
}

fn identity(ca: &FleetCa, name: &str) -> Arc<Identity> {
    let node = ca.sign(name).unwrap();
    let root = ca.certificate().unwrap().der().clone();
    Arc::new(Identity::new(root, node.certificate.der().clone(), node.key_der()).unwrap())
}

#[tokio::test]
async fn a_probe_measures_the_way_and_proves_the_peer() {
    let life = std::time::Duration::from_secs(3600);
    let ca = FleetCa::new(std::time::SystemTime::now(), life).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sink = identity(&ca, "sink");
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            tokio::spawn({
                let sink = sink.clone();
                async move { drop(tradewind_gateway::tls::accept(&sink, tcp).await) }
            });
        }
    });
    let fixture = Fixture::with(Equipment { identity: Some(identity(&ca, "source")), ..Equipment::default() });
    let mut client = fixture.client().await;
    let mut probe = async |request: Value| client.call(Method::POST, "/v1/probe", request.to_string()).await;

    let (status, report) = probe(json!({ "to": "sink", "address": address, "connects": 3 })).await;
    assert_eq!(status, StatusCode::OK, "{report}");
    assert_eq!(report["peer_verified"], true);
    let (least, median) = (report["rtt_ms_min"].as_f64().unwrap(), report["rtt_ms_median"].as_f64().unwrap());
    assert!(least > 0.0 && least <= median && report["tls_handshake_ms"].as_f64().unwrap() > 0.0);

    let (status, refusal) = probe(json!({ "to": "relay", "address": address })).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(refusal["error"].as_str().unwrap().contains("carries another name"), "{refusal}");
    let (status, _) = probe(json!({ "to": "sink", "address": "sink:1" })).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let (status, _) = probe(json!({ "to": "sink", "address": address, "connects": 21 })).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

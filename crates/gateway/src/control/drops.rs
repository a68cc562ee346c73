//! Drops the handlers of control API requests at each await, as when a client disconnects. No place may stay taken, no
//! program may be half started or started twice, and the next request must be answered.

use super::events::EventSender;
use super::gateway::{Equipment, Gateway};
use super::metrics::MetricsSnapshot;
use super::routes::{self, Peer};
use super::runner::{Runner, Running};
use crate::drop_after::DropAfter;
use crate::limits::EVENT_READERS_MAX;
use crate::net::DataPort;
use crate::tls::Security;
use async_trait::async_trait;
use axum::Extension;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use futures::StreamExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::yield_now;
use tradewind_contract::{Program, Refusal};

/// More than the places of any kind, so that a place that is not released is noticed.
const DROPS: usize = EVENT_READERS_MAX + 1;
/// Far more awaits than any handler has.
const POLLS_MAX: usize = 1_000;

#[derive(Clone, Default)]
struct SlowRunner(Arc<AtomicUsize>);

struct SlowNode;

#[async_trait]
impl Runner for SlowRunner {
    async fn start(
        &self,
        _program: Program,
        _security: Security,
        _data_listener: Option<Box<dyn DataPort>>,
        _events: EventSender,
    ) -> Result<Box<dyn Running>, Refusal> {
        self.0.fetch_add(1, Ordering::Relaxed);
        yields().await;
        Ok(Box::new(SlowNode))
    }
}

#[async_trait]
impl Running for SlowNode {
    async fn drain(&self) {
        yields().await;
    }

    fn reroute(&self, _program: &Program) -> Result<(), Refusal> {
        Ok(())
    }

    fn metrics(&self) -> MetricsSnapshot {
        MetricsSnapshot::default()
    }
}

async fn yields() {
    for _ in 0..3 {
        yield_now().await;
    }
}

/// A body that delivers the text in pieces, one at a time.
fn slow_body(text: &str) -> Body {
    let pieces: Vec<Bytes> = text.as_bytes().chunks(400).map(Bytes::copy_from_slice).collect();
    Body::from_stream(futures::stream::iter(pieces).then(async |piece| {
        yield_now().await;
        Ok::<Bytes, std::convert::Infallible>(piece)
    }))
}

fn program() -> Value {
    let text = include_str!("../../../../contract/examples/program-local-cp.json");
    serde_json::from_str(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_handler_dropped_at_any_await_releases_its_places_and_the_next_request_is_answered() {
    let runner = SlowRunner::default();
    let data_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    data_listener.set_nonblocking(true).unwrap();
    let equipment = Equipment { plain: true, data_listener: Some(data_listener), ..Equipment::default() };
    let gateway = Arc::new(Gateway::new(Box::new(runner.clone()), equipment).unwrap());
    let router = routes::router(gateway, Arc::new([])).layer(Extension(Peer::Local));
    let service = TowerToHyperService::new(router);
    let (ask, program) = (json!({ "to": "x", "address": "127.0.0.1:1", "connects": 1 }), program());
    let send = json!({ "to": "x", "address": "127.0.0.1:1", "connections": 1, "at_most_ms": 100 });
    let receive = json!({ "from": "x", "connections": 1, "warmup_ms": 1, "measure_ms": 1 });
    let requests = [
        ("GET", "/v1/version", json!(null), StatusCode::OK),
        ("GET", "/metrics", json!(null), StatusCode::OK),
        ("GET", "/v1/events", json!(null), StatusCode::OK),
        ("POST", "/v1/lease", json!({ "lease_s": 5 }), StatusCode::CONFLICT),
        ("POST", "/v1/probe", ask, StatusCode::BAD_GATEWAY),
        ("POST", "/v1/probe/send", send, StatusCode::BAD_GATEWAY),
        ("POST", "/v1/probe/receive", receive, StatusCode::GATEWAY_TIMEOUT),
        ("PUT", "/v1/program", program.clone(), StatusCode::OK),
        ("PUT", "/v1/routes", json!({ "routes": program["routes"] }), StatusCode::OK),
        ("POST", "/v1/drain", json!(null), StatusCode::NO_CONTENT),
    ];
    for (method, path, body, wanted) in requests {
        let request = || {
            let body = if body.is_null() { Body::empty() } else { slow_body(&body.to_string()) };
            Request::builder().method(method).uri(path).body(body).unwrap()
        };
        for polls in 0.. {
            assert!(polls < POLLS_MAX, "{method} {path} never ends");
            let mut ended = 0;
            for _ in 0..DROPS {
                let answer = DropAfter::new(polls, service.call(request())).await;
                ended += usize::from(answer.is_some());
            }
            let answer = service.call(request()).await.unwrap();
            assert_eq!(answer.status(), wanted, "{method} {path} after {polls} polls");
            if ended == DROPS {
                break;
            }
        }
    }
    assert_eq!(runner.0.load(Ordering::Relaxed), 1, "a program is started once");
}

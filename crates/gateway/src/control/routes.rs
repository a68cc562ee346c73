//! The HTTP side of the control API.

use super::answer::Refused;
use super::gateway::Gateway;
use super::metrics::add_process_figures;
use super::{load, probe, split};
use crate::limits::{
    DRAIN_ANSWER_TIMEOUT, EVENT_KEEP_ALIVE, EVENT_READERS_MAX, LEASE_S_MAX, PROBES_MAX, REQUEST_BODY_BYTES_MAX,
    REQUEST_BODY_TIMEOUT, REQUEST_DISCARD_BYTES_MAX,
};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tradewind_contract::{
    IdentityGrant, JoinAgain, KeyRequest, LeaseRequest, ProbeReport, ProbeRequest, Program, ReceiveReport,
    ReceiveRequest, Routes, SendReport, SendRequest, SplitProgram, SplitStatus, StoreCredentials, Version,
};

/// The other end of a connection; the server attaches it to each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Any process that may open the socket: the gateway's own user, or with `--plain` a process on this machine.
    Local,
    /// A peer of the fleet, by the name in its certificate.
    Fleet(String),
}

impl Peer {
    /// Returns whether the peer may do more than read version and metrics.
    pub(super) fn may_control(&self, controllers: &[String]) -> bool {
        match self {
            Self::Local => true,
            Self::Fleet(name) => controllers.contains(name),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local => formatter.write_str("a process on this machine"),
            Self::Fleet(name) => formatter.write_str(name),
        }
    }
}

/// State that all handlers share.
#[derive(Clone)]
pub(super) struct Api {
    gateway: Arc<Gateway>,
    controllers: Arc<[String]>,
    readers: Arc<Semaphore>,
    probes: Arc<Semaphore>,
}

/// The API's routes. `controllers` are the identities that may do more than read version and metrics.
pub(super) fn router(gateway: Arc<Gateway>, controllers: Arc<[String]>) -> Router {
    let api = Api {
        gateway,
        controllers,
        readers: Arc::new(Semaphore::new(EVENT_READERS_MAX)),
        probes: Arc::new(Semaphore::new(PROBES_MAX)),
    };
    Router::new()
        .route("/v1/version", get(version))
        .route("/v1/program", put(put_program))
        .route("/v1/routes", put(put_routes))
        .route("/v1/events", get(events))
        .route("/v1/drain", post(drain))
        .route("/v1/lease", post(post_lease))
        .route("/v1/join", post(post_join))
        .route("/v1/identity", post(post_identity).put(put_identity))
        .route("/v1/stores", put(put_stores))
        .route("/v1/split", put(put_split).get(get_split).delete(delete_split))
        .route("/v1/probe", post(post_probe))
        .route("/v1/probe/receive", post(post_receive))
        .route("/v1/probe/send", post(post_send))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(async || {
            Refused::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not have this method", API_HINT)
        })
        .fallback(async || Refused::new(StatusCode::NOT_FOUND, "unknown path", API_HINT))
        .layer(axum::middleware::from_fn(refuse_web_pages))
        .with_state(api)
}

/// Refuses requests of browsers: a web page must neither read nor control a gateway on the user's machine. Browsers alone
/// send `Origin`, but not to the page's own site, whose name may have come to mean this machine (DNS rebinding).
async fn refuse_web_pages(request: Request, next: Next) -> Response {
    let is_local = request.extensions().get::<Peer>() == Some(&Peer::Local);
    if request.headers().contains_key(header::ORIGIN) || is_local && is_for_site(&request) {
        return Refused::new(StatusCode::FORBIDDEN, "requests from web pages are refused", API_HINT).into_response();
    }
    next.run(request).await
}

/// Returns whether a request names the host that it is for as sites on the Internet are named.
fn is_for_site(request: &Request) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    host.is_some_and(|host| {
        let name = host.host();
        let is_address = name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok();
        !is_address && name.trim_end_matches('.').contains('.')
    })
}

const API_HINT: &str = "see docs/reference/control-api.md";

/// A peer that may control this gateway. Handlers that change or reveal a job take it as an argument.
struct Controller;

impl FromRequestParts<Api> for Controller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Refused> {
        match parts.extensions.get::<Peer>() {
            Some(peer) if peer.may_control(&api.controllers) => Ok(Self),
            Some(peer) => {
                let error = format!("{peer} may not control this gateway");
                Err(Refused::new(StatusCode::FORBIDDEN, error, "name each controller with the gateway's --controller"))
            }
            None => Err(Refused::new(StatusCode::FORBIDDEN, "the peer is unknown", API_HINT)),
        }
    }
}

async fn version(State(api): State<Api>) -> Json<Version> {
    Json(api.gateway.version())
}

async fn put_program(_: Controller, State(api): State<Api>, body: Body) -> Result<Response, Refused> {
    let program: Program = read_json(body).await?;
    // Runs in its own task: a client that disconnects must not leave a node half started.
    detached(async move { api.gateway.start(program).await }).await??;
    Ok(Json(serde_json::json!({})).into_response())
}

async fn put_routes(_: Controller, State(api): State<Api>, body: Body) -> Result<Response, Refused> {
    let routes: Routes = read_json(body).await?;
    detached(async move { api.gateway.reroute(routes).await }).await??;
    Ok(Json(serde_json::json!({})).into_response())
}

async fn events(_: Controller, State(api): State<Api>) -> Result<Response, Refused> {
    let place = take_place(&api.readers, "readers of the events")?;
    let reader = api.gateway.events().subscribe();
    let lines = futures::stream::unfold((reader, place), async |(mut reader, place)| {
        // Send an empty line when there are no events, so that a reader can tell a quiet gateway from a dead one.
        let batch = match tokio::time::timeout(EVENT_KEEP_ALIVE, reader.next()).await {
            Ok(batch) => batch?,
            Err(_elapsed) => Bytes::from_static(b"\n"),
        };
        Some((Ok::<Bytes, std::convert::Infallible>(batch), (reader, place)))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

async fn drain(_: Controller, State(api): State<Api>) -> Result<StatusCode, Refused> {
    let drained = detached(async move { api.gateway.drain().await });
    match tokio::time::timeout(DRAIN_ANSWER_TIMEOUT, drained).await {
        Ok(done) => done.map(|()| StatusCode::NO_CONTENT),
        Err(_elapsed) => Ok(StatusCode::ACCEPTED),
    }
}

async fn post_lease(_: Controller, State(api): State<Api>, body: Body) -> Result<StatusCode, Refused> {
    let LeaseRequest { lease_s } = read_json(body).await?;
    let Some(lease) = api.gateway.lease() else {
        let error = "this gateway has no lease and runs until it is stopped";
        return Err(Refused::new(StatusCode::CONFLICT, error, "leases are for gateways started with --lease-s"));
    };
    if !(1..=LEASE_S_MAX).contains(&lease_s) {
        let hint = format!("a lease is 1 to {LEASE_S_MAX} s long");
        return Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, format!("lease_s is {lease_s}"), hint));
    }
    lease.renew(Duration::from_secs(lease_s.into()));
    Ok(StatusCode::NO_CONTENT)
}

async fn post_join(_: Controller, State(api): State<Api>, body: Body) -> Result<StatusCode, Refused> {
    // The error's text could repeat the token.
    let not_understood = |refused: Refused| match refused.status {
        StatusCode::BAD_REQUEST => Refused::new(StatusCode::BAD_REQUEST, "not understood: no join token", API_HINT),
        _ => refused,
    };
    let again: JoinAgain = read_json(body).await.map_err(not_understood)?;
    api.gateway.join_again(again).map(|()| StatusCode::ACCEPTED)
}

async fn post_identity(_: Controller, State(api): State<Api>) -> Result<Json<KeyRequest>, Refused> {
    api.gateway.request_identity().map(Json)
}

async fn put_identity(_: Controller, State(api): State<Api>, body: Body) -> Result<StatusCode, Refused> {
    let grant: IdentityGrant = read_json(body).await?;
    api.gateway.renew_identity(&grant).map(|()| StatusCode::NO_CONTENT)
}

async fn put_stores(_: Controller, State(api): State<Api>, body: Body) -> Result<StatusCode, Refused> {
    // The error's text could repeat a secret.
    let not_understood = |refused: Refused| match refused.status {
        StatusCode::BAD_REQUEST => Refused::new(StatusCode::BAD_REQUEST, "not understood: no credentials", API_HINT),
        _ => refused,
    };
    let credentials: StoreCredentials = read_json(body).await.map_err(not_understood)?;
    api.gateway.take_credentials(credentials).map(|()| StatusCode::NO_CONTENT)
}

async fn put_split(_: Controller, State(api): State<Api>, body: Body) -> Result<Json<SplitStatus>, Refused> {
    let program: SplitProgram = read_json(body).await?;
    api.gateway.put_split(&program).await.map(Json)
}

async fn get_split(_: Controller, State(api): State<Api>) -> Result<Json<SplitStatus>, Refused> {
    api.gateway.split().status().await.map(Json)
}

async fn delete_split(_: Controller, State(api): State<Api>, query: Uri) -> Result<Response, Refused> {
    let drain = split::drain_of(query.query())?;
    let ended = detached({
        let gateway = api.gateway.clone();
        async move { gateway.split().end(drain).await }
    });
    match tokio::time::timeout(DRAIN_ANSWER_TIMEOUT, ended).await {
        Ok(ended) => Ok(Json(ended??).into_response()),
        Err(_elapsed) => Ok((StatusCode::ACCEPTED, Json(api.gateway.split().status().await?)).into_response()),
    }
}

async fn post_probe(_: Controller, State(api): State<Api>, body: Body) -> Result<Json<ProbeReport>, Refused> {
    let _place = take_place(&api.probes, "probes")?;
    let request: ProbeRequest = read_json(body).await?;
    probe::probe(request, api.gateway.identity().map(AsRef::as_ref)).await.map(Json)
}

async fn post_receive(_: Controller, State(api): State<Api>, body: Body) -> Result<Json<ReceiveReport>, Refused> {
    let request: ReceiveRequest = read_json(body).await?;
    api.gateway.receive_load(request).await.map(Json)
}

async fn post_send(_: Controller, State(api): State<Api>, body: Body) -> Result<Json<SendReport>, Refused> {
    let _place = take_place(&api.probes, "probes")?;
    let request: SendRequest = read_json(body).await?;
    load::send(request, api.gateway.identity()).await.map(Json)
}

/// Returns the metrics. Only controllers see the names of stores.
async fn metrics(controller: Result<Controller, Refused>, State(api): State<Api>) -> Response {
    let mut snapshot = api.gateway.node_metrics().await;
    if controller.is_err() {
        snapshot = snapshot.without_stores();
    }
    add_process_figures(&mut snapshot);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], snapshot.to_prometheus()).into_response()
}

fn take_place(places: &Arc<Semaphore>, of_what: &str) -> Result<OwnedSemaphorePermit, Refused> {
    places
        .clone()
        .try_acquire_owned()
        .map_err(|_| Refused::new(StatusCode::TOO_MANY_REQUESTS, format!("too many {of_what}"), "close one first"))
}

/// Runs `work` to its end even if the client drops the request.
async fn detached<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, Refused> {
    tokio::spawn(work).await.map_err(|error| {
        tracing::error!(%error, "a request's work ended without an answer");
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error of the gateway", "see its log")
    })
}

async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, Refused> {
    if body.size_hint().lower() > REQUEST_BODY_BYTES_MAX as u64 {
        // The client announced the length, so answer at once. Whatever still arrives is read in the background and
        // discarded.
        tokio::spawn(tokio::time::timeout(REQUEST_BODY_TIMEOUT, read_body(body)));
        return Err(too_large());
    }
    let read = tokio::time::timeout(REQUEST_BODY_TIMEOUT, read_body(body)).await;
    let bytes = read.unwrap_or_else(|_elapsed| {
        let hint = format!("send the body within {} s", REQUEST_BODY_TIMEOUT.as_secs());
        Err(Refused::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time", hint))
    })?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let hint = "send JSON that matches contract/gateway-v1.schema.json";
        Refused::new(StatusCode::BAD_REQUEST, format!("not understood: {error}"), hint)
    })
}

/// Reads a body that fits. If it is too large, some more is read and discarded: a client that is still sending when the
/// connection closes would get a broken pipe instead of the refusal.
async fn read_body(mut body: Body) -> Result<BytesMut, Refused> {
    let mut bytes = BytesMut::new();
    let mut arrived_bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Refused::new(StatusCode::BAD_REQUEST, format!("the body broke off: {error}"), "send it again")
        })?;
        let Some(data) = frame.data_ref() else { continue };
        arrived_bytes += data.len();
        if arrived_bytes <= REQUEST_BODY_BYTES_MAX {
            bytes.extend_from_slice(data);
        } else if arrived_bytes > REQUEST_DISCARD_BYTES_MAX {
            break;
        }
    }
    if arrived_bytes > REQUEST_BODY_BYTES_MAX {
        return Err(too_large());
    }
    Ok(bytes)
}

fn too_large() -> Refused {
    let hint = format!("a body has at most {REQUEST_BODY_BYTES_MAX} bytes");
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large", hint)
}

//! The owner's admin socket: HTTP for the client only.

use super::credentials;
use super::fleet::Fleet;
use crate::control::answer::Refused;
use crate::limits::{ACCEPT_RETRY_PAUSE, ADMIN_BODY_BYTES_MAX, ADMIN_CONNECTIONS_MAX, REQUEST_HEAD_TIMEOUT};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tradewind_contract::{GatewayEntry, GatewayStates, GatewayStores};

const HINT: &str = "see docs/reference/control-api.md";

fn router(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/v1/gateways", get(states))
        .route("/v1/gateways/{name}", put(put_gateway).delete(delete_gateway))
        .route("/v1/gateways/{name}/stores", put(put_stores))
        .fallback(async || Refused::new(StatusCode::NOT_FOUND, "unknown path", HINT))
        .layer(DefaultBodyLimit::max(ADMIN_BODY_BYTES_MAX))
        .with_state(fleet)
}

/// Serves requests until the owner ends. Connections beyond [`ADMIN_CONNECTIONS_MAX`] wait in the backlog.
pub(super) async fn accept_all(fleet: Arc<Fleet>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    let router = router(fleet.clone());
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                continue;
            }
        };
        let (service, stop) = (TowerToHyperService::new(router.clone()), fleet.stop.clone());
        fleet.tasks.spawn(async move {
            let _place = place;
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
                tracing::debug!(%error, "admin connection ended");
            }
        });
    }
}

async fn states(State(fleet): State<Arc<Fleet>>) -> Json<GatewayStates> {
    Json(fleet.states())
}

async fn put_gateway(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    entry: Result<Json<GatewayEntry>, JsonRejection>,
) -> Result<StatusCode, Refused> {
    // The error's text could repeat the token.
    let Json(entry) =
        entry.map_err(|error| Refused::new(error.status(), "not understood: not a gateway's entry", HINT))?;
    fleet.put(&name, entry).map(|()| StatusCode::NO_CONTENT)
}

async fn put_stores(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    stores: Result<Json<GatewayStores>, JsonRejection>,
) -> Result<StatusCode, Refused> {
    let Json(stores) = stores.map_err(|error| Refused::new(error.status(), error.body_text(), HINT))?;
    let member = fleet.member(&name).ok_or_else(|| {
        Refused::new(StatusCode::NOT_FOUND, format!("this fleet has no gateway {name}"), "add it first")
    })?;
    credentials::delegate(&fleet, &member, stores).await.map(|()| StatusCode::NO_CONTENT)
}

async fn delete_gateway(State(fleet): State<Arc<Fleet>>, Path(name): Path<String>) -> StatusCode {
    fleet.remove(&name);
    StatusCode::NO_CONTENT
}

//! The port where gateways call home. Gateways without an identity enrol; connections of the others wait until they are
//! taken.

use super::fleet::Fleet;
use crate::enrol::EnrolError;
use crate::limits::{ACCEPT_RETRY_PAUSE, CONTROL_HANDSHAKES_MAX, CONTROL_HANDSHAKES_PER_ADDRESS_MAX};
use crate::net::gate::{Admission, Gate, GateLimits};
use crate::net::refusals::Refusals;
use crate::tls;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

/// Accepts connections until the owner ends.
pub(super) async fn accept_all(fleet: Arc<Fleet>, listener: TcpListener) {
    let gate = Gate::new(GateLimits {
        handshakes_max: CONTROL_HANDSHAKES_MAX,
        per_address_max: CONTROL_HANDSHAKES_PER_ADDRESS_MAX,
    });
    let refusals = Refusals::default();
    loop {
        match listener.accept().await {
            Ok((tcp, from)) => {
                let (admission, stop) = (gate.enter(from.ip()), fleet.stop.clone());
                let serving = serve(fleet.clone(), tcp, from, admission, refusals.clone());
                fleet.tasks.spawn(async move { stop.run_until_cancelled(serving).await.unwrap_or_default() });
            }
            Err(error) => {
                tracing::warn!(%error, "a call could not be accepted");
                gate.evict();
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            }
        }
    }
}

async fn serve(fleet: Arc<Fleet>, tcp: TcpStream, from: SocketAddr, admission: Admission, refusals: Refusals) {
    drop(tcp.set_nodelay(true));
    match admission.hold(enrol_or_name(&fleet, tcp)).await {
        Ok(Ok(Some((stream, name)))) => keep(&fleet, stream, &name).await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) if refusals.may_log() => tracing::warn!(%from, %error, "call refused"),
        Ok(Err(_)) => {}
        Err(evicted) => tracing::debug!(%from, %evicted, "call refused"),
    }
}

/// Enrols a peer without an identity, or returns the name of a peer that has one.
async fn enrol_or_name(fleet: &Fleet, tcp: TcpStream) -> Result<Option<(TlsStream<TcpStream>, String)>, EnrolError> {
    let (mut stream, name) = tls::accept_any(&fleet.identity, tcp).await?;
    if let Some(name) = name {
        fleet.check_current(&name, stream.get_ref().1)?;
        return Ok(Some((stream, name)));
    }
    let enrolling = fleet.registrar.enrol_caller(&mut stream, |granted| {
        if let Some(member) = fleet.member(&granted.name) {
            member.granted(granted.expires_unix_s);
            tracing::info!(gateway = granted.name, "enrolled");
        }
    });
    enrolling.await.map(|()| None)
}

/// Keeps a gateway's connection until it is taken.
async fn keep(fleet: &Fleet, stream: TlsStream<TcpStream>, name: &str) {
    let Some(member) = fleet.member(name).filter(|member| member.calls_home) else {
        return tracing::warn!(gateway = name, "call refused: no such gateway calls home");
    };
    let Ok(_place) = member.idle.clone().try_acquire_owned() else {
        return tracing::debug!(gateway = name, "call refused: it has enough idle connections");
    };
    member.heard();
    match member.stop.run_until_cancelled(member.calls.keep(stream)).await {
        Some(Err(error)) => {
            tracing::debug!(gateway = name, %error, "an idle connection ended");
            member.lost();
        }
        Some(Ok(())) => member.heard(),
        None => {}
    }
}

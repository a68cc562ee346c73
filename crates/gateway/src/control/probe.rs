//! `POST /v1/probe`: measures the distance to another gateway, and checks its identity.
//!
//! The other host's kernel answers a TCP handshake, so `connect` takes one round trip, however busy the other gateway
//! is. The mutual TLS handshake afterwards proves both names. Throughput is not measured here: that takes the data
//! planes of both ends and seconds of load (see `load`).

use super::answer::Refused;
use crate::limits::{PROBE_CONNECTS_MAX, PROBE_TIMEOUT};
use crate::names::check_node_name;
use crate::tls::{self, Identity};
use axum::http::StatusCode;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tradewind_contract::{ProbeReport, ProbeRequest, Refusal};

/// Runs one probe.
pub(super) async fn probe(request: ProbeRequest, identity: Option<&Identity>) -> Result<ProbeReport, Refused> {
    let address = check(&request)?;
    let measured = tokio::time::timeout(PROBE_TIMEOUT, measure(&request, address, identity)).await;
    measured.unwrap_or_else(|_elapsed| {
        let error = format!("{} at {address} did not answer within {} s", request.to, PROBE_TIMEOUT.as_secs());
        Err(Refused::new(StatusCode::GATEWAY_TIMEOUT, error, "check that the address is reachable from this gateway"))
    })
}

fn check(request: &ProbeRequest) -> Result<SocketAddr, Refused> {
    let refuse = |error: String, hint: &str| Refused::unprocessable(Refusal { error, hint: Some(hint.to_owned()) });
    check_node_name(&request.to).map_err(|error| refuse(error, "name the gateway as its certificate does"))?;
    if !(1..=PROBE_CONNECTS_MAX).contains(&request.connects) {
        let hint = format!("a probe times 1 to {PROBE_CONNECTS_MAX} connections");
        return Err(refuse(format!("connects is {}", request.connects), &hint));
    }
    let address = request.address.parse();
    address.map_err(|_| refuse(format!("{:?} is not an address", request.address), "an address is ip:port"))
}

async fn measure(
    request: &ProbeRequest,
    address: SocketAddr,
    identity: Option<&Identity>,
) -> Result<ProbeReport, Refused> {
    let unreachable = |error: String, hint: &str| Refused::new(StatusCode::BAD_GATEWAY, error, hint);
    let mut round_trips = Vec::with_capacity(usize::from(request.connects));
    let mut last = None;
    for _ in 0..request.connects {
        let start = Instant::now();
        let connected = TcpStream::connect(address).await;
        round_trips.push(start.elapsed());
        let tcp =
            connected.map_err(|error| unreachable(format!("{address}: {error}"), "check that the gateway runs"))?;
        last = Some(tcp);
    }
    round_trips.sort_unstable();
    let tls_handshake = match (identity, last) {
        (Some(identity), Some(tcp)) => {
            let start = Instant::now();
            let shaken = tls::connect(identity, &request.to, tcp).await;
            shaken.map_err(|error| {
                unreachable(format!("{} at {address}: {error}", request.to), "use identities of one fleet")
            })?;
            Some(start.elapsed())
        }
        _ => None,
    };
    Ok(ProbeReport {
        to: request.to.clone(),
        address: request.address.clone(),
        // `check` ensured that there is at least one.
        rtt_ms_min: millis(round_trips[0]),
        rtt_ms_median: millis(round_trips[round_trips.len() / 2]),
        tls_handshake_ms: tls_handshake.map(millis),
        peer_verified: tls_handshake.is_some(),
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

//! Renews identities when half of their life has passed: those of the gateways over the control channel, and the owner's.

use super::fleet::{Fleet, Member};
use super::reach::reach;
use crate::enrol::{Granted, NewKey, Registrar};
use crate::limits::{RENEWAL_ANSWER_BYTES_MAX, RENEWAL_PAUSE, RENEWAL_TIMEOUT};
use crate::tls::{Identity, TlsError};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tradewind_contract::{IdentityGrant, KeyRequest, OWNER_NAME};

type Failure = Box<dyn Error + Send + Sync>;

/// Renews a gateway's identity whenever half of its life has passed.
pub(super) async fn keep_fresh(fleet: Arc<Fleet>, member: Arc<Member>) {
    let mut changes = member.expires_unix_s.subscribe();
    loop {
        let Ok(Some(expires_unix_s)) = changes.wait_for(Option::is_some).await.map(|expires| *expires) else { return };
        let due_unix_s = expires_unix_s.saturating_sub(fleet.life.as_secs() / 2);
        sleep_until(&fleet.registrar, due_unix_s).await;
        let renewed = tokio::time::timeout(RENEWAL_TIMEOUT, renew(&fleet, &member)).await;
        match renewed.unwrap_or_else(|_elapsed| Err("no answer in time".into())) {
            Ok(granted) => member.granted(granted.expires_unix_s),
            Err(error) => {
                member.failed("identity not renewed", &error);
                tokio::time::sleep(RENEWAL_PAUSE.min(fleet.life / 10)).await;
            }
        }
    }
}

/// Renews the owner's own identity.
pub(super) async fn keep_own_fresh(fleet: Arc<Fleet>) {
    loop {
        tokio::time::sleep(fleet.life / 2).await;
        if let Err(error) = renew_own(&fleet.registrar, &fleet.identity) {
            tracing::error!(%error, "the owner's identity was not renewed");
        }
    }
}

/// The timer does not run while the machine sleeps, so the clock is looked at now and then.
async fn sleep_until(registrar: &Registrar, due_unix_s: u64) {
    loop {
        let left = Duration::from_secs(due_unix_s.saturating_sub(registrar.now_unix_s()));
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(RENEWAL_PAUSE)).await;
    }
}

async fn renew(fleet: &Fleet, member: &Member) -> Result<Granted, Failure> {
    let stream = reach(fleet, member).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let asking = async {
        let request: KeyRequest = serde_json::from_slice(&ask(&mut sender, Method::POST, Bytes::new()).await?)?;
        let granted = fleet.registrar.renew(&member.name, &request)?;
        let grant = IdentityGrant { certificate_pem: granted.certificate_pem.clone() };
        ask(&mut sender, Method::PUT, serde_json::to_vec(&grant)?.into()).await?;
        drop(sender);
        Ok(granted)
    };
    let (granted, ended) = tokio::join!(asking, connection);
    if let Err(error) = ended {
        tracing::debug!(%error, "the connection of a renewal ended");
    }
    granted
}

async fn ask(sender: &mut SendRequest<Full<Bytes>>, method: Method, body: Bytes) -> Result<Bytes, Failure> {
    let request = Request::builder()
        .method(method)
        .uri("/v1/identity")
        .header(header::HOST, "gateway")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let bytes = Limited::new(answer.into_body(), RENEWAL_ANSWER_BYTES_MAX).collect().await?.to_bytes();
    if status.is_success() {
        return Ok(bytes);
    }
    Err(format!("the gateway answered {status}: {}", String::from_utf8_lossy(&bytes)).into())
}

/// Signs a new key for the owner itself.
///
/// # Errors
/// The system has no random numbers, or the certificate library refused.
pub(super) fn new_own(registrar: &Registrar) -> Result<(CertificateDer<'static>, NewKey), TlsError> {
    let unusable = |error: &dyn std::fmt::Display| TlsError::Identity(error.to_string());
    let key = NewKey::generate(OWNER_NAME).map_err(|error| unusable(&error))?;
    let granted = registrar.renew(OWNER_NAME, key.request()).map_err(|error| unusable(&error))?;
    let certificate = CertificateDer::from_pem_slice(granted.certificate_pem.as_bytes());
    Ok((certificate.map_err(|error| unusable(&error))?, key))
}

fn renew_own(registrar: &Registrar, identity: &Identity) -> Result<(), TlsError> {
    let (certificate, key) = new_own(registrar)?;
    identity.renew(certificate, key.key_der())
}

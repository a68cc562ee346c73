//! Renews identities after half of their validity: those of the gateways over the control channel, and the owner's own.

use super::exchange::{Failure, ask, exchange};
use super::fleet::{Fleet, Member};
use crate::enrol::{Granted, NewKey, Registrar};
use crate::limits::{RENEWAL_PAUSE, RENEWAL_TIMEOUT};
use crate::tls::{Identity, TlsError};
use bytes::Bytes;
use hyper::Method;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::Duration;
use tradewind_contract::{IdentityGrant, KeyRequest, OWNER_NAME};

const IDENTITY: &str = "/v1/identity";

/// Renews a gateway's identity whenever half of its validity has passed.
pub(super) async fn keep_fresh(fleet: Arc<Fleet>, member: Arc<Member>) {
    let mut changes = member.expires_unix_s.subscribe();
    loop {
        let Ok(Some(expires_unix_s)) = changes.wait_for(Option::is_some).await.map(|expires| *expires) else { return };
        let due_unix_s = expires_unix_s.saturating_sub(fleet.life.as_secs() / 2);
        sleep_until(&fleet.registrar, due_unix_s).await;
        let renewed = tokio::time::timeout(RENEWAL_TIMEOUT, renew(&fleet, &member)).await;
        match renewed.unwrap_or_else(|_elapsed| Err("no answer in time".into())) {
            Ok(granted) => {
                fleet.registrar.roll().was_renewed(&member.name);
                member.granted(granted.expires_unix_s);
            }
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
        let due_unix_s = fleet.registrar.now_unix_s() + (fleet.life.as_secs() / 2).max(1);
        sleep_until(&fleet.registrar, due_unix_s).await;
        if let Err(error) = renew_own(&fleet.registrar, &fleet.identity) {
            tracing::error!(%error, "the owner's identity was not renewed");
        }
    }
}

/// Waits until `due_unix_s`. A timer stops while the machine sleeps, so the clock is read again from time to time.
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
    exchange(fleet, member, async |mut sender| {
        let request: KeyRequest =
            serde_json::from_slice(&ask(&mut sender, Method::POST, IDENTITY, Bytes::new()).await?)?;
        let granted = fleet.registrar.renew(&member.name, &request)?;
        let grant = IdentityGrant { certificate_pem: granted.certificate_pem.clone() };
        ask(&mut sender, Method::PUT, IDENTITY, serde_json::to_vec(&grant)?.into()).await?;
        Ok(granted)
    })
    .await
}

/// Signs a new key for the owner itself.
///
/// # Errors
/// The system has no random numbers, or the certificate library failed.
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

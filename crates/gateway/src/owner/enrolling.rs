//! Enrols a gateway that the owner dials: retries until it has an identity or its token has expired.

use super::fleet::{Fleet, Member};
use super::reach::dialled_address;
use crate::dial::dial;
use crate::enrol::{EnrolError, Refused};
use crate::limits::{ENROL_PAUSE, ENROL_PAUSE_MAX};
use crate::tls;
use std::sync::Arc;

/// Runs until the gateway has enrolled, or can no longer enrol.
pub(super) async fn by_dialling(fleet: Arc<Fleet>, member: Arc<Member>) {
    let mut pause = ENROL_PAUSE;
    loop {
        let Some(address) = dialled_address(&member).await else { return };
        match enrol_once(&fleet, &member, &address).await {
            Ok(expires_unix_s) => {
                tracing::info!(gateway = member.name, "enrolled");
                return member.granted(expires_unix_s);
            }
            Err(error) => {
                member.failed("not enrolled", &error);
                if matches!(error, EnrolError::Refused(Refused::Expired | Refused::Unknown)) {
                    return;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(ENROL_PAUSE_MAX);
    }
}

/// Enrols the gateway and returns when its identity expires.
async fn enrol_once(fleet: &Fleet, member: &Member, address: &str) -> Result<u64, EnrolError> {
    if fleet.registrar.roll().has_expired(&member.name, fleet.registrar.now_unix_s()) {
        return Err(Refused::Expired.into());
    }
    if fleet.registrar.roll().is_used(&member.name) {
        // The answer may have been lost. Then the gateway already has the identity, and shows it.
        let shown = tls::connect(&fleet.identity, &member.name, dial(address).await?).await;
        if shown.is_ok_and(|stream| fleet.check_current(&member.name, stream.get_ref().1).is_ok()) {
            return Ok(fleet.registrar.now_unix_s() + fleet.life.as_secs());
        }
    }
    let granted = fleet.registrar.enrol_dialled(&member.name, dial(address).await?).await?;
    Ok(granted.expires_unix_s)
}

//! Gives a gateway the credentials of its stores, and gives them again when they are renewed. They travel from this
//! machine's credential chain over the control channel, and nowhere else.

use super::exchange::{Failure, ask, exchange};
use super::fleet::{Fleet, Member};
use crate::control::answer::Refused;
use crate::limits::{CREDENTIALS_INTERVAL, CREDENTIALS_INTERVAL_MIN, CREDENTIALS_TIMEOUT};
use crate::stores::{Access, access_of, delegation_of};
use axum::http::StatusCode;
use hyper::Method;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{Authority, GatewayStores, StoreAccess, StoreCredentials, StoreSpec};
use tradewind_store::Delegation;

/// Remedies for credentials that cannot be limited.
const UNLIMITABLE_HINT: &str = "name a role of AWS with --src-role or --dst-role, let the machines use their own identity \
    with --src-identity machine or --dst-identity machine, or send the credentials as they are with --share-keys";

/// Gives a gateway the credentials of these stores now and after each renewal. Stores of an earlier call are no longer
/// renewed.
///
/// # Errors
/// A store's configuration is wrong, its credentials cannot be limited (403), or the gateway does not accept the
/// credentials. A chain without credentials is not an error here: the gateway reports it at its first request.
pub(super) async fn delegate(fleet: &Arc<Fleet>, member: &Arc<Member>, stores: GatewayStores) -> Result<(), Refused> {
    let delegations = open_all(stores)
        .map_err(|error| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string(), "correct its settings"))?;
    let given =
        resolve(&delegations).await.map_err(|error| Refused::new(StatusCode::FORBIDDEN, error, UNLIMITABLE_HINT))?;
    let mut renewal = put(fleet, member, &given).await.map_err(|error| {
        let error = format!("{} did not take the credentials of its stores: {error}", member.name);
        Refused::new(StatusCode::BAD_GATEWAY, error, "check that its machine still runs")
    })?;
    let stop = member.stop.child_token();
    std::mem::replace(&mut *renewal, stop.clone()).cancel();
    let renewing = keep_fresh(fleet.clone(), member.clone(), delegations, given);
    fleet.tasks.spawn(async move {
        tokio::select! {
            // First, because a renewal that waits for its turn must not be sent any more.
            biased;
            () = stop.cancelled() => {}
            () = renewing => {}
        }
    });
    Ok(())
}

/// Opens the credential chain of each store that has one.
fn open_all(stores: GatewayStores) -> tradewind_store::Result<Vec<(StoreSpec, Delegation)>> {
    let GatewayStores { stores, on_this_host } = stores;
    let opened = stores.into_iter().map(|wanted| {
        let delegation = delegation_of(&wanted, on_this_host)?;
        Ok(delegation.map(|delegation| (wanted.store, delegation)))
    });
    opened.filter_map(Result::transpose).collect()
}

/// The credentials of each store.
///
/// # Errors
/// Those of a store cannot be limited.
async fn resolve(delegations: &[(StoreSpec, Delegation)]) -> Result<Vec<Access>, String> {
    let accesses = delegations.iter().map(async |(store, delegation)| {
        let access = tokio::time::timeout(CREDENTIALS_TIMEOUT, access_of(store, delegation)).await;
        let access = access.unwrap_or_else(|_elapsed| Ok(missing(store)));
        access.map_err(|why| {
            format!("the credentials of {} cannot be limited to this transfer, so they were not sent: {why}", store.url)
        })
    });
    futures::future::join_all(accesses).await.into_iter().collect()
}

fn missing(store: &StoreSpec) -> Access {
    let authority = Authority::Missing { reason: format!("none within {} s", CREDENTIALS_TIMEOUT.as_secs()) };
    let (endpoint, region, ca_pem, expires_unix_s) = Default::default();
    Access {
        sent: StoreAccess { store: store.clone(), endpoint, region, ca_pem, authority, expires_unix_s },
        renew: None,
    }
}

/// Sends credentials after those that are on their way. Others are sent once the returned guard is dropped.
async fn put<'a>(
    fleet: &Fleet,
    member: &'a Member,
    given: &[Access],
) -> Result<MutexGuard<'a, CancellationToken>, Failure> {
    let stores = given.iter().map(|access| access.sent.clone()).collect();
    let body = serde_json::to_vec(&StoreCredentials { stores })?;
    let sending = async {
        let turn = member.delegating.lock().await;
        exchange(fleet, member, async |mut sender| {
            ask(&mut sender, Method::PUT, "/v1/stores", body.into()).await.map(|_empty| ())
        })
        .await?;
        Ok(turn)
    };
    tokio::time::timeout(CREDENTIALS_TIMEOUT, sending).await.unwrap_or_else(|_elapsed| Err("no answer in time".into()))
}

/// Gives the gateway renewed credentials. If a chain fails, the gateway keeps its earlier credentials. If the gateway
/// cannot be reached, it gets them as soon as it can be.
async fn keep_fresh(
    fleet: Arc<Fleet>,
    member: Arc<Member>,
    delegations: Vec<(StoreSpec, Delegation)>,
    mut given: Vec<Access>,
) {
    loop {
        tokio::time::sleep(pause(&given, CREDENTIALS_INTERVAL.min(fleet.life / 10))).await;
        let mut renewed = match resolve(&delegations).await {
            Ok(renewed) => renewed,
            Err(error) => {
                tracing::warn!(gateway = member.name, error, "credentials not renewed");
                continue;
            }
        };
        for (now, before) in renewed.iter_mut().zip(&given) {
            if let Authority::Missing { reason } = &now.sent.authority {
                tracing::warn!(gateway = member.name, store = now.sent.store.url, reason, "credentials not renewed");
                *now = before.clone();
            }
        }
        if renewed == given {
            continue;
        }
        match put(&fleet, &member, &renewed).await {
            Ok(_turn) => given = renewed,
            Err(error) => member.failed("credentials not renewed", &error),
        }
    }
}

/// The time until credentials are due for renewal, at most `longest`.
fn pause(given: &[Access], longest: Duration) -> Duration {
    let now = SystemTime::now();
    let due = given.iter().filter_map(|access| access.renew).map(|due| due.duration_since(now).unwrap_or_default());
    due.min().unwrap_or(longest).clamp(CREDENTIALS_INTERVAL_MIN.min(longest), longest)
}

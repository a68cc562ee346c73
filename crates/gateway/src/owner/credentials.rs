//! Gives a gateway the credentials of its stores, and gives them again when they are renewed. They travel from this
//! machine's credential chain over the control channel, and nowhere else.

use super::exchange::{Failure, ask, exchange};
use super::fleet::{Fleet, Member};
use crate::control::answer::Refused;
use crate::limits::{CREDENTIALS_INTERVAL, CREDENTIALS_TIMEOUT};
use crate::stores::{access_of, config_of};
use axum::http::StatusCode;
use hyper::Method;
use std::sync::{Arc, PoisonError};
use tradewind_contract::{Authority, StoreAccess, StoreCredentials, StoreSpec};
use tradewind_store::Delegation;

/// Gives a gateway the credentials of these stores now and after each renewal. Stores of an earlier call are no longer
/// renewed.
///
/// # Errors
/// A store's configuration is wrong, or the gateway does not accept the credentials. A chain without credentials is no
/// error here: the gateway reports it at its first request.
pub(super) async fn delegate(fleet: &Arc<Fleet>, member: &Arc<Member>, stores: Vec<StoreSpec>) -> Result<(), Refused> {
    let delegations = open_all(stores)
        .map_err(|error| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string(), "correct its settings"))?;
    let credentials = resolve(&delegations).await;
    let put = tokio::time::timeout(CREDENTIALS_TIMEOUT, put(fleet, member, &credentials)).await;
    put.unwrap_or_else(|_elapsed| Err("no answer in time".into())).map_err(|error| {
        let error = format!("{} did not take the credentials of its stores: {error}", member.name);
        Refused::new(StatusCode::BAD_GATEWAY, error, "check that its machine still runs")
    })?;
    let stop = member.stop.child_token();
    let earlier =
        std::mem::replace(&mut *member.delegating.lock().unwrap_or_else(PoisonError::into_inner), stop.clone());
    earlier.cancel();
    let renewing = keep_fresh(fleet.clone(), member.clone(), delegations, credentials);
    fleet.tasks.spawn(async move { stop.run_until_cancelled(renewing).await.unwrap_or_default() });
    Ok(())
}

/// Opens the credential chain of each store that has one.
fn open_all(stores: Vec<StoreSpec>) -> tradewind_store::Result<Vec<(StoreSpec, Delegation)>> {
    let opened = stores.into_iter().map(|store| {
        let delegation = Delegation::open(&config_of(&store))?;
        Ok(delegation.map(|delegation| (store, delegation)))
    });
    opened.filter_map(Result::transpose).collect()
}

async fn resolve(delegations: &[(StoreSpec, Delegation)]) -> StoreCredentials {
    let accesses = delegations.iter().map(async |(store, delegation)| {
        let access = tokio::time::timeout(CREDENTIALS_TIMEOUT, access_of(store, delegation)).await;
        access.unwrap_or_else(|_elapsed| {
            let reason = format!("none within {} s", CREDENTIALS_TIMEOUT.as_secs());
            let authority = Authority::Missing { reason };
            StoreAccess { store: store.clone(), endpoint: None, region: None, ca_pem: None, authority }
        })
    });
    StoreCredentials { stores: futures::future::join_all(accesses).await }
}

async fn put(fleet: &Fleet, member: &Member, credentials: &StoreCredentials) -> Result<(), Failure> {
    let body = serde_json::to_vec(credentials)?;
    exchange(fleet, member, async |mut sender| {
        ask(&mut sender, Method::PUT, "/v1/stores", body.into()).await.map(|_empty| ())
    })
    .await
}

/// Gives the gateway renewed credentials. If a chain fails, the gateway keeps its earlier credentials.
async fn keep_fresh(
    fleet: Arc<Fleet>,
    member: Arc<Member>,
    delegations: Vec<(StoreSpec, Delegation)>,
    mut given: StoreCredentials,
) {
    loop {
        tokio::time::sleep(CREDENTIALS_INTERVAL.min(fleet.life / 10)).await;
        let mut renewed = resolve(&delegations).await;
        for (now, before) in renewed.stores.iter_mut().zip(&given.stores) {
            if let Authority::Missing { reason } = &now.authority {
                tracing::warn!(gateway = member.name, store = now.store.url, reason, "credentials not renewed");
                now.authority = before.authority.clone();
            }
        }
        if renewed == given {
            continue;
        }
        match tokio::time::timeout(CREDENTIALS_TIMEOUT, put(&fleet, &member, &renewed)).await {
            Ok(Ok(())) => given = renewed,
            Ok(Err(error)) => member.failed("credentials not renewed", &error),
            Err(elapsed) => member.failed("credentials not renewed", &elapsed),
        }
    }
}

//! Asks gateways whether the cloud takes their machines back, over one connection to each.

use super::exchange::{Failure, ask, exchange};
use super::fleet::{Fleet, Member};
use crate::limits::{NOTICE_PAUSE, RENEWAL_TIMEOUT};
use bytes::Bytes;
use hyper::Method;
use std::sync::Arc;
use tradewind_contract::Version;

/// Asks until the gateway is removed. One whose cloud gives no notice is asked only once.
pub(super) async fn watch(fleet: Arc<Fleet>, member: Arc<Member>) {
    let mut enrolled = member.expires_unix_s.subscribe();
    if enrolled.wait_for(Option::is_some).await.is_err() {
        return;
    }
    loop {
        match follow(&fleet, &member).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(gateway = member.name, %error, "the gateway was not asked for a notice"),
        }
        tokio::time::sleep(NOTICE_PAUSE).await;
    }
}

/// Asks over one connection. Returns once the gateway has said that its cloud gives no notice.
async fn follow(fleet: &Fleet, member: &Member) -> Result<(), Failure> {
    exchange(fleet, member, async |mut sender| {
        loop {
            let asking = ask(&mut sender, Method::GET, "/v1/version", Bytes::new());
            let version: Version = serde_json::from_slice(&tokio::time::timeout(RENEWAL_TIMEOUT, asking).await??)?;
            let Some(notice) = version.notice else { return Ok(()) };
            member.leaves(notice.leaves_in_s.map(|left_s| fleet.registrar.now_unix_s() + left_s));
            tokio::time::sleep(NOTICE_PAUSE).await;
        }
    })
    .await
}

//! Connects to next proxies now and then, so that one that cannot be reached is known before a flow needs it.
//!
//! A probe is a connection with TLS and without a flow: about 2.3 kB in each direction. It is spared if a flow or a pool has
//! just opened one.

use crate::dial;
use crate::limits::{PROBE_INTERVAL, PROBE_TIMEOUT};
use crate::proxy::{Live, Shared};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Probes the next proxies of the present configuration, without end.
pub(crate) async fn probe(live: Arc<Live>) {
    let mut ticks = interval(PROBE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let shared = live.current();
        let mut probes: JoinSet<()> =
            shared.config.probes.iter().map(|name| probe_one(shared.clone(), name.clone())).collect();
        while probes.join_next().await.is_some() {}
    }
}

async fn probe_one(shared: Arc<Shared>, name: String) {
    let Some(address) = shared.config.proxies.get(&name) else { return };
    let was_reached = |hops: &crate::hops::HopCounts| hops.was_reached(PROBE_INTERVAL / 2, Instant::now());
    if shared.counts().hops.get(&name).is_some_and(was_reached) {
        return;
    }
    match timeout(PROBE_TIMEOUT, dial::open_hop(&shared, &name, address)).await {
        // The other side learns that no flow will come.
        Ok(Ok(mut opened)) => drop(timeout(PROBE_TIMEOUT, opened.stream.shutdown()).await),
        Ok(Err(refusal)) => tracing::debug!(%refusal, name, "a next proxy cannot be reached"),
        Err(_elapsed) => {
            shared.hop(&name, |hop| hop.failed(&format!("{name}: no connection within {PROBE_TIMEOUT:?}")))
        }
    }
}

use crate::harness::{Fleet, Running};
use serde_json::json;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tradewind_split::Config;

/// A proxy without flows that probes `exit` at an address.
fn prober(fleet: &Fleet, exit: SocketAddr) -> Running {
    let config = json!({
        "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": "192.0.2.1:1"}], "identity": "unused",
        "proxies": {"exit": exit}, "probes": ["exit"], "allow": ["192.0.2.1:1"],
    });
    Running::start(config, Some(fleet.identity("entry")))
}

#[tokio::test]
async fn a_next_proxy_is_probed_without_a_flow() {
    let fleet = Fleet::new();
    let exit = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused", "allow": []});
    let mut exit = Running::start(exit, Some(fleet.identity("exit")));
    let entry = prober(&fleet, exit.address);
    let status = entry.until(|status| status.hops.get("exit").is_some_and(|hop| hop.dialed == 2)).await;
    assert_eq!(status.hops["exit"].failures, 0);
    let seen = exit.until(|status| status.unused == 2 && status.waiting == 0).await;
    assert_eq!((seen.open, seen.refused.len()), (0, 0));

    exit.order_to_stop();
    exit.stopped().await;
    let hop = entry.until(|status| status.hops["exit"].failures >= 2).await.hops["exit"].clone();
    assert!(hop.failure.is_some_and(|why| why.contains("exit: ") && why.contains("refused")));
}

#[tokio::test]
async fn a_next_proxy_that_accepts_and_does_not_answer_has_failed() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let entry = prober(&Fleet::new(), silent.local_addr().unwrap());
    let status = entry.until(|status| status.hops.get("exit").is_some_and(|hop| hop.failures > 0)).await;
    assert_eq!(status.hops["exit"].failure.as_deref(), Some("exit: no connection within 5s"));
}

#[test]
fn only_known_proxies_are_probed() {
    let config = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "socks5"}], "allow": [], "probes": ["exit"]});
    let config: Config = serde_json::from_value(config).unwrap();
    assert!(config.check(true).unwrap_err().to_string().contains("`probes` has exit"));
}

//! A new configuration: only new flows use it. Open ones keep their path until they end.

use crate::harness::{Fleet, Running, in_time, pair, read_exactly};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

fn exit(fleet: &Fleet, name: &str, destination: SocketAddr) -> Running {
    let config = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused",
                        "allow": [destination]});
    Running::start(config, Some(fleet.identity(name)))
}

fn replace(proxy: &Running, config: Value) {
    proxy.handle.replace(serde_json::from_value(config).unwrap(), None).unwrap();
}

async fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"x").await.unwrap();
    assert_eq!(read_exactly(server, 1).await, b"x");
    server.write_all(b"y").await.unwrap();
    assert_eq!(read_exactly(client, 1).await, b"y");
}

async fn flow(listener: &TcpListener, proxy: &Running) -> (TcpStream, TcpStream) {
    pair(listener, std::slice::from_ref(proxy)).await
}

#[tokio::test]
async fn an_open_flow_keeps_its_path_and_a_new_one_takes_the_new_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (fleet, destination) = (Fleet::new(), listener.local_addr().unwrap());
    let (old, new) = (exit(&fleet, "old", destination), exit(&fleet, "new", destination));
    let config = |through: &[&str]| {
        json!({"listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination}],
               "identity": "unused", "allow": [destination], "default_route": through,
               "proxies": {"old": old.address, "new": new.address}})
    };
    let entry = Running::start(config(&["old"]), Some(fleet.identity("entry")));
    let mut first = flow(&listener, &entry).await;
    replace(&entry, config(&["new"]));
    let mut second = flow(&listener, &entry).await;
    replace(&entry, config(&[]));
    let mut third = flow(&listener, &entry).await;
    for (client, server) in [&mut first, &mut second, &mut third] {
        exchange(client, server).await;
    }
    assert_eq!((old.status().open, new.status().open, entry.status().open), (1, 1, 3));
    drop(first);
    old.until(|status| status.open == 0).await;
    exchange(&mut second.0, &mut second.1).await;
}

#[tokio::test]
async fn the_flows_of_a_listener_that_is_gone_drain_and_then_are_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let destination = listener.local_addr().unwrap();
    let config = |way: &str, drain_ms: u64| {
        let to = (way == "forward").then_some(destination);
        json!({"listeners": [{"listen": "127.0.0.1:0", "way": way, "destination": to}], "allow": [destination],
               "limits": {"drain_timeout_ms": drain_ms}})
    };
    let proxy = Running::start(config("forward", 60_000), None);
    let (mut client, mut server) = flow(&listener, &proxy).await;
    let mut changed = config("socks5", 60_000);
    // Another address than that of the first listener.
    changed["listeners"][0]["listen"] = json!("127.0.0.2:0");
    replace(&proxy, changed.clone());
    let refused = async { while TcpStream::connect(proxy.address).await.is_ok() {} };
    in_time(refused).await;
    exchange(&mut client, &mut server).await;
    changed["limits"]["drain_timeout_ms"] = json!(0);
    replace(&proxy, changed);
    proxy.until(|status| status.open == 0).await;
}

use crate::CHAINS;
use crate::harness::{Fleet, Running, chain, in_time, pair, read_exactly, silent, token_file};
use serde_json::json;
use std::io::ErrorKind;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tradewind_split::{Cause, Config};

/// Connects, and expects a reset before any byte.
async fn expect_reset(address: SocketAddr) {
    let mut client = TcpStream::connect(address).await.unwrap();
    let read = in_time(client.read(&mut [0])).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_refused_connection_is_refused_at_the_client() {
    for hops in CHAINS {
        // Bound and not listening: connections are refused, and nobody else gets the port.
        let closed = TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let chain = chain(closed.local_addr().unwrap(), hops, &json!({}));
        expect_reset(chain[0].address).await;
        for proxy in &chain {
            let status = proxy.until(|status| status.open == 0 && !status.refused.is_empty()).await;
            assert_eq!(status.refused, [(Cause::Refused, 1)].into());
            assert!(status.traffic.is_empty(), "the destination was reached");
        }
    }
}

#[tokio::test]
async fn each_proxy_checks_the_destination_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (fleet, destination) = (Fleet::new(), listener.local_addr().unwrap());
    // The exit allows the whole network, but a loopback address must be listed exactly.
    let exit = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused",
                      "allow": ["127.0.0.0/8:*", "example.com:443"]});
    let exit = Running::start(exit, Some(fleet.identity("exit")));
    let entry = json!({
        "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination}], "identity": "unused",
        "proxies": {"exit": exit.address}, "routes": [{"destination": destination, "through": ["exit"]}],
        "allow": [destination],
    });
    let entry = Running::start(entry, Some(fleet.identity("entry")));
    expect_reset(entry.address).await;
    for proxy in [&entry, &exit] {
        assert_eq!(proxy.until(|status| status.open == 0).await.refused, [(Cause::NotAllowed, 1)].into());
    }
}

#[tokio::test]
async fn a_proxy_does_not_dial_itself() {
    let config = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "connect"}], "allow": ["127.0.0.1:*"]});
    let proxy = Running::start(config, None);
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    let asked = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", proxy.address);
    client.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    in_time(client.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&answer));
    let status = proxy.until(|status| status.open == 0).await;
    assert_eq!((status.accepted, status.refused), (1, [(Cause::NotAllowed, 1)].into()));
}

#[tokio::test]
async fn a_stranger_cannot_use_a_hop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let destination = listener.local_addr().unwrap();
    let exit = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused",
                      "allow": [destination]});
    let exit = Running::start(exit, Some(Fleet::new().identity("exit")));
    let entry = json!({
        "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination}], "identity": "unused",
        "proxies": {"exit": exit.address}, "routes": [{"destination": destination, "through": ["exit"]}],
        "allow": [destination],
    });
    let entry = Running::start(entry, Some(Fleet::new().identity("entry")));
    expect_reset(entry.address).await;
    assert_eq!(entry.until(|status| status.open == 0).await.refused, [(Cause::Hop, 1)].into());
    let mut plain = TcpStream::connect(exit.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    exit.until(|status| status.refused == [(Cause::Unauthenticated, 2)].into() && status.open == 0).await;
}

#[tokio::test]
async fn a_silent_client_is_cut_off() {
    let config = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused", "allow": [],
                        "limits": {"request_timeout_ms": 100}});
    let proxy = Running::start(config, Some(Fleet::new().identity("exit")));
    let mut silent = TcpStream::connect(proxy.address).await.unwrap();
    assert_eq!(in_time(silent.read(&mut [0])).await.unwrap(), 0);
    assert_eq!(proxy.until(|status| status.open == 0).await.refused, [(Cause::TimedOut, 1)].into());
}

#[tokio::test]
async fn a_destination_that_does_not_answer_times_out() {
    let (address, _silent) = silent().await;
    for hops in [0, 1] {
        let chain = chain(address, hops, &json!({"dial_timeout_ms": 200}));
        expect_reset(chain[0].address).await;
        // The exit gives up first, and the entry learns why instead of giving up on the exit.
        for proxy in &chain {
            let status = proxy.until(|status| status.open == 0).await;
            assert_eq!((status.refused, status.reset), ([(Cause::TimedOut, 1)].into(), 0));
            assert_eq!((status.traffic[0].connections, status.traffic[0].failed), (0, 1));
        }
    }
}

#[tokio::test]
async fn connections_beyond_a_limit_are_reset_and_places_are_freed() {
    for limit in ["connections_max", "connections_per_client_max", "connections_per_destination_max"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), 0, &json!({limit: 2}));
        let (first, second) = (pair(&listener, &chain).await, pair(&listener, &chain).await);
        expect_reset(chain[0].address).await;
        assert_eq!(chain[0].status().refused, [(Cause::Limit, 1)].into());
        drop(first);
        chain[0].until(|status| status.open == 1).await;
        drop((pair(&listener, &chain).await, second));
    }
}

#[tokio::test]
async fn strangers_do_not_use_up_the_accepts_of_clients() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let destination = listener.local_addr().unwrap();
    let forward = json!({"listen": "127.0.0.1:0", "way": "forward", "destination": destination,
                         "clients": ["127.0.0.2"]});
    let limits = json!({"accepts_per_second_max": 1});
    let proxy = Running::start(json!({"listeners": [forward], "allow": [destination], "limits": limits}), None);
    expect_reset(proxy.address).await;
    let client = TcpSocket::new_v4().unwrap();
    client.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let _client = client.connect(proxy.address).await.unwrap();
    in_time(listener.accept()).await.unwrap();
    assert_eq!(proxy.status().refused, [(Cause::Unauthenticated, 1)].into());
}

#[tokio::test]
async fn strangers_without_a_token_do_not_use_up_the_accepts_of_clients() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (destination, tokens) = (listener.local_addr().unwrap(), token_file());
    let connect = json!({"listen": "127.0.0.1:0", "way": "connect", "tokens": tokens.path()});
    let limits = json!({"accepts_per_second_max": 4, "request_timeout_ms": 60_000});
    let proxy = Running::start(json!({"listeners": [connect], "allow": [destination], "limits": limits}), None);
    let from = async |address: &str| {
        let client = TcpSocket::new_v4().unwrap();
        client.bind(address.parse().unwrap()).unwrap();
        client.connect(proxy.address).await
    };
    let login = "Proxy-Authorization: Basic YW5uOnNlY3JldA==";
    let asked = format!("CONNECT {destination} HTTP/1.1\r\n{login}\r\n\r\n");
    let with_token = async || {
        let mut client = from("127.0.0.9:0").await.unwrap();
        client.write_all(asked.as_bytes()).await.unwrap();
        assert_eq!(read_exactly(&mut client, 12).await, b"HTTP/1.1 200");
        client
    };
    let _first = with_token().await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        // One that is reset at once may look as if it was not connected.
        silent.extend(from("127.0.0.2:0").await);
        silent.extend(from("127.0.0.3:0").await);
    }
    let status = proxy.until(|status| status.accepted == 21).await;
    assert!(status.refused[&Cause::Limit] >= 14, "{:?}", status.refused);
    let _second = with_token().await;
}

#[tokio::test]
async fn one_address_cannot_fill_a_hop_without_an_identity() {
    let config = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused", "allow": [],
                        "limits": {"connections_per_proxy_max": 2, "request_timeout_ms": 60_000}});
    let proxy = Running::start(config, Some(Fleet::new().identity("exit")));
    let silent = [TcpStream::connect(proxy.address).await.unwrap(), TcpStream::connect(proxy.address).await.unwrap()];
    proxy.until(|status| status.open == 2).await;
    expect_reset(proxy.address).await;
    assert_eq!(proxy.status().refused, [(Cause::Limit, 1)].into());
    drop(silent);
    proxy.until(|status| status.open == 0).await;
    let _silent = TcpStream::connect(proxy.address).await.unwrap();
    proxy.until(|status| status.open == 1).await;
}

#[tokio::test]
async fn one_silent_address_leaves_room_for_proxies_that_connect_for_the_first_time() {
    let (fleet, listener) = (Fleet::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let destination = listener.local_addr().unwrap();
    let config = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused",
                        "allow": [destination], "limits": {"connections_max": 16, "request_timeout_ms": 60_000}});
    let exit = Running::start(config, Some(fleet.identity("exit")));
    let mut silent = Vec::new();
    for _ in 0..16 {
        let client = TcpSocket::new_v4().unwrap();
        client.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        // One that is reset at once may look as if it was not connected.
        silent.extend(client.connect(exit.address).await);
    }
    exit.until(|status| status.accepted == 16).await;
    let entry = json!({
        "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination}], "identity": "unused",
        "proxies": {"exit": exit.address}, "routes": [{"destination": destination, "through": ["exit"]}],
        "allow": [destination],
    });
    let entry = Running::start(entry, Some(fleet.identity("entry")));
    let _client = TcpStream::connect(entry.address).await.unwrap();
    in_time(listener.accept()).await.unwrap();
}

#[test]
fn unsafe_or_contradictory_configurations_are_refused() {
    let forward = |listen: &str| json!({"listen": listen, "way": "forward", "destination": "a:1"});
    let bad = [
        json!({"listeners": [], "allow": []}),
        json!({"listeners": [forward("0.0.0.0:0")], "allow": ["a:1"]}),
        json!({"listeners": [{"listen": "127.0.0.1:0", "way": "forward"}], "allow": ["a:1"]}),
        json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "allow": ["a:1"]}),
        json!({"listeners": [forward("127.0.0.1:0")], "allow": [], "proxies": {"b": "b:1"}}),
        json!({"listeners": [{"listen": "0.0.0.0:0", "way": "socks5"}], "allow": ["a:1"]}),
        json!({"listeners": [{"listen": "[::]:0", "way": "connect", "clients": ["10.0.0.0/8"]}], "allow": ["a:1"]}),
        json!({"listeners": [{"listen": "0.0.0.0:0", "way": "sni"}], "allow": ["a:1"]}),
        json!({"listeners": [{"listen": "0.0.0.0:0", "way": "transparent"}], "allow": ["a:1"]}),
        json!({"listeners": [{"listen": "127.0.0.1:0", "way": "sni", "tokens": "t"}], "allow": ["a:1"]}),
        json!({"listeners": [{"listen": "0.0.0.0:0", "way": "socks5", "tokens": "t", "proxy_protocol": true}], "allow": []}),
        json!({"listeners": [forward("127.0.0.1:0")], "allow": [], "routes": [{"destination": "a:1", "through": ["b"]}]}),
    ];
    for config in bad {
        let parsed: Config = serde_json::from_value(config.clone()).unwrap();
        assert!(parsed.check(parsed.identity.is_some()).is_err(), "{config}");
    }
    let unknown = [
        json!({"listeners": [forward("127.0.0.1:0")], "allow": [], "extra": 1}),
        json!({"listeners": [forward("127.0.0.1:0")], "allow": [], "limits": {"extra": 1}}),
        json!({"listeners": [forward("127.0.0.1:0")]}),
    ];
    for config in unknown {
        assert!(serde_json::from_value::<Config>(config.clone()).is_err(), "{config}");
    }
}

#[tokio::test]
async fn a_caller_gets_only_the_destinations_of_its_own_flows() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (fleet, destination) = (Fleet::new(), listener.local_addr().unwrap());
    // `Fleet` calls every peer so. Another caller may have the destination.
    let cases = [
        (json!(null), true),
        (json!({"peer": [destination]}), true),
        (json!({"peer": ["example.com:443"], "other": [destination]}), false),
        (json!({"other": [destination]}), false),
        (json!({}), false),
    ];
    for (callers, served) in cases {
        let exit = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop", "callers": callers}],
                          "identity": "unused", "allow": [destination]});
        let exit = Running::start(exit, Some(fleet.identity("exit")));
        let entry = json!({
            "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination}],
            "identity": "unused", "proxies": {"exit": exit.address}, "allow": [destination],
            "routes": [{"destination": destination, "through": ["exit"]}],
        });
        let entry = Running::start(entry, Some(fleet.identity("entry")));
        if served {
            let (mut client, mut server) = pair(&listener, &[entry]).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(read_exactly(&mut server, 1).await, b"x");
        } else {
            expect_reset(entry.address).await;
            assert_eq!(exit.until(|status| status.open == 0).await.refused, [(Cause::NotAllowed, 1)].into());
        }
    }
}

#[tokio::test]
async fn a_name_does_not_lead_a_caller_to_the_destinations_of_another_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (fleet, destination) = (Fleet::new(), listener.local_addr().unwrap());
    let named = format!("localhost:{}", destination.port());
    let elsewhere = format!("10.0.0.1:{}", destination.port());
    // `Fleet` calls every peer so. The flows of another caller go to the destination.
    let cases = [
        (json!([elsewhere]), false),
        // A name may resolve to anything, now or later.
        (json!([named]), false),
        (json!([destination]), true),
    ];
    for (own, served) in cases {
        let hop = json!({"listen": "127.0.0.1:0", "way": "hop", "callers": {"peer": own, "other": [destination]}});
        let exit = json!({"listeners": [hop], "identity": "unused", "allow": [destination, named, elsewhere]});
        let exit = Running::start(exit, Some(fleet.identity("exit")));
        let entry = json!({
            "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": named}],
            "identity": "unused", "proxies": {"exit": exit.address}, "allow": [named],
            "default_route": ["exit"],
        });
        let entry = Running::start(entry, Some(fleet.identity("entry")));
        if served {
            let (mut client, mut server) = pair(&listener, &[entry]).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(read_exactly(&mut server, 1).await, b"x");
        } else {
            expect_reset(entry.address).await;
            assert_eq!(exit.until(|status| status.open == 0).await.refused, [(Cause::NotAllowed, 1)].into(), "{own}");
        }
    }
}

#[tokio::test]
async fn a_proxy_on_the_way_passes_on_only_the_names_of_its_caller() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (fleet, destination) = (Fleet::new(), listener.local_addr().unwrap());
    let named = format!("localhost:{}", destination.port());
    let exit =
        json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused", "allow": [destination]});
    let exit = Running::start(exit, Some(fleet.identity("exit")));
    for (own, served) in [(&named, true), (&destination.to_string(), false)] {
        let hop = json!({"listen": "127.0.0.1:0", "way": "hop", "callers": {"peer": [own]}});
        let middle = json!({"listeners": [hop], "identity": "unused", "proxies": {"exit": exit.address},
                            "allow": [named, destination]});
        let middle = Running::start(middle, Some(fleet.identity("middle")));
        let entry = json!({
            "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": named}],
            "identity": "unused", "proxies": {"middle": middle.address, "exit": exit.address}, "allow": [named],
            "default_route": ["middle", "exit"],
        });
        let entry = Running::start(entry, Some(fleet.identity("entry")));
        if served {
            drop(pair(&listener, &[entry]).await);
        } else {
            expect_reset(entry.address).await;
            assert_eq!(middle.until(|status| status.open == 0).await.refused, [(Cause::NotAllowed, 1)].into());
        }
    }
}

use crate::harness::{Fleet, Running, in_time, read_exactly, token_file};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tradewind_split::{Cause, proxy_protocol};

/// A proxy with one listener, which reaches `allow` through a second proxy.
fn through_exit(listener: &Value, allow: &Value) -> (Running, Running) {
    let fleet = Fleet::new();
    let exit = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused", "allow": allow});
    let exit = Running::start(exit, Some(fleet.identity("exit")));
    let routes: Vec<_> =
        allow.as_array().unwrap().iter().map(|to| json!({"destination": to, "through": ["exit"]})).collect();
    let entry = json!({"listeners": [listener], "identity": "unused", "proxies": {"exit": exit.address},
                       "routes": routes, "allow": allow});
    (Running::start(entry, Some(fleet.identity("entry"))), exit)
}

fn closed_port() -> (TcpSocket, SocketAddr) {
    // Bound and not listening: connections are refused, and nobody else gets the port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The code of the reply to a SOCKS5 request for an IPv4 address.
async fn socks5(proxy: SocketAddr, to: SocketAddr, command: u8) -> (TcpStream, u8) {
    let mut client = TcpStream::connect(proxy).await.unwrap();
    let SocketAddr::V4(to) = to else { unreachable!("the tests use IPv4") };
    client.write_all(b"\x05\x02\x00\x02\x01\x03ann\x06secret").await.unwrap();
    assert_eq!(read_exactly(&mut client, 4).await, b"\x05\x02\x01\x00");
    let request = [&[5, command, 0, 1], &to.ip().octets()[..], &to.port().to_be_bytes()].concat();
    client.write_all(&request).await.unwrap();
    let reply = read_exactly(&mut client, 10).await;
    assert_eq!((reply[0], &reply[2..]), (5, &b"\x00\x01\x00\x00\x00\x00\x00\x00"[..]));
    (client, reply[1])
}

#[tokio::test]
async fn socks5_says_how_the_connection_went() {
    let (tokens, listener) = (token_file(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (open, (_bound, closed)) = (listener.local_addr().unwrap(), closed_port());
    let way = json!({"listen": "127.0.0.1:0", "way": "socks5", "tokens": tokens.path()});
    let (entry, _exit) = through_exit(&way, &json!([open, closed]));
    let (mut client, code) = socks5(entry.address, open, 1).await;
    assert_eq!(code, 0);
    let (mut server, _) = in_time(listener.accept()).await.unwrap();
    client.write_all(b"question").await.unwrap();
    assert_eq!(read_exactly(&mut server, 8).await, b"question");
    let elsewhere = "127.0.0.1:9".parse().unwrap();
    for (to, command, wanted) in [(closed, 1, 5), (elsewhere, 1, 2), (open, 2, 7), (open, 3, 7)] {
        assert_eq!(socks5(entry.address, to, command).await.1, wanted, "{to} {command}");
    }
    let refused = [(Cause::Refused, 1), (Cause::NotAllowed, 1), (Cause::Malformed, 2)];
    assert_eq!(entry.until(|status| status.open == 1).await.refused, refused.into());
}

#[tokio::test]
async fn socks5_clients_that_do_not_authenticate_are_refused() {
    let tokens = token_file();
    let listener = json!({"listen": "127.0.0.1:0", "way": "socks5", "tokens": tokens.path()});
    let proxy = Running::start(json!({"listeners": [listener], "allow": ["127.0.0.1:9"]}), None);
    let cases = [(&b"\x05\x01\x00"[..], &b"\x05\xff"[..]), (b"\x05\x01\x02\x01\x03ann\x05wrong", b"\x05\x02\x01\x01")];
    for (sent, answer) in cases {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        client.write_all(sent).await.unwrap();
        let mut received = Vec::new();
        in_time(client.read_to_end(&mut received)).await.unwrap();
        assert_eq!(received, answer);
    }
    assert_eq!(proxy.until(|status| status.open == 0).await.refused, [(Cause::Unauthenticated, 2)].into());
}

async fn answer_to(proxy: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(proxy).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time(client.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn connect_says_how_the_connection_went_and_keeps_early_bytes() {
    const LOGIN: &str = "Proxy-Authorization: Basic YW5uOnNlY3JldA==";
    let (tokens, listener) = (token_file(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (open, (_bound, closed)) = (listener.local_addr().unwrap(), closed_port());
    let way = json!({"listen": "127.0.0.1:0", "way": "connect", "tokens": tokens.path()});
    let (entry, _exit) = through_exit(&way, &json!([open, closed]));
    let mut client = TcpStream::connect(entry.address).await.unwrap();
    client.write_all(format!("CONNECT {open} HTTP/1.1\r\n{LOGIN}\r\n\r\nearly").as_bytes()).await.unwrap();
    let (mut server, _) = in_time(listener.accept()).await.unwrap();
    assert_eq!(read_exactly(&mut server, 5).await, b"early");
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    assert_eq!(read_exactly(&mut client, established.len()).await, established);
    let wrong = LOGIN.replace("YW5uOnNlY3JldA==", "YW5uOndyb25n");
    for (to, login, wanted) in [
        (closed.to_string(), LOGIN, "502"),
        ("127.0.0.1:9".to_owned(), LOGIN, "403"),
        (open.to_string(), "Host: none", "407"),
        (open.to_string(), &wrong, "407"),
        ("no port".to_owned(), LOGIN, "400"),
    ] {
        let answer = answer_to(entry.address, &format!("CONNECT {to} HTTP/1.1\r\n{login}\r\n\r\n")).await;
        assert_eq!(answer[9..12], *wanted, "{to} {login}");
        assert_eq!(answer.contains("Proxy-Authenticate: Basic"), wanted == "407");
    }
}

#[tokio::test]
async fn the_client_of_a_load_balancer_is_named_to_the_destination() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let destination = listener.local_addr().unwrap();
    let config = json!({
        "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination, "proxy_protocol": true}],
        "allow": [destination], "proxy_protocol": [destination], "limits": {"connections_per_client_max": 1},
    });
    let proxy = Running::start(config, None);
    let header = |client: &str| proxy_protocol::encode(client.parse().unwrap(), "192.0.2.1:443".parse().unwrap());
    let mut held = Vec::new();
    for client in ["203.0.113.9:1234", "203.0.113.10:1234"] {
        let mut balancer = TcpStream::connect(proxy.address).await.unwrap();
        balancer.write_all(&[&header(client), &b"bytes"[..]].concat()).await.unwrap();
        let (mut server, _) = in_time(listener.accept()).await.unwrap();
        assert_eq!(read_exactly(&mut server, 33).await, [&header(client), &b"bytes"[..]].concat());
        held.push((balancer, server));
    }
    // The first client has its only place already.
    let mut balancer = TcpStream::connect(proxy.address).await.unwrap();
    balancer.write_all(&header("203.0.113.9:5678")).await.unwrap();
    assert!(in_time(balancer.read(&mut [0])).await.is_err());
    assert_eq!(proxy.until(|status| status.open == 2).await.refused, [(Cause::Limit, 1)].into());
}

#[tokio::test]
async fn an_exit_counts_the_clients_of_other_proxies() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (fleet, destination) = (Fleet::new(), listener.local_addr().unwrap());
    let exit = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused",
                      "allow": [destination], "limits": {"connections_per_client_max": 1}});
    let exit = Running::start(exit, Some(fleet.identity("exit")));
    let forward =
        json!({"listen": "127.0.0.1:0", "way": "forward", "destination": destination, "proxy_protocol": true});
    let entry = json!({"listeners": [forward], "identity": "unused", "proxies": {"exit": exit.address},
                       "routes": [{"destination": destination, "through": ["exit"]}], "allow": [destination]});
    let entry = Running::start(entry, Some(fleet.identity("entry")));
    let mut held = Vec::new();
    for (client, served) in [("203.0.113.9:1", true), ("203.0.113.9:2", false), ("203.0.113.10:1", true)] {
        let mut balancer = TcpStream::connect(entry.address).await.unwrap();
        let header = proxy_protocol::encode(client.parse().unwrap(), "192.0.2.1:443".parse().unwrap());
        balancer.write_all(&header).await.unwrap();
        if served {
            held.push((in_time(listener.accept()).await.unwrap(), balancer));
        } else {
            assert!(in_time(balancer.read(&mut [0])).await.is_err());
        }
    }
    for proxy in [&exit, &entry] {
        assert_eq!(proxy.until(|status| status.open == 2).await.refused, [(Cause::Limit, 1)].into());
    }
}

#[tokio::test]
async fn a_connection_that_no_firewall_redirected_is_refused() {
    let config = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "transparent"}], "allow": ["127.0.0.1:*"]});
    let proxy = Running::start(config, None);
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    assert!(matches!(in_time(client.read(&mut [0])).await, Ok(0) | Err(_)));
    assert_eq!(proxy.until(|status| status.open == 0).await.refused, [(Cause::Malformed, 1)].into());
}

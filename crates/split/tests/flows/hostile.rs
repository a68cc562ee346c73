//! Clients that want to use a proxy for what it is not for, or to use it up.

#[path = "../../../../fuzz/entries/split_ways.rs"]
#[allow(dead_code, reason = "only the maker of TLS handshakes is used")]
mod split_ways;

use crate::harness::{Running, in_time, read_exactly};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tradewind_split::Cause;

fn proxy(way: &str, allow: &Value, limits: &Value) -> Running {
    let listeners = json!([{"listen": "127.0.0.1:0", "way": way}]);
    Running::start(json!({"listeners": listeners, "allow": allow, "limits": limits}), None)
}

#[tokio::test]
async fn a_slow_request_is_cut_off_and_frees_its_place() {
    for (way, start) in
        [("socks5", &b"\x05\xff"[..]), ("connect", b"CONNECT a:1 HTTP/1.1\r\nX: "), ("sni", b"\x16\x03\x01\x20\x00")]
    {
        let proxy = proxy(way, &json!(["a:1"]), &json!({"request_timeout_ms": 150}));
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        client.write_all(start).await.unwrap();
        let slowly = async {
            // One byte at a time is progress, and must not count as such.
            while client.write_all(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        in_time(slowly).await;
        let status = proxy.until(|status| status.open == 0).await;
        assert!(matches!(status.refused.keys().collect::<Vec<_>>()[..], [Cause::TimedOut | Cause::Malformed]), "{way}");
    }
}

#[tokio::test]
async fn floods_of_fields_are_refused() {
    let proxy = proxy("connect", &json!(["a:1"]), &json!({}));
    for flood in ["X: y\r\n".repeat(100_000), format!("X: {}", "y".repeat(1 << 20)), "\r\n".repeat(10_000)] {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        // The proxy stops reading in the middle, so that the rest may fail.
        let _ = in_time(client.write_all(format!("CONNECT a:1 HTTP/1.1\r\n{flood}").as_bytes())).await;
        proxy.until(|status| status.open == 0).await;
    }
    let refused = proxy.status().refused;
    assert!(refused.get(&Cause::Malformed).is_some_and(|count| *count >= 2), "{refused:?}");
}

async fn send_hello(proxy: &Running, name: &'static str) -> TcpStream {
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    // In pieces, as a hostile or slow network has them.
    for piece in split_ways::hello(name).chunks(97) {
        client.write_all(piece).await.unwrap();
    }
    client
}

#[tokio::test]
async fn a_server_name_leads_only_to_allowed_names_and_addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let start = |allow: Value| {
        let listeners = json!([{"listen": "127.0.0.1:0", "way": "sni", "port": port}]);
        Running::start(json!({"listeners": listeners, "allow": allow}), None)
    };
    let honest = start(json!([format!("localhost:{port}"), format!("127.0.0.1:{port}")]));
    let _client = send_hello(&honest, "localhost").await;
    let (mut server, _) = in_time(listener.accept()).await.unwrap();
    let head = read_exactly(&mut server, 6).await;
    assert_eq!((head[0], head[5]), (22, 1), "the destination gets the handshake from its first byte");
    // A name that is not listed; and one that is, but has an address of the proxy's own machine.
    for (name, allow) in [("other.example", "localhost"), ("localhost", "localhost")] {
        let strict = start(json!([format!("{allow}:{port}")]));
        let mut client = send_hello(&strict, name).await;
        assert!(matches!(in_time(client.read(&mut [0])).await, Ok(0) | Err(_)));
        assert_eq!(strict.until(|status| status.open == 0).await.refused, [(Cause::NotAllowed, 1)].into(), "{name}");
    }
}

#[tokio::test]
async fn wide_rules_do_not_open_metadata_services_or_the_machine() {
    let proxy = proxy("connect", &json!(["0.0.0.0/0:*", "[::/0]:*", "localhost:*"]), &json!({}));
    for host in [
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[fd00:ec2::254]",
        "168.63.129.16",
        "127.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "localhost",
        "[2002:a9fe:a9fe::]",
    ] {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        client.write_all(format!("CONNECT {host}:80 HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(read_exactly(&mut client, 12).await, b"HTTP/1.1 403", "{host}");
    }
}

#[tokio::test]
async fn a_scan_of_ports_learns_nothing_and_is_slowed_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = proxy("connect", &json!(["10.0.0.1:443"]), &json!({"accepts_per_second_per_client_max": 10}));
    let (mut forbidden, mut reset) = (0, 0);
    for port in [port, 9].into_iter().cycle().take(40) {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        let _ = client.write_all(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).await;
        let mut answer = Vec::new();
        match in_time(client.read_to_end(&mut answer)).await {
            // An open port looks like a closed one.
            Ok(_) if answer.starts_with(b"HTTP/1.1 403") => forbidden += 1,
            _ => reset += 1,
        }
    }
    assert!(forbidden >= 10 && reset >= 10, "{forbidden} forbidden, {reset} reset");
    let status = proxy.until(|status| status.open == 0).await;
    assert_eq!(status.refused, [(Cause::NotAllowed, forbidden), (Cause::Limit, reset)].into());
    let nobody = tokio::time::timeout(Duration::from_millis(20), listener.accept()).await;
    assert!(nobody.is_err(), "the proxy dialed a destination that is not allowed");
}

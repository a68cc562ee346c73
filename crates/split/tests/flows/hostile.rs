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

/// Returns the answer of the proxy, until it closes or resets the connection.
async fn answer_to(proxy: &Running, sent: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    // The proxy may have refused the start already.
    let _ = in_time(client.write_all(sent)).await;
    let mut answer = Vec::new();
    let _ = in_time(client.read_to_end(&mut answer)).await;
    answer
}

#[tokio::test]
async fn requests_that_are_not_exactly_connect_are_refused() {
    let proxy = proxy("connect", &json!(["127.0.0.1:9"]), &json!({"request_timeout_ms": 500}));
    let huge = format!("CONNECT 127.0.0.1:9 HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(9_000));
    let many = format!("CONNECT 127.0.0.1:9 HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
    let texts = [
        "GET http://127.0.0.1:9/ HTTP/1.1\r\n\r\n",
        "CONNECT http://127.0.0.1:9/ HTTP/1.1\r\n\r\n",
        "CONNECT user@127.0.0.1:9 HTTP/1.1\r\n\r\n",
        "connect 127.0.0.1:9 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:9\r\n\r\n",
        "CONNECT 127.0.0.1:9 HTTP/2.0\r\n\r\n",
        "CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:0 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:65545 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:-9 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:+9 HTTP/1.1\r\n\r\n",
        "CONNECT 127.1:9 HTTP/1.1\r\n\r\n",
        "CONNECT 2130706433:9 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1.:9 HTTP/1.1\r\n\r\n",
        "CONNECT [::1%lo]:9 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:9 HTTP/1.1\r\n folded: x\r\n\r\n",
        "\x16\x03\x01\x00\x05hello\r\n\r\n",
        &huge,
        &many,
    ];
    for text in texts {
        let answer = answer_to(&proxy, text.as_bytes()).await;
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{text:.60}: {}", String::from_utf8_lossy(&answer));
    }
    let refused = proxy.until(|status| status.open == 0).await.refused;
    assert_eq!(refused, [(Cause::Malformed, texts.len() as u64)].into());
}

#[tokio::test]
async fn socks5_requests_that_end_early_or_are_garbage_are_refused() {
    let proxy = proxy("socks5", &json!(["127.0.0.1:9"]), &json!({"request_timeout_ms": 500}));
    let to = |host: &[u8]| [b"\x05\x01\x00\x05\x01\x00\x03", &[host.len() as u8][..], host, b"\x00\x09"].concat();
    let cases = [
        (b"\x04\x01\x00\x09\x7f\x00\x00\x01\x00".to_vec(), &b""[..]),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), b""),
        (b"\x05\x00".to_vec(), b"\x05\xff"),
        (b"\x05\x01\x02".to_vec(), b"\x05\xff"),
        (b"\x05\x01\x00\x04\x01\x00\x01\x7f\x00\x00\x01\x00\x09".to_vec(), b"\x05\x00\x05\x01"),
        (b"\x05\x01\x00\x05\x01\x00\x05".to_vec(), b"\x05\x00\x05\x08"),
        (b"\x05\x01\x00\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x09".to_vec(), b"\x05\x00\x05\x07"),
        (b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00".to_vec(), b"\x05\x00\x05\x01"),
        (to(b""), b"\x05\x00\x05\x01"),
        (to(&[b'a'; 255]), b"\x05\x00\x05\x01"),
        (to(b"localhost\0.example"), b"\x05\x00\x05\x01"),
        (to(b"\xff\xfe"), b"\x05\x00\x05\x01"),
        (to(b"127.1"), b"\x05\x00\x05\x01"),
        (to(b"017700000001"), b"\x05\x00\x05\x01"),
    ];
    for (sent, start) in cases {
        let answer = answer_to(&proxy, &sent).await;
        assert!(answer.starts_with(start) && answer.is_empty() == start.is_empty(), "{sent:?}: {answer:?}");
    }
    // Cut off anywhere, it waits for the rest no longer than the request timeout.
    for sent in [&b"\x05"[..], b"\x05\xff\x00", b"\x05\x01\x00\x05", b"\x05\x01\x00\x05\x01\x00\x03\xffabc"] {
        answer_to(&proxy, sent).await;
    }
    let status = proxy.until(|status| status.open == 0).await;
    let refused = |cause| status.refused.get(&cause).copied().unwrap_or_default();
    assert_eq!((refused(Cause::TimedOut), refused(Cause::Unauthenticated), refused(Cause::Malformed)), (4, 2, 12));
}

#[tokio::test]
async fn proxy_headers_of_another_kind_or_length_reach_no_destination() {
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let forward = json!({"listen": "127.0.0.1:0", "way": "forward", "destination": to, "proxy_protocol": true});
    let limits = json!({"request_timeout_ms": 500});
    let proxy = Running::start(json!({"listeners": [forward], "allow": [to], "limits": limits}), None);
    let header = |head: [u8; 2], announced: u16, sent: usize| {
        [SIGNATURE, &head, &announced.to_be_bytes(), &vec![1; sent]].concat()
    };
    let cases = [
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        header([0x11, 0x11], 12, 12),
        header([0x22, 0x11], 12, 12),
        header([0x21, 0x12], 12, 12),
        header([0x21, 0x31], 216, 216),
        header([0x21, 0x11], 11, 11),
        header([0x21, 0x21], 35, 35),
        header([0x21, 0x11], u16::MAX, 65_535),
        header([0x21, 0x11], 4097, 12),
        header([0x21, 0x11], 12, 11),
        SIGNATURE.to_vec(),
        SIGNATURE[..11].to_vec(),
    ];
    for sent in &cases {
        assert_eq!(answer_to(&proxy, sent).await, b"", "{sent:.40?}");
    }
    let status = proxy.until(|status| status.open == 0).await;
    assert_eq!(status.refused, [(Cause::Malformed, 9), (Cause::TimedOut, 4)].into());
    assert!(tokio::time::timeout(Duration::from_millis(20), listener.accept()).await.is_err());
}

#[tokio::test]
async fn tls_starts_that_are_garbage_or_too_large_are_refused() {
    let proxy = proxy("sni", &json!(["a.example:443"]), &json!({"request_timeout_ms": 500}));
    let hello = split_ways::hello("a.example");
    let mut nameless = hello.clone();
    let name = nameless.windows(9).position(|window| window == b"a.example").unwrap();
    nameless[name..name + 9].copy_from_slice(b"127.0.0.1");
    let endless = b"\x16\x03\x01\x00\x01\x01".repeat(3_000);
    let announced = [&b"\x16\x03\x01\x40\x00\x01\x00\xff\xff"[..], &[0; 20_000]].concat();
    for sent in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\xff\xff", &nameless, &endless, &announced, &[0x16; 64]]
    {
        assert_eq!(answer_to(&proxy, sent).await, b"", "{sent:.20?}");
    }
    assert_eq!(answer_to(&proxy, &hello[..hello.len() - 1]).await, b"");
    let status = proxy.until(|status| status.open == 0).await;
    assert_eq!(status.refused, [(Cause::Malformed, 6), (Cause::TimedOut, 1)].into());
}

#[tokio::test]
async fn rules_of_addresses_open_no_names_at_a_proxy_that_resolves_them_itself() {
    let upstream = proxy("connect", &json!(["127.0.0.1:*", "[::1]:*"]), &json!({}));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let config = json!({"listeners": [{"listen": "127.0.0.1:0", "way": "connect"}], "default_route": ["up"],
                        "upstreams": {"up": {"address": upstream.address, "way": "connect"}},
                        "allow": ["192.0.2.0/24:*", to]});
    let entry = Running::start(config, None);
    let name = format!("localhost:{}", to.port());
    let answer = answer_to(&entry, format!("CONNECT {name} HTTP/1.1\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(upstream.status().accepted, 0);
    let mut client = TcpStream::connect(entry.address).await.unwrap();
    client.write_all(format!("CONNECT {to} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(read_exactly(&mut client, 12).await, b"HTTP/1.1 200");
}

use crate::CHAINS;
use crate::harness::{chain, in_time, pair, silent};
use serde_json::json;
use socket2::SockRef;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tradewind_split::limits::HALF_CLOSED_CHECK_INTERVAL;

async fn read_to_error(stream: &mut TcpStream) -> ErrorKind {
    in_time(stream.read_to_end(&mut Vec::new())).await.unwrap_err().kind()
}

#[tokio::test]
async fn a_reset_of_one_side_is_a_reset_of_the_other() {
    for hops in CHAINS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), hops, &json!({}));
        for client_resets in [true, false] {
            let (client, server) = pair(&listener, &chain).await;
            let (mut resets, mut suffers) = if client_resets { (client, server) } else { (server, client) };
            resets.write_all(b"some").await.unwrap();
            in_time(suffers.read_exact(&mut [0; 4])).await.unwrap();
            SockRef::from(&resets).set_linger(Some(Duration::ZERO)).unwrap();
            drop(resets);
            assert_eq!(read_to_error(&mut suffers).await, ErrorKind::ConnectionReset, "{hops} hops");
        }
        for proxy in &chain {
            let status = proxy.until(|status| status.open == 0).await;
            assert_eq!((status.reset, status.closed), (2, 0));
        }
    }
}

#[tokio::test]
async fn a_reset_right_after_the_last_bytes_is_not_an_orderly_end() {
    for hops in CHAINS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), hops, &json!({}));
        for client_resets in [true, false] {
            let (client, server) = pair(&listener, &chain).await;
            let (mut resets, mut suffers) = if client_resets { (client, server) } else { (server, client) };
            SockRef::from(&resets).set_linger(Some(Duration::ZERO)).unwrap();
            resets.write_all(b"some").await.unwrap();
            drop(resets);
            assert_eq!(read_to_error(&mut suffers).await, ErrorKind::ConnectionReset, "{hops} hops");
        }
    }
}

#[tokio::test]
async fn the_last_bytes_arrive_before_the_end() {
    for hops in CHAINS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), hops, &json!({}));
        for client_first in [true, false] {
            for length in [1, 1 << 20] {
                let (client, server) = pair(&listener, &chain).await;
                let (mut first, mut second) = if client_first { (client, server) } else { (server, client) };
                let sending = async {
                    first.write_all(&vec![7; length]).await.unwrap();
                    first.shutdown().await.unwrap();
                };
                let mut received = Vec::new();
                let (_, read) = in_time(async { tokio::join!(sending, second.read_to_end(&mut received)) }).await;
                assert_eq!((read.unwrap(), received == vec![7; length]), (length, true), "{hops} hops");
                second.shutdown().await.unwrap();
                assert_eq!(in_time(first.read(&mut [0])).await.unwrap(), 0);
            }
        }
        chain[0].until(|status| status.closed == 4 && status.open == 0).await;
    }
}

#[tokio::test]
async fn a_proxy_that_stops_resets_its_flows() {
    for hops in [0, 1] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut chain = chain(listener.local_addr().unwrap(), hops, &json!({"drain_timeout_ms": 0}));
        let (mut client, mut server) = pair(&listener, &chain).await;
        client.write_all(b"some").await.unwrap();
        in_time(server.read_exact(&mut [0; 4])).await.unwrap();
        drop(chain.pop());
        // Bytes may be lost with the proxy, so no end may look like an orderly one.
        assert_eq!(read_to_error(&mut server).await, ErrorKind::ConnectionReset);
        assert_eq!(read_to_error(&mut client).await, ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn a_client_whose_destination_is_being_dialed_is_reset_when_its_proxy_stops() {
    let (address, _silent) = silent().await;
    let mut chain = chain(address, 0, &json!({"drain_timeout_ms": 0}));
    let mut client = TcpStream::connect(chain[0].address).await.unwrap();
    chain[0].until(|status| status.open == 1).await;
    drop(chain.pop());
    // An orderly end would look like an empty answer of the destination.
    assert_eq!(read_to_error(&mut client).await, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_reset_after_an_end_resets_the_other_side() {
    for hops in [0, 1] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), hops, &json!({}));
        let mut others = Vec::new();
        for client_resets in [true, false] {
            let (client, server) = pair(&listener, &chain).await;
            let (mut resets, mut other) = if client_resets { (client, server) } else { (server, client) };
            resets.shutdown().await.unwrap();
            assert_eq!(in_time(other.read(&mut [0])).await.unwrap(), 0);
            SockRef::from(&resets).set_linger(Some(Duration::ZERO)).unwrap();
            others.push(other);
        }
        for proxy in &chain {
            let status = proxy.until(|status| status.open == 0).await;
            assert_eq!((status.reset, status.closed), (2, 0), "{hops} hops");
        }
        for mut other in others {
            assert!(in_time(other.write_all(b"x")).await.is_err(), "its kernel has the reset");
        }
    }
}

#[tokio::test]
async fn the_bytes_before_an_end_arrive_also_if_a_reset_follows() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let chain = chain(listener.local_addr().unwrap(), 0, &json!({}));
    let (mut client, mut server) = pair(&listener, &chain).await;
    // More than the kernel of a client that does not read takes: that of the proxy has the rest.
    let length = 1 << 20;
    in_time(server.write_all(&vec![7; length])).await.unwrap();
    server.shutdown().await.unwrap();
    chain[0].until(|status| status.bytes_down == length as u64).await;
    SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
    // Two checks, so that the proxy knows of the reset.
    tokio::time::sleep(2 * HALF_CLOSED_CHECK_INTERVAL).await;
    let mut received = Vec::new();
    in_time(client.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received.len(), length);
    chain[0].until(|status| (status.open, status.reset) == (0, 1)).await;
}

#[tokio::test]
async fn an_idle_flow_is_reset_and_a_busy_one_is_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let chain = chain(listener.local_addr().unwrap(), 1, &json!({"idle_timeout_ms": 200}));
    let (mut idle, mut idle_server) = pair(&listener, &chain).await;
    let (mut busy, mut busy_server) = pair(&listener, &chain).await;
    let talk = async {
        // Each byte is one step; the flow ends only if no byte moves for the whole timeout.
        loop {
            busy.write_all(b"x").await.unwrap();
            busy_server.read_exact(&mut [0]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = talk => unreachable!("the busy flow never ends"),
        error = read_to_error(&mut idle) => assert_eq!(error, ErrorKind::ConnectionReset),
    }
    assert_eq!(read_to_error(&mut idle_server).await, ErrorKind::ConnectionReset);
    busy.write_all(b"x").await.unwrap();
    in_time(busy_server.read_exact(&mut [0])).await.unwrap();
    let status = chain[0].until(|status| status.open == 1).await;
    assert_eq!(status.idle + status.reset, 1);
}

#[tokio::test]
async fn a_proxy_that_drains_accepts_nothing_and_lets_flows_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut chain = chain(listener.local_addr().unwrap(), 0, &json!({}));
    let (mut client, mut server) = pair(&listener, &chain).await;
    let mut entry = chain.remove(0);
    entry.order_to_stop();
    let refused = async {
        while TcpStream::connect(entry.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    in_time(refused).await;
    client.write_all(b"some").await.unwrap();
    in_time(server.read_exact(&mut [0; 4])).await.unwrap();
    for end in [&mut client, &mut server] {
        end.shutdown().await.unwrap();
    }
    in_time(entry.stopped()).await;
    assert_eq!(entry.status().closed, 1);
}

#[tokio::test]
async fn flows_are_reset_at_the_end_of_the_drain_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut chain = chain(listener.local_addr().unwrap(), 0, &json!({"drain_timeout_ms": 50}));
    let (mut client, _server) = pair(&listener, &chain).await;
    let mut entry = chain.remove(0);
    entry.order_to_stop();
    assert_eq!(read_to_error(&mut client).await, ErrorKind::ConnectionReset);
    in_time(entry.stopped()).await;
}

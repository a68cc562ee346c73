use crate::CHAINS;
use crate::harness::{Running, chain, in_time, pair, read_exactly, spawn};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// More than all buffers on the way, and not a multiple of any of them.
const BYTES: usize = (24 << 20) + 12_345;

fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|index| (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[5] ^ seed).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_arrive_unchanged_both_ways_at_once() {
    for hops in CHAINS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), hops, &json!({}));
        let (client, server) = pair(&listener, &chain).await;
        let mut work = Vec::new();
        for (stream, seed) in [(client, 1), (server, 2)] {
            work.push(spawn(async move {
                let (mut from, mut to) = stream.into_split();
                let sending = async {
                    to.write_all(&pattern(seed)).await.unwrap();
                    to.shutdown().await.unwrap();
                };
                let mut received = Vec::new();
                let (_, read) = tokio::join!(sending, from.read_to_end(&mut received));
                read.unwrap();
                assert!(received == pattern(3 - seed), "other bytes arrived over {hops} hops");
            }));
        }
        for done in work {
            in_time(done).await.unwrap();
        }
        for proxy in &chain {
            let status = proxy.until(|status| status.closed == 1 && status.open == 0).await;
            assert_eq!((status.bytes_up, status.bytes_down), (BYTES as u64, BYTES as u64));
            assert_eq!(status.reset, 0);
        }
    }
}

#[tokio::test]
async fn a_closed_half_leaves_the_other_open() {
    for hops in CHAINS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), hops, &json!({}));
        for client_first in [true, false] {
            let (client, server) = pair(&listener, &chain).await;
            let (mut first, mut second) = if client_first { (client, server) } else { (server, client) };
            first.write_all(b"question").await.unwrap();
            first.shutdown().await.unwrap();
            let mut received = Vec::new();
            in_time(second.read_to_end(&mut received)).await.unwrap();
            assert_eq!(received, b"question");
            // The other half still works after the end of the first has arrived.
            second.write_all(b"answer").await.unwrap();
            second.shutdown().await.unwrap();
            received.clear();
            in_time(first.read_to_end(&mut received)).await.unwrap();
            assert_eq!(received, b"answer");
        }
        chain[0].until(|status| status.closed == 2 && status.open == 0).await;
    }
}

#[tokio::test]
async fn a_slow_reader_stops_its_sender_and_loses_nothing() {
    for hops in [0, 1] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), hops, &json!({}));
        let (mut client, mut server) = pair(&listener, &chain).await;
        let block = vec![7; 64 << 10];
        let mut sent = 0;
        // The kernel's buffers fill up, two for each connection. Then a write waits.
        while let Ok(written) = timeout(Duration::from_millis(300), client.write(&block)).await {
            sent += written.unwrap();
            assert!(sent < 256 << 20, "a sender is never stopped");
        }
        let sender = spawn(async move {
            client.shutdown().await.unwrap();
            client
        });
        let mut received = 0;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = in_time(server.read(&mut buffer)).await.unwrap();
            assert!(buffer[..read].iter().all(|byte| *byte == 7));
            received += read;
            if read == 0 {
                break;
            }
        }
        assert_eq!(received, sent);
        drop(in_time(sender).await.unwrap());
    }
}

/// The time in which the connections of one client receive `bytes` each, and the bytes that each had at the end of the
/// first half of the time that the limit needs for all.
async fn received(
    chain: &[Running],
    listener: &TcpListener,
    connections: usize,
    bytes: usize,
) -> (Duration, Vec<usize>) {
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..connections {
        let (client, server) = pair(listener, chain).await;
        clients.push(client);
        servers.push(server);
    }
    let half = Duration::from_secs_f64((connections * bytes) as f64 / LIMIT_BYTES_PER_S as f64 / 2.0);
    // Connecting may take long, so nothing is sent before all are connected.
    let began = Instant::now();
    for mut server in servers {
        drop(spawn(async move { server.write_all(&vec![7; bytes]).await }));
    }
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            spawn(async move {
                let (mut buffer, mut count, mut early) = (vec![0; 1 << 16], 0, 0);
                while let Ok(read @ 1..) = in_time(client.read(&mut buffer)).await {
                    count += read;
                    early = if began.elapsed() < half { count } else { early };
                }
                assert_eq!(count, bytes);
                early
            })
        })
        .collect();
    let mut early = Vec::new();
    for task in tasks {
        early.push(task.await.unwrap());
    }
    (began.elapsed(), early)
}

const LIMIT_BYTES_PER_S: usize = 1_000_000;

#[tokio::test]
async fn the_connections_of_a_client_share_its_bytes_per_second() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = json!({"bytes_per_second_per_client_max": LIMIT_BYTES_PER_S});
    for hops in CHAINS {
        let chain = chain(listener.local_addr().unwrap(), hops, &limits);
        let (took, early) = received(&chain, &listener, 4, LIMIT_BYTES_PER_S / 2).await;
        assert!((1.6..20.0).contains(&took.as_secs_f64()), "2 s at the limit, less the burst: {took:?}");
        let (least, most) = (early.iter().min().unwrap(), early.iter().max().unwrap());
        assert!(2 * most <= 3 * least + (1 << 17), "they take turns: {early:?}");
    }
}

#[tokio::test]
async fn the_connections_to_a_destination_share_its_bytes_per_second() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = json!({"bytes_per_second_per_destination_max": LIMIT_BYTES_PER_S});
    for hops in CHAINS {
        let chain = chain(listener.local_addr().unwrap(), hops, &limits);
        let (took, _) = received(&chain, &listener, 4, LIMIT_BYTES_PER_S / 2).await;
        assert!((1.6..20.0).contains(&took.as_secs_f64()), "2 s at the limit, less the burst: {took:?}");
    }
}

#[tokio::test]
async fn a_limit_of_bytes_holds_for_open_connections_and_ends_with_its_configuration() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let destination = listener.local_addr().unwrap();
    let config = |most: Option<usize>| {
        json!({"listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination}],
               "allow": [destination], "limits": {"bytes_per_second_per_client_max": most}})
    };
    let proxy = Running::start(config(None), None);
    let (mut client, mut server) = pair(&listener, std::slice::from_ref(&proxy)).await;
    let mut timed = async || {
        let (began, bytes) = (Instant::now(), vec![1; LIMIT_BYTES_PER_S]);
        let (sent, _) = tokio::join!(client.write_all(&bytes), read_exactly(&mut server, bytes.len()));
        sent.unwrap();
        began.elapsed()
    };
    timed().await;
    proxy.handle.replace(serde_json::from_value(config(Some(LIMIT_BYTES_PER_S))).unwrap(), None).unwrap();
    let limited = timed().await;
    assert!(limited >= Duration::from_millis(600), "{limited:?}");
    proxy.handle.replace(serde_json::from_value(config(None)).unwrap(), None).unwrap();
    timed().await;
    let error = proxy.handle.replace(serde_json::from_value(config(Some(1023))).unwrap(), None).unwrap_err();
    assert!(error.to_string().contains("`bytes_per_second_per_client_max` is 1023, and at least 1024"), "{error}");
}

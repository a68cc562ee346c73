use crate::CHAINS;
use crate::harness::{chain, in_time, pair, spawn};
use serde_json::json;
use std::time::Duration;
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

//! Clients and destinations that never read: the memory of their flows has a bound, and other flows go on.

use crate::harness::{PATIENCE, chain, in_time, pair, read_exactly};
use serde_json::json;
use socket2::SockRef;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;
use tradewind_split::held_bytes;
use tradewind_split::limits::{HELD_BYTES_MAX, SCARCE_READ_BYTES};

/// At the entry, each holds a buffer and as many sealed bytes, and at the exit another buffer: without a bound 35 MiB.
const CLIENTS: usize = 250;
/// Bytes held beyond the limit: reads that began just before it, small reads of all directions, and flows of other tests.
const BEYOND: usize = CLIENTS * 4 * SCARCE_READ_BYTES + (8 << 20);

/// A socket for which the kernel keeps little.
fn small_socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.set_send_buffer_size(64 << 10).unwrap();
    SockRef::from(&socket).set_tcp_mss(1400).unwrap();
    socket
}

fn listener() -> TcpListener {
    let socket = small_socket();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(CLIENTS as u32).unwrap()
}

/// Connects clients, none of whose bytes the destinations read. Returns both ends.
async fn blocked(entry: SocketAddr, listener: &TcpListener) -> Vec<(TcpStream, TcpStream)> {
    let mut flows = Vec::new();
    for _ in 0..CLIENTS {
        let client = in_time(small_socket().connect(entry)).await.unwrap();
        flows.push((client, in_time(listener.accept()).await.unwrap().0));
    }
    flows
}

/// Sends from all clients until nothing moves any more. Returns the bytes that each has sent.
async fn send_until_blocked(flows: &[(TcpStream, TcpStream)]) -> Vec<usize> {
    let (block, began) = (vec![7; 64 << 10], Instant::now());
    let (mut sent, mut last) = (vec![0; flows.len()], began);
    while last.elapsed() < Duration::from_millis(500) {
        for ((client, _), sent) in flows.iter().zip(&mut sent) {
            while let Ok(written) = client.try_write(&block) {
                *sent += written;
                last = Instant::now();
            }
        }
        assert!(began.elapsed() < 2 * PATIENCE, "the senders are never stopped");
        sleep(Duration::from_millis(20)).await;
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_that_nobody_reads_hold_little_memory_and_lose_nothing() {
    let listener = listener();
    let entry = chain(listener.local_addr().unwrap(), 1, &json!({}));
    let mut flows = blocked(entry[0].address, &listener).await;
    let sent = send_until_blocked(&flows).await;
    let held = held_bytes();
    assert!(held > HELD_BYTES_MAX, "the flows hold too little to show anything: {held}");
    assert!(held <= HELD_BYTES_MAX + BEYOND, "{held}");
    // Another flow still moves.
    let (mut client, mut server) = pair(&listener, &entry).await;
    client.write_all(&[5; 100_000]).await.unwrap();
    assert!(read_exactly(&mut server, 100_000).await.iter().all(|byte| *byte == 5));
    // One that held large buffers from before, and one that came when there were none.
    for index in [CLIENTS - 1, 0] {
        let received = read_exactly(&mut flows[index].1, sent[index]).await;
        assert!(received.iter().all(|byte| *byte == 7));
    }
    drop(flows);
    let given_back = async {
        while held_bytes() > BEYOND {
            sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(given_back).await;
}

//! Connections whose other side is rustls' own.

use super::*;
use crate::handshake::{accept, connect};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustls::crypto::aws_lc_rs;
use rustls::{AlertDescription, ClientConfig, Connection, RootCertStore, ServerConfig};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use std::future::poll_fn;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Longest time that a step of a test may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    static CONFIGS: OnceLock<(Arc<ClientConfig>, Arc<ServerConfig>)> = OnceLock::new();
    let made = CONFIGS.get_or_init(|| {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["proxy".to_owned()]).unwrap().self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let (provider, versions) = (Arc::new(aws_lc_rs::default_provider()), [&rustls::version::TLS13]);
        let client = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions).unwrap();
        let mut client = client.with_root_certificates(roots).with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider).with_protocol_versions(&versions).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut server = server.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
        (client.enable_secret_extraction, server.enable_secret_extraction) = (true, true);
        (Arc::new(client), Arc::new(server))
    });
    made.clone()
}

/// The other side: rustls, and a TCP connection that the test writes in pieces of its own.
struct Peer {
    tls: Connection,
    tcp: TcpStream,
}

impl Peer {
    /// Seals `data`.
    fn seal(&mut self, data: &[u8]) -> Vec<u8> {
        self.tls.set_buffer_limit(None);
        self.tls.writer().write_all(data).unwrap();
        self.sealed()
    }

    /// All that it wants to send.
    fn sealed(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut wire).unwrap();
        }
        wire
    }

    async fn send(&mut self, data: &[u8]) {
        let wire = self.seal(data);
        self.tcp.write_all(&wire).await.unwrap();
    }

    async fn close(&mut self) {
        self.tls.send_close_notify();
        let wire = self.sealed();
        self.tcp.write_all(&wire).await.unwrap();
    }

    /// Reads until there are `length` bytes of data, or the end.
    async fn receive(&mut self, length: usize) -> Result<Vec<u8>, rustls::Error> {
        let (mut data, mut bytes) = (Vec::new(), [0; 1000]);
        while data.len() < length {
            let read = in_time(self.tcp.read(&mut bytes)).await.unwrap();
            if read == 0 {
                break;
            }
            let mut arrived = &bytes[..read];
            while !arrived.is_empty() {
                self.tls.read_tls(&mut arrived).unwrap();
                let state = self.tls.process_new_packets()?;
                let mut opened = vec![0; state.plaintext_bytes_to_read()];
                self.tls.reader().read_exact(&mut opened).unwrap();
                data.extend(opened);
            }
        }
        Ok(data)
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("the test takes too long")
}

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (here, there) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (here.unwrap(), there.unwrap().0)
}

/// A connection of this crate, as the client or as the server, and its peer.
async fn pair(is_client: bool) -> (Sealed, Peer) {
    let (client, server) = configs();
    let ((here, there), name) = (tcp_pair().await, ServerName::try_from("proxy").unwrap());
    match is_client {
        true => {
            let (own, peer) = tokio::join!(connect(client, name, here), TlsAcceptor::from(server).accept(there));
            let (tcp, tls) = peer.unwrap().into_inner();
            (own.unwrap(), Peer { tls: tls.into(), tcp })
        }
        false => {
            let (own, peer) = tokio::join!(accept(server, here), TlsConnector::from(client).connect(name, there));
            let (tcp, tls) = peer.unwrap().into_inner();
            (own.unwrap().0, Peer { tls: tls.into(), tcp })
        }
    }
}

async fn fill(sealed: &mut Sealed) -> Filled {
    in_time(poll_fn(|cx| sealed.poll_fill(cx, RELAY_BUFFER_BYTES))).await
}

/// Reads until there are `length` bytes, or the end, which it returns, too.
async fn receive(sealed: &mut Sealed, length: usize) -> (Vec<u8>, Option<io::Result<()>>) {
    let mut received = Vec::new();
    loop {
        let Filled { data, end } = fill(sealed).await;
        received.extend(data.iter().flat_map(Pending::slices).flatten());
        if end.is_some() || received.len() >= length {
            return (received, end);
        }
    }
}

fn some_bytes(rng: &mut StdRng) -> Vec<u8> {
    let most = [1, 100, 20_000, 200_000][rng.random_range(0..4)];
    let (length, first) = (rng.random_range(1..=most), rng.random::<u8>());
    (0..length).map(|at| first.wrapping_add(at as u8)).collect()
}

#[tokio::test]
async fn data_of_any_length_passes_in_any_pieces_and_with_any_key_updates() {
    let mut rng = StdRng::seed_from_u64(3);
    for is_client in [true, false] {
        let (mut sealed, mut peer) = pair(is_client).await;
        sealed.records.update_keys_after(5);
        for _ in 0..40 {
            if rng.random_range(0..3) == 0 {
                peer.tls.refresh_traffic_keys().unwrap();
            }
            let data = some_bytes(&mut rng);
            let wire = peer.seal(&data);
            let mut pieces = Vec::new();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(rng.random_range(1..=rest.len().min(30_000)));
                pieces.push(piece);
                rest = later;
            }
            let sending = async {
                for piece in pieces {
                    peer.tcp.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let (_, (received, end)) = tokio::join!(sending, receive(&mut sealed, data.len()));
            assert!(received == data && end.is_none());
            let answer = some_bytes(&mut rng);
            let writing = async {
                sealed.write_all(&answer).await.unwrap();
                sealed.flush().await.unwrap();
            };
            let (_, received) = tokio::join!(in_time(writing), peer.receive(answer.len()));
            assert!(received.unwrap() == answer);
        }
    }
}

#[tokio::test]
async fn small_reads_get_all_bytes() {
    let (mut sealed, mut peer) = pair(false).await;
    let data: Vec<u8> = (0..50_000_u32).map(|at| at as u8).collect();
    peer.send(&data).await;
    peer.close().await;
    let mut received = Vec::new();
    let mut bytes = [0; 777];
    while let read @ 1.. = in_time(sealed.read(&mut bytes)).await.unwrap() {
        received.extend_from_slice(&bytes[..read]);
    }
    assert!(received == data);
}

#[tokio::test]
async fn either_side_may_close_first_and_the_other_direction_goes_on() {
    for is_client in [true, false] {
        let (mut sealed, mut peer) = pair(is_client).await;
        peer.send(b"last").await;
        peer.close().await;
        let (data, end) = receive(&mut sealed, usize::MAX).await;
        assert!(data == b"last" && matches!(end, Some(Ok(()))));
        sealed.write_all(b"answer").await.unwrap();
        sealed.shutdown().await.unwrap();
        assert_eq!(peer.receive(usize::MAX).await.unwrap(), b"answer");
        assert!(peer.tls.process_new_packets().unwrap().peer_has_closed());

        let (mut sealed, mut peer) = pair(is_client).await;
        sealed.write_all(b"last").await.unwrap();
        sealed.shutdown().await.unwrap();
        assert_eq!(peer.receive(usize::MAX).await.unwrap(), b"last");
        assert!(sealed.write_all(b"late").await.is_err());
        peer.send(b"answer").await;
        peer.close().await;
        assert_eq!(receive(&mut sealed, usize::MAX).await.0, b"answer");
    }
}

#[tokio::test]
async fn a_connection_that_ends_without_a_close_is_an_error_after_its_data() {
    for resets in [true, false] {
        for cut in [0, 1, 4, 10] {
            let (mut sealed, mut peer) = pair(false).await;
            peer.send(b"good").await;
            assert_eq!(receive(&mut sealed, 4).await.0, b"good");
            let wire = peer.seal(b"never");
            peer.tcp.write_all(&wire[..cut]).await.unwrap();
            if resets {
                SockRef::from(&peer.tcp).set_linger(Some(Duration::ZERO)).unwrap();
                drop(peer.tcp);
            } else {
                peer.tcp.shutdown().await.unwrap();
            }
            let (data, end) = receive(&mut sealed, usize::MAX).await;
            let kind = if resets { ErrorKind::ConnectionReset } else { ErrorKind::UnexpectedEof };
            assert_eq!((&data[..], end.unwrap().unwrap_err().kind()), (&b""[..], kind));
            assert!(fill(&mut sealed).await.end.unwrap().is_err());
        }
    }
}

#[tokio::test]
async fn a_forged_record_ends_the_connection_and_the_peer_learns_why() {
    let (mut sealed, mut peer) = pair(true).await;
    peer.send(b"good").await;
    let mut wire = peer.seal(b"never");
    *wire.last_mut().unwrap() ^= 1;
    peer.tcp.write_all(&wire).await.unwrap();
    let (data, end) = receive(&mut sealed, usize::MAX).await;
    assert_eq!((&data[..], end.unwrap().unwrap_err().kind()), (&b"good"[..], ErrorKind::InvalidData));
    assert!(sealed.write_all(b"more").await.is_err());
    let alert = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
    assert_eq!(peer.receive(usize::MAX).await.unwrap_err(), alert);
}

#[tokio::test]
async fn no_more_is_sealed_before_the_kernel_takes_it() {
    let (mut sealed, _peer) = pair(true).await;
    let data = vec![0; 1 << 20];
    let mut written = 0;
    let write = |cx: &mut Context<'_>| Pin::new(&mut sealed).poll_write(cx, &data);
    let mut write = write;
    while let Poll::Ready(taken) = poll_fn(|cx| Poll::Ready(write(cx))).await {
        written += taken.unwrap();
        assert!(written < 1 << 30);
    }
    assert!(sealed.has_sealed());
    let waiting: usize = sealed.waiting.records.iter().map(Vec::len).sum();
    assert!(waiting < TLS_BUFFER_BYTES + RECORD_BYTES_MAX, "{waiting}");
}

#[tokio::test]
async fn an_idle_connection_is_alive_until_it_gets_anything_but_tickets() {
    for ends in [true, false] {
        let (mut sealed, mut peer) = pair(true).await;
        // The tickets of the server may still be on their way.
        for _ in 0..10 {
            assert!(sealed.is_alive());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if ends {
            peer.close().await;
        } else {
            peer.send(b"data").await;
        }
        let died = async {
            while sealed.is_alive() {
                tokio::task::yield_now().await;
            }
        };
        in_time(died).await;
    }
}

/// Accepts a client that sends more in one packet with the end of its handshake: what `more` gives to rustls, and then the
/// bytes that it returns.
async fn accept_with(more: impl FnOnce(&mut Connection) -> Vec<u8>) -> (io::Result<Sealed>, Peer) {
    let (client, server) = configs();
    let ((here, there), name) = (tcp_pair().await, ServerName::try_from("proxy").unwrap());
    let mut peer = Peer { tls: rustls::ClientConnection::new(client, name).unwrap().into(), tcp: here };
    let shaking = async {
        let mut bytes = [0; 4096];
        while peer.tls.is_handshaking() {
            let wire = peer.sealed();
            peer.tcp.write_all(&wire).await.unwrap();
            let read = peer.tcp.read(&mut bytes).await.unwrap();
            peer.tls.read_tls(&mut &bytes[..read]).unwrap();
            peer.tls.process_new_packets().unwrap();
        }
        let after = more(&mut peer.tls);
        let wire = [peer.sealed(), after].concat();
        // The other side may refuse it before it has all.
        let _ = peer.tcp.write_all(&wire).await;
    };
    let ((), accepted) = in_time(async { tokio::join!(shaking, accept(server, there)) }).await;
    (accepted.map(|(sealed, _certificates)| sealed), peer)
}

#[tokio::test]
async fn data_and_the_end_that_come_with_the_handshake_are_kept() {
    let (accepted, _peer) = accept_with(|tls| {
        tls.writer().write_all(b"data").unwrap();
        tls.send_close_notify();
        Vec::new()
    })
    .await;
    let (data, end) = receive(&mut accepted.unwrap(), usize::MAX).await;
    assert!(data == b"data" && matches!(end, Some(Ok(()))));
}

#[tokio::test]
async fn a_key_update_that_comes_with_the_handshake_is_answered() {
    let (accepted, mut peer) = accept_with(|tls| {
        tls.refresh_traffic_keys().unwrap();
        tls.writer().write_all(b"data").unwrap();
        Vec::new()
    })
    .await;
    let mut sealed = accepted.unwrap();
    assert_eq!(receive(&mut sealed, 4).await.0, b"data");
    sealed.write_all(b"answer").await.unwrap();
    assert_eq!(peer.receive(6).await.unwrap(), b"answer");
}

#[tokio::test]
async fn a_handshake_in_small_records_and_pieces_succeeds() {
    let (client, server) = configs();
    let (mut client, mut server) = (ClientConfig::clone(&client), ServerConfig::clone(&server));
    (client.max_fragment_size, server.max_fragment_size) = (Some(64), Some(64));
    server.send_tls13_tickets = 0; // They must not span records.
    for is_client in [true, false] {
        let (here, peer) = tcp_pair().await;
        let name = ServerName::try_from("proxy").unwrap();
        let tls = match is_client {
            true => rustls::ServerConnection::new(Arc::new(server.clone())).unwrap().into(),
            false => rustls::ClientConnection::new(Arc::new(client.clone()), name.clone()).unwrap().into(),
        };
        here.set_nodelay(true).unwrap();
        peer.set_nodelay(true).unwrap();
        let mut peer = Peer { tls, tcp: peer };
        let shaking = async {
            let mut bytes = [0; 100];
            loop {
                for piece in peer.sealed().chunks(7) {
                    peer.tcp.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                if !peer.tls.is_handshaking() {
                    break;
                }
                let read = peer.tcp.read(&mut bytes).await.unwrap();
                peer.tls.read_tls(&mut &bytes[..read]).unwrap();
                peer.tls.process_new_packets().unwrap();
            }
        };
        let own = async {
            match is_client {
                true => connect(Arc::new(client.clone()), name, here).await.unwrap(),
                false => accept(Arc::new(server.clone()), here).await.unwrap().0,
            }
        };
        let ((), mut sealed) = in_time(async { tokio::join!(shaking, own) }).await;
        peer.send(b"data").await;
        assert_eq!(receive(&mut sealed, 4).await.0, b"data");
        sealed.write_all(b"answer").await.unwrap();
        assert_eq!(peer.receive(6).await.unwrap(), b"answer");
    }
}

#[tokio::test]
async fn a_record_that_is_too_long_for_rustls_or_this_crate_may_not_follow_the_handshake() {
    for length in [RECORD_BYTES_MAX as u16 - 4, 18_000] {
        let header = [&[23, 3, 3][..], &length.to_be_bytes()].concat();
        let (accepted, _peer) = accept_with(|_| [header, vec![0; usize::from(length) - 1]].concat()).await;
        let is_refused = match accepted {
            Ok(mut sealed) => receive(&mut sealed, usize::MAX).await.1.unwrap().is_err(),
            Err(_) => true,
        };
        assert!(is_refused);
    }
}

#[tokio::test]
async fn a_handshake_of_garbage_or_without_end_fails() {
    let endless = [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 0x4000 - 4]].concat();
    let rest = [&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat().repeat(8);
    let mut rng = StdRng::seed_from_u64(4);
    let mut garbage = vec![b"GET / HTTP/1.1\r\n\r\n".to_vec(), [endless, rest].concat(), vec![0; 100], Vec::new()];
    garbage.extend((0..20).map(|_| (0..rng.random_range(1..300)).map(|_| rng.random()).collect()));
    for bytes in garbage {
        let (mut here, there) = tcp_pair().await;
        let sending = async {
            // The other side may refuse it before it has all.
            let _ = here.write_all(&bytes).await;
            let _ = here.shutdown().await;
        };
        let (_, accepted) = in_time(async { tokio::join!(sending, accept(configs().1, there)) }).await;
        assert!(accepted.is_err(), "{:?}", &bytes[..bytes.len().min(10)]);
    }
}

use crate::harness::{Fleet, Running, chain, in_time, pair, read_exactly, spawn};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tradewind_split::status::{Hop, Status};
use tradewind_split::tls::HopTls;

const SIZE: usize = 3;

fn pooled() -> Value {
    json!({"pool": SIZE})
}

fn hop(status: &Status, name: &str) -> Hop {
    status.hops.get(name).cloned().unwrap_or_default()
}

fn is_full(status: &Status) -> bool {
    hop(status, "proxy-1").ready == SIZE
}

/// Runs one flow: a byte each way, and its end.
async fn flow(listener: &TcpListener, entry: &Running) {
    let connecting = TcpStream::connect(entry.address);
    let (client, accepted) = tokio::join!(in_time(connecting), in_time(listener.accept()));
    let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
    client.write_all(b"?").await.unwrap();
    assert_eq!(read_exactly(&mut server, 1).await, b"?");
    server.write_all(b"!").await.unwrap();
    assert_eq!(read_exactly(&mut client, 1).await, b"!");
    client.shutdown().await.unwrap();
    assert_eq!(in_time(server.read(&mut [0])).await.unwrap(), 0);
    server.shutdown().await.unwrap();
    assert_eq!(in_time(client.read(&mut [0])).await.unwrap(), 0);
}

/// An entry that forwards to a destination through `proxy-1` at an address.
fn entry_config(destination: SocketAddr, exit: SocketAddr, limits: &Value) -> Value {
    json!({
        "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination}], "identity": "unused",
        "routes": [{"destination": destination, "through": ["proxy-1"]}],
        "proxies": {"proxy-1": exit}, "allow": [destination.to_string()], "limits": limits,
    })
}

fn exit_config(listen: SocketAddr, destination: SocketAddr) -> Value {
    json!({
        "listeners": [{"listen": listen, "way": "hop"}], "identity": "unused",
        "allow": [destination.to_string()], "limits": {"drain_timeout_ms": 60_000},
    })
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[tokio::test]
async fn flows_take_connections_that_are_ready_and_each_keeps_its_own() {
    for hops in [1, 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chain = chain(listener.local_addr().unwrap(), hops, &pooled());
        flow(&listener, &chain[0]).await;
        for proxy in &chain[..hops] {
            proxy.until(|status| status.hops.values().all(|hop| hop.ready == SIZE)).await;
        }
        let waiting = chain[1].until(|status| status.waiting == SIZE && status.open == 0).await;
        assert_eq!(waiting.closed, 1);
        let mut pairs = Vec::new();
        for _ in 0..SIZE {
            pairs.push(pair(&listener, &chain).await);
        }
        for (index, (client, server)) in pairs.iter_mut().enumerate() {
            client.write_all(&[index as u8]).await.unwrap();
            assert_eq!(read_exactly(server, 1).await, [index as u8]);
            server.write_all(&[index as u8]).await.unwrap();
            assert_eq!(read_exactly(client, 1).await, [index as u8]);
        }
        let status = chain[0].until(is_full).await;
        let counted = hop(&status, "proxy-1");
        assert_eq!((counted.taken, counted.missed, counted.dead), (SIZE as u64, 1, 0), "{hops} hops");
        assert!(counted.first_byte_ms_taken.is_some() && counted.first_byte_ms_missed.is_some());
        // Each flow has a connection, and as many are ready.
        let status = chain[1].until(|status| (status.open, status.waiting) == (SIZE, SIZE)).await;
        assert_eq!(status.refused.len(), 0);
    }
}

#[tokio::test]
async fn without_a_pool_nothing_is_kept_ready() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let chain = chain(listener.local_addr().unwrap(), 1, &json!({}));
    flow(&listener, &chain[0]).await;
    flow(&listener, &chain[0]).await;
    let status = chain[0].status();
    let counted = hop(&status, "proxy-1");
    assert_eq!((counted.taken, counted.missed, counted.dialed, counted.ready), (0, 2, 2, 0));
}

#[tokio::test]
async fn a_flow_never_gets_a_connection_that_died() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (destination, fleet) = (listener.local_addr().unwrap(), Fleet::new());
    let mut exit = Running::start(exit_config(any(), destination), Some(fleet.identity("proxy-1")));
    let config = entry_config(destination, exit.address, &pooled());
    let entry = Running::start(config, Some(fleet.identity("entry")));
    flow(&listener, &entry).await;
    entry.until(is_full).await;
    // A drain does not wait for connections without a flow.
    exit.order_to_stop();
    in_time(exit.stopped()).await;
    let status = exit.status();
    assert_eq!((status.unused, status.waiting, status.reset), (SIZE as u64, 0, 0));
    let exit = Running::start(exit_config(exit.address, destination), Some(fleet.identity("proxy-1")));
    flow(&listener, &entry).await;
    let status = entry.until(|status| status.closed == 2).await;
    let counted = hop(&status, "proxy-1");
    assert_eq!((counted.dead, status.refused.len()), (SIZE as u64, 0));
    drop(exit);
}

/// Forwards connections to an address. If `cut` is set, connections of before end at the next byte from the client.
async fn forward(to: SocketAddr, cut: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let (cut, was_cut) = (cut.clone(), cut.load(Ordering::SeqCst));
            spawn(async move {
                let mut far = TcpStream::connect(to).await.unwrap();
                let relaying = async { copy_bidirectional(&mut near, &mut far).await.map(drop) };
                if was_cut {
                    let _ = relaying.await;
                    return;
                }
                let is_cut = async {
                    while !cut.load(Ordering::SeqCst) {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! { _ = relaying => return, () = is_cut => {} }
                let _ = near.readable().await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_flow_whose_ready_connection_breaks_opens_another_and_loses_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (destination, fleet) = (listener.local_addr().unwrap(), Fleet::new());
    let exit = Running::start(exit_config(any(), destination), Some(fleet.identity("proxy-1")));
    let cut = Arc::new(AtomicBool::new(false));
    let between = forward(exit.address, cut.clone()).await;
    let entry = Running::start(entry_config(destination, between, &pooled()), Some(fleet.identity("entry")));
    flow(&listener, &entry).await;
    entry.until(|status| is_full(status) && status.closed == 1).await;
    cut.store(true, Ordering::SeqCst);
    for _ in 0..SIZE {
        flow(&listener, &entry).await;
    }
    let status = entry.until(|status| status.closed == SIZE as u64 + 1).await;
    assert_eq!(status.refused.len(), 0);
    assert!(hop(&status, "proxy-1").dead >= 1, "{status:?}");
}

/// Accepts connections as a proxy, and closes each after its handshake.
async fn closing(identity: Arc<dyn HopTls>) -> SocketAddr {
    let (listener, acceptor) = (TcpListener::bind(any()).await.unwrap(), TlsAcceptor::from(identity.server()));
    let address = listener.local_addr().unwrap();
    spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            spawn(acceptor.accept(tcp));
        }
    });
    address
}

#[tokio::test]
async fn a_proxy_that_closes_all_connections_is_not_dialed_again_and_again() {
    const FLOWS: u64 = 20;
    let fleet = Fleet::new();
    let exit = closing(fleet.identity("proxy-1")).await;
    let destination = "127.0.0.1:1".parse().unwrap();
    let entry = Running::start(entry_config(destination, exit, &pooled()), Some(fleet.identity("entry")));
    for _ in 0..FLOWS {
        let mut client = TcpStream::connect(entry.address).await.unwrap();
        assert!(in_time(client.read(&mut [0])).await.is_err());
    }
    let status = entry.until(|status| hop(status, "proxy-1").dead > 0).await;
    assert!(hop(&status, "proxy-1").dialed < 2 * FLOWS, "{status:?}");
}

#[tokio::test]
async fn connections_are_closed_when_no_flow_comes_and_replaced_when_old() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = json!({"pool": SIZE, "pool_idle_ms": 1, "pool_age_ms": 500_000});
    let idle = chain(listener.local_addr().unwrap(), 1, &limits);
    flow(&listener, &idle[0]).await;
    let old = chain(listener.local_addr().unwrap(), 1, &json!({"pool": SIZE, "pool_age_ms": 1_000}));
    flow(&listener, &old[0]).await;
    old[0].until(|status| hop(status, "proxy-1").dialed > 2 * SIZE as u64).await;
    flow(&listener, &old[0]).await;
    let status = idle[0].until(|status| hop(status, "proxy-1").ready == 0 && status.closed == 1).await;
    idle[1].until(|status| (status.waiting, status.open) == (0, 0)).await;
    assert_eq!(hop(&status, "proxy-1").dead, 0);
}

#[tokio::test]
async fn a_new_configuration_keeps_or_closes_the_pool() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (destination, fleet) = (listener.local_addr().unwrap(), Fleet::new());
    let exit = Running::start(exit_config(any(), destination), Some(fleet.identity("proxy-1")));
    let replace = |running: &Running, config: Value| {
        running.handle.replace(serde_json::from_value(config).unwrap(), None).unwrap();
    };
    let config = entry_config(destination, exit.address, &pooled());
    let entry = Running::start(config.clone(), Some(fleet.identity("entry")));
    flow(&listener, &entry).await;
    entry.until(is_full).await;
    replace(&entry, config);
    assert!(is_full(&entry.status()), "the next proxy is the same");

    // A request over a connection that was ready is held to the configuration of now.
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = json!({"allow": [other.local_addr().unwrap().to_string()]});
    let mut changed = exit_config(any(), destination);
    changed.as_object_mut().unwrap().extend(refusing.as_object().unwrap().clone());
    replace(&exit, changed);
    let mut client = TcpStream::connect(entry.address).await.unwrap();
    assert!(in_time(client.read(&mut [0])).await.is_err());
    assert_eq!(hop(&entry.status(), "proxy-1").taken, 1);

    replace(&entry, entry_config(destination, exit.address, &json!({})));
    let status = entry.status();
    assert_eq!((hop(&status, "proxy-1").ready, hop(&status, "proxy-1").dead), (0, 0));
    exit.until(|status| status.waiting == 0).await;
}

#[tokio::test]
async fn a_ready_connection_is_held_to_the_listener_of_now() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let destination = listener.local_addr().unwrap();
    let changes = [
        json!({"listen": any(), "way": "hop", "clients": ["10.0.0.0/8"]}),
        json!({"listen": any(), "way": "forward", "destination": "127.0.0.1:1"}),
    ];
    for changed in changes {
        let fleet = Fleet::new();
        let exit = Running::start(exit_config(any(), destination), Some(fleet.identity("proxy-1")));
        let config = entry_config(destination, exit.address, &pooled());
        let entry = Running::start(config, Some(fleet.identity("entry")));
        flow(&listener, &entry).await;
        entry.until(is_full).await;
        let config = json!({"listeners": [changed], "identity": "unused", "allow": [destination.to_string()]});
        exit.handle.replace(serde_json::from_value(config).unwrap(), None).unwrap();
        let mut client = TcpStream::connect(entry.address).await.unwrap();
        assert!(in_time(client.read(&mut [0])).await.is_err());
        assert_eq!(hop(&entry.status(), "proxy-1").taken, 0);
    }
}

/// An identity that can be renewed.
#[derive(Debug)]
struct Renewable(RwLock<Arc<dyn HopTls>>);

impl Renewable {
    fn now(&self) -> Arc<dyn HopTls> {
        self.0.read().unwrap().clone()
    }
}

impl HopTls for Renewable {
    fn client(&self) -> Arc<ClientConfig> {
        self.now().client()
    }

    fn server(&self) -> Arc<ServerConfig> {
        self.now().server()
    }

    fn peer_name(&self, certificates: &[CertificateDer<'_>]) -> Option<String> {
        self.now().peer_name(certificates)
    }
}

#[tokio::test]
async fn connections_of_a_former_certificate_are_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (destination, fleet) = (listener.local_addr().unwrap(), Fleet::new());
    let exit = Running::start(exit_config(any(), destination), Some(fleet.identity("proxy-1")));
    let identity = Arc::new(Renewable(RwLock::new(fleet.identity("entry"))));
    let entry = Running::start(entry_config(destination, exit.address, &pooled()), Some(identity.clone()));
    flow(&listener, &entry).await;
    entry.until(is_full).await;
    *identity.0.write().unwrap() = fleet.identity("entry");
    flow(&listener, &entry).await;
    let status = entry.until(is_full).await;
    let counted = hop(&status, "proxy-1");
    assert_eq!((counted.taken, counted.missed, counted.dead), (0, 2, 0));
    exit.until(|status| status.unused == SIZE as u64).await;
}

#[tokio::test]
async fn listeners_to_one_destination_may_have_different_routes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (destination, fleet) = (listener.local_addr().unwrap(), Fleet::new());
    let exit = Running::start(exit_config(any(), destination), Some(fleet.identity("proxy-1")));
    let mut config = entry_config(destination, exit.address, &pooled());
    config["listeners"] = json!([
        {"listen": any(), "way": "forward", "destination": destination, "name": "proxied"},
        {"listen": any(), "way": "forward", "destination": destination, "name": "direct",
         "routes": [{"destination": destination, "through": []}]},
    ]);
    let entry = Running::start(config, Some(fleet.identity("entry")));
    for (index, through) in [vec!["proxy-1".to_owned()], Vec::new()].into_iter().enumerate() {
        let at = entry.handle.addresses()[index];
        let (client, accepted) = tokio::join!(in_time(TcpStream::connect(at)), in_time(listener.accept()));
        let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
        client.write_all(b"some").await.unwrap();
        read_exactly(&mut server, 4).await;
        let name = Some(["proxied", "direct"][index].to_owned());
        let traffic = entry.status().traffic;
        let counted = traffic.iter().find(|each| each.listener == name).unwrap();
        assert_eq!((&counted.through, counted.connections, counted.bytes_up), (&through, 1, 4));
    }
    assert_eq!(exit.status().bytes_up, 4);
}

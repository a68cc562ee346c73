//! Proxies, destinations and identities for the tests, all on loopback.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tradewind_split::status::Status;
use tradewind_split::tls::HopTls;
use tradewind_split::{Config, Handle, Proxy};

/// Longest time that a step of a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A fleet's CA, from which proxies get identities.
pub(crate) struct Fleet {
    issuer: Issuer<'static, KeyPair>,
    ca: CertificateDer<'static>,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let ca = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), ca }
    }

    pub(crate) fn identity(&self, name: &str) -> Arc<dyn HopTls> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = || PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(aws_lc_rs::default_provider()));
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(vec![certificate.clone()], key())
            .unwrap();
        client.enable_secret_extraction = true;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().unwrap();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key())
            .unwrap();
        server.enable_secret_extraction = true;
        Arc::new(Identity { client: Arc::new(client), server: Arc::new(server) })
    }
}

#[derive(Debug)]
struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl HopTls for Identity {
    fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    fn peer_name(&self, certificates: &[CertificateDer<'_>]) -> Option<String> {
        // The tests check that a certificate of the fleet is required, and not which name it carries.
        certificates.first().map(|_| "peer".to_owned())
    }
}

/// A running proxy; dropping it stops it.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) handle: Handle,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Running {
    pub(crate) fn start(config: serde_json::Value, tls: Option<Arc<dyn HopTls>>) -> Self {
        let config: Config = serde_json::from_value(config).unwrap();
        let proxy = Proxy::bind(config, tls, None).unwrap();
        let handle = proxy.handle();
        let address = handle.addresses()[0];
        let stop = CancellationToken::new();
        let running = tokio::spawn(proxy.run(stop.clone()));
        Self { address, handle, stop, running }
    }

    pub(crate) fn order_to_stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn stopped(&mut self) {
        (&mut self.running).await.unwrap();
    }

    pub(crate) fn status(&self) -> Status {
        self.handle.status()
    }

    /// Waits until the state is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        let reached = async {
            while !wanted(&self.status()) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        let reached = timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "still {:?}", self.status());
        self.status()
    }
}

/// A proxy that forwards to `destination`, directly or through `hops` further proxies. Returns all, the entry first.
pub(crate) fn chain(destination: SocketAddr, hops: usize, limits: &serde_json::Value) -> Vec<Running> {
    let fleet = Fleet::new();
    let allow = serde_json::json!([destination.to_string()]);
    let name = |index: usize| format!("proxy-{index}");
    let mut proxies = serde_json::Map::new();
    let mut running = Vec::new();
    for index in (1..=hops).rev() {
        let config = serde_json::json!({
            "listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "identity": "unused",
            "proxies": proxies, "allow": allow, "limits": limits,
        });
        let proxy = Running::start(config, Some(fleet.identity(&name(index))));
        proxies.insert(name(index), proxy.address.to_string().into());
        running.push(proxy);
    }
    let route: Vec<_> = (1..=hops).map(name).collect();
    let entry = serde_json::json!({
        "listeners": [{"listen": "127.0.0.1:0", "way": "forward", "destination": destination}], "identity": "unused",
        "routes": [{"destination": destination, "through": route}],
        "proxies": proxies, "allow": allow, "limits": limits,
    });
    running.push(Running::start(entry, Some(fleet.identity("entry"))));
    running.reverse();
    running
}

/// Connects a client through a chain, and returns both of its ends: the client's and the destination's.
pub(crate) async fn pair(listener: &TcpListener, chain: &[Running]) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(chain[0].address).await.unwrap();
    let (server, _) = in_time(listener.accept()).await.unwrap();
    (client, server)
}

/// An address that answers no handshake, as a lost host would, while the sockets are held: its backlog of one is full.
pub(crate) async fn silent() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
        filling.push(stream.unwrap());
    }
    (address, (listener, filling))
}

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("the step takes too long")
}

pub(crate) fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(work)
}

pub(crate) async fn read_exactly(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    in_time(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// A file that has the token `secret` for the name `ann`.
pub(crate) fn token_file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    std::fs::write(file.path(), format!("ann:{hash}\n")).unwrap();
    file
}

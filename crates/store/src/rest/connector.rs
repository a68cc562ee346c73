//! Opens connections: TCP, TLS with rustls, and the proxy from the environment.

use crate::StoreConfig;
use crate::error::CA_FILE;
use crate::{Error, ErrorKind, Result};
use futures::future::BoxFuture;
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;

/// Time limit for TCP, proxy and TLS together; after it the connection counts as timed out.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time before the first TCP keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Interval between keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes after which the connection counts as lost. So a dead host, or a path that drops packets, is
/// noticed within 30 s, however long a live server takes to answer.
const KEEPALIVE_PROBES_MAX: u32 = 3;
/// A connection counts as lost if sent bytes stay unacknowledged for this long.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// Variables by which a user names the certificates to trust instead of the system's.
const NAMED_ROOTS: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The certificates to trust.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsRoots {
    /// A PEM file, in addition to the system's certificates.
    pub(crate) ca_file: Option<PathBuf>,
    /// More certificates, as PEM text.
    pub(crate) ca_pem: Option<String>,
    /// True if any connection will be HTTPS; reading the system's certificates costs some milliseconds.
    pub(crate) needed: bool,
    /// True if plain HTTP goes through no proxy, because the answers are credentials.
    pub(crate) plain_is_direct: bool,
}

impl TlsRoots {
    /// The certificates to trust for a store; `needed` sets the field of that name.
    pub(crate) fn of(config: &StoreConfig, needed: bool) -> Self {
        Self { ca_file: config.ca_file.clone(), ca_pem: config.ca_pem.clone(), needed, plain_is_direct: false }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections within its time limit, directly or through a proxy.
#[derive(Clone)]
pub(super) struct Connector {
    direct: HttpsConnector<HttpConnector>,
    tcp: HttpConnector,
    tls: Arc<rustls::ClientConfig>,
    proxies: Arc<Matcher>,
    plain_is_direct: bool,
    timeout: Duration,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

pub(super) fn connector(roots: &TlsRoots, timeout: Duration) -> Result<Connector> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES_MAX));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    tcp.set_connect_timeout(Some(timeout));
    let tls = tls_config(roots)?;
    let direct = HttpsConnectorBuilder::new()
        .with_tls_config(tls.clone())
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp.clone());
    let proxies = Arc::new(Matcher::from_env());
    Ok(Connector { direct, tcp, tls: Arc::new(tls), proxies, plain_is_direct: roots.plain_is_direct, timeout })
}

fn tls_config(roots: &TlsRoots) -> Result<rustls::ClientConfig> {
    let mut store = rustls::RootCertStore::empty();
    if roots.needed {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let is_named = NAMED_ROOTS.iter().any(|name| std::env::var_os(name).is_some());
        add_bundled(&mut store, is_named);
    }
    let mut trust = |pem: &str, origin: &str| {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| ca_file_error(origin, error))?;
        if certificates.is_empty() {
            return Err(ca_file_error(origin, "holds no PEM certificate"));
        }
        certificates.into_iter().try_for_each(|one| store.add(one).map_err(|error| ca_file_error(origin, error)))
    };
    if let Some(file) = &roots.ca_file {
        let origin = file.display().to_string();
        trust(&std::fs::read_to_string(file).map_err(|error| ca_file_error(&origin, error))?, &origin)?;
    }
    if let Some(pem) = &roots.ca_pem {
        trust(pem, "certificates of another machine")?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Configuration, "open", "tls", error))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(config)
}

/// Adds the certificates that this program brings, if the machine has none: in a container FROM scratch there is no
/// `/etc/ssl`. A user who names certificates trusts no others, even if those cannot be read.
fn add_bundled(store: &mut rustls::RootCertStore, is_named: bool) {
    if store.is_empty() && !is_named {
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
}

fn ca_file_error(origin: &str, message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Configuration, "open", origin, format!("{CA_FILE}: {message}"))
}

/// Returns whether a server answers for this machine alone, such as instance metadata or the credentials of a container.
/// A proxy would get, or invent, the credentials of this machine, or give those of its own.
fn is_of_this_machine(target: &Uri) -> bool {
    let host = target.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_link_local(),
        Ok(IpAddr::V6(address)) => address.is_unicast_link_local() || METADATA_V6.contains(&address),
        Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("metadata.google.internal"),
    }
}

/// Addresses of instance metadata: of EC2, of containers in EKS, of Google.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

impl Connector {
    /// The proxy that requests to `target` go through, as scheme, host and port; `None` without one.
    pub(super) fn proxy_of(&self, target: &Uri) -> Option<String> {
        let proxy = self.proxies.intercept(target).filter(|_| !self.is_direct(target))?;
        let uri = proxy.uri();
        Some(format!("{}://{}", uri.scheme_str().unwrap_or("http"), host_and_port(uri)))
    }

    fn is_direct(&self, target: &Uri) -> bool {
        is_of_this_machine(target) || self.plain_is_direct && target.scheme_str() == Some("http")
    }

    async fn connect(mut self, target: Uri) -> Result<Link, BoxError> {
        use tower_service::Service;
        let Some(proxy) = self.proxies.intercept(&target).filter(|_| !self.is_direct(&target)) else {
            return Ok(Link { stream: self.direct.call(target).await?, forwarding: false });
        };
        if target.scheme_str() != Some("https") {
            return Ok(Link { stream: self.direct.call(proxy.uri().clone()).await?, forwarding: true });
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.tcp);
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        let mut through = HttpsConnectorBuilder::new()
            .with_tls_config((*self.tls).clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tunnel);
        Ok(Link { stream: through.call(target).await?, forwarding: false })
    }
}

/// Host and port of an address, without the user and password that it may have.
fn host_and_port(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    uri.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

impl tower_service::Service<Uri> for Connector {
    type Response = Link;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Link, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let timeout = connector.timeout;
            let connecting = connector.connect(target);
            tokio::time::timeout(timeout, connecting).await.unwrap_or_else(|_| {
                let message = format!("no connection within {} s", timeout.as_secs_f64());
                Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
            })
        })
    }
}

/// An open connection. It records whether it leads to a proxy that needs absolute URIs.
pub(crate) struct Link {
    stream: Stream,
    forwarding: bool,
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.forwarding)
    }
}

impl hyper::rt::Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for Link {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_certificates_trusts_those_of_the_program() {
        let mut none = rustls::RootCertStore::empty();
        add_bundled(&mut none, false);
        assert_eq!(none.len(), webpki_roots::TLS_SERVER_ROOTS.len());
        assert!(none.len() > 100);
    }

    #[test]
    fn certificates_that_the_user_names_are_not_replaced() {
        let mut unreadable = rustls::RootCertStore::empty();
        add_bundled(&mut unreadable, true);
        assert!(unreadable.is_empty());
    }

    #[test]
    fn certificates_of_the_machine_are_not_extended() {
        let mut own = rustls::RootCertStore::empty();
        own.extend([webpki_roots::TLS_SERVER_ROOTS[0].clone()]);
        add_bundled(&mut own, false);
        assert_eq!(own.len(), 1);
    }

    #[test]
    fn a_proxy_is_named_without_its_password() {
        let name = |url: &str| host_and_port(&url.parse().unwrap());
        assert_eq!(name("http://user:secret@proxy:3128/"), "proxy:3128");
        assert_eq!(name("http://[::1]:3128"), "[::1]:3128");
        assert_eq!(name("http://proxy"), "proxy");
    }

    #[test]
    fn servers_of_this_machine_alone_are_reached_without_a_proxy() {
        for url in [
            "http://169.254.169.254/latest/api/token",
            "http://169.254.170.2/v2/credentials",
            "http://[fd00:ec2::254]/latest",
            "http://[fd00:ec2::23]/v1/credentials",
            "http://[fd20:ce::254]/computeMetadata",
            "http://metadata.google.internal/computeMetadata",
            "http://Metadata.Google.Internal./computeMetadata",
        ] {
            assert!(is_of_this_machine(&url.parse().unwrap()), "{url}");
        }
        for url in [
            "http://10.0.0.1/",
            "https://s3.us-east-1.amazonaws.com/",
            "http://[2001:db8::1]/",
            "http://metadata.example/",
        ] {
            assert!(!is_of_this_machine(&url.parse().unwrap()), "{url}");
        }
    }
}

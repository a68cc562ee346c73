//! Mutual TLS between the gateways of one fleet.
//!
//! Each gateway has an [`Identity`]: the fleet's CA, and a certificate by that CA for its own name. Both sides of a
//! connection show theirs, and nothing else is trusted: no public CA and no other fleet. TLS 1.3 only, and no session
//! resumption: a hop's connections live as long as the job, and a ticket would be one more secret to keep.
//!
//! - The side that connects checks that the certificate carries the wanted name: [`connect`].
//! - The side that accepts learns the name from the certificate, to compare it with the peer's Hello: [`accept`].
//!
//! An identity is renewed in place ([`Identity::renew`]): later handshakes use the new certificate, and open
//! connections continue.
//!
//! In TLS 1.3 the client finishes first. So it sees a server's refusal only at its first read, not in the handshake;
//! [`TlsError::explain`] describes such an error.

use crate::limits::{PEM_FILE_BYTES_MAX, TLS_HANDSHAKE_TIMEOUT};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// How the hops of a gateway are protected.
#[derive(Clone, Debug)]
pub enum Security {
    /// Mutual TLS with this identity.
    Tls(Arc<Identity>),
    /// No TLS: a flag requests it (benchmarks), or there are no hops.
    Plain,
}

/// Why a peer was refused, or an identity could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file of the identity cannot be read, or its content is wrong.
    #[error("identity file {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The files do not belong together, or have expired.
    #[error("the identity is not usable: {0}")]
    Identity(String),
    /// Not a name that a certificate can carry.
    #[error("{0:?} is not a gateway name")]
    Name(String),
    /// The other side is not the wanted peer, or refuses this gateway.
    #[error("{0}")]
    Peer(String),
    /// The other side has a certificate of the fleet, but not the present one of the gateway with this name.
    #[error("its certificate is not that of the present {0}")]
    Outdated(String),
    /// The connection broke.
    #[error("TLS handshake: {0}")]
    Io(#[from] io::Error),
}

impl TlsError {
    /// Describes an error of a TLS stream: for a refusal, what was wrong with the certificate; any other error
    /// unchanged.
    pub fn explain(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => Self::Peer(explain(tls)),
            None => Self::Io(error),
        }
    }
}

fn explain(error: &rustls::Error) -> String {
    use CertificateError as Cert;
    let reason = match error {
        rustls::Error::InvalidCertificate(Cert::Expired | Cert::ExpiredContext { .. }) => {
            "the peer's certificate has expired"
        }
        rustls::Error::InvalidCertificate(Cert::NotValidYet | Cert::NotValidYetContext { .. }) => {
            "the peer's certificate is not valid yet; compare the clocks"
        }
        rustls::Error::InvalidCertificate(Cert::NotValidForName | Cert::NotValidForNameContext { .. }) => {
            "the peer's certificate carries another name"
        }
        rustls::Error::InvalidCertificate(Cert::UnknownIssuer | Cert::BadSignature) => {
            "the peer's certificate is not of this fleet"
        }
        rustls::Error::NoCertificatesPresented => "the peer showed no certificate",
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the peer wants a certificate and got none"
        }
        rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "the peer says that our certificate is not of its fleet"
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the peer says that our certificate has expired"
        }
        rustls::Error::AlertReceived(AlertDescription::BadCertificate | AlertDescription::CertificateUnknown) => {
            "the peer does not accept our certificate"
        }
        rustls::Error::InvalidMessage(_) => "the peer does not speak TLS",
        other => return format!("TLS: {other}"),
    };
    reason.to_owned()
}

/// The clock that validity is checked against; tests replace it.
pub type Clock = Arc<dyn TimeProvider>;

/// The machine's own clock.
pub fn machine_clock() -> Clock {
    Arc::new(DefaultTimeProvider)
}

/// The identity of a gateway.
pub struct Identity {
    name: String,
    ca: CertificateDer<'static>,
    clock: Clock,
    strangers: Strangers,
    configs: RwLock<Configs>,
}

/// Whether the accepting side admits a peer that shows no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// Refused by gateways.
    Refused,
    /// Accepted by owners, for enrolment.
    Accepted,
}

#[derive(Clone)]
struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads `ca.pem`, `cert.pem` and `key.pem` from a folder.
    ///
    /// # Errors
    /// A file is missing or not PEM; the key does not match the certificate; the certificate is not by the CA, or is
    /// not valid now.
    pub fn load(folder: &Path) -> Result<Self, TlsError> {
        let ca = one_certificate(&folder.join("ca.pem"))?;
        let certificate = one_certificate(&folder.join("cert.pem"))?;
        let key_path = folder.join("key.pem");
        let key = PrivateKeyDer::from_pem_slice(&read_small(&key_path)?)
            .map_err(|error| TlsError::File { path: key_path, reason: error.to_string() })?;
        Self::new(ca, certificate, key)
    }

    /// Builds an identity from its parts, checked as in [`Identity::load`].
    ///
    /// # Errors
    /// The parts do not belong together, or the certificate is not valid now.
    pub fn new(
        ca: CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsError> {
        Self::with(ca, certificate, key, Strangers::Refused, machine_clock())
    }

    /// Like [`Identity::new`], with another clock, and optionally open to peers without a certificate.
    ///
    /// # Errors
    /// As [`Identity::new`].
    pub fn with(
        ca: CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        strangers: Strangers,
        clock: Clock,
    ) -> Result<Self, TlsError> {
        let name = certificate_name(&certificate).map_err(|error| TlsError::Identity(error.to_string()))?;
        let configs = RwLock::new(Configs::new(&ca, certificate, key, strangers, &clock)?);
        Ok(Self { name, ca, clock, strangers, configs })
    }

    /// Replaces certificate and key, for all handshakes from now on. The name stays the same.
    ///
    /// # Errors
    /// They do not fit this gateway; nothing has changed.
    pub fn renew(&self, certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> Result<(), TlsError> {
        let name = certificate_name(&certificate).map_err(|error| TlsError::Identity(error.to_string()))?;
        if name != self.name {
            return Err(TlsError::Identity(format!("the certificate is of {name}, this gateway is {}", self.name)));
        }
        let fresh = Configs::new(&self.ca, certificate, key, self.strangers, &self.clock)?;
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The gateway's name, as its certificate carries it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn configs(&self) -> Configs {
        self.configs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Configs {
    fn new(
        ca: &CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        strangers: Strangers,
        clock: &Clock,
    ) -> Result<Self, TlsError> {
        let unusable = |error: rustls::Error| TlsError::Identity(own_fault(&error));
        let verifier_fault = |error: &dyn fmt::Display| TlsError::Identity(error.to_string());
        let name = certificate_name(&certificate).map_err(|error| TlsError::Identity(error.to_string()))?;
        let (roots, provider) = (trust(ca)?, Arc::new(provider()));
        let now = clock.current_time().ok_or_else(|| TlsError::Identity("the clock cannot be read".to_owned()))?;

        let server_verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| verifier_fault(&error))?;
        server_verifier.verify_server_cert(&certificate, &[], &server_name(&name)?, &[], now).map_err(unusable)?;
        let client_verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        let client_verifier = match strangers {
            Strangers::Refused => client_verifier,
            Strangers::Accepted => client_verifier.allow_unauthenticated(),
        };
        let client_verifier = client_verifier.build().map_err(|error| verifier_fault(&error))?;

        let mut client = ClientConfig::builder_with_details(provider.clone(), clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .with_webpki_verifier(server_verifier)
            .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
            .map_err(unusable)?;
        client.resumption = rustls::client::Resumption::disabled();
        // After the handshake the data plane seals records itself, with the keys that rustls negotiated.
        client.enable_secret_extraction = true;
        let mut server = ServerConfig::builder_with_details(provider, clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(client_verifier)
            .with_single_cert(vec![certificate], key)
            .map_err(unusable)?;
        without_resumption(&mut server);
        server.enable_secret_extraction = true;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// Trust in the fleet's CA and nothing else.
pub(crate) fn trust(ca: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).map_err(|error| TlsError::Identity(own_fault(&error)))?;
    Ok(Arc::new(roots))
}

/// Disables session resumption.
pub(crate) fn without_resumption(server: &mut ServerConfig) {
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
}

fn own_fault(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "its certificate is not valid yet; check the clock".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "cert.pem is not signed by ca.pem".to_owned()
        }
        rustls::Error::InconsistentKeys(_) => "key.pem is not the key of cert.pem".to_owned(),
        other => other.to_string(),
    }
}

fn read_small(path: &Path) -> Result<Vec<u8>, TlsError> {
    let fault = |reason: String| TlsError::File { path: path.to_owned(), reason };
    let file = std::fs::File::open(path).map_err(|error| fault(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(PEM_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| fault(error.to_string()))?;
    if bytes.len() as u64 > PEM_FILE_BYTES_MAX {
        return Err(fault(format!("larger than {PEM_FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn one_certificate(path: &Path) -> Result<CertificateDer<'static>, TlsError> {
    let fault = |reason: String| TlsError::File { path: path.to_owned(), reason };
    CertificateDer::from_pem_slice(&read_small(path)?).map_err(|error| fault(error.to_string()))
}

/// The cheapest cipher suite that is still secure, as the only one, so that both sides always agree on it
/// (`docs/decisions/0002-tls.md` has the figures). The key exchange keeps today's recordings safe from later quantum
/// computers; the classical one is the second choice.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![aws_lc_rs::kx_group::X25519MLKEM768, aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    }
}

/// Configuration of the side that connects. Pass [`server_name`] of the wanted peer with each connection.
pub fn client_config(identity: &Identity) -> Arc<ClientConfig> {
    identity.configs().client
}

/// Configuration of the side that accepts: a client without a certificate of the fleet is refused.
pub fn server_config(identity: &Identity) -> Arc<ServerConfig> {
    identity.configs().server
}

/// A gateway's name in the form that TLS needs.
///
/// # Errors
/// It is not a DNS name.
pub fn server_name(peer: &str) -> Result<ServerName<'static>, TlsError> {
    match ServerName::try_from(peer.to_owned()) {
        Ok(name @ ServerName::DnsName(_)) => Ok(name),
        _ => Err(TlsError::Name(peer.to_owned())),
    }
}

/// Runs the handshake on a connection that this gateway opened to `peer`, and checks that the other side is `peer`.
///
/// # Errors
/// The other side is not `peer`, is of another fleet, or does not answer within [`TLS_HANDSHAKE_TIMEOUT`].
pub async fn connect<S>(identity: &Identity, peer: &str, stream: S) -> Result<client::TlsStream<S>, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    in_time(TlsConnector::from(client_config(identity)).connect(server_name(peer)?, stream)).await
}

/// Runs the handshake on a connection that a peer opened, and returns the peer's name.
///
/// # Errors
/// The peer shows no certificate of the fleet, or does not answer within [`TLS_HANDSHAKE_TIMEOUT`].
pub async fn accept<S>(identity: &Identity, stream: S) -> Result<(server::TlsStream<S>, String), TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stream = in_time(TlsAcceptor::from(server_config(identity)).accept(stream)).await?;
    let name = peer_name(stream.get_ref().1.peer_certificates())?;
    Ok((stream, name))
}

/// Like [`accept`], but also admits a peer without a certificate; its name is `None`.
///
/// # Errors
/// The peer shows a certificate that is not of the fleet, or does not answer within [`TLS_HANDSHAKE_TIMEOUT`].
pub async fn accept_any<S>(identity: &Identity, stream: S) -> Result<(server::TlsStream<S>, Option<String>), TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stream = in_time(TlsAcceptor::from(server_config(identity)).accept(stream)).await?;
    let certificates = stream.get_ref().1.peer_certificates();
    let name = certificates.map(|certificates| peer_name(Some(certificates))).transpose()?;
    Ok((stream, name))
}

pub(crate) async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> Result<T, TlsError> {
    match tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, handshake).await {
        Ok(done) => done.map_err(TlsError::explain),
        Err(_elapsed) => Err(TlsError::Io(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))),
    }
}

/// The gateway's name in the certificates that the peer showed in a finished handshake.
///
/// # Errors
/// The peer showed no certificate, or one that does not carry exactly one name.
pub fn peer_name(certificates: Option<&[CertificateDer<'_>]>) -> Result<String, TlsError> {
    let first = certificates
        .and_then(<[_]>::first)
        .ok_or_else(|| TlsError::Peer("the peer showed no certificate".to_owned()))?;
    certificate_name(first)
}

fn certificate_name(certificate: &CertificateDer<'_>) -> Result<String, TlsError> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| TlsError::Peer(format!("bad certificate: {error}")))?;
    let mut names = parsed.valid_dns_names();
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name.to_owned()),
        _ => Err(TlsError::Peer("a gateway's certificate carries exactly one name".to_owned())),
    }
}

#[cfg(test)]
mod tests;

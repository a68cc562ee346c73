//! The TLS of an enrolment, where one side has no identity yet.

use super::token::Exporter;
use crate::identity::IdentityError;
use crate::tls::{Clock, TlsError, provider, trust, without_resumption};
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use std::sync::Arc;
use tokio_rustls::{client, server};

const EXPORTER_LABEL: &[u8] = b"EXPORTER-tradewind-enrolment-1";

/// TLS of a gateway that is dialled: its certificate is self-signed and proves nothing.
pub(super) fn self_signed_server(key: &KeyPair, name: &str, clock: &Clock) -> Result<ServerConfig, TlsError> {
    let unusable = |error: IdentityError| TlsError::Identity(error.to_string());
    let params = CertificateParams::new(vec![name.to_owned()]).map_err(|error| unusable(error.into()))?;
    let certificate = params.self_signed(key).map_err(|error| unusable(error.into()))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_details(Arc::new(provider()), clock.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key))
        .map_err(|error| TlsError::Identity(error.to_string()))?;
    without_resumption(&mut config);
    Ok(config)
}

/// TLS of an owner that dials: it accepts any certificate, because the proofs decide.
pub(super) fn client_of_anybody(clock: &Clock) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = Arc::new(AnyCertificate(provider.signature_verification_algorithms));
    let mut config = ClientConfig::builder_with_details(Arc::new(provider), clock.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| TlsError::Identity(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// TLS of a gateway that calls home: the owner must have a certificate of the fleet.
pub(super) fn client_of_the_fleet(ca: &CertificateDer<'static>, clock: &Clock) -> Result<ClientConfig, TlsError> {
    let mut config = ClientConfig::builder_with_details(Arc::new(provider()), clock.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| TlsError::Identity(error.to_string()))?
        .with_root_certificates(trust(ca)?)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// A connection whose TLS exporter can be read.
pub(super) trait Exports {
    fn exporter(&self) -> Result<Exporter, TlsError>;
}

impl<S> Exports for client::TlsStream<S> {
    fn exporter(&self) -> Result<Exporter, TlsError> {
        let exported = self.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None);
        exported.map_err(|error| TlsError::Peer(error.to_string()))
    }
}

impl<S> Exports for server::TlsStream<S> {
    fn exporter(&self) -> Result<Exporter, TlsError> {
        let exported = self.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None);
        exported.map_err(|error| TlsError::Peer(error.to_string()))
    }
}

/// Accepts every certificate; the signature of the handshake is still checked.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

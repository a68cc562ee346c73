//! The part of the fleet's TLS that a split proxy needs. The gateway implements it with its identity.

use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;

/// The mutual TLS of one fleet. It is asked before each handshake, so that an identity can be renewed.
pub trait HopTls: fmt::Debug + Send + Sync {
    /// Configuration to dial a proxy. It must verify the proxy's name and show this proxy's certificate, allow TLS 1.3 only, and
    /// let secrets be extracted: after the handshake this crate frames the records itself.
    fn client(&self) -> Arc<ClientConfig>;
    /// Configuration to accept proxies. It must refuse a peer without a certificate of the fleet. Otherwise as for
    /// [`HopTls::client`].
    fn server(&self) -> Arc<ServerConfig>;
    /// The name in the certificates that a verified peer showed; `None` if there is not exactly one.
    fn peer_name(&self, certificates: &[CertificateDer<'_>]) -> Option<String>;
}

//! The way in from another proxy: mutual TLS, then its request.

use super::Opened;
use crate::conn::Conn;
use crate::header::Request;
use crate::proxy::Shared;
use crate::refusal::{Cause, Refusal};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsStream};

pub(super) async fn open(shared: &Shared, tcp: TcpStream) -> Result<Opened, Refusal> {
    let stranger = |detail: String| Refusal::new(Cause::Unauthenticated, detail);
    let tls = shared.tls.as_ref().ok_or_else(|| stranger("this proxy has no identity".to_owned()))?;
    let accepted = TlsAcceptor::from(tls.server()).accept(tcp).await.map_err(|error| stranger(error.to_string()))?;
    let certificates = accepted.get_ref().1.peer_certificates();
    let proxy = certificates.and_then(|certificates| tls.peer_name(certificates));
    let proxy = proxy.ok_or_else(|| stranger("a proxy without a name".to_owned()))?;
    let mut stream = Box::new(TlsStream::from(accepted));
    let request = Request::read(&mut stream).await.map_err(|error| Refusal::of_read(&error))?;
    Ok(Opened { client: Conn::Tls(stream), request, prefix: Vec::new(), proxy: Some(proxy) })
}

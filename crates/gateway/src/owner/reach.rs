//! Connects to one gateway, whichever side opens the connection.

use super::fleet::{Fleet, Member, UNIX};
use crate::limits::REACH_TIMEOUT;
use crate::tls::{self, TlsError};
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A connection that carries HTTP to a gateway.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens a connection to a gateway, or takes an idle one. Waits up to [`REACH_TIMEOUT`], including for its enrolment.
///
/// # Errors
/// The gateway has not enrolled, cannot be reached, or is another one. The failure is recorded.
pub(super) async fn reach(fleet: &Fleet, member: &Member) -> Result<Box<dyn Stream>, TlsError> {
    let reached = tokio::time::timeout(REACH_TIMEOUT, open(fleet, member)).await;
    let reached = reached.unwrap_or_else(|_elapsed| Err(late(member)));
    match &reached {
        Ok(_) => member.heard(),
        Err(error) => member.failed("not reached", error),
    }
    reached
}

async fn open(fleet: &Fleet, member: &Member) -> Result<Box<dyn Stream>, TlsError> {
    let gone = || TlsError::Peer("it was removed".to_owned());
    member.expires_unix_s.subscribe().wait_for(Option::is_some).await.map_err(|_| gone())?;
    let socket = member.dial.borrow().as_deref().and_then(|dial| dial.strip_prefix(UNIX)).map(str::to_owned);
    if let Some(path) = socket {
        return Ok(Box::new(UnixStream::connect(path).await?));
    }
    if member.calls_home {
        return Ok(Box::new(member.calls.take().await.ok_or_else(gone)?));
    }
    let address = dialled_address(member).await.ok_or_else(gone)?;
    let stream = match dial(fleet, member, &address).await {
        // Its certificate may have been renewed during the handshake. Then another handshake shows the new one.
        Err(TlsError::Outdated(_)) => dial(fleet, member, &address).await?,
        dialled => dialled?,
    };
    Ok(Box::new(stream))
}

async fn dial(fleet: &Fleet, member: &Member, address: &str) -> Result<TlsStream<TcpStream>, TlsError> {
    let stream = tls::connect(&fleet.identity, &member.name, crate::dial::dial(address).await?).await?;
    fleet.check_current(&member.name, stream.get_ref().1)?;
    Ok(stream)
}

/// Returns the address of a gateway that the owner dials; waits until it is known.
pub(super) async fn dialled_address(member: &Member) -> Option<String> {
    member.dial.subscribe().wait_for(Option::is_some).await.ok()?.clone()
}

fn late(member: &Member) -> TlsError {
    let waits = match (member.expires_unix_s.borrow().is_some(), member.calls_home) {
        (false, _) => "it has not enrolled",
        (true, true) => "it has not called",
        (true, false) => "no answer in time",
    };
    TlsError::Io(io::Error::new(io::ErrorKind::TimedOut, waits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrol::{Granted, NewKey, Registrar};
    use crate::identity::FleetCa;
    use crate::limits::{FLEET_CA_LIFE, IDENTITY_LIFE};
    use crate::owner::renewal::new_own;
    use crate::tls::{Identity, Strangers, machine_clock};
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    use std::sync::Arc;
    use std::time::SystemTime;
    use tokio::net::TcpListener;
    use tradewind_contract::GatewayEntry;

    fn new_key(registrar: &Registrar) -> (CertificateDer<'static>, NewKey) {
        let key = NewKey::generate("relay").unwrap();
        let Granted { certificate_pem, .. } = registrar.renew("relay", key.request()).unwrap();
        (CertificateDer::from_pem_slice(certificate_pem.as_bytes()).unwrap(), key)
    }

    #[tokio::test]
    async fn a_gateway_is_reached_although_its_certificate_is_renewed_during_the_handshake() {
        let ca = FleetCa::new(SystemTime::now(), FLEET_CA_LIFE).unwrap();
        let ca_der = ca.certificate().unwrap().der().clone();
        let registrar = Registrar::new("fleet".to_owned(), ca, machine_clock(), IDENTITY_LIFE).unwrap();
        let (certificate, key) = new_own(&registrar).unwrap();
        let identity =
            Identity::with(ca_der.clone(), certificate, key.key_der(), Strangers::Accepted, machine_clock()).unwrap();
        let (earlier, earlier_key) = new_key(&registrar);
        let relay = Identity::new(ca_der, earlier, earlier_key.key_der()).unwrap();
        let fleet = Arc::new(Fleet::new(registrar, Arc::new(identity), IDENTITY_LIFE, "unused".into()));
        fleet.registrar.roll().add_enrolled("relay");
        let (renewed, renewed_key) = new_key(&fleet.registrar);

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dial = Some(listener.local_addr().unwrap().to_string());
        let entry = GatewayEntry { token_hex: None, expires_unix_s: 0, calls_home: false, dial };
        let member = Member::new("relay", &entry, fleet.stop.child_token());
        member.expires_unix_s.send_replace(Some(0));
        let shared = fleet.clone();
        let served = tokio::spawn(async move {
            let (tcp, _) = listener.accept().await.unwrap();
            shared.registrar.roll().was_renewed("relay");
            drop(tls::accept(&relay, tcp).await);
            relay.renew(renewed, renewed_key.key_der()).unwrap();
            let (tcp, _) = listener.accept().await.unwrap();
            tls::accept(&relay, tcp).await.unwrap();
        });
        reach(&fleet, &member).await.map(drop).unwrap();
        served.await.unwrap();
    }
}

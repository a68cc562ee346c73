//! The owner's side of an enrolment.

use super::channel::{Exports, client_of_anybody};
use super::key::HeldKey;
use super::messages::{Claim, Done, Grant, Opening, receive, send};
use super::roll::{Refused, Roll};
use super::token::{Exporter, JoinToken, Statement, Step};
use super::{EnrolError, in_time};
use crate::identity::FleetCa;
use crate::tls::{self, Clock, TlsError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, server};
use tradewind_contract::KeyRequest;

/// Signs identities for the gateways of one fleet.
pub struct Registrar {
    ca: FleetCa,
    roll: Mutex<Roll>,
    clock: Clock,
    life: Duration,
    client: TlsConnector,
}

/// A signed identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Name of the gateway.
    pub name: String,
    /// When the identity expires.
    pub expires_unix_s: u64,
    /// The certificate.
    pub certificate_pem: String,
}

impl Registrar {
    /// Creates a registrar for one fleet. Its identities are valid for `life`.
    ///
    /// # Errors
    /// No TLS configuration could be made.
    pub fn new(fleet: String, ca: FleetCa, clock: Clock, life: Duration) -> Result<Self, TlsError> {
        let client = TlsConnector::from(Arc::new(client_of_anybody(&clock)?));
        Ok(Self { ca, roll: Mutex::new(Roll::new(fleet)), clock, life, client })
    }

    /// The gateways that may enrol.
    pub fn roll(&self) -> MutexGuard<'_, Roll> {
        self.roll.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the Unix epoch, by the owner's clock.
    pub fn now_unix_s(&self) -> u64 {
        self.clock.current_time().map_or(0, |now| now.as_secs())
    }

    /// Enrols the gateway `name` over a connection that this owner opened to it.
    ///
    /// # Errors
    /// The gateway did not prove its identity, or the connection ended. With [`Refused::Unknown`] it has no token.
    pub async fn enrol_dialled<S>(&self, name: &str, stream: S) -> Result<Granted, EnrolError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut stream = tls::in_time(self.client.connect(tls::server_name(name)?, stream)).await?;
        in_time(async {
            let exporter = stream.exporter()?;
            let (fleet, token) = self.fleet_and_token(name)?;
            let statement =
                Statement { step: Step::DialledOpening, fleet: &fleet, name, exporter: &exporter, payload: &[] };
            let proof_hex = statement.prove(&token);
            send(&mut stream, &Opening { fleet: fleet.clone(), name: name.to_owned(), proof_hex }).await?;
            let claim: Claim = receive(&mut stream).await?;
            let granted = self.grant(&claim, Step::DialledClaim, &exporter, Some(name))?;
            send(&mut stream, &self.message(&granted, Step::DialledGrant, &exporter)?).await?;
            let Done {} = receive(&mut stream).await?;
            Ok(granted)
        })
        .await
    }

    /// Enrols the gateway that opened this connection without a certificate. `granted` is called before the gateway
    /// gets its identity, so that the owner is ready for the gateway's next call.
    ///
    /// # Errors
    /// The gateway did not prove its identity, or the connection ended.
    pub async fn enrol_caller<S>(
        &self,
        stream: &mut server::TlsStream<S>,
        granted: impl FnOnce(&Granted),
    ) -> Result<(), EnrolError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        in_time(async {
            let exporter = stream.exporter()?;
            let claim: Claim = receive(stream).await?;
            let grant = self.grant(&claim, Step::CallingClaim, &exporter, None)?;
            granted(&grant);
            send(stream, &self.message(&grant, Step::CallingGrant, &exporter)?).await?;
            let Done {} = receive(stream).await?;
            Ok(())
        })
        .await
    }

    /// Signs a new key for a gateway that has an identity and asked over a connection that proved it.
    ///
    /// # Errors
    /// The request is for another name, or its own key did not sign it.
    pub fn renew(&self, name: &str, request: &KeyRequest) -> Result<Granted, EnrolError> {
        if request.name != name {
            return Err(Refused::Name { wanted: name.to_owned() }.into());
        }
        self.certify(name, &HeldKey::check(request)?)
    }

    fn grant(
        &self,
        claim: &Claim,
        step: Step,
        exporter: &Exporter,
        wanted: Option<&str>,
    ) -> Result<Granted, EnrolError> {
        let key = self.roll().admit(claim, step, exporter, wanted, self.now_unix_s())?;
        self.certify(&claim.key.name, &key)
    }

    fn certify(&self, name: &str, key: &HeldKey) -> Result<Granted, EnrolError> {
        let now_unix_s = self.now_unix_s();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now_unix_s);
        let certificate = self.ca.certify(name, key, now, self.life)?;
        let expires_unix_s = now_unix_s + self.life.as_secs();
        self.roll().signed(name, certificate.der(), expires_unix_s, now_unix_s);
        Ok(Granted { name: name.to_owned(), expires_unix_s, certificate_pem: certificate.pem() })
    }

    fn message(&self, granted: &Granted, step: Step, exporter: &Exporter) -> Result<Grant, Refused> {
        let (fleet, token) = self.fleet_and_token(&granted.name)?;
        let payload = granted.certificate_pem.as_bytes();
        let statement = Statement { step, fleet: &fleet, name: &granted.name, exporter, payload };
        Ok(Grant { proof_hex: statement.prove(&token), certificate_pem: granted.certificate_pem.clone() })
    }

    fn fleet_and_token(&self, name: &str) -> Result<(String, JoinToken), Refused> {
        let roll = self.roll();
        let token = roll.token(name).cloned().ok_or(Refused::Unknown)?;
        Ok((roll.fleet().to_owned(), token))
    }
}

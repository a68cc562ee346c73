//! The gateway's side of an enrolment.

use super::channel::{Exports, client_of_the_fleet, self_signed_server};
use super::messages::{Claim, Done, Grant, Opening, receive, send};
use super::token::{Exporter, JoinToken, Statement, Step};
use super::{EnrolError, NewKey, Refused, in_time};
use crate::limits::{FLEET_ID_CHARS_MAX, IDENTITY_CLOCK_SKEW, JOIN_TIMEOUT};
use crate::names::{check_node_name, is_label};
use crate::tls::{self, Clock, Identity, Strangers, TlsError};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tradewind_contract::{CONTRACT_VERSION, Join, OWNER_NAME};

/// Why a join document is unusable.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It holds an invalid value.
    #[error("join document: {0}")]
    Document(String),
    /// Its token has expired, even if the clocks differ.
    #[error("the join token has expired")]
    Expired,
    /// No key or no TLS configuration could be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A gateway that has no identity yet.
pub struct Candidate {
    fleet: String,
    name: String,
    token: JoinToken,
    ca: CertificateDer<'static>,
    /// Made here, and the same for every attempt: the owner certifies one key per token.
    key: NewKey,
    patience: Duration,
    clock: Clock,
    server: TlsAcceptor,
    client: TlsConnector,
}

impl Candidate {
    /// Checks the document and makes a key.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn new(join: &Join, clock: Clock) -> Result<Self, JoinError> {
        let wrong = |what: &str| Err(JoinError::Document(what.to_owned()));
        if join.contract != CONTRACT_VERSION {
            return wrong(&format!("it has contract {}, this gateway has contract {CONTRACT_VERSION}", join.contract));
        }
        if !is_label(&join.fleet, FLEET_ID_CHARS_MAX) {
            return wrong("a fleet's id has 1 to 64 characters of a-z, 0-9 and -");
        }
        check_node_name(&join.name).map_err(JoinError::Document)?;
        if join.name == OWNER_NAME {
            return wrong("this name belongs to the owner");
        }
        let Some(token) = JoinToken::from_hex(&join.token_hex) else {
            return wrong("token_hex is 64 hexadecimal digits");
        };
        let Ok(ca) = CertificateDer::from_pem_slice(join.ca_pem.as_bytes()) else {
            return wrong("ca_pem is not a certificate");
        };
        let now = clock.current_time().map_or(0, |now| now.as_secs());
        let last = join.expires_unix_s.saturating_add(IDENTITY_CLOCK_SKEW.as_secs());
        if last <= now {
            return Err(JoinError::Expired);
        }
        let patience = JOIN_TIMEOUT.min(Duration::from_secs(last - now));
        let no_key = |error: rcgen::Error| TlsError::Identity(error.to_string());
        let key = NewKey::generate(&join.name).map_err(no_key)?;
        let server = TlsAcceptor::from(Arc::new(self_signed_server(key.pair(), &join.name, &clock)?));
        let client = TlsConnector::from(Arc::new(client_of_the_fleet(&ca, &clock)?));
        Ok(Self { fleet: join.fleet.clone(), name: join.name.clone(), token, ca, key, patience, clock, server, client })
    }

    /// Time limit for enrolment attempts.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Enrols over a connection that a peer opened to this gateway, if the peer is the owner. Then call [`confirm`].
    ///
    /// # Errors
    /// The peer did not prove that it is the owner, and learnt nothing; or it granted no usable identity.
    pub async fn answer<S>(&self, stream: S) -> Result<(Identity, server::TlsStream<S>), EnrolError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut stream = tls::in_time(self.server.accept(stream)).await?;
        in_time(async {
            let exporter = stream.exporter()?;
            let opening: Opening = receive(&mut stream).await?;
            self.check_opening(&opening, &exporter)?;
            send(&mut stream, &self.claim(Step::DialledClaim, &exporter)).await?;
            let grant: Grant = receive(&mut stream).await?;
            let identity = self.accept_grant(&grant, Step::DialledGrant, &exporter)?;
            Ok((identity, stream))
        })
        .await
    }

    /// Enrols over a connection that this gateway opened to the owner. Then call [`confirm`].
    ///
    /// # Errors
    /// The peer is not the fleet's owner, does not know the token, or refused this gateway.
    pub async fn call<S>(&self, stream: S) -> Result<(Identity, client::TlsStream<S>), EnrolError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut stream = tls::in_time(self.client.connect(tls::server_name(OWNER_NAME)?, stream)).await?;
        in_time(async {
            let exporter = stream.exporter()?;
            send(&mut stream, &self.claim(Step::CallingClaim, &exporter)).await?;
            let grant: Grant = receive(&mut stream).await?;
            let identity = self.accept_grant(&grant, Step::CallingGrant, &exporter)?;
            Ok((identity, stream))
        })
        .await
    }

    fn check_opening(&self, opening: &Opening, exporter: &Exporter) -> Result<(), Refused> {
        if opening.fleet != self.fleet {
            return Err(Refused::Fleet);
        }
        if opening.name != self.name {
            return Err(Refused::Name { wanted: self.name.clone() });
        }
        let statement = self.statement(Step::DialledOpening, exporter, &[]);
        if statement.is_proved_by(&opening.proof_hex, &self.token) { Ok(()) } else { Err(Refused::Proof) }
    }

    fn claim(&self, step: Step, exporter: &Exporter) -> Claim {
        let key = self.key.request().clone();
        let statement = self.statement(step, exporter, key.public_key_hex.as_bytes());
        Claim { fleet: self.fleet.clone(), proof_hex: statement.prove(&self.token), key }
    }

    fn accept_grant(&self, grant: &Grant, step: Step, exporter: &Exporter) -> Result<Identity, EnrolError> {
        let statement = self.statement(step, exporter, grant.certificate_pem.as_bytes());
        if !statement.is_proved_by(&grant.proof_hex, &self.token) {
            return Err(Refused::Proof.into());
        }
        let certificate = CertificateDer::from_pem_slice(grant.certificate_pem.as_bytes())
            .map_err(|error| EnrolError::Message(format!("the certificate is invalid: {error}")))?;
        let (ca, key) = (self.ca.clone(), self.key.key_der());
        let identity = Identity::with(ca, certificate, key, Strangers::Refused, self.clock.clone())?;
        if identity.name() != self.name {
            return Err(Refused::Name { wanted: self.name.clone() }.into());
        }
        Ok(identity)
    }

    fn statement<'a>(&'a self, step: Step, exporter: &'a Exporter, payload: &'a [u8]) -> Statement<'a> {
        Statement { step, fleet: &self.fleet, name: &self.name, exporter, payload }
    }
}

/// Reports to the owner that the identity is installed, and ends the connection. The gateway has enrolled even if this
/// fails; then the owner finds out with its next connection.
pub async fn confirm<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> Result<(), EnrolError> {
    in_time(async {
        send(&mut stream, &Done {}).await?;
        Ok(stream.shutdown().await?)
    })
    .await
}

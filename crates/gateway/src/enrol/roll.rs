//! The owner's list of gateways that may enrol. Has no sockets and no clock.

use super::key::HeldKey;
use super::messages::Claim;
use super::token::{Exporter, JoinToken, Statement, Step};
use crate::limits::{CERTIFICATES_PER_GATEWAY_MAX, JOIN_TIMEOUT};
use rustls_pki_types::CertificateDer;
use std::collections::{BTreeMap, VecDeque};

/// Why a peer may not enrol. The owner logs it; the peer gets no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It named another fleet.
    #[error("wrong fleet")]
    Fleet,
    /// No gateway of that name was added, or it was removed.
    #[error("unknown gateway")]
    Unknown,
    /// It is a different gateway from the wanted one.
    #[error("wrong name: {wanted} was expected")]
    Name {
        /// Name of the wanted gateway.
        wanted: String,
    },
    /// It does not know the token, or proved it on another connection.
    #[error("wrong proof")]
    Proof,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token was already used for another key.
    #[error("the token was used before")]
    Used,
    /// The key is invalid, or did not sign the request.
    #[error("bad key request")]
    Key,
}

/// The tokens of one fleet.
#[derive(Debug)]
pub struct Roll {
    fleet: String,
    tickets: BTreeMap<String, Ticket>,
    certificates: BTreeMap<String, Certificates>,
}

/// The certificates of one gateway since it was added, the newest last. They are dropped with the gateway, although
/// they have not expired, because the next gateway of its name gets its own.
#[derive(Debug, Default)]
struct Certificates {
    signed: VecDeque<Signed>,
    /// The gateway was added without a token: an earlier owner signed its certificate, which this owner does not know.
    has_unknown: bool,
}

#[derive(Debug)]
struct Signed {
    certificate: CertificateDer<'static>,
    expires_unix_s: u64,
}

#[derive(Debug)]
struct Ticket {
    token: JoinToken,
    expires_unix_s: u64,
    /// The key that the token was used for. The same key may be used again, because an answer can get lost.
    key: Option<HeldKey>,
}

impl Roll {
    /// Creates an empty roll.
    pub fn new(fleet: String) -> Self {
        Self { fleet, tickets: BTreeMap::new(), certificates: BTreeMap::new() }
    }

    /// Id of the fleet.
    pub fn fleet(&self) -> &str {
        &self.fleet
    }

    /// Lets the gateway `name` enrol with this token, for [`JOIN_TIMEOUT`] at most. A new token for a name replaces the
    /// earlier one.
    ///
    /// The clock of the token's maker may be ahead of this one. So a later expiry is brought forward, and that of a known
    /// token is never put off: adding it again would make it live longer.
    pub fn add(&mut self, name: &str, token: JoinToken, expires_unix_s: u64, now_unix_s: u64) {
        let expires_unix_s = expires_unix_s.min(now_unix_s.saturating_add(JOIN_TIMEOUT.as_secs()));
        match self.tickets.get_mut(name) {
            Some(ticket) if ticket.token.is_same(&token) => {
                ticket.expires_unix_s = ticket.expires_unix_s.min(expires_unix_s);
            }
            _ => {
                self.tickets.insert(name.to_owned(), Ticket { token, expires_unix_s, key: None });
                self.certificates.insert(name.to_owned(), Certificates::default());
            }
        }
    }

    /// Adds a gateway that enrolled with an earlier owner. Any certificate of it is accepted until it is
    /// [renewed](Self::was_renewed).
    pub fn add_enrolled(&mut self, name: &str) {
        self.certificates.insert(name.to_owned(), Certificates { has_unknown: true, ..Certificates::default() });
    }

    /// Notes that the gateway now uses a certificate of this owner.
    pub fn was_renewed(&mut self, name: &str) {
        if let Some(certificates) = self.certificates.get_mut(name) {
            certificates.has_unknown = false;
        }
    }

    /// Notes a signed certificate. It does not become current if the gateway was never added, or was removed.
    pub(super) fn signed(
        &mut self,
        name: &str,
        certificate: &CertificateDer<'static>,
        expires_unix_s: u64,
        now_unix_s: u64,
    ) {
        let Some(Certificates { signed, .. }) = self.certificates.get_mut(name) else { return };
        signed.retain(|earlier| earlier.expires_unix_s > now_unix_s);
        if signed.len() >= CERTIFICATES_PER_GATEWAY_MAX {
            signed.pop_front();
        }
        signed.push_back(Signed { certificate: certificate.clone(), expires_unix_s });
    }

    /// Returns whether a certificate of the fleet's CA for this name belongs to the gateway that has the name now.
    pub fn is_current(&self, name: &str, certificate: &CertificateDer<'_>) -> bool {
        self.certificates.get(name).is_some_and(|certificates| {
            certificates.has_unknown || certificates.signed.iter().any(|signed| signed.certificate == *certificate)
        })
    }

    /// The token of a gateway; `None` if it was added without one, or is unknown.
    pub fn token(&self, name: &str) -> Option<&JoinToken> {
        self.tickets.get(name).map(|ticket| &ticket.token)
    }

    /// Returns whether a token was used, so that its gateway may have an identity.
    pub fn is_used(&self, name: &str) -> bool {
        self.tickets.get(name).is_some_and(|ticket| ticket.key.is_some())
    }

    /// Returns whether a token has expired.
    pub fn has_expired(&self, name: &str, now_unix_s: u64) -> bool {
        self.tickets.get(name).is_some_and(|ticket| ticket.expires_unix_s <= now_unix_s)
    }

    /// Removes a gateway: it can no longer enrol, and its certificates are no longer current.
    pub fn remove(&mut self, name: &str) {
        self.tickets.remove(name);
        self.certificates.remove(name);
    }

    /// Decides whether to accept a claim, and marks the token as used. `wanted` is the gateway that the owner dialled.
    ///
    /// # Errors
    /// The first reason to refuse; nothing has changed.
    pub fn admit(
        &mut self,
        claim: &Claim,
        step: Step,
        exporter: &Exporter,
        wanted: Option<&str>,
        now_unix_s: u64,
    ) -> Result<HeldKey, Refused> {
        if claim.fleet != self.fleet {
            return Err(Refused::Fleet);
        }
        let name = &claim.key.name;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != name) {
            return Err(Refused::Name { wanted: wanted.to_owned() });
        }
        let ticket = self.tickets.get_mut(name).ok_or(Refused::Unknown)?;
        let payload = claim.key.public_key_hex.as_bytes();
        let statement = Statement { step, fleet: &self.fleet, name, exporter, payload };
        if !statement.is_proved_by(&claim.proof_hex, &ticket.token) {
            return Err(Refused::Proof);
        }
        if ticket.expires_unix_s <= now_unix_s {
            return Err(Refused::Expired);
        }
        let key = HeldKey::check(&claim.key)?;
        if ticket.key.as_ref().is_some_and(|used| *used != key) {
            return Err(Refused::Used);
        }
        ticket.key = Some(key.clone());
        Ok(key)
    }
}

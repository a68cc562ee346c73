//! The owner's list of gateways that may enrol. No sockets and no clock.

use super::key::HeldKey;
use super::messages::Claim;
use super::token::{Exporter, JoinToken, Statement, Step};
use std::collections::BTreeMap;

/// Why a peer may not enrol. The owner logs it; the peer is told nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It names another fleet.
    #[error("wrong fleet")]
    Fleet,
    /// No gateway of that name was added, or it was removed.
    #[error("unknown gateway")]
    Unknown,
    /// It is another gateway than the one that was wanted.
    #[error("wrong name: {wanted} was wanted")]
    Name {
        /// Who was wanted.
        wanted: String,
    },
    /// It does not know the token, or proved it on another connection.
    #[error("wrong proof")]
    Proof,
    /// The token's time is over.
    #[error("the token has expired")]
    Expired,
    /// The token has been used, for another key.
    #[error("the token was used before")]
    Used,
    /// The key is none, or not its own.
    #[error("bad key request")]
    Key,
}

/// The tokens of one fleet.
#[derive(Debug)]
pub struct Roll {
    fleet: String,
    tickets: BTreeMap<String, Ticket>,
}

#[derive(Debug)]
struct Ticket {
    token: JoinToken,
    expires_unix_s: u64,
    /// The key that the token was used for. The same key may ask again: an answer can be lost on the way.
    key: Option<HeldKey>,
}

impl Roll {
    /// An empty one.
    pub fn new(fleet: String) -> Self {
        Self { fleet, tickets: BTreeMap::new() }
    }

    /// Id of the fleet.
    pub fn fleet(&self) -> &str {
        &self.fleet
    }

    /// Lets the gateway `name` enrol with this token. A new token for a name replaces the earlier one.
    pub fn add(&mut self, name: &str, token: JoinToken, expires_unix_s: u64) {
        match self.tickets.get_mut(name) {
            Some(ticket) if ticket.token.is_same(&token) => ticket.expires_unix_s = expires_unix_s,
            _ => drop(self.tickets.insert(name.to_owned(), Ticket { token, expires_unix_s, key: None })),
        }
    }

    /// The token of a gateway, if it was added with this one or has none.
    pub fn token(&self, name: &str) -> Option<&JoinToken> {
        self.tickets.get(name).map(|ticket| &ticket.token)
    }

    /// Returns whether a token was used, so that its gateway may have an identity.
    pub fn is_used(&self, name: &str) -> bool {
        self.tickets.get(name).is_some_and(|ticket| ticket.key.is_some())
    }

    /// Returns whether a token's time is over.
    pub fn has_expired(&self, name: &str, now_unix_s: u64) -> bool {
        self.tickets.get(name).is_some_and(|ticket| ticket.expires_unix_s <= now_unix_s)
    }

    /// The gateway can enrol no more.
    pub fn remove(&mut self, name: &str) {
        self.tickets.remove(name);
    }

    /// Decides about a claim, and marks the token as used. `wanted` is the gateway that the owner dialled.
    ///
    /// # Errors
    /// The first reason against it; nothing has changed.
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

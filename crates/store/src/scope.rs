//! The keys and actions to which credentials are limited, and the answer of a process that lends its credentials.

use crate::StoreAuthority;
use std::time::{Duration, SystemTime};

/// Credentials and tokens are renewed this long before they expire, so that a request sent now is not late when it
/// arrives.
pub(crate) const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Credentials count as expired after this time, whatever their server says. No cloud issues any that live longer.
const LIFE_MAX: Duration = Duration::from_secs(36 * 3600);

/// Keys of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One key.
    One(String),
    /// All keys with this prefix.
    Below(String),
}

/// Keys that a borrower of credentials may access in one store. It may not list them, and it may delete only what it may
/// write, where the store counts replacing an object as deleting it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Keys to read.
    pub reads: Vec<Keys>,
    /// Keys to write. The borrower may read these too, because a write is proven by looking at the object.
    pub writes: Vec<Keys>,
    /// Bucket and keys from which the store may be asked to copy.
    pub copies: Option<(String, Keys)>,
    /// Role of AWS whose sessions are lent.
    pub role: Option<String>,
}

/// Credentials that are lent to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lent {
    /// The credentials.
    pub authority: StoreAuthority,
    /// When they expire; `None` if they do not, or if their source renews them and does not say.
    pub expires: Option<SystemTime>,
    /// When to ask for new ones; `None` as `expires`.
    pub renew: Option<SystemTime>,
}

impl Lent {
    /// Credentials whose source renews them, and does not say when they expire.
    pub(crate) fn unlimited(authority: StoreAuthority) -> Self {
        Self { authority, expires: None, renew: None }
    }

    /// Credentials that are valid for `life` from `now`. They are renewed in time before they expire, and those with a
    /// short life after half of it.
    pub(crate) fn for_a_while(authority: StoreAuthority, now: SystemTime, life: Duration) -> Self {
        let life = life.min(LIFE_MAX);
        let expires = now + life;
        Self { authority, expires: Some(expires), renew: Some(expires - RENEW_BEFORE.min(life / 2)) }
    }
}

/// Why no credentials are lent. Each text is one line without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotLent {
    /// This machine has none, or could not obtain limited ones.
    Missing(String),
    /// Those of this machine cannot be limited, so they are not sent to another one.
    Unlimitable(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_renewed_five_minutes_before_they_expire_or_after_half_of_a_short_life() {
        let (now, seconds) = (SystemTime::now(), Duration::from_secs);
        let of = |life| Lent::for_a_while(StoreAuthority::Nobody, now, life);
        let hour = of(seconds(3600));
        assert_eq!((hour.expires, hour.renew), (Some(now + seconds(3600)), Some(now + seconds(3300))));
        assert_eq!(of(seconds(4)).renew, Some(now + seconds(2)));
        assert_eq!(of(Duration::MAX), of(LIFE_MAX), "a server may state any number");
    }
}

//! The state that a write may replace, so that a late write cannot overwrite a newer one.

use super::{ObjectInfo, Precondition};
use serde::{Deserialize, Serialize};

/// The state that the destination of a write must be in. Otherwise the write fails with
/// [`ErrorKind::PreconditionFailed`](crate::ErrorKind::PreconditionFailed) and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// The key has no object.
    Absent,
    /// The object is in this state.
    Is(Box<Precondition>),
}

impl Expect {
    /// The state in which an object was seen; `None` for an object that does not exist.
    pub fn seen(now: Option<&ObjectInfo>) -> Self {
        now.map_or(Self::Absent, |now| Self::Is(Box::new(Precondition::listed(now))))
    }

    /// Returns whether the destination is in this state, as far as `now` says; `None` for an object that does not
    /// exist.
    pub fn is_met_by(&self, now: Option<&ObjectInfo>) -> bool {
        match (self, now) {
            (Self::Absent, now) => now.is_none(),
            (Self::Is(state), Some(now)) => state.difference(now).is_none(),
            (Self::Is(_), None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_seen_state_meets_an_expectation() {
        let object = |etag: &str| ObjectInfo { etag: Some(etag.into()), ..ObjectInfo::default() };
        let (one, other) = (object("a"), object("b"));
        for (seen, unlike) in [(Some(&one), [None, Some(&other)]), (None, [Some(&one), Some(&other)])] {
            assert!(Expect::seen(seen).is_met_by(seen));
            for now in unlike {
                assert!(!Expect::seen(seen).is_met_by(now), "{seen:?} {now:?}");
            }
        }
    }
}

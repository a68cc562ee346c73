//! What a write may replace, so that a write that arrives late cannot land over a newer one.

use super::{ObjectInfo, Precondition};
use serde::{Deserialize, Serialize};

/// State that the destination of a write must be in. Otherwise the write fails with
/// [`ErrorKind::PreconditionFailed`](crate::ErrorKind::PreconditionFailed) and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// There is no object of this key.
    Absent,
    /// The object is in this state.
    Is(Precondition),
}

impl Expect {
    /// The state that an answer describes: `None` for an object that is not there.
    pub fn seen(now: Option<&ObjectInfo>) -> Self {
        now.map_or(Self::Absent, |now| Self::Is(Precondition::listed(now)))
    }

    /// Whether the destination is in this state, as far as `now` says; `None` for an object that is not there.
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
    fn a_state_is_met_by_what_was_seen_and_by_nothing_else() {
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

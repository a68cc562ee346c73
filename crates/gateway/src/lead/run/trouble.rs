//! Stores that are out of reach, or answer nothing but errors, are asked no more once they did so for as long as a job may
//! stall: the time is that of the store, not of each object. If no other store of its side is left, the job ends, and can
//! be resumed.
//!
//! What the stores of this process come to is seen at once ([`availability`](crate::lead::availability)); what gateways elsewhere meet is
//! told by their answers.

use super::causes::{Cause, Place};
use super::{Running, Shared};
use crate::lead::availability;
use crate::lead::survey::{UNREACHABLE_HINT, answers_only_errors, unreachable};
use crate::node::work::Failure;
use std::time::Duration;
use tradewind_contract::Outcome;
use tradewind_wire::{Fault, ObjectId};

impl Shared {
    /// How long the job may stall.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.job.stall_s.into())
    }
}

impl Running {
    /// Notes that a request for these objects failed, after all its tries.
    pub(super) fn note_trouble(&mut self, object: ObjectId, failure: &Failure) {
        let Some(cargo) = self.cargo.get(&object) else { return };
        let place = self.closable(Place::of(failure.side, Some(cargo.item.target)));
        // A store that refuses a write on a condition answers.
        let is_trouble = failure.fault == Fault::Unavailable && !failure.is_unmet();
        if !is_trouble || matches!(place, Place::TargetFiles | Place::Elsewhere) {
            return;
        }
        let patience = self.setup.patience();
        if self.causes.unavailable(place, self.clock.now_ms(), patience.as_millis() as u64) {
            let message = answers_only_errors(self.place_url(place), patience, &failure.message);
            self.close_failing(place, message);
        }
    }

    /// Closes each of several destinations that was tried in vain for too long. If it is all of them, the job ends anyway.
    pub(super) fn close_failing_targets(&mut self) {
        let patience = self.setup.patience();
        let targets = self.setup.targets.iter().enumerate();
        let lost: Vec<_> = targets
            .filter_map(|(index, store)| Some((index as u16, availability::lost(store.as_ref(), patience)?)))
            .collect();
        if lost.len() < self.setup.targets.len() {
            for (target, lost) in lost {
                self.close_failing(Place::Target(target), unreachable(&lost));
            }
        }
    }

    fn close_failing(&mut self, place: Place, message: String) {
        if self.stopping.is_some() || self.causes.closed(place).is_some() {
            return;
        }
        let hint = Some(UNREACHABLE_HINT.to_owned());
        self.causes.close(Cause { place, kind: "unavailable".to_owned(), message: message.clone(), hint });
        if self.nothing_is_open() {
            return self.stop(Outcome::Unavailable, Some(message), Some(UNREACHABLE_HINT));
        }
        self.notice(format!("{message}; it gets no further requests, resume the job later"));
    }
}

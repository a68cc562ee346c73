//! Work that can be sent now, in lanes.
//!
//! All work of a lane may take the same routes: if the head of a lane cannot be sent, nothing in the lane can. A
//! blocked lane does not block the others. Every entry belongs to an object that the scheduler holds, in that object's
//! lane.

use super::work::Work;
use crate::{Fault, ObjectId, RouteId};
use std::collections::VecDeque;

/// Failures of one piece of work so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    /// Answers that the work was not done.
    pub(super) faults: u32,
    /// Answers that the gateway refuses the work.
    pub(super) refusals: u32,
    /// Attempts without any answer.
    pub(super) losses: u32,
}

impl Tries {
    /// Returns whether nothing has failed.
    pub(super) fn is_none(self) -> bool {
        self.faults == 0 && self.refusals == 0 && self.losses == 0
    }

    /// The counts after one more attempt that ended in `fault`.
    pub(super) fn with(self, fault: Fault) -> Self {
        match fault {
            // The request was never sent.
            Fault::RouteDown => self,
            Fault::Lost => Self { losses: self.losses + 1, ..self },
            // Objects count the routes that refused them; only aborts use this count.
            Fault::Refused => Self { refusals: self.refusals + 1, ..self },
            _ => Self { faults: self.faults + 1, ..self },
        }
    }
}

/// One part that must be sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartAgain {
    pub(super) object: ObjectId,
    pub(super) part: u32,
    pub(super) tries: Tries,
}

/// Work that may take every route except those that refused it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) refused_by: Vec<RouteId>,
    /// True if its bytes count against windows, prices and the rate limit.
    travels: bool,
    pub(super) control: VecDeque<(Work, Tries)>,
    pub(super) parts_again: VecDeque<PartAgain>,
    /// Objects with parts that were never sent.
    pub(super) sending: VecDeque<ObjectId>,
    pub(super) whole: VecDeque<ObjectId>,
    /// True if bundles are next; bundles and parts take turns.
    pub(super) whole_turn: bool,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.control.is_empty() && self.parts_again.is_empty() && self.sending.is_empty() && self.whole.is_empty()
    }
}

/// All lanes. Those with the fewest routes come first, because they can use no other.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) lanes: Vec<Lane>,
    /// Objects in parts whose upload is not opened yet.
    pub(super) to_open: VecDeque<ObjectId>,
}

impl Ready {
    /// Returns the lane for objects that these routes (ascending) refused, and whose bytes travel or not.
    pub(super) fn lane(&mut self, refused_by: &[RouteId], travels: bool) -> &mut Lane {
        let found = self.lanes.iter().position(|lane| lane.refused_by == refused_by && lane.travels == travels);
        let at = found.unwrap_or_else(|| {
            let at = self.lanes.partition_point(|lane| lane.refused_by.len() >= refused_by.len());
            self.lanes.insert(
                at,
                Lane {
                    refused_by: refused_by.to_vec(),
                    travels,
                    control: VecDeque::new(),
                    parts_again: VecDeque::new(),
                    sending: VecDeque::new(),
                    whole: VecDeque::new(),
                    whole_turn: false,
                },
            );
            at
        });
        &mut self.lanes[at]
    }

    /// Returns the number of whole objects that wait and may take every route.
    pub(super) fn waiting(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.refused_by.is_empty()).map(|lane| lane.whole.len()).sum()
    }

    /// Returns the number of objects with parts never sent, over all lanes.
    pub(super) fn sending(&self) -> usize {
        self.lanes.iter().map(|lane| lane.sending.len()).sum()
    }

    /// Moves all work into lanes that may take every route again, refusals forgotten.
    pub(super) fn join_lanes(&mut self) {
        for lane in std::mem::take(&mut self.lanes) {
            let all = self.lane(&[], lane.travels);
            all.control.extend(lane.control);
            all.parts_again.extend(lane.parts_again);
            all.sending.extend(lane.sending);
            all.whole.extend(lane.whole);
        }
    }

    /// Drops empty lanes; refusals create new ones over time.
    pub(super) fn drop_empty_lanes(&mut self) {
        self.lanes.retain(|lane| !lane.is_empty());
    }

    /// Removes the parts of `object`. Returns its parts to send again, and whether it had parts never sent.
    pub(super) fn take_parts(&mut self, object: ObjectId) -> (Vec<PartAgain>, bool) {
        let (mut again, mut unsent) = (Vec::new(), false);
        for lane in &mut self.lanes {
            let before = lane.sending.len();
            lane.sending.retain(|id| *id != object);
            unsent |= lane.sending.len() < before;
            again.extend(lane.parts_again.iter().filter(|entry| entry.object == object));
            lane.parts_again.retain(|entry| entry.object != object);
        }
        (again, unsent)
    }
}

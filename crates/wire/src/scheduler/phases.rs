//! The phases of an object: its parts, its close, and its end.

use super::answers::Kind;
use super::ready::Tries;
use super::work::{Action, Work};
use super::{ABORT_TRIES_MAX, End, LOSSES_MAX, Object, Phase, Scheduler};
use crate::{Fault, ObjectId};

impl Scheduler {
    pub(super) fn begin_parts(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get_mut(id) else { return };
        let missing = object.new.parts() - object.new.parts_done().len() as u32;
        object.phase = Phase::Sending { next_part: 1, missing };
        if missing == 0 {
            self.begin_close(id);
        } else {
            self.ready.lane(&object.refused_by, object.new.travels).sending.push_back(id);
        }
    }

    pub(super) fn part_done(&mut self, id: ObjectId, bytes: u64) {
        let Some(object) = self.objects.get_mut(id) else { return };
        object.owed_bytes -= bytes;
        self.shares.settled(bytes);
        match &mut object.phase {
            Phase::Sending { missing, .. } => {
                *missing -= 1;
                if *missing == 0 {
                    self.begin_close(id);
                }
            }
            _ => self.settle(id),
        }
    }

    fn begin_close(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(id) {
            object.phase = Phase::Closing;
            self.push_control(Work::Close(id), Tries::default());
        }
    }

    pub(super) fn begin_end(&mut self, id: ObjectId, end: End) {
        let Some(object) = self.objects.get_mut(id) else { return };
        let opened = matches!(object.phase, Phase::Sending { .. } | Phase::Closing);
        object.phase = Phase::Ending { end, opened };
        // A route that refused the bytes may still accept the abort; if all refused, one of them must take it.
        object.refused_by.clear();
        self.ready.take_parts(id);
        self.settle(id);
    }

    /// Advances an ending object by one step once none of its requests is in flight.
    pub(super) fn settle(&mut self, id: ObjectId) {
        let Some(Object { phase: Phase::Ending { end, opened }, flights: 0, new, .. }) = self.objects.get(id) else {
            return;
        };
        if *opened {
            return self.push_control(Work::Abort(id), Tries::default());
        }
        let (action, carried_bytes) = match *end {
            End::Restart => (Action::Restart(id), if new.travels { new.bytes } else { 0 }),
            End::Failed(fault) => (Action::Failed(id, fault), 0),
        };
        self.forget(id);
        self.shares.unlisted(carried_bytes);
        self.out.push_back(action);
    }

    pub(super) fn abort_failed(&mut self, id: ObjectId, tries: Tries, fault: Fault) {
        let tries = tries.with(fault);
        if tries.faults + tries.refusals >= ABORT_TRIES_MAX || tries.losses >= LOSSES_MAX {
            self.upload_left(id);
        } else {
            self.again(id, Kind::Abort, tries);
        }
    }

    /// Records that the upload of an ending object is aborted, or is left behind after too many attempts.
    pub(super) fn upload_left(&mut self, id: ObjectId) {
        if let Some(Object { phase: Phase::Ending { opened, .. }, .. }) = self.objects.get_mut(id) {
            *opened = false;
            self.settle(id);
        }
    }

    pub(super) fn push_control(&mut self, work: Work, tries: Tries) {
        if let Some(object) = self.objects.get(work.members()[0]) {
            self.ready.lane(&object.refused_by, object.new.travels).control.push_back((work, tries));
        }
    }

    pub(super) fn count_open(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(id) {
            object.counted_open = true;
            self.open_count += 1;
        }
    }

    pub(super) fn forget(&mut self, id: ObjectId) {
        let Some(object) = self.objects.remove(id) else { return };
        self.shares.settled(object.owed_bytes);
        if object.counted_open {
            self.open_count -= 1;
        }
    }
}

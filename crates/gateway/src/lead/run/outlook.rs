//! Guesses what is at the destinations of a job that did not list them.
//!
//! A write can be conditional on the state in which the destination was seen, so that the late write of a lost attempt
//! cannot replace a newer one. `sync` has listed the destinations. `cp` and `mv` have not, and one check (`HEAD`) per
//! object would double the requests of a job of small objects. So the first object of each destination is checked, and
//! the others wait for the result. If nothing is there, the next objects are assumed to be new too, until the store
//! refuses one. If an object is there, only large objects are checked, and a sample of the small ones, to detect when
//! new ones begin. The other small ones are written unconditionally.
//!
//! A wrong guess costs a second transfer of the object, so a job with a ceiling never guesses.

use crate::lead::survey::WorkItem;
use tradewind_contract::JobSpec;
use tradewind_store::Expect;

/// Where objects are being overwritten, those of at least this size are checked: the extra request is cheap compared
/// with their bytes.
const LOOK_BYTES_MIN: u64 = 1 << 20;
/// Among the smaller ones, the first check comes after this many objects, the next after twice as many, and so on.
const UNLOOKED_MIN: u32 = 16;
/// Upper limit of the two counts that grow.
const GROWN_MAX: u32 = 1 << 16;

/// The outlook per destination, by index of the job's targets.
pub(super) struct Outlook {
    targets: Vec<Target>,
    may_guess: bool,
}

#[derive(Clone)]
struct Target {
    state: State,
    /// Small objects in a row that were not checked, and how many may be.
    unlooked: u32,
    unlooked_max: u32,
    /// Checks in a row that found nothing, and how many are needed before other objects are assumed to be new.
    free_looks: u32,
    free_looks_min: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has been checked.
    Unknown,
    /// The first object is being checked.
    Looking,
    /// New objects are being written.
    Free,
    /// Objects are being overwritten.
    Occupied,
    /// Checks fail, for example because reading is forbidden.
    Hidden,
}

impl Outlook {
    pub(super) fn new(job: &JobSpec) -> Self {
        let has_ceiling = job.ceiling_bytes.is_some() || job.ceiling_usd.is_some();
        Self::of(job.targets.len(), !has_ceiling)
    }

    fn of(targets: usize, may_guess: bool) -> Self {
        let target =
            Target { state: State::Unknown, unlooked: 0, unlooked_max: UNLOOKED_MIN, free_looks: 0, free_looks_min: 1 };
        Self { targets: vec![target; targets], may_guess }
    }

    /// Returns whether the destination of `item` must be checked before the object is accepted.
    pub(super) fn wants_look(&mut self, item: &WorkItem) -> bool {
        if item.expect.is_some() || item.check.is_some() || item.twin.is_some() {
            return false;
        }
        let target = &mut self.targets[usize::from(item.target)];
        match target.state {
            State::Unknown => {
                target.state = State::Looking;
                true
            }
            State::Occupied => item.info.size_bytes >= LOOK_BYTES_MIN || target.samples(),
            State::Looking | State::Free | State::Hidden => false,
        }
    }

    /// Returns whether objects wait for the first check of a destination.
    pub(super) fn is_looking(&self) -> bool {
        self.targets.iter().any(|target| target.state == State::Looking)
    }

    /// Records the result of a check of a destination; `None` if it failed.
    pub(super) fn looked(&mut self, target: u16, found: Option<&Expect>) {
        let may_guess = self.may_guess;
        let target = &mut self.targets[usize::from(target)];
        match found {
            None if target.state == State::Looking => target.state = State::Hidden,
            None => {}
            Some(Expect::Absent) => {
                target.free_looks += 1;
                let is_free = may_guess && target.free_looks >= target.free_looks_min;
                target.state = if is_free { State::Free } else { State::Occupied };
            }
            Some(Expect::Is(_)) => {
                target.free_looks = 0;
                target.state = State::Occupied;
            }
        }
    }

    /// The object to be checked cannot be moved, so the next one is checked.
    pub(super) fn not_looked(&mut self, target: u16) {
        let target = &mut self.targets[usize::from(target)];
        if target.state == State::Looking {
            target.state = State::Unknown;
        }
    }

    /// Returns whether unchecked objects are assumed to be new.
    pub(super) fn is_free(&self, target: u16) -> bool {
        self.targets[usize::from(target)].state == State::Free
    }

    /// Records that an object assumed to be new was there.
    pub(super) fn guessed_wrong(&mut self, target: u16) {
        let target = &mut self.targets[usize::from(target)];
        if target.state == State::Free {
            target.state = State::Occupied;
            target.free_looks = 0;
            target.free_looks_min = (target.free_looks_min * 2).min(GROWN_MAX);
        }
    }
}

impl Target {
    /// Returns whether this small object is part of the sample to check.
    fn samples(&mut self) -> bool {
        self.unlooked += 1;
        let is_sample = self.unlooked > self.unlooked_max;
        if is_sample {
            self.unlooked = 0;
            self.unlooked_max = (self.unlooked_max * 2).min(GROWN_MAX);
        }
        is_sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_store::ObjectInfo;

    fn outlook() -> Outlook {
        Outlook::of(1, true)
    }

    fn item(size_bytes: u64) -> WorkItem {
        WorkItem {
            target: 0,
            target_key: "k".into(),
            info: ObjectInfo { size_bytes, ..ObjectInfo::default() },
            server_side: false,
            check: None,
            may_land_late: false,
            expect: None,
            orphans_since_unix_ms: None,
            twin: None,
        }
    }

    /// Simulates a row of small objects, each there or not. Returns how many were checked, and how many transfers were
    /// refused. Each answer comes before the next object is accepted.
    fn copied(there: impl Iterator<Item = bool>, outlook: &mut Outlook) -> (u32, u32) {
        let (mut looks, mut refused) = (0, 0);
        for is_there in there {
            let found = if is_there { Expect::Is(Box::default()) } else { Expect::Absent };
            if outlook.wants_look(&item(1)) {
                looks += 1;
                outlook.looked(0, Some(&found));
            } else if outlook.is_free(0) && is_there {
                refused += 1;
                outlook.guessed_wrong(0);
            }
        }
        (looks, refused)
    }

    #[test]
    fn new_objects_cost_one_look_in_all() {
        assert_eq!(copied((0..20_000).map(|_| false), &mut outlook()), (1, 0));
    }

    #[test]
    fn small_objects_that_are_overwritten_cost_few_looks_and_no_transfer() {
        let (looks, refused) = copied((0..20_000).map(|_| true), &mut outlook());
        assert!(looks < 16 && refused == 0, "{looks} looks, {refused} refused");
    }

    #[test]
    fn where_both_are_mixed_few_transfers_are_wasted() {
        let (looks, refused) = copied((0..20_000).map(|index| index % 2 == 0), &mut outlook());
        assert!(looks < 100 && refused < 16, "{looks} looks, {refused} refused");
    }

    #[test]
    fn new_objects_after_old_ones_are_found_to_be_new() {
        let mut outlook = outlook();
        copied((0..100).map(|_| true), &mut outlook);
        copied((0..200).map(|_| false), &mut outlook);
        assert!(outlook.is_free(0));
    }

    #[test]
    fn large_objects_are_looked_at_wherever_something_is_there() {
        let mut outlook = outlook();
        copied(std::iter::once(true), &mut outlook);
        assert!((0..9).all(|_| outlook.wants_look(&item(LOOK_BYTES_MIN))));
        let known = WorkItem { expect: Some(Expect::Absent), ..item(LOOK_BYTES_MIN) };
        assert!(!outlook.wants_look(&known), "a listing tells as much");
    }

    #[test]
    fn no_more_than_the_first_object_is_asked_for_where_we_may_not_look() {
        let mut outlook = outlook();
        assert!(outlook.wants_look(&item(1)) && outlook.is_looking());
        outlook.looked(0, None);
        assert!(!outlook.is_looking() && !outlook.wants_look(&item(LOOK_BYTES_MIN)) && !outlook.is_free(0));
    }

    #[test]
    fn under_a_ceiling_nothing_is_guessed() {
        let mut outlook = Outlook { may_guess: false, ..outlook() };
        let (_, refused) = copied((0..1000).map(|index| index > 500), &mut outlook);
        assert!(!outlook.is_free(0) && refused == 0);
    }
}

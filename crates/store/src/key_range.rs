//! Ranges of keys, so that a listing can be divided.

/// The keys `k` with `after < k <= until`; `None` leaves that end open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// Exclusive lower bound.
    pub after: Option<String>,
    /// Inclusive upper bound.
    pub until: Option<String>,
}

impl KeyRange {
    /// Returns whether `key` lies in the range.
    pub fn contains(&self, key: &str) -> bool {
        self.after.as_deref().is_none_or(|after| key > after) && self.until.as_deref().is_none_or(|until| key <= until)
    }
}

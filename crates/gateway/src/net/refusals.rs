//! Limits how many refused connections one port logs, so that strangers cannot fill the log.

use crate::failure::counted;
use crate::limits::{REFUSAL_LINES_MAX, REFUSAL_LINES_PERIOD};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the refused connections of one port. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// Lines logged in this period.
    logged: usize,
    /// Refusals in this period without a line of their own.
    more: u64,
}

impl Refusals {
    /// Counts a refusal, and returns whether it may have its own line in the log. At the end of the period, one line
    /// gives the number of those that had none.
    pub fn may_log(&self) -> bool {
        let mut counts = self.counts();
        if counts.logged >= REFUSAL_LINES_MAX {
            counts.more += 1;
            return false;
        }
        counts.logged += 1;
        if counts.logged == 1 {
            tokio::spawn(self.clone().end_period());
        }
        true
    }

    async fn end_period(self) {
        tokio::time::sleep(REFUSAL_LINES_PERIOD).await;
        let Counts { more, .. } = std::mem::take(&mut *self.counts());
        if more > 0 {
            tracing::warn!("{} refused in the last minute", counted(more, "more connection", "more connections"));
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_period_has_so_many_lines_and_counts_the_rest() {
        let refusals = Refusals::default();
        for _period in 0..3 {
            let lines = (0..1_000).filter(|_| refusals.may_log()).count();
            assert_eq!(lines, REFUSAL_LINES_MAX);
            assert_eq!(refusals.counts().more, 1_000 - REFUSAL_LINES_MAX as u64);
            tokio::time::sleep(REFUSAL_LINES_PERIOD * 2).await;
            assert_eq!(refusals.counts().more, 0);
        }
    }
}

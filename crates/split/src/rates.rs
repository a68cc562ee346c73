//! Rates of accepts: one bucket of tokens for all, and one for each client or destination.

use crate::limits::RATES_SWEPT_INTERVAL;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

/// Tokens that are refilled with time, up to those of one second.
#[derive(Debug)]
pub(crate) struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn full(rate_per_s: f64, now: Instant) -> Self {
        Self { tokens: rate_per_s, filled: now }
    }

    /// Takes one token, if there is one.
    pub(crate) fn take(&mut self, rate_per_s: f64, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + since * rate_per_s).min(rate_per_s);
        self.filled = self.filled.max(now);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

/// A bucket for each key that was used in the last second or two: an older one is full again, and is forgotten.
#[derive(Debug)]
pub(crate) struct Rates<K> {
    buckets: HashMap<K, Bucket>,
    swept: Instant,
}

impl<K: Eq + Hash> Rates<K> {
    pub(crate) fn new(now: Instant) -> Self {
        Self { buckets: HashMap::new(), swept: now }
    }

    /// Takes one token of a key, if it has one.
    pub(crate) fn take(&mut self, key: K, rate_per_s: f64, now: Instant) -> bool {
        if now.saturating_duration_since(self.swept) >= RATES_SWEPT_INTERVAL {
            self.buckets.retain(|_, bucket| now.saturating_duration_since(bucket.filled) < RATES_SWEPT_INTERVAL);
            self.swept = now;
        }
        self.buckets.entry(key).or_insert_with(|| Bucket::full(rate_per_s, now)).take(rate_per_s, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_that_is_full_again_is_forgotten() {
        let now = Instant::now();
        let mut rates = Rates::new(now);
        assert!(rates.take("a", 1.0, now));
        assert!(!rates.take("a", 1.0, now + Duration::from_millis(900)));
        let later = now + Duration::from_millis(1_000);
        assert!(rates.take("b", 1.0, later));
        assert_eq!(rates.buckets.len(), 2, "it was used within the last second");
        assert!(rates.take("b", 1.0, later + RATES_SWEPT_INTERVAL));
        assert_eq!(rates.buckets.len(), 1);
    }
}

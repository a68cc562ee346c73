//! Finds out that a server which answers page by page goes in a circle.

use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Remembers one of the earlier steps. It is replaced whenever their number is a power of two, so a circle of any length
/// is found within three rounds (R. P. Brent, "An improved Monte Carlo factorization algorithm", 1980).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rounds {
    steps: u64,
    /// Hash of the step that is remembered.
    milestone: u64,
}

impl Rounds {
    /// Notes a step. Returns whether it is the one that is remembered.
    pub fn repeats(&mut self, step: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        step.hash(&mut hasher);
        let hash = hasher.finish();
        if self.steps > 0 && hash == self.milestone {
            return true;
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.milestone = hash;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_any_length_is_found_within_three_rounds() {
        for (before, length) in [(0, 1), (0, 7), (5, 1), (5, 20), (40, 3)] {
            let mut rounds = Rounds::default();
            let step = |number: usize| if number < before { number } else { before + (number - before) % length };
            let found = (0..500).position(|number| rounds.repeats(&step(number)));
            assert!(found.is_some_and(|at| at <= 3 * (before + length)), "{before} before {length}: {found:?}");
        }
        let mut rounds = Rounds::default();
        assert!((0..10_000).all(|number| !rounds.repeats(&number)));
    }
}

//! Random loss: each packet is lost with the same probability, independently of the others, reproducible from a seed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;

/// Draws the number of packets until the next loss, instead of one number per packet. With a small share, one draw
/// covers thousands of packets.
#[derive(Debug)]
pub struct Loss {
    share: f64,
    /// Packets that still pass before one is lost; `None` if none ever is.
    passing: Option<u64>,
    random: SmallRng,
}

impl Loss {
    /// Loses `share` (0 to 1) of all packets.
    pub fn new(share: f64, seed: u64) -> Self {
        let mut loss = Self { share: 0.0, passing: None, random: SmallRng::seed_from_u64(seed) };
        loss.change(share);
        loss
    }

    /// The share that is lost.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Changes the share from now on.
    pub fn change(&mut self, share: f64) {
        self.share = share.clamp(0.0, 1.0);
        self.passing = self.draw();
    }

    /// Returns which of the next `count` packets survive, as ranges in order. An empty list means that all are lost.
    pub fn survivors(&mut self, count: u32) -> Vec<Range<u32>> {
        let mut ranges = Vec::new();
        let mut start = 0;
        while start < count {
            let left = count - start;
            match self.passing {
                Some(passing) if passing < u64::from(left) => {
                    let lost = start + passing as u32;
                    if lost > start {
                        ranges.push(start..lost);
                    }
                    start = lost + 1;
                    self.passing = self.draw();
                }
                passing => {
                    self.passing = passing.map(|passing| passing - u64::from(left));
                    ranges.push(start..count);
                    break;
                }
            }
        }
        ranges
    }

    /// Draws from the geometric distribution by inversion: P(k packets pass, then one is lost) = (1 - share)^k · share.
    fn draw(&mut self) -> Option<u64> {
        if self.share <= 0.0 {
            return None;
        }
        if self.share >= 1.0 {
            return Some(0);
        }
        let uniform: f64 = 1.0 - self.random.random::<f64>();
        Some((uniform.ln() / (1.0 - self.share).ln()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(loss: &mut Loss, packets: u32, at_once: u32) -> u32 {
        let survive: u32 =
            (0..packets / at_once).flat_map(|_| loss.survivors(at_once)).map(|range| range.len() as u32).sum();
        packets - survive
    }

    #[test]
    fn nothing_is_lost_without_loss() {
        assert_eq!(Loss::new(0.0, 1).survivors(44), vec![0..44]);
    }

    #[test]
    fn all_is_lost_at_one() {
        assert!(Loss::new(1.0, 1).survivors(44).is_empty());
    }

    #[test]
    fn the_share_is_right_whatever_the_size_of_super_packets() {
        for at_once in [1, 2, 44] {
            let lost = lost(&mut Loss::new(0.02, 7), 440_000, at_once);
            // Standard deviation is sqrt(440000 · 0.02 · 0.98) = 93; this is five of them.
            assert!((8_335..=9_265).contains(&lost), "{lost} of 440000 in groups of {at_once}");
        }
    }

    #[test]
    fn a_seed_repeats_itself() {
        let pattern = |seed| (0..100).map(move |_| seed).scan(Loss::new(0.1, seed), |loss, _| Some(loss.survivors(10)));
        assert!(pattern(3).eq(pattern(3)));
        assert!(!pattern(3).eq(pattern(4)));
    }

    #[test]
    fn ranges_are_in_order_and_never_touch_a_lost_packet() {
        let mut loss = Loss::new(0.3, 11);
        for _ in 0..1_000 {
            let ranges = loss.survivors(30);
            assert!(ranges.iter().all(|range| range.start < range.end && range.end <= 30));
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}

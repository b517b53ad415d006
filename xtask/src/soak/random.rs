//! Numbers that look random and are the same for the same seed, so that a session can be had again.
//!
//! # Invariants
//!
//! - Pure: nothing but the seed decides what comes.

/// A generator (SplitMix64: one addition and two multiplications a number, equally good from every seed).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of one of many things that share a seed, independent of the others.
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        Self(Self(seed ^ Self(number).next()).next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `from` to `to`, both included.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to.saturating_sub(from) + 1)
    }

    /// The same for sizes.
    pub(crate) fn size(&mut self, from: usize, to: usize) -> usize {
        usize::try_from(self.between(from as u64, to as u64)).unwrap_or(to)
    }

    /// True so many times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    /// One of several, which must not be none.
    pub(crate) fn pick<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.size(0, several.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_gives_others() {
        let take = |mut random: Random| (0..100).map(|_| random.next()).collect::<Vec<_>>();
        assert_eq!(take(Random::of(7, 1)), take(Random::of(7, 1)));
        assert_ne!(take(Random::of(7, 1)), take(Random::of(7, 2)));
        assert_ne!(take(Random::of(7, 1)), take(Random::of(8, 1)));
    }

    #[test]
    fn numbers_stay_between_their_bounds_and_reach_both() {
        let mut random = Random::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|_| random.between(3, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
    }
}

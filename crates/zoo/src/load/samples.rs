//! What is made of many samples. Pure.

use std::time::Duration;

/// Returns the sample that `percent` of the samples do not exceed (nearest rank); zero when there is none. `sorted` is
/// in ascending order.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Returns the value in the middle, or the mean of the two there; `None` when there are no values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Returns the part as a fraction of the whole.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below the 52 bits of a mantissa")]
pub(super) fn fraction(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

/// How much more the one is than the other.
#[expect(clippy::cast_precision_loss, reason = "sizes stay far below the 52 bits of a mantissa")]
pub(super) fn difference(after: u64, before: u64) -> f64 {
    after as f64 - before as f64
}

/// What each of so many has of it.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below the 52 bits of a mantissa")]
pub(super) fn share(whole: f64, count: usize) -> f64 {
    whole / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let hundred: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(percentile(&hundred, 50), Duration::from_micros(50));
        assert_eq!(percentile(&hundred, 99), Duration::from_micros(99));
        assert_eq!(percentile(&hundred, 100), Duration::from_micros(100));
        assert_eq!(percentile(&hundred[..1], 99), Duration::from_micros(1));
        assert_eq!(percentile(&hundred[..3], 50), Duration::from_micros(2));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }
}

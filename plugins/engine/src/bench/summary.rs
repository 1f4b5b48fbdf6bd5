//! Repeats of one measurement in a few numbers.

use serde::{Deserialize, Serialize};

/// Median and extremes of repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// In the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Summary {
    /// Sums up at least one sample; none at all give NaN.
    pub fn new(samples: Vec<f64>) -> Summary {
        let mut sorted = samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        Summary {
            median: median(&sorted),
            min: sorted.first().copied().unwrap_or(f64::NAN),
            max: sorted.last().copied().unwrap_or(f64::NAN),
            samples,
        }
    }

    /// The same samples in another unit.
    pub fn map(&self, unit: impl Fn(f64) -> f64) -> Summary {
        Summary::new(self.samples.iter().copied().map(unit).collect())
    }
}

/// The middle one; of an even number, the mean of the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match (sorted.len(), sorted.len() % 2) {
        (0, _) => f64::NAN,
        (_, 1) => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn the_middle_and_the_ends() {
        let odd = Summary::new(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert_eq!(odd.samples, [3.0, 1.0, 2.0]);
        let even = Summary::new(vec![8.0, 1.0, 2.0, 4.0]);
        assert_eq!((even.median, even.min, even.max), (3.0, 1.0, 8.0));
        let one = Summary::new(vec![5.0]);
        assert_eq!((one.median, one.min, one.max), (5.0, 5.0, 5.0));
        assert!(Summary::new(Vec::new()).median.is_nan());
    }

    #[test]
    fn a_rate_turns_the_ends_round() {
        let seconds = Summary::new(vec![2.0, 4.0]);
        let rate = seconds.map(|s| 8.0 / s);
        assert_eq!((rate.median, rate.min, rate.max), (3.0, 2.0, 4.0));
    }
}

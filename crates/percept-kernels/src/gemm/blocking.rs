//! How a product is cut into blocks: functions of sizes only, so that results do not depend on the threads.

use std::ops::Range;

/// Cuts `0..len` into the fewest parts of at most `max` (a multiple of `unit`), as equal as whole units allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    len: usize,
    unit: usize,
    count: usize,
}

impl Parts {
    /// Parts of at most `max` elements, cut at multiples of `unit`. An empty range has no parts.
    pub(crate) fn at_most(max: usize, len: usize, unit: usize) -> Parts {
        Parts::exactly(len.div_ceil(max), len, unit)
    }

    /// At most `count` parts, cut at multiples of `unit`; fewer when there are not so many units.
    pub(crate) fn exactly(count: usize, len: usize, unit: usize) -> Parts {
        Parts {
            len,
            unit,
            count: count.min(len.div_ceil(unit)),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The elements of part `index`.
    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        let units = self.len.div_ceil(self.unit);
        let at = |index: usize| (units * index / self.count * self.unit).min(self.len);
        at(index)..at(index + 1)
    }

    pub(crate) fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(move |index| self.range(index))
    }

    /// Length of the longest part.
    pub(crate) fn longest(&self) -> usize {
        self.ranges().map(|range| range.len()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_everything_once(len in 0usize..2000, unit in 1usize..30, units in 1usize..9) {
            let parts = Parts::at_most(unit * units, len, unit);
            let mut next = 0;
            for range in parts.ranges() {
                prop_assert_eq!(range.start, next);
                prop_assert!(!range.is_empty() && range.len() <= parts.longest());
                prop_assert!(range.start % unit == 0);
                next = range.end;
            }
            prop_assert_eq!(next, len);
            prop_assert!(parts.longest() <= unit * units);
        }
    }
}

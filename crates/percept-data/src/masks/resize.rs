//! A mask in another resolution.

use super::rle::{ColumnRun, checked_size};
use super::{MaskFault, Rle};

impl Rle {
    /// The mask at another size: pixel i of a side takes the old pixel floor(i * old / new).
    pub fn resized_nearest(&self, height: usize, width: usize) -> Result<Self, MaskFault> {
        let (new_height, new_width) = checked_size(height, width)?;
        let (old_height, old_width) = self.size();
        let columns = self.columns();
        // The new pixels that take old ones below p are those below ceil(p * new / old).
        let row = |old: u32| {
            let scaled = u64::from(old) * u64::from(new_height);
            scaled.div_ceil(u64::from(old_height)) as u32
        };
        let runs = (0..new_width).flat_map(|x| {
            let old = u64::from(x) * u64::from(old_width) / u64::from(new_width);
            let runs = columns.of(old as u32).iter();
            runs.map(move |run| ColumnRun {
                x,
                top: row(run.top),
                bottom: row(run.bottom),
            })
        });
        Ok(Self::from_column_runs(new_height, new_width, runs))
    }

    /// Its runs, found by column.
    pub(super) fn columns(&self) -> Columns {
        let runs: Vec<ColumnRun> = self.column_runs().collect();
        let mut starts = vec![0; self.width() + 1];
        for run in &runs {
            starts[run.x as usize + 1] += 1;
        }
        let mut total = 0;
        for start in &mut starts {
            total += *start;
            *start = total;
        }
        Columns { runs, starts }
    }
}

/// Runs by column.
pub(super) struct Columns {
    runs: Vec<ColumnRun>,
    /// Where the runs of each column begin, and where those of the last end.
    starts: Vec<usize>,
}

impl Columns {
    /// The runs of column `x`, from the top; none beyond the borders.
    pub(super) fn of(&self, x: u32) -> &[ColumnRun] {
        match self.starts.get(x as usize..) {
            Some(&[start, end, ..]) => &self.runs[start..end],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rle::tests::masks;
    use super::*;

    #[test]
    fn an_absurd_size_is_refused() {
        let mask = Rle::empty(2, 3).unwrap();
        assert!(mask.resized_nearest(1 << 40, 1).is_err());
    }

    proptest! {
        #[test]
        fn runs_are_resized_as_pixels_are(
            (height, width, pixels) in masks(), new_height in 0usize..40, new_width in 0usize..40,
        ) {
            prop_assume!(height * width > 0);
            let mask = Rle::encode(height, width, &pixels).unwrap();
            let pixel = |y: usize, x: usize| {
                u8::from(pixels[(y * height / new_height) * width + x * width / new_width] != 0)
            };
            let expected: Vec<u8> =
                (0..new_height).flat_map(|y| (0..new_width).map(move |x| pixel(y, x))).collect();
            let resized = mask.resized_nearest(new_height, new_width).unwrap();
            prop_assert_eq!(resized.decode(), expected);
            prop_assert_eq!((resized.height(), resized.width()), (new_height, new_width));
        }
    }
}

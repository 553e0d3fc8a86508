//! Contours of masks, and what lies near them.

use super::Rle;
use super::rle::ColumnRun;

impl Rle {
    /// Its contour, a pixel wide: the pixels that differ from the one to the right, below, or below to the right. Beyond
    /// the borders the mask goes on as it ends there, so that a border alone is no contour.
    pub fn contour(&self) -> Rle {
        let (right, below) = (self.of_the_right(), self.of_below());
        let differs = |neighbours: &Rle| self.combined(neighbours, |a, b| a != b);
        let either = |a: &Rle, b: &Rle| a.combined(b, |a, b| a || b);
        let straight = either(&differs(&right), &differs(&below));
        either(&straight, &differs(&below.of_the_right()))
    }

    /// All pixels within `radius` pixels of a set one.
    pub fn dilated(&self, radius: u32) -> Rle {
        let (height, width) = self.size();
        let columns = self.columns();
        let mut near: Vec<ColumnRun> = Vec::new();
        let mut runs = Vec::new();
        for x in 0..width {
            near.clear();
            for from in x.saturating_sub(radius)..=x.saturating_add(radius).min(width - 1) {
                let across = u64::from(x.abs_diff(from));
                let radius = u64::from(radius);
                // At most `radius`, which is u32.
                let reach = (radius * radius - across * across).isqrt() as u32;
                near.extend(columns.of(from).iter().map(|run| ColumnRun {
                    x,
                    top: run.top.saturating_sub(reach),
                    bottom: run.bottom.saturating_add(reach).min(height),
                }));
            }
            near.sort_unstable_by_key(|run| run.top);
            runs.extend_from_slice(&near);
        }
        Rle::from_column_runs(height, width, runs)
    }

    /// For each pixel the one to its right; the last column repeats.
    fn of_the_right(&self) -> Rle {
        let (height, width) = self.size();
        let moved = self.column_runs().filter_map(|run| {
            let x = run.x.checked_sub(1)?;
            Some(ColumnRun { x, ..run })
        });
        let last = self.column_runs().filter(|run| run.x + 1 == width);
        Rle::from_column_runs(height, width, moved.chain(last))
    }

    /// For each pixel the one below it; the last row repeats.
    fn of_below(&self) -> Rle {
        let (height, width) = self.size();
        let moved = self.column_runs().map(|run| ColumnRun {
            top: run.top.saturating_sub(1),
            bottom: run.bottom - u32::from(run.bottom < height),
            ..run
        });
        Rle::from_column_runs(height, width, moved)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rle::tests::masks;
    use super::*;

    proptest! {
        #[test]
        fn contours_are_where_pixels_differ((height, width, pixels) in masks()) {
            let mask = Rle::encode(height, width, &pixels).unwrap();
            let set = |y: usize, x: usize| pixels[y.min(height - 1) * width + x.min(width - 1)] != 0;
            let expected: Vec<u8> = (0..height * width)
                .map(|i| {
                    let (y, x) = (i / width, i % width);
                    let neighbours = [(y, x + 1), (y + 1, x), (y + 1, x + 1)];
                    u8::from(neighbours.iter().any(|&(v, u)| set(v, u) != set(y, x)))
                })
                .collect();
            prop_assert_eq!(mask.contour().decode(), expected);
        }

        #[test]
        fn dilated_masks_reach_as_far_as_a_disk((height, width, pixels) in masks(), radius in 0u32..6) {
            let mask = Rle::encode(height, width, &pixels).unwrap();
            let set: Vec<_> = (0..pixels.len()).filter(|&i| pixels[i] != 0).collect();
            let is_near = |i: usize, j: usize| {
                let (down, across) = ((i / width).abs_diff(j / width), (i % width).abs_diff(j % width));
                down * down + across * across <= (radius * radius) as usize
            };
            let expected: Vec<u8> = (0..pixels.len())
                .map(|i| u8::from(set.iter().any(|&j| is_near(i, j))))
                .collect();
            prop_assert_eq!(mask.dilated(radius).decode(), expected);
        }
    }
}

//! Means of features under masks and boxes, as weights of patches.
//!
//! The public system enlarges the features of the patches bilinearly to a quarter of the picture's size and takes the mean of
//! what is under a mask. Enlarging and taking a mean are both linear, so the mean is a weighted sum of the patches' own
//! features; the weights follow from the mask alone: Wyᵀ mask Wx / |mask|, with W the enlarging matrices.

use percept_data::masks::{MaskFault, Rle};

/// Sides of a patch, in pixels.
pub const PATCH: usize = 14;
/// Pixels of the picture along a cell of the enlarged map.
const CELL: usize = 4;

/// How a map of patches is enlarged.
#[derive(Clone, Debug)]
pub struct Pooling {
    /// Height and width of the picture.
    picture: [usize; 2],
    pub(super) rows: Enlarged,
    pub(super) columns: Enlarged,
}

/// A box x, y, width, height, in pixels.
pub type BoxXywh = [f32; 4];

impl Pooling {
    /// Of a picture whose sides are multiples of a patch.
    pub fn new([height, width]: [usize; 2]) -> Self {
        let [rows, columns] = [height, width].map(|side| Enlarged::new(side / PATCH));
        Self {
            picture: [height, width],
            rows,
            columns,
        }
    }

    /// Patches of the picture.
    pub fn patches(&self) -> usize {
        self.rows.patches * self.columns.patches
    }

    /// The weight of each patch in the mean under a mask of the picture; all zero where the mask has no cell of the map.
    pub fn mask(&self, mask: &Rle) -> Result<Vec<f32>, MaskFault> {
        let small = mask.resized_nearest(self.rows.cells(), self.columns.cells())?;
        let mut weights = vec![0.0f64; self.patches()];
        for (x, rows) in small.column_spans() {
            self.columns.for_each_tap(x, |column, share| {
                let from = &self.rows.sums[rows.start];
                let to = &self.rows.sums[rows.end];
                let below = weights
                    .iter_mut()
                    .skip(column)
                    .step_by(self.columns.patches);
                for (weight, (to, from)) in below.zip(to.iter().zip(from)) {
                    *weight += share * (to - from);
                }
            });
        }
        let area = small.area().max(1) as f64;
        Ok(weights
            .iter()
            .map(|weight| (weight / area) as f32)
            .collect())
    }

    /// The weight of each patch in the mean around a box, `margin` pixels further on every side.
    pub fn surroundings(&self, around: BoxXywh, margin: i64) -> Vec<f32> {
        let [x1, y1, x2, y2] = self.context(around, margin);
        let part = |side: &Enlarged, from: usize, to: usize| -> Vec<f64> {
            let cells = to.saturating_sub(from).max(1) as f64;
            let sums = side.sums[to].iter().zip(&side.sums[from]);
            sums.map(|(to, from)| (to - from) / cells).collect()
        };
        let (rows, columns) = (part(&self.rows, y1, y2), part(&self.columns, x1, x2));
        let products = rows
            .iter()
            .flat_map(|row| columns.iter().map(move |column| row * column));
        products.map(|weight| weight as f32).collect()
    }

    /// The cells of the map around a box: x1, y1, x2, y2, the last ones outside.
    pub fn context(&self, [x, y, width, height]: BoxXywh, margin: i64) -> [usize; 4] {
        // As a cast of tensors does: towards zero.
        let [x, y, width, height] = [x, y, width, height].map(|value| value as i64);
        let [picture_height, picture_width] = self.picture.map(|side| side as i64);
        let along = |start: i64, length: i64, side: i64| {
            let cells = side / CELL as i64;
            let from = (start - margin).clamp(0, side) / CELL as i64;
            let to = (start + length + margin).clamp(0, side) / CELL as i64;
            let to = to.max(from + 1);
            [from.clamp(0, cells - 1), to.clamp(0, cells)].map(|cell| cell as usize)
        };
        let [x1, x2] = along(x, width, picture_width);
        let [y1, y2] = along(y, height, picture_height);
        [x1, y1, x2, y2]
    }
}

/// One side of a map of patches, enlarged bilinearly (PyTorch's `align_corners=False`).
#[derive(Clone, Debug)]
pub(super) struct Enlarged {
    pub(super) patches: usize,
    /// The two patches that each cell reads, and the share of the second.
    taps: Vec<([usize; 2], f64)>,
    /// How much of each patch the cells before each cell read together: `cells + 1` rows.
    sums: Vec<Vec<f64>>,
}

impl Enlarged {
    fn new(patches: usize) -> Self {
        let cells = patches * PATCH / CELL;
        let scale = patches as f64 / cells.max(1) as f64;
        let tap = |cell: usize| {
            let place = ((cell as f64 + 0.5) * scale - 0.5).max(0.0);
            let first = (place as usize).min(patches - 1);
            ([first, (first + 1).min(patches - 1)], place - first as f64)
        };
        let taps: Vec<([usize; 2], f64)> = (0..cells).map(tap).collect();
        let mut sums = vec![vec![0.0; patches]];
        for ([first, second], share) in &taps {
            let mut sum = sums[sums.len() - 1].clone();
            sum[*first] += 1.0 - share;
            sum[*second] += share;
            sums.push(sum);
        }
        Self {
            patches,
            taps,
            sums,
        }
    }

    pub(super) fn cells(&self) -> usize {
        self.taps.len()
    }

    pub(super) fn for_each_tap(&self, cell: usize, mut read: impl FnMut(usize, f64)) {
        let ([first, second], share) = self.taps[cell];
        read(first, 1.0 - share);
        read(second, share);
    }
}

#[cfg(test)]
mod tests {
    use percept_data::masks::PixelBox;
    use proptest::prelude::*;

    use super::*;

    /// The mean under the mask of a map that is enlarged first, as the public system does it.
    fn slow_mean(pooling: &Pooling, features: &[f64], mask: &Rle) -> f64 {
        let (rows, columns) = (&pooling.rows, &pooling.columns);
        let small = mask.resized_nearest(rows.cells(), columns.cells()).unwrap();
        let (mut sum, mut count) = (0.0, 0);
        for y in 0..rows.cells() {
            for x in (0..columns.cells()).filter(|&x| small.contains(x, y)) {
                rows.for_each_tap(y, |row, of_row| {
                    columns.for_each_tap(x, |column, of_column| {
                        sum += of_row * of_column * features[row * columns.patches + column];
                    });
                });
                count += 1;
            }
        }
        sum / f64::from(count.max(1))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn weights_of_patches_equal_the_mean_of_the_enlarged_map(
            grid in (1usize..9, 1usize..9),
            corner in (0u32..100, 0u32..100),
            size in (0u32..90, 0u32..90),
        ) {
            let picture = [grid.0 * PATCH, grid.1 * PATCH];
            let pooling = Pooling::new(picture);
            let area = PixelBox { x: corner.0, y: corner.1, width: size.0, height: size.1 };
            let mask = Rle::filled_box(picture[0], picture[1], area).unwrap();
            let features: Vec<f64> = (0..pooling.patches()).map(|i| (i * 37 % 11) as f64).collect();
            let weights = pooling.mask(&mask).unwrap();
            let fast: f64 = weights.iter().zip(&features).map(|(w, f)| f64::from(*w) * f).sum();
            prop_assert!((fast - slow_mean(&pooling, &features, &mask)).abs() < 1e-4);

            // A box without a margin whose corners are cells is a mask.
            let around = [corner.0 as f32, corner.1 as f32, size.0 as f32, size.1 as f32];
            let [x1, y1, x2, y2] = pooling.context(around, 10);
            prop_assert!(x1 < x2 && y1 < y2 && y2 <= pooling.rows.cells() && x2 <= pooling.columns.cells());
            let total: f64 = pooling.surroundings(around, 10).iter().map(|w| f64::from(*w)).sum();
            prop_assert!((total - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn a_mask_without_cells_has_no_weights() {
        let pooling = Pooling::new([28, 42]);
        let mask = Rle::empty(28, 42).unwrap();
        assert_eq!(pooling.mask(&mask).unwrap(), [0.0; 6]);
    }
}

//! Sites as numbers, and which sites a strided convolution makes active.

use super::{SparseError, Window};

/// Numbers sites so that the order of numbers is the order of sites, with a margin around the grid: a site plus any tap is
/// a site of the margin or of the same row, never of the next row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    margin: [i64; 3],
    sides: [i64; 3],
}

impl Numbering {
    /// For sites in `cells`, seen through windows that reach at most `margin` beyond.
    pub(super) fn new(
        samples: usize,
        cells: [usize; 3],
        margin: [usize; 3],
    ) -> Result<Self, SparseError> {
        let too_large = SparseError::TooLarge { samples, cells };
        let side = |axis: usize| {
            let side = margin[axis].checked_mul(2)?.checked_add(cells[axis])?;
            i64::try_from(side).ok()
        };
        let (Some(z), Some(y), Some(x)) = (side(0), side(1), side(2)) else {
            return Err(too_large);
        };
        let total = [z, y, x]
            .iter()
            .try_fold(samples.max(1) as i64, |product, &side| {
                product.checked_mul(side)
            });
        total
            .filter(|&total| total < i64::MAX / 2)
            .ok_or(too_large)?;
        Ok(Self {
            margin: margin.map(|m| m as i64),
            sides: [z, y, x],
        })
    }

    /// The number of a site, which may lie in the margin.
    #[inline(always)]
    pub(super) fn number(&self, batch: i32, [z, y, x]: [i64; 3]) -> i64 {
        let plane = i64::from(batch) * self.sides[0] + z + self.margin[0];
        (plane * self.sides[1] + y + self.margin[1]) * self.sides[2] + x + self.margin[2]
    }

    /// The site of a number.
    fn site(&self, number: i64) -> [i32; 4] {
        let (rest, x) = (number / self.sides[2], number % self.sides[2]);
        let (rest, y) = (rest / self.sides[1], rest % self.sides[1]);
        let (batch, z) = (rest / self.sides[0], rest % self.sides[0]);
        [
            batch as i32,
            (z - self.margin[0]) as i32,
            (y - self.margin[1]) as i32,
            (x - self.margin[2]) as i32,
        ]
    }

    /// The numbers of all sites, which must lie in the grid and ascend.
    pub(super) fn numbers(
        &self,
        sites: &[i32],
        cells: [usize; 3],
    ) -> Result<Vec<i64>, SparseError> {
        let mut numbers = Vec::with_capacity(sites.len() / 4);
        for (row, site) in rows(sites).enumerate() {
            let [batch, z, y, x] = site;
            let inside = |at: i32, side: usize| usize::try_from(at).is_ok_and(|at| at < side);
            if batch < 0 || !inside(z, cells[0]) || !inside(y, cells[1]) || !inside(x, cells[2]) {
                return Err(SparseError::Outside { row, site, cells });
            }
            let number = self.number(batch, [z.into(), y.into(), x.into()]);
            if numbers.last().is_some_and(|&last| last >= number) {
                return Err(SparseError::Unsorted { row, site });
            }
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// The sites of a flat list.
pub(super) fn rows(sites: &[i32]) -> impl DoubleEndedIterator<Item = [i32; 4]> + '_ {
    let (sites, rest) = sites.as_chunks::<4>();
    assert!(rest.is_empty(), "a site has four numbers");
    sites.iter().copied()
}

/// Samples that the sites name: one more than the largest batch index.
pub(super) fn sample_count(sites: &[i32]) -> usize {
    rows(sites)
        .next_back()
        .map_or(0, |site| site[0].max(0) as usize + 1)
}

/// The output sites of a convolution: every site whose window holds an active input site, ascending.
pub fn output_sites(
    window: &Window,
    cells: [usize; 3],
    sites: &[i32],
) -> Result<Vec<i32>, SparseError> {
    let samples = sample_count(sites);
    Numbering::new(samples, cells, [0; 3])?.numbers(sites, cells)?;
    let output_cells = window.output_cells(cells);
    let numbering = Numbering::new(samples, output_cells, [0; 3])?;
    // One ascending run for each tap: the stable sort below merges them.
    let mut reached: Vec<i64> = Vec::new();
    for tap_z in 0..window.kernel[0] {
        for tap_y in 0..window.kernel[1] {
            for tap_x in 0..window.kernel[2] {
                let taps = [tap_z, tap_y, tap_x];
                for [batch, z, y, x] in rows(sites) {
                    if let Some(output) = reached_by(window, output_cells, [z, y, x], taps) {
                        reached.push(numbering.number(batch, output));
                    }
                }
            }
        }
    }
    reached.sort();
    reached.dedup();
    Ok(reached
        .into_iter()
        .flat_map(|number| numbering.site(number))
        .collect())
}

/// The output site whose window holds the input site at this tap.
#[inline(always)]
fn reached_by(
    window: &Window,
    output_cells: [usize; 3],
    site: [i32; 3],
    taps: [usize; 3],
) -> Option<[i64; 3]> {
    let mut output = [0; 3];
    for axis in 0..3 {
        let moved = site[axis] as usize + window.padding[axis];
        let start = moved.checked_sub(taps[axis])?;
        let (at, rest) = (start / window.stride[axis], start % window.stride[axis]);
        if rest != 0 || at >= output_cells[axis] {
            return None;
        }
        output[axis] = at as i64;
    }
    Some(output)
}

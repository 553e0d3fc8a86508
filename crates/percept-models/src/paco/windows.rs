//! Windows around the peaks of a map, cut off at its borders.

use std::ops::Range;

/// A window of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Window {
    /// `side` x `side` pixels around a peak, as far as the map [height, width] reaches.
    pub(super) fn around(peak: [usize; 2], side: usize, map: [usize; 2]) -> Self {
        let [rows, columns] = [0, 1].map(|axis| {
            let start = peak[axis].saturating_sub(side / 2);
            start..(peak[axis] + side - side / 2).min(map[axis])
        });
        Self { rows, columns }
    }

    /// How many pixels it has.
    pub(super) fn area(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Its pixels, by their position in a map of this width.
    pub(super) fn pixels(&self, width: usize) -> impl Iterator<Item = usize> + '_ {
        let row = move |y| self.columns.clone().map(move |x| y * width + x);
        self.rows.clone().flat_map(row)
    }
}

/// The windows of one image: `peaks` holds a row and a column for each, which must lie in the map.
pub(super) fn windows(peaks: &[i32], side: usize, map: [usize; 2]) -> Result<Vec<Window>, String> {
    let window = |peak: &[i32]| {
        let at = [peak[0] as usize, peak[1] as usize];
        match at[0] < map[0] && at[1] < map[1] {
            true => Ok(Window::around(at, side, map)),
            false => Err(format!("peak {peak:?} lies outside the map {map:?}")),
        }
    };
    peaks.chunks_exact(2).map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_where_the_map_ends() {
        let pixels = |peak, side| {
            let window = Window::around(peak, side, [4, 5]);
            let pixels: Vec<usize> = window.pixels(5).collect();
            assert_eq!(pixels.len(), window.area());
            pixels
        };
        assert_eq!(pixels([0, 0], 3), [0, 1, 5, 6]);
        assert_eq!(pixels([3, 4], 3), [13, 14, 18, 19]);
        assert_eq!(pixels([1, 1], 2), [0, 1, 5, 6]);
        assert_eq!(pixels([2, 2], 1), [12]);
        assert!(windows(&[4, 0], 3, [4, 5]).is_err());
        assert!(windows(&[0, -1], 3, [4, 5]).is_err());
    }
}

//! A mask as the places where it begins and ends.

use std::ops::Range;

use super::MaskFault;
use crate::images::{MAX_PIXELS, MAX_SIDE_PIXELS};

/// A mask, run-length encoded down its columns as COCO's masks are.
///
/// Pixel (x, y) has the place `x * height + y`. `edges` are the places where the mask is entered and left in turn:
/// ascending, none twice, an even number of them. Each set of pixels has one such list, so equal masks are equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rle {
    height: u32,
    width: u32,
    edges: Vec<u32>,
}

/// A box of whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PixelBox {
    /// The first column.
    pub x: u32,
    /// The first row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// A run of pixels within one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnRun {
    /// The column.
    pub(super) x: u32,
    /// The first row.
    pub(super) top: u32,
    /// The row after the last.
    pub(super) bottom: u32,
}

impl Rle {
    /// A mask without a pixel.
    pub fn empty(height: usize, width: usize) -> Result<Self, MaskFault> {
        let (height, width) = checked_size(height, width)?;
        Ok(Self::from_edges(height, width, Vec::new()))
    }

    /// A mask that is a box, cut at the borders.
    pub fn filled_box(height: usize, width: usize, area: PixelBox) -> Result<Self, MaskFault> {
        let (height, width) = checked_size(height, width)?;
        let bottom = area.y.saturating_add(area.height).min(height);
        let columns = area.x..area.x.saturating_add(area.width).min(width);
        let runs = columns.map(|x| ColumnRun {
            x,
            top: area.y,
            bottom,
        });
        Ok(Self::from_column_runs(height, width, runs))
    }

    /// The mask of the pixels that are not 0, given row by row.
    pub fn encode(height: usize, width: usize, pixels: &[u8]) -> Result<Self, MaskFault> {
        let (rows, columns) = checked_size(height, width)?;
        if pixels.len() != height * width {
            return Err(MaskFault::Pixels {
                width: columns,
                height: rows,
                found: pixels.len(),
            });
        }
        // Rows are compared with the rows above them, which reads the pixels in their order. A run that goes on into the
        // next column gives the same place twice there, once as its end and once as a beginning.
        let mut edges = Vec::new();
        let nothing = vec![0; width];
        let mut above = &nothing[..];
        for (y, row) in (0..).zip(pixels.chunks_exact(width.max(1))) {
            for_each_change(above, row, |x| edges.push(x as u32 * rows + y));
            above = row;
        }
        for_each_change(above, &nothing, |x| edges.push(x as u32 * rows + rows));
        edges.sort_unstable();
        Ok(Self::from_edges(rows, columns, without_pairs(edges)))
    }

    /// The pixels row by row: 1 in the mask, 0 elsewhere.
    pub fn decode(&self) -> Vec<u8> {
        let mut pixels = vec![0; self.pixels() as usize];
        let width = self.width as usize;
        for run in self.column_runs() {
            let rows = run.top as usize..run.bottom as usize;
            rows.for_each(|y| pixels[y * width + run.x as usize] = 1);
        }
        pixels
    }

    /// Rows of the image that it belongs to.
    pub fn height(&self) -> usize {
        self.height as usize
    }

    /// Columns of the image that it belongs to.
    pub fn width(&self) -> usize {
        self.width as usize
    }

    /// How many pixels are set.
    pub fn area(&self) -> u64 {
        let runs = self.edges.as_chunks().0.iter();
        runs.map(|&[start, end]| u64::from(end - start)).sum()
    }

    /// Whether no pixel is set.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Whether the pixel in column `x` of row `y` is set; pixels beyond the borders are not.
    pub fn contains(&self, x: usize, y: usize) -> bool {
        if x >= self.width() || y >= self.height() {
            return false;
        }
        let place = x as u32 * self.height + y as u32;
        self.edges.partition_point(|&edge| edge <= place) % 2 == 1
    }

    /// The smallest box around the set pixels.
    pub fn bounding_box(&self) -> Option<PixelBox> {
        let (first, last) = (*self.edges.first()?, *self.edges.last()? - 1);
        let (left, right) = (first / self.height, last / self.height);
        let (mut top, mut bottom) = (self.height, 0);
        for &[start, end] in self.edges.as_chunks().0 {
            if start / self.height < (end - 1) / self.height {
                // A run that crosses into another column touches both borders.
                (top, bottom) = (0, self.height);
                break;
            }
            top = top.min(start % self.height);
            bottom = bottom.max((end - 1) % self.height + 1);
        }
        Some(PixelBox {
            x: left,
            y: top,
            width: right - left + 1,
            height: bottom - top,
        })
    }

    /// The mean place of the set pixels, (y, x), counted from the middle of the first pixel.
    pub fn centroid(&self) -> Option<(f64, f64)> {
        if self.is_empty() {
            return None;
        }
        // Twice the sums, which are whole: a run of rows a..b sums to (a + b - 1) (b - a) / 2.
        let (mut twice_y, mut sum_x) = (0u64, 0u64);
        for run in self.column_runs() {
            let length = u64::from(run.bottom - run.top);
            twice_y += u64::from(run.top + run.bottom - 1) * length;
            sum_x += u64::from(run.x) * length;
        }
        let area = self.area() as f64;
        Some((twice_y as f64 / 2.0 / area, sum_x as f64 / area))
    }

    /// Its runs cut where columns end: the column of each, and its rows.
    pub fn column_spans(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let span = |run: ColumnRun| (run.x as usize, run.top as usize..run.bottom as usize);
        self.column_runs().map(span)
    }

    /// The same mask from its edges, which the caller keeps in order.
    pub(super) fn from_edges(height: u32, width: u32, edges: Vec<u32>) -> Self {
        debug_assert!(edges.is_sorted_by(|a, b| a < b) && edges.len().is_multiple_of(2));
        Self {
            height,
            width,
            edges,
        }
    }

    /// A mask from runs within columns, in their order; runs that touch or overlap become one.
    pub(super) fn from_column_runs(
        height: u32,
        width: u32,
        runs: impl IntoIterator<Item = ColumnRun>,
    ) -> Self {
        let mut edges: Vec<u32> = Vec::new();
        for run in runs.into_iter().filter(|run| run.top < run.bottom) {
            let (start, end) = (run.x * height + run.top, run.x * height + run.bottom);
            match edges.last_mut() {
                Some(last) if start <= *last => *last = end.max(*last),
                _ => edges.extend([start, end]),
            }
        }
        Self::from_edges(height, width, edges)
    }

    /// The places where the mask is entered and left in turn.
    pub(crate) fn edges(&self) -> &[u32] {
        &self.edges
    }

    /// The number of pixels of the whole image.
    pub(super) fn pixels(&self) -> u32 {
        self.height * self.width
    }

    pub(super) fn size(&self) -> (u32, u32) {
        (self.height, self.width)
    }

    /// The runs, cut where columns end, in their order.
    pub(super) fn column_runs(&self) -> impl Iterator<Item = ColumnRun> {
        let height = self.height;
        let runs = self.edges.as_chunks().0.iter();
        runs.flat_map(move |&[start, end]| {
            (start / height..end.div_ceil(height)).map(move |x| ColumnRun {
                x,
                top: start.max(x * height) - x * height,
                bottom: end.min((x + 1) * height) - x * height,
            })
        })
    }
}

/// Refuses a size before memory is taken for it. Places then fit u32 with room: the largest is the number of pixels.
pub(super) fn checked_size(height: usize, width: usize) -> Result<(u32, u32), MaskFault> {
    let too_large = || MaskFault::TooLarge { width, height };
    let side = |pixels: usize| u32::try_from(pixels).ok().filter(|&s| s <= MAX_SIDE_PIXELS);
    let (rows, columns) = (side(height).zip(side(width))).ok_or_else(too_large)?;
    if u64::from(rows) * u64::from(columns) > MAX_PIXELS {
        return Err(too_large());
    }
    Ok((rows, columns))
}

/// The columns in which two rows differ in whether a pixel is set. Most rows are like the rows above them, so eight
/// pixels are compared at once first.
fn for_each_change(above: &[u8], row: &[u8], mut found: impl FnMut(usize)) {
    for (block, (a, b)) in above.chunks(8).zip(row.chunks(8)).enumerate() {
        if a != b {
            let changed = |i: &usize| (a[*i] != 0) != (b[*i] != 0);
            let columns = (0..b.len()).filter(changed);
            columns.for_each(|i| found(block * 8 + i));
        }
    }
}

/// Sorted places without those that stand there twice.
fn without_pairs(sorted: Vec<u32>) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::with_capacity(sorted.len());
    for place in sorted {
        if kept.last() == Some(&place) {
            kept.pop();
        } else {
            kept.push(place);
        }
    }
    kept
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Masks of all sizes from nothing on, from empty over sparse to full.
    pub(in crate::masks) fn masks() -> impl Strategy<Value = (usize, usize, Vec<u8>)> {
        (0usize..20, 0usize..20).prop_flat_map(|(height, width)| {
            masks_of(height, width).prop_map(move |pixels| (height, width, pixels))
        })
    }

    pub(in crate::masks) fn masks_of(
        height: usize,
        width: usize,
    ) -> impl Strategy<Value = Vec<u8>> {
        (0u8..=8).prop_flat_map(move |eighths| {
            let pixel = (0u8..8).prop_map(move |roll| if roll < eighths { roll + 1 } else { 0 });
            prop::collection::vec(pixel, height * width)
        })
    }

    #[test]
    fn pixels_of_another_number_are_refused() {
        let fault = Rle::encode(2, 3, &[0; 5]).unwrap_err();
        assert_eq!(fault.to_string(), "corrupt mask: 3x2 needs 6 pixels, got 5");
        for (height, width) in [(40_000, 2), (30_000, 30_000), (usize::MAX, usize::MAX)] {
            let fault = Rle::empty(height, width).unwrap_err();
            assert!(matches!(fault, MaskFault::TooLarge { .. }), "{fault}");
        }
    }

    #[test]
    fn a_box_is_its_own_bounding_box_and_ends_at_the_borders() {
        let area = PixelBox {
            x: 3,
            y: 1,
            width: 4,
            height: 2,
        };
        let mask = Rle::filled_box(5, 9, area).unwrap();
        assert_eq!((mask.bounding_box(), mask.area()), (Some(area), 8));
        assert_eq!(mask.centroid(), Some((1.5, 4.5)));
        let all = PixelBox {
            x: 0,
            y: 0,
            width: u32::MAX,
            height: u32::MAX,
        };
        assert_eq!(Rle::filled_box(5, 9, all).unwrap().area(), 45);
        let beyond = PixelBox { x: 9, ..all };
        assert!(Rle::filled_box(5, 9, beyond).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn an_encoded_mask_measures_as_its_pixels_do((height, width, pixels) in masks()) {
            let mask = Rle::encode(height, width, &pixels).unwrap();
            let set: Vec<u8> = pixels.iter().map(|&p| u8::from(p != 0)).collect();
            prop_assert_eq!(mask.decode(), set.clone());
            prop_assert_eq!((mask.height(), mask.width()), (height, width));
            let places: Vec<(usize, usize)> = (0..set.len())
                .filter(|&i| set[i] == 1)
                .map(|i| (i / width, i % width))
                .collect();
            prop_assert_eq!(mask.area(), places.len() as u64);
            prop_assert_eq!(mask.is_empty(), places.is_empty());
            for y in 0..height + 1 {
                for x in 0..width + 1 {
                    prop_assert_eq!(mask.contains(x, y), places.contains(&(y, x)));
                }
            }
            let Some(found) = mask.bounding_box() else {
                prop_assert!(places.is_empty() && mask.centroid().is_none());
                return Ok(());
            };
            let range = |of: fn(&(usize, usize)) -> usize| {
                let values = places.iter().map(of);
                (values.clone().min().unwrap(), values.max().unwrap())
            };
            let ((top, bottom), (left, right)) = (range(|p| p.0), range(|p| p.1));
            prop_assert_eq!((found.x as usize, found.y as usize), (left, top));
            prop_assert_eq!(found.width as usize, right - left + 1);
            prop_assert_eq!(found.height as usize, bottom - top + 1);
            let mean = |of: fn(&(usize, usize)) -> usize| {
                places.iter().map(of).sum::<usize>() as f64 / places.len() as f64
            };
            let (y, x) = mask.centroid().unwrap();
            prop_assert!((y - mean(|p| p.0)).abs() < 1e-12 && (x - mean(|p| p.1)).abs() < 1e-12);
        }
    }
}

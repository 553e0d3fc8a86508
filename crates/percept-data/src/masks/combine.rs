//! Two masks of one image together.

use super::{MaskFault, Rle};

impl Rle {
    /// The pixels of either mask.
    pub fn union(&self, other: &Self) -> Result<Self, MaskFault> {
        self.check_same_size(other)?;
        Ok(self.combined(other, |a, b| a || b))
    }

    /// The pixels of both masks.
    pub fn intersection(&self, other: &Self) -> Result<Self, MaskFault> {
        self.check_same_size(other)?;
        Ok(self.combined(other, |a, b| a && b))
    }

    /// The pixels of one mask alone.
    pub fn difference(&self, other: &Self) -> Result<Self, MaskFault> {
        self.check_same_size(other)?;
        Ok(self.combined(other, |a, b| a && !b))
    }

    /// The pixels in which the masks differ.
    pub fn disagreement(&self, other: &Self) -> Result<Self, MaskFault> {
        self.check_same_size(other)?;
        Ok(self.combined(other, |a, b| a != b))
    }

    /// How many pixels are in both masks.
    pub fn intersection_area(&self, other: &Self) -> Result<u64, MaskFault> {
        self.check_same_size(other)?;
        let (mine, _) = self.edges().as_chunks();
        let (theirs, _) = other.edges().as_chunks();
        let (mut i, mut j, mut area) = (0, 0, 0);
        while let (Some(&[a_start, a_end]), Some(&[b_start, b_end])) = (mine.get(i), theirs.get(j))
        {
            area += u64::from(a_end.min(b_end).saturating_sub(a_start.max(b_start)));
            if a_end <= b_end {
                i += 1;
            } else {
                j += 1;
            }
        }
        Ok(area)
    }

    /// Pixels of both over pixels of either; 0 for two empty masks.
    pub fn iou(&self, other: &Self) -> Result<f64, MaskFault> {
        let both = self.intersection_area(other)?;
        let either = self.area() + other.area() - both;
        Ok(both as f64 / either.max(1) as f64)
    }

    /// The pixels for which `keep` of (in this mask, in the other) holds; it must not hold for pixels of neither. The
    /// masks are of one size.
    pub(super) fn combined(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let (mine, theirs) = (self.edges(), other.edges());
        let mut edges = Vec::with_capacity(mine.len() + theirs.len());
        let (mut i, mut j) = (0, 0);
        while i < mine.len() || j < theirs.len() {
            let next = |edges: &[u32], at: usize| edges.get(at).copied().unwrap_or(u32::MAX);
            let place = next(mine, i).min(next(theirs, j));
            // Behind an odd number of edges one is inside.
            let before = keep(i % 2 == 1, j % 2 == 1);
            i += usize::from(next(mine, i) == place);
            j += usize::from(next(theirs, j) == place);
            if keep(i % 2 == 1, j % 2 == 1) != before {
                edges.push(place);
            }
        }
        let (height, width) = self.size();
        Self::from_edges(height, width, edges)
    }

    pub(super) fn check_same_size(&self, other: &Self) -> Result<(), MaskFault> {
        if self.size() == other.size() {
            return Ok(());
        }
        Err(MaskFault::Sizes {
            expected: (self.width(), self.height()),
            found: (other.width(), other.height()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rle::tests::masks_of;
    use super::*;

    #[test]
    fn masks_of_two_sizes_are_refused() {
        let (a, b) = (Rle::empty(2, 3).unwrap(), Rle::empty(3, 2).unwrap());
        let fault = a.union(&b).unwrap_err().to_string();
        assert_eq!(fault, "the mask is 2x3 (width x height), expected 3x2");
        assert!(a.intersection_area(&b).is_err() && a.iou(&b).is_err());
        assert_eq!(a.iou(&a), Ok(0.0));
    }

    proptest! {
        #[test]
        fn runs_are_combined_as_pixels_are(
            (height, width, a, b) in (0usize..15, 0usize..15).prop_flat_map(|(height, width)| {
                (Just(height), Just(width), masks_of(height, width), masks_of(height, width))
            }),
        ) {
            let encode = |pixels: &[u8]| Rle::encode(height, width, pixels).unwrap();
            let pixelwise = |keep: fn(bool, bool) -> bool| {
                let pairs = a.iter().zip(&b);
                encode(&pairs.map(|(&a, &b)| u8::from(keep(a != 0, b != 0))).collect::<Vec<_>>())
            };
            let (first, second) = (encode(&a), encode(&b));
            let both = pixelwise(|a, b| a && b);
            let either = pixelwise(|a, b| a || b);
            prop_assert_eq!(&first.intersection(&second).unwrap(), &both);
            prop_assert_eq!(&first.union(&second).unwrap(), &either);
            prop_assert_eq!(first.difference(&second).unwrap(), pixelwise(|a, b| a && !b));
            prop_assert_eq!(first.disagreement(&second).unwrap(), pixelwise(|a, b| a != b));
            prop_assert_eq!(first.intersection_area(&second).unwrap(), both.area());
            let iou = both.area() as f64 / either.area().max(1) as f64;
            prop_assert_eq!(first.iou(&second).unwrap(), iou);
        }
    }
}

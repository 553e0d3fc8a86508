//! Greedy non-maximum suppression of boxes that are turned.

use super::footprint::{BevBox, Footprint};
use super::overlap::iou;

/// What suppresses a box, and how many can stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suppression {
    /// A box that overlaps a better one by more than this goes.
    pub iou: f32,
    /// Only this many boxes are looked at.
    pub pre_max: usize,
    /// Only this many boxes stay.
    pub post_max: usize,
}

/// The boxes that stay, as indices. `boxes` come best first; a box stays unless one that stays overlaps it too much.
pub fn suppress(boxes: &[BevBox], rule: &Suppression) -> Vec<usize> {
    let mut kept: Vec<Footprint> = Vec::new();
    let mut indices = Vec::new();
    for (index, bev) in boxes.iter().enumerate().take(rule.pre_max) {
        if kept.len() == rule.post_max {
            break;
        }
        let candidate = Footprint::new(bev);
        if !kept
            .iter()
            .any(|better| overlaps(better, &candidate, rule.iou))
        {
            kept.push(candidate);
            indices.push(index);
        }
    }
    indices
}

/// Whether the boxes overlap by more than `limit`; most pairs are far apart and cost a few comparisons.
fn overlaps(a: &Footprint, b: &Footprint, limit: f32) -> bool {
    let bound = a.shared_area_bound(b);
    // shared / (areas - shared) grows with the shared area, so its bound decides for most pairs.
    let can = bound > 0.0 && bound * (1.0 + limit) * 1.000_1 > limit * (a.area + b.area);
    can && iou(a, b) > limit
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;

    fn boxes() -> impl Strategy<Value = Vec<BevBox>> {
        let one = (
            prop::array::uniform2(-8.0f32..8.0),
            prop::array::uniform2(0.2f32..5.0),
            -4.0f32..4.0,
        );
        let one = one.prop_map(|(center, size, yaw)| BevBox { center, size, yaw });
        prop::collection::vec(one, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn equals_the_reference(
            boxes in boxes(),
            limit in prop::sample::select(vec![0.0f32, 0.05, 0.2, 0.7]),
            pre_max in prop::sample::select(vec![0usize, 1, 20, 1000]),
            post_max in prop::sample::select(vec![0usize, 1, 5, 1000]),
        ) {
            // A pair on the very limit may go either way.
            let on_the_limit = boxes.iter().any(|a| boxes.iter().any(|b| {
                (reference::iou_bev(a, b) - f64::from(limit)).abs() < 1e-4 && limit > 0.0
            }));
            prop_assume!(!on_the_limit);
            let rule = Suppression { iou: limit, pre_max, post_max };
            prop_assert_eq!(suppress(&boxes, &rule), reference::suppress(&boxes, &rule));
        }
    }

    #[test]
    fn a_suppressed_box_suppresses_nothing() {
        let at = |x| BevBox {
            center: [x, 0.0],
            size: [2.0; 2],
            yaw: 0.0,
        };
        let rule = Suppression {
            iou: 0.3,
            pre_max: 9,
            post_max: 9,
        };
        assert_eq!(suppress(&[at(0.0), at(0.9), at(1.8)], &rule), [0, 2]);
    }
}

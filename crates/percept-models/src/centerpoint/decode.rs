//! Head maps to boxes: the best centres of each head, their boxes, and rotated non-maximum suppression.

use percept_kernels::boxes::{self, BevBox, Suppression};

use super::CenterPoint;
use crate::answer::FoundBox;

/// How far the map is shrunk against the voxels.
pub(super) const STRIDE: f32 = 8.0;

/// What maps mean, and which boxes are worth telling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeConfig {
    /// Where the map begins: x, y.
    pub origin_m: [f32; 2],
    /// Size of a voxel: x, y.
    pub voxel_m: [f32; 2],
    /// The lowest and the highest centre that a box may have: x, y, z.
    pub center_limits_m: [[f32; 3]; 2],
    /// A box must score more than this.
    pub score_threshold: f32,
    /// The best centres of a head that become boxes.
    pub max_candidates: usize,
    /// How boxes of one head suppress each other.
    pub suppression: Suppression,
}

impl DecodeConfig {
    /// The public settings for nuScenes.
    pub fn new(network: &CenterPoint) -> Self {
        DecodeConfig {
            origin_m: [-network.range_m; 2],
            voxel_m: [network.voxel_m[0], network.voxel_m[1]],
            center_limits_m: [[-61.2, -61.2, -10.0], [61.2, 61.2, 10.0]],
            score_threshold: 0.1,
            max_candidates: 500,
            suppression: Suppression {
                iou: 0.2,
                pre_max: 1000,
                post_max: 83,
            },
        }
    }
}

/// The maps of one head, each [channels, H, W].
#[derive(Clone, Copy, Debug)]
pub struct HeadMaps<'a> {
    /// The class id of each channel of `hm`.
    pub classes: &'a [usize],
    /// Logits of the heat map, one channel a class.
    pub hm: &'a [f32],
    /// Offset of the centre in its cell: x, y.
    pub center: &'a [f32],
    /// Height of the centre.
    pub center_z: &'a [f32],
    /// Logarithm of length, width, height.
    pub dim: &'a [f32],
    /// Cosine and sine of the heading.
    pub rot: &'a [f32],
    /// Velocity: x, y.
    pub vel: &'a [f32],
}

/// The boxes of all heads, head by head, best first. Maps are `[height, width]` cells.
///
/// # Panics
/// When a map has another size.
pub fn decode(
    heads: &[HeadMaps<'_>],
    [height, width]: [usize; 2],
    config: &DecodeConfig,
) -> Vec<FoundBox> {
    heads
        .iter()
        .flat_map(|head| {
            let boxes = candidates(head, [height, width], config);
            let kept = suppress(&boxes, config);
            kept.into_iter().map(move |index| boxes[index])
        })
        .collect()
}

/// Which boxes of one head no better one overlaps, best first.
pub fn suppress(boxes: &[FoundBox], config: &DecodeConfig) -> Vec<usize> {
    let seen_from_above: Vec<BevBox> = boxes.iter().map(bev).collect();
    boxes::suppress(&seen_from_above, &config.suppression)
}

fn bev(detection: &FoundBox) -> BevBox {
    let ([x, y, _], [length, width, _]) = (detection.center, detection.size);
    BevBox {
        center: [x, y],
        size: [length, width],
        yaw: detection.yaw,
    }
}

/// The boxes of a head before suppression, best first.
///
/// # Panics
/// When a map has another size.
pub fn candidates(
    head: &HeadMaps<'_>,
    [height, width]: [usize; 2],
    config: &DecodeConfig,
) -> Vec<FoundBox> {
    let cells = height * width;
    for (name, map, channels) in [
        ("hm", head.hm, head.classes.len()),
        ("center", head.center, 2),
        ("center_z", head.center_z, 1),
        ("dim", head.dim, 3),
        ("rot", head.rot, 2),
        ("vel", head.vel, 2),
    ] {
        assert_eq!(map.len(), channels * cells, "length of {name}");
    }
    let best = best_centres(head.hm, config.max_candidates, config.score_threshold);
    let boxes = best.into_iter().map(|Centre { score, index }| {
        let (class, cell) = (head.classes[index / cells], index % cells);
        let value = |map: &[f32], channel: usize| map[channel * cells + cell];
        let place = |axis: usize, step: usize| {
            (step as f32 + value(head.center, axis)) * STRIDE * config.voxel_m[axis]
                + config.origin_m[axis]
        };
        FoundBox {
            class,
            score,
            center: [
                place(0, cell % width),
                place(1, cell / width),
                value(head.center_z, 0),
            ],
            size: [0, 1, 2].map(|axis| libm::expf(value(head.dim, axis))),
            yaw: libm::atan2f(value(head.rot, 1), value(head.rot, 0)),
            velocity: [0, 1].map(|axis| value(head.vel, axis)),
        }
    });
    let [low, high] = config.center_limits_m;
    let in_limits = |c: &[f32; 3]| (0..3).all(|i| (low[i]..=high[i]).contains(&c[i]));
    boxes.filter(|found| in_limits(&found.center)).collect()
}

/// A place of a heat map.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Centre {
    score: f32,
    index: usize,
}

/// The `count` best places that score more than `threshold`: score descending, then index ascending.
///
/// Per-class selection and the selection over classes, which the public implementations do one after the other, keep the
/// same places as this one selection.
fn best_centres(logits: &[f32], count: usize, threshold: f32) -> Vec<Centre> {
    if count == 0 {
        return Vec::new();
    }
    let at_least = |floor: f32| {
        let places = logits.iter().enumerate();
        places.filter(move |&(_, &logit)| logit >= floor)
    };
    // Only few places need a sigmoid: it never falls, so logits decide until scores may be equal.
    let mut floor = lowest_logit(|score| score > threshold);
    let mut high: Vec<f32> = at_least(floor).map(|(_, &logit)| logit).collect();
    if high.len() > count {
        let (_, last, _) = high.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
        let last = sigmoid(*last);
        floor = floor.max(lowest_logit(|score| score >= last));
    }
    let mut best: Vec<Centre> = at_least(floor)
        .map(|(index, &logit)| Centre {
            score: sigmoid(logit),
            index,
        })
        .collect();
    best.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
    best.truncate(count);
    best
}

/// The sigmoid, each step rounded to f32 as in the public implementations, so that the same scores are equal. It never
/// falls, because no step does.
fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + libm::exp(-f64::from(logit)) as f32)
}

/// The lowest logit whose score passes, or NaN when none does. What passes must keep passing as scores grow.
fn lowest_logit(passes: impl Fn(f32) -> bool) -> f32 {
    // Beyond these the score is 0 or 1 in f32.
    let (mut below, mut above) = (-200.0f32, 200.0f32);
    if !passes(sigmoid(above)) {
        return f32::NAN;
    }
    if passes(sigmoid(below)) {
        return f32::NEG_INFINITY;
    }
    loop {
        let middle = below + (above - below) / 2.0;
        if middle <= below || middle >= above {
            return above;
        }
        if passes(sigmoid(middle)) {
            above = middle;
        } else {
            below = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What [`best_centres`] gives, by sorting everything.
    fn best_by_sorting(logits: &[f32], count: usize, threshold: f32) -> Vec<Centre> {
        let mut all: Vec<Centre> = (0..logits.len())
            .map(|index| Centre {
                score: sigmoid(logits[index]),
                index,
            })
            .filter(|centre| centre.score > threshold)
            .collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
        all.truncate(count);
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn selection_equals_sorting(
            logits in prop::collection::vec(
                prop_oneof![
                    4 => -4.0f32..4.0,
                    // Many different logits of one score, and equal logits.
                    2 => 15.0f32..40.0,
                    2 => prop::sample::select(vec![-2.0f32, 0.0, -0.0, 1.0]),
                    1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -300.0]),
                ],
                0..200,
            ),
            count in 0usize..60,
            threshold in prop::sample::select(vec![-1.0f32, 0.0, 0.1, 0.5, 1.0, 2.0]),
        ) {
            let expected = best_by_sorting(&logits, count, threshold);
            prop_assert_eq!(best_centres(&logits, count, threshold), expected);
        }
    }

    #[test]
    fn a_lonely_peak_becomes_its_box() {
        let [height, width] = [4, 6];
        let cells = height * width;
        let mut hm = vec![-9.0; 2 * cells];
        hm[cells + 2 * width + 5] = 3.0;
        let constant =
            |values: &[f32]| -> Vec<f32> { values.iter().flat_map(|&v| vec![v; cells]).collect() };
        let (center, center_z) = (constant(&[0.25, 0.5]), constant(&[-1.0]));
        let (dim, rot) = (
            constant(&[4f32.ln(), 2f32.ln(), 0.0]),
            constant(&[0.0, 2.0]),
        );
        let vel = constant(&[1.5, -0.5]);
        let head = HeadMaps {
            classes: &[6, 7],
            hm: &hm,
            center: &center,
            center_z: &center_z,
            dim: &dim,
            rot: &rot,
            vel: &vel,
        };
        let config = DecodeConfig::new(&CenterPoint::COARSE);
        let found = decode(&[head], [height, width], &config);
        assert_eq!(found.len(), 1);
        let near = |got: f32, expected: f32| assert!((got - expected).abs() < 1e-5, "{found:?}");
        let detection = found[0];
        assert_eq!(detection.class, 7);
        near(detection.score, 0.952_574_1);
        near(detection.center[0], 5.25 * 0.8 - 51.2);
        near(detection.center[1], 2.5 * 0.8 - 51.2);
        near(detection.center[2], -1.0);
        near(detection.size[0], 4.0);
        near(detection.yaw, std::f32::consts::FRAC_PI_2);
        assert_eq!(detection.velocity, [1.5, -0.5]);

        let nowhere = DecodeConfig {
            center_limits_m: [[0.0; 3], [61.2; 3]],
            ..config
        };
        assert_eq!(decode(&[head], [height, width], &nowhere), []);
    }
}

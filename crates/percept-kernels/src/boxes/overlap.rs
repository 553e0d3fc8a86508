//! The overlap of two boxes that are turned: the rule of the public implementations, which every published result used.
//!
//! The corners of the shared polygon are where edges cross, and the corners of each box that lie in the other one
//! (with a margin). Sorted by angle around their mean, they make a fan of triangles.

use super::footprint::{BevBox, Footprint};

/// Denominators below this are taken as this.
pub(crate) const MIN_UNION: f32 = 1e-8;
/// 16 pairs of edges and 8 corners.
const MAX_POINTS: usize = 24;

type Point = [f32; 2];

/// The intersection of two boxes seen from above, divided by their union.
pub fn iou_bev(a: &BevBox, b: &BevBox) -> f32 {
    iou(&Footprint::new(a), &Footprint::new(b))
}

/// [`iou_bev`] of boxes whose corners are known.
pub(crate) fn iou(a: &Footprint, b: &Footprint) -> f32 {
    let shared = shared_area(a, b);
    shared / (a.area + b.area - shared).max(MIN_UNION)
}

fn shared_area(a: &Footprint, b: &Footprint) -> f32 {
    let mut polygon = [[0.0; 2]; MAX_POINTS];
    let mut count = 0;
    let mut push = |point: Option<Point>| {
        if let Some(point) = point {
            polygon[count] = point;
            count += 1;
        }
    };
    for i in 0..4 {
        for j in 0..4 {
            let edge = |corners: &[Point; 4], k: usize| [corners[k], corners[(k + 1) % 4]];
            push(crossing(edge(&a.corners, i), edge(&b.corners, j)));
        }
    }
    for k in 0..4 {
        push(Some(a.corners[k]).filter(|&corner| b.contains(corner)));
        push(Some(b.corners[k]).filter(|&corner| a.contains(corner)));
    }
    fan_area(&mut polygon[..count])
}

/// Where two edges cross within both of them, ends excluded.
#[inline]
fn crossing([p0, p1]: [Point; 2], [q0, q1]: [Point; 2]) -> Option<Point> {
    let (side_p0, side_p1) = (cross(q0, q1, p0), cross(q0, q1, p1));
    let (side_q0, side_q1) = (cross(p0, p1, q0), cross(p0, p1, q1));
    let crosses = side_p0 * side_p1 < 0.0 && side_q0 * side_q1 < 0.0;
    crosses.then(|| {
        let share = side_p0 / (side_p0 - side_p1);
        [0, 1].map(|axis| p0[axis] + share * (p1[axis] - p0[axis]))
    })
}

/// Twice the area of the triangle, positive when it turns counter-clockwise.
#[inline]
fn cross(origin: Point, a: Point, b: Point) -> f32 {
    (a[0] - origin[0]) * (b[1] - origin[1]) - (a[1] - origin[1]) * (b[0] - origin[0])
}

/// The area of a convex polygon whose corners come in any order.
fn fan_area(polygon: &mut [Point]) -> f32 {
    if polygon.len() < 3 {
        return 0.0;
    }
    let count = polygon.len() as f32;
    let mean = [0, 1].map(|axis| polygon.iter().map(|p| p[axis]).sum::<f32>() / count);
    polygon.sort_by(|a, b| angle_rank(*a, mean).total_cmp(&angle_rank(*b, mean)));
    let twice: f32 = polygon
        .windows(2)
        .map(|edge| cross(polygon[0], edge[0], edge[1]))
        .sum();
    twice.abs() / 2.0
}

/// Grows with the angle of `point` around `center`, from -pi to pi, without an arc tangent.
#[inline]
fn angle_rank(point: Point, center: Point) -> f32 {
    let (x, y) = (point[0] - center[0], point[1] - center[1]);
    let along = x / (x.abs() + y.abs()).max(f32::MIN_POSITIVE);
    if y >= 0.0 { 1.0 - along } else { along - 1.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;

    /// Boxes near each other, of many sizes, some upright, some equal.
    fn any_box() -> impl Strategy<Value = BevBox> {
        let yaw = prop_oneof![
            3 => -7.0f32..7.0,
            1 => prop::sample::select(vec![0.0, std::f32::consts::FRAC_PI_2, -0.0]),
        ];
        let center = prop::array::uniform2(prop_oneof![3 => -4.0f32..4.0, 1 => Just(1.0)]);
        let size = prop::array::uniform2(prop_oneof![3 => 0.05f32..6.0, 1 => Just(2.0)]);
        (center, size, yaw).prop_map(|(center, size, yaw)| BevBox { center, size, yaw })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn equals_the_reference(a in any_box(), b in any_box()) {
            let (got, expected) = (iou_bev(&a, &b), reference::iou_bev(&a, &b));
            // Sums over coordinates of some metres round, relative to the areas.
            let area = |b: &BevBox| f64::from(b.size[0] * b.size[1]);
            let tolerance = 2e-5 + 1e-4 / (area(&a) + area(&b));
            prop_assert!((f64::from(got) - expected).abs() <= tolerance, "{got} {expected}");
        }

        #[test]
        fn the_bound_holds(a in any_box(), b in any_box()) {
            let (a, b) = (Footprint::new(&a), Footprint::new(&b));
            let (shared, bound) = (shared_area(&a, &b), a.shared_area_bound(&b));
            prop_assert!(shared <= bound * 1.000_01, "{shared} {bound}");
        }
    }

    #[test]
    fn known_overlaps() {
        let square = |x, yaw| BevBox {
            center: [x, 0.0],
            size: [2.0; 2],
            yaw,
        };
        let diamond = std::f32::consts::FRAC_PI_4;
        let octagon = 8.0 * (2f32.sqrt() - 1.0);
        for (name, a, b, expected) in [
            ("itself", square(0.0, 0.0), square(0.0, 0.0), 1.0),
            ("half", square(0.0, 0.0), square(1.0, 0.0), 1.0 / 3.0),
            ("apart", square(0.0, 0.0), square(2.5, 0.0), 0.0),
            (
                "octagon",
                square(0.0, 0.0),
                square(0.0, diamond),
                octagon / (8.0 - octagon),
            ),
        ] {
            let got = iou_bev(&a, &b);
            assert!((got - expected).abs() < 1e-5, "{name}: {got} {expected}");
        }
    }

    #[test]
    fn boxes_that_are_no_boxes_overlap_nothing() {
        let good = BevBox {
            center: [0.0; 2],
            size: [2.0; 2],
            yaw: 0.0,
        };
        for bad in [f32::NAN, f32::INFINITY] {
            let bad = BevBox {
                center: [bad, 0.0],
                ..good
            };
            assert_eq!(iou_bev(&good, &bad), 0.0);
        }
    }
}

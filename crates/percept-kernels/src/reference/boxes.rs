//! Overlap and suppression of turned boxes, in f64.

use crate::boxes::{BevBox, Suppression};

const MARGIN_M: f64 = 1e-2;

/// Intersection over union seen from above: edge crossings and corners inside (by a margin), sorted by angle, as a fan.
pub fn iou_bev(a: &BevBox, b: &BevBox) -> f64 {
    let (corners_a, corners_b) = (corners(a), corners(b));
    let mut polygon = Vec::new();
    for i in 0..4 {
        for j in 0..4 {
            polygon.extend(crossing(
                [corners_a[i], corners_a[(i + 1) % 4]],
                [corners_b[j], corners_b[(j + 1) % 4]],
            ));
        }
    }
    polygon.extend(corners_a.into_iter().filter(|&corner| contains(b, corner)));
    polygon.extend(corners_b.into_iter().filter(|&corner| contains(a, corner)));
    let count = polygon.len() as f64;
    let mean = [0, 1].map(|axis| polygon.iter().map(|p| p[axis]).sum::<f64>() / count);
    let angle = |p: &[f64; 2]| libm::atan2(p[1] - mean[1], p[0] - mean[0]);
    polygon.sort_by(|p, q| angle(p).total_cmp(&angle(q)));
    let fan = polygon.windows(2).map(|edge| {
        let [u, v] = [edge[0], edge[1]].map(|p| [p[0] - polygon[0][0], p[1] - polygon[0][1]]);
        u[0] * v[1] - u[1] * v[0]
    });
    let shared = fan.sum::<f64>().abs() / 2.0;
    let area = |b: &BevBox| f64::from(b.size[0]) * f64::from(b.size[1]);
    shared / (area(a) + area(b) - shared).max(1e-8)
}

/// The boxes that stay when each that stays removes all later ones that overlap it too much.
pub fn suppress(boxes: &[BevBox], rule: &Suppression) -> Vec<usize> {
    let mut left: Vec<usize> = (0..boxes.len().min(rule.pre_max)).collect();
    let mut kept = Vec::new();
    while !left.is_empty() {
        let best = left.remove(0);
        kept.push(best);
        left.retain(|&other| iou_bev(&boxes[best], &boxes[other]) <= f64::from(rule.iou));
    }
    kept.truncate(rule.post_max);
    kept
}

fn corners(b: &BevBox) -> [[f64; 2]; 4] {
    let (sin, cos) = libm::sincos(f64::from(b.yaw));
    let [length, width] = b.size.map(|side| f64::from(side) / 2.0);
    let [x, y] = b.center.map(f64::from);
    [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]].map(|[along, across]| {
        let (along, across) = (along * length, across * width);
        [
            x + along * cos - across * sin,
            y + along * sin + across * cos,
        ]
    })
}

fn contains(b: &BevBox, point: [f64; 2]) -> bool {
    let (sin, cos) = libm::sincos(f64::from(b.yaw));
    let [x, y] = [0, 1].map(|axis| point[axis] - f64::from(b.center[axis]));
    let [length, width] = b.size.map(|side| f64::from(side) / 2.0);
    (x * cos + y * sin).abs() < length + MARGIN_M && (y * cos - x * sin).abs() < width + MARGIN_M
}

/// Where two segments cross; touching is not crossing.
fn crossing([p0, p1]: [[f64; 2]; 2], [q0, q1]: [[f64; 2]; 2]) -> Option<[f64; 2]> {
    let p = [p1[0] - p0[0], p1[1] - p0[1]];
    let q = [q1[0] - q0[0], q1[1] - q0[1]];
    let gap = [q0[0] - p0[0], q0[1] - p0[1]];
    let denominator = p[0] * q[1] - p[1] * q[0];
    let along_p = (gap[0] * q[1] - gap[1] * q[0]) / denominator;
    let along_q = (gap[0] * p[1] - gap[1] * p[0]) / denominator;
    let within = |share: f64| share > 0.0 && share < 1.0;
    (within(along_p) && within(along_q)).then(|| [0, 1].map(|axis| p0[axis] + along_p * p[axis]))
}

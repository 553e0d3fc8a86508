//! The neighbours of one point: a walk that goes to the nearest box first and tightens its bound on the way.
//!
//! For the few questions that come alone. Boxes know their smallest number, so that even where thousands of points
//! coincide only boxes that can improve the answer are opened.

use super::super::order::{FAN, LEAF};
use super::super::tree::{Boxes, NOBODY, PointTree};

/// A box or a leaf to look into: its key is (smallest distance, smallest number).
#[derive(Clone, Copy)]
struct Step {
    key: u64,
    /// 0 for leaves.
    height: usize,
    index: usize,
}

pub(super) fn key(distance: f32, number: u32) -> u64 {
    u64::from(distance.to_bits()) << 32 | u64::from(number)
}

/// Distance and number of a key.
pub(super) fn parts(key: u64) -> (f32, u32) {
    (f32::from_bits((key >> 32) as u32), key as u32)
}

/// The `k` smallest keys of a tree's points seen from `point`, ascending; fewer where it has fewer points.
pub(super) fn nearest(tree: &PointTree, point: [f32; 3], k: usize) -> Vec<u64> {
    let mut best: Vec<u64> = Vec::with_capacity(k + 1);
    let mut todo = vec![Step {
        key: 0,
        height: tree.boxes.len(),
        index: 0,
    }];
    if k == 0 || tree.is_empty() {
        return best;
    }
    while let Some(step) = todo.pop() {
        let hopeless = |best: &[u64], key: u64| best.len() == k && key > best[k - 1];
        if hopeless(&best, step.key) {
            continue;
        }
        if step.height == 0 {
            let leaf = &tree.leaves[step.index];
            for seat in 0..LEAF {
                let number = leaf.number(seat);
                let key = key(squared_distance(point, leaf.point(seat)), number);
                if number != NOBODY && !hopeless(&best, key) {
                    let place = best.partition_point(|&other| other < key);
                    best.insert(place, key);
                    best.truncate(k);
                }
            }
            continue;
        }
        let children = todo.len();
        let boxes = &tree.boxes[step.height - 1][step.index];
        let distances = distances_to_boxes(point, boxes);
        for child in 0..FAN {
            let first = boxes.first[child].to_bits();
            let key = key(distances[child], first);
            if first != NOBODY && !hopeless(&best, key) {
                todo.push(Step {
                    key,
                    height: step.height - 1,
                    index: step.index * FAN + child,
                });
            }
        }
        // The nearest is taken first.
        todo[children..].sort_unstable_by_key(|step| std::cmp::Reverse(step.key));
    }
    best
}

/// The one formula of a distance: each part is rounded by itself, so that all instruction sets agree to the bit.
pub(super) fn squared_distance(a: [f32; 3], b: [f32; 3]) -> f32 {
    let [x, y, z] = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
    (x * x + y * y) + z * z
}

/// The same formula on the way to a node's boxes: rounding never changes an order, so no point inside is nearer.
pub(super) fn distances_to_boxes(point: [f32; 3], boxes: &Boxes) -> [f32; FAN] {
    std::array::from_fn(|child| {
        let gap = |axis: usize| {
            let before = boxes.low[axis][child] - point[axis];
            let behind = point[axis] - boxes.high[axis][child];
            before.max(behind).max(0.0)
        };
        squared_distance([gap(0), gap(1), gap(2)], [0.0; 3])
    })
}

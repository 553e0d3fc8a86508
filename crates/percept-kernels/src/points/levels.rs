//! The levels of a network that thins its points out: what RandLA-Net needs to know of a cloud, made once.
//!
//! A level keeps the points of the level above whose priority is smallest, so levels are nested. Each has a k-d order of
//! its own, and everything is numbered by places in these orders: features stored in them are gathered from near memory.

use super::search::MAX_NEIGHBOURS;
use super::tree::{Numbering, PointTree, PointsError};
use crate::cpu::Cpu;
use crate::rows::for_each_block;

/// Of a point that the next level does not keep.
const GONE: i32 = -1;

/// One level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Level {
    /// For each place: the row of the cloud (first level), or the place in the level above.
    pub source: Vec<i32>,
    /// The coordinates at each place.
    pub points: Vec<[f32; 3]>,
    /// How many neighbours a list has: `k`, or all points where there are fewer.
    pub k: usize,
    /// The places of the `k` nearest points of this level, nearest first, for each place.
    pub neighbours: Vec<i32>,
    /// The `up_k` nearest points of the next level, nearest first, for each place. Empty in the last level.
    pub up: Vec<i32>,
    /// How many numbers `up` has for each place.
    pub up_k: usize,
    /// The squared distances that belong to `up`, where more than one is asked for.
    pub up_distance: Vec<f32>,
}

/// How a cloud is thinned out.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelPlan<'a> {
    /// From each level to the next one point of so many stays: `max(1, points / ratio)`.
    pub ratios: &'a [usize],
    /// Neighbours of a point in its level.
    pub k: usize,
    /// Points of the next level that a point is interpolated from: 1, or more, then with distances.
    pub up_k: usize,
    /// A permutation of the rows: rows with small numbers are kept. `None` keeps the rows that come first.
    pub priority: Option<&'a [u32]>,
}

/// All levels of a cloud, the whole cloud first: one more than there are ratios. The last one has no neighbours.
///
/// # Panics
/// When there are not as many priorities as points, or a ratio is 0.
pub fn levels(
    cpu: &Cpu,
    points: &[[f32; 3]],
    plan: &LevelPlan<'_>,
) -> Result<Vec<Level>, PointsError> {
    assert!(
        plan.k <= MAX_NEIGHBOURS && plan.up_k <= MAX_NEIGHBOURS,
        "lists are too long"
    );
    if let Some(priority) = plan.priority {
        assert_eq!(priority.len(), points.len(), "a priority for each point");
    }
    let mut tree = PointTree::build(cpu, points, Numbering::Places)?;
    let mut source: Vec<i32> = tree.rows().iter().map(|row| row.cast_signed()).collect();
    let row_priority = |&row: &i32| plan.priority.map_or(row as u32, |all| all[row as usize]);
    let mut priority: Vec<u32> = source.iter().map(row_priority).collect();
    let mut levels = Vec::with_capacity(plan.ratios.len() + 1);
    for &ratio in plan.ratios {
        let points: Vec<[f32; 3]> = tree.points().collect();
        let k = tree.list_len(plan.k);
        let mut neighbours = vec![0; points.len() * k];
        tree.neighbours(cpu, plan.k, &mut neighbours, None);
        let stay = (points.len() / ratio).max(1).min(points.len());
        let kept = with_smallest(&priority, stay);
        let kept_points: Vec<[f32; 3]> = kept.iter().map(|&place| points[place]).collect();
        let next = PointTree::build(cpu, &kept_points, Numbering::Places)?;
        let next_source = next.rows().iter().map(|&row| kept[row as usize]);
        let next_source: Vec<usize> = next_source.collect();
        let mut level = Level {
            source,
            points,
            k,
            neighbours,
            up_k: next.list_len(plan.up_k),
            ..Level::default()
        };
        if plan.up_k == 1 {
            level.up = level.nearest_kept(cpu, &next, &next_source);
        } else {
            let len = level.points.len() * level.up_k;
            (level.up, level.up_distance) = (vec![0; len], vec![0.0; len]);
            let distance = Some(&mut level.up_distance[..]);
            next.neighbours_of(cpu, &tree, plan.up_k, &mut level.up, distance);
        }
        levels.push(level);
        std::mem::replace(&mut tree, next).give_back(cpu);
        source = next_source.iter().map(|&place| place as i32).collect();
        priority = next_source.iter().map(|&place| priority[place]).collect();
    }
    levels.push(Level {
        source,
        points: tree.points().collect(),
        ..Level::default()
    });
    tree.give_back(cpu);
    Ok(levels)
}

/// The places of the `count` smallest priorities, ascending. Priorities differ.
fn with_smallest(priority: &[u32], count: usize) -> Vec<usize> {
    let Some(last) = count.checked_sub(1) else {
        return Vec::new();
    };
    let (_, &mut largest, _) = priority.to_vec().select_nth_unstable(last);
    let places = 0..priority.len();
    places.filter(|&place| priority[place] <= largest).collect()
}

impl Level {
    /// The nearest point of the next level for each place; `next_source` says where its points come from.
    ///
    /// Almost always it is in the list of neighbours: the first one that is kept. The few others ask the tree. Where
    /// several kept points are equally near, it is one of them, and always the same.
    fn nearest_kept(&self, cpu: &Cpu, next: &PointTree, next_source: &[usize]) -> Vec<i32> {
        let mut next_place = vec![GONE; self.points.len()];
        for (place, &source) in next_source.iter().enumerate() {
            next_place[source] = place as i32;
        }
        let mut nearest = vec![GONE; self.points.len()];
        for_each_block(
            cpu,
            nearest.len(),
            self.k,
            1,
            &mut nearest,
            |places, nearest| {
                // Points that coincide have the same answer, and come one after the other.
                let mut last: Option<([f32; 3], i32)> = None;
                for (place, nearest) in places.zip(nearest) {
                    let list = &self.neighbours[place * self.k..][..self.k];
                    let kept = list.iter().map(|&neighbour| next_place[neighbour as usize]);
                    let point = self.points[place];
                    *nearest = match (kept.into_iter().find(|&kept| kept != GONE), last) {
                        (Some(kept), _) => kept,
                        (None, Some((same, answer))) if same == point => answer,
                        (None, _) => {
                            let found = next.nearest(point, 1);
                            found
                                .first()
                                .map_or(GONE, |&(number, _)| number.cast_signed())
                        }
                    };
                    last = Some((point, *nearest));
                }
            },
        );
        nearest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::isa::Isa;
    use crate::testing::numbers;

    fn cloud(seed: u64, len: usize, step: f32) -> Vec<[f32; 3]> {
        let values = numbers(seed, 3 * len);
        let values: Vec<f32> = match step > 0.0 {
            true => values
                .iter()
                .map(|value| (value / step).round() * step)
                .collect(),
            false => values,
        };
        values.as_chunks::<3>().0.to_vec()
    }

    fn distance(a: [f32; 3], b: [f32; 3]) -> f32 {
        let [x, y, z] = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
        (x * x + y * y) + z * z
    }

    /// A permutation that depends on the seed only.
    fn shuffled(seed: u64, len: usize) -> Vec<u32> {
        let keys = numbers(seed, len);
        let mut rows: Vec<u32> = (0..len as u32).collect();
        rows.sort_by(|&a, &b| keys[a as usize].total_cmp(&keys[b as usize]));
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn levels_are_nested_and_their_lists_are_right(
            len in 0usize..500, seed in any::<u64>(), up_k in prop::sample::select(vec![1usize, 3]),
            step in prop::sample::select(vec![0.0f32, 0.3, 3.0]), shuffle in any::<bool>(), k in 1usize..18,
        ) {
            let points = cloud(seed, len, step);
            let priority = shuffled(seed, len);
            let plan = LevelPlan { ratios: &[4, 2], k, up_k, priority: shuffle.then_some(&priority[..]) };
            let cpus = Isa::available().into_iter().flat_map(|isa| [1, 2, 3].map(|threads| Cpu::with_isa(threads, isa).unwrap()));
            let mut all = cpus.map(|cpu| levels(&cpu, &points, &plan).unwrap());
            let made = all.next().unwrap();
            prop_assert!(all.all(|other| other == made), "the same on every CPU");
            let mut rows: Vec<Vec<usize>> = Vec::new();
            for (depth, level) in made.iter().enumerate() {
                let source = level.source.iter().map(|&from| from as usize);
                rows.push(match depth.checked_sub(1) {
                    None => source.collect(),
                    Some(above) => source.map(|place| rows[above][place]).collect(),
                });
                for (point, &row) in level.points.iter().zip(&rows[depth]) {
                    prop_assert_eq!(*point, points[row]);
                }
            }
            let count = [len, (len / 4).max(len.min(1)), (len / 4).max(len.min(1)) / 2];
            for (depth, rows) in rows.iter().enumerate() {
                let mut kept: Vec<u32> = rows.iter().map(|&row| if shuffle { priority[row] } else { row as u32 }).collect();
                kept.sort_unstable();
                prop_assert!(kept.into_iter().eq(0..count[depth].max(len.min(1)) as u32), "the smallest priorities stay");
            }
            for (level, next) in made.iter().zip(&made[1..]) {
                prop_assert_eq!(level.k, k.min(level.points.len()));
                for (place, up) in level.up.chunks(level.up_k.max(1)).enumerate() {
                    let from = |&to: &i32| distance(level.points[place], next.points[to as usize]);
                    let mut best: Vec<f32> = next.points.iter().map(|&to| distance(level.points[place], to)).collect();
                    best.sort_by(f32::total_cmp);
                    prop_assert!(up.iter().map(from).eq(best[..level.up_k].iter().copied()));
                    if up_k > 1 {
                        prop_assert_eq!(&level.up_distance[place * level.up_k..][..level.up_k], &best[..level.up_k]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_point_that_is_no_number_is_refused() {
        let plan = LevelPlan {
            ratios: &[4],
            k: 16,
            up_k: 1,
            priority: None,
        };
        let cpu = Cpu::new(1).unwrap();
        let refused = levels(&cpu, &[[0.0; 3], [0.0, f32::NAN, 0.0]], &plan);
        assert!(matches!(
            refused,
            Err(PointsError::Coordinate { row: 1, .. })
        ));
    }
}

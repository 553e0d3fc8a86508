//! Searches against brute force, on clouds of every sort.

use proptest::prelude::*;

use super::one;
use crate::cpu::Cpu;
use crate::isa::Isa;
use crate::points::{Numbering, PointTree, PointsError};
use crate::testing::numbers;

/// Every list by comparing with every point: rows and squared distances.
fn brute_force(points: &[[f32; 3]], queries: &[[f32; 3]], k: usize) -> (Vec<i32>, Vec<f32>) {
    let (mut rows, mut distances) = (Vec::new(), Vec::new());
    for &query in queries {
        let keys = points.iter().zip(0..);
        let mut keys: Vec<u64> = keys
            .map(|(&point, row)| one::key(one::squared_distance(query, point), row))
            .collect();
        keys.sort_unstable();
        for &key in keys.iter().take(k) {
            let (distance, row) = one::parts(key);
            rows.push(row.cast_signed());
            distances.push(distance);
        }
    }
    (rows, distances)
}

fn search(cpu: &Cpu, points: &[[f32; 3]], k: usize, numbering: Numbering) -> (Vec<i32>, Vec<f32>) {
    let tree = PointTree::build(cpu, points, numbering).unwrap();
    let len = tree.lists() * tree.list_len(k);
    let (mut index, mut distance) = (vec![-7; len], vec![f32::NAN; len]);
    tree.neighbours(cpu, k, &mut index, Some(&mut distance));
    let mut alone = vec![-7; len];
    tree.neighbours(cpu, k, &mut alone, None);
    assert_eq!(alone, index);
    (index, distance)
}

fn cpus() -> impl Iterator<Item = Cpu> {
    let all = Isa::available().into_iter();
    all.flat_map(|isa| [1, 2, 3].map(|threads| Cpu::with_isa(threads, isa).unwrap()))
}

/// Checks every list of a cloud, on every instruction set and thread count.
fn check(points: &[[f32; 3]], k: usize) {
    let expected = brute_force(points, points, k);
    for cpu in cpus() {
        let found = search(&cpu, points, k, Numbering::Rows);
        assert_eq!(
            found,
            expected,
            "{} on {} threads",
            cpu.isa(),
            cpu.threads()
        );
    }
}

/// Points in a cube of this extent around a middle, rounded to multiples of `step` (0: not at all).
fn cloud(seed: u64, len: usize, middle: [f32; 3], extent: [f32; 3], step: f32) -> Vec<[f32; 3]> {
    let values = numbers(seed, 3 * len);
    let (points, _) = values.as_chunks::<3>();
    let place = |point: &[f32; 3]| {
        std::array::from_fn(|axis| {
            let value = point[axis] * extent[axis];
            let value = if step > 0.0 {
                (value / step).round() * step
            } else {
                value
            };
            middle[axis] + value
        })
    };
    points.iter().map(place).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn equals_brute_force(
        len in 0usize..400,
        k in prop::sample::select(vec![1usize, 3, 8, 15, 16, 17, 31, 32, 64]),
        seed in any::<u64>(),
        step in prop::sample::select(vec![0.0f32, 0.05, 0.5, 2.0]),
        flat in prop::sample::select(vec![[1.0f32, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [100.0, 1.0, 0.01]]),
    ) {
        check(&cloud(seed, len, [0.0; 3], flat, step), k);
    }

    #[test]
    fn other_queries_equal_brute_force(
        len in 1usize..300, query_len in 0usize..200, k in 1usize..20, seed in any::<u64>(),
        step in prop::sample::select(vec![0.0f32, 0.25]), away in prop::sample::select(vec![0.0f32, 0.5, 1000.0]),
    ) {
        let points = cloud(seed, len, [0.0; 3], [1.0; 3], step);
        let queries = cloud(seed ^ 1, query_len, [away, 0.0, -away], [2.0; 3], step);
        let expected = brute_force(&points, &queries, k.min(len));
        for cpu in cpus() {
            let tree = PointTree::build(&cpu, &points, Numbering::Rows).unwrap();
            let query_tree = PointTree::build(&cpu, &queries, Numbering::Rows).unwrap();
            let found_len = query_len * tree.list_len(k);
            let (mut index, mut distance) = (vec![-7; found_len], vec![f32::NAN; found_len]);
            tree.neighbours_of(&cpu, &query_tree, k, &mut index, Some(&mut distance));
            prop_assert_eq!(&index, &expected.0);
            prop_assert_eq!(&distance, &expected.1);
        }
        let cpu = Cpu::with_isa(1, Isa::Portable).unwrap();
        let tree = PointTree::build(&cpu, &points, Numbering::Rows).unwrap();
        for (query, expected) in queries.iter().zip(expected.0.chunks(k.min(len))) {
            let alone = tree.nearest(*query, k).into_iter().map(|(row, _)| row.cast_signed());
            prop_assert!(alone.eq(expected.iter().copied()));
        }
    }

    #[test]
    fn places_are_rows_in_another_order(len in 0usize..300, seed in any::<u64>(), k in 1usize..20) {
        let points = cloud(seed, len, [3.0, 0.0, 0.0], [5.0, 5.0, 1.0], 0.0);
        for cpu in cpus() {
            let tree = PointTree::build(&cpu, &points, Numbering::Places).unwrap();
            let sorted: Vec<[f32; 3]> = tree.points().collect();
            for (point, &row) in sorted.iter().zip(tree.rows()) {
                prop_assert_eq!(*point, points[row as usize]);
            }
            let found = search(&cpu, &points, k, Numbering::Places);
            prop_assert_eq!(found, brute_force(&sorted, &sorted, k.min(len)));
        }
    }
}

#[test]
fn larger_clouds_equal_brute_force() {
    check(&cloud(5, 3000, [0.0; 3], [50.0, 50.0, 2.0], 0.0), 16);
    check(&cloud(6, 3000, [0.0; 3], [8.0, 8.0, 1.0], 1.0), 16);
    check(&cloud(7, 2500, [0.0; 3], [1.0, 1.0, 1.0], 1.0), 16);
}

#[test]
fn coinciding_points_have_the_first_ones_as_neighbours() {
    let mut points = vec![[1.0, 2.0, 3.0]; 5000];
    check(&points[..1000], 16);
    points.extend(cloud(3, 200, [1.0, 2.0, 3.0], [0.1; 3], 0.0));
    let cpu = Cpu::new(2).unwrap();
    let (index, _) = search(&cpu, &points, 16, Numbering::Rows);
    let (expected, _) = brute_force(&points, &points[4990..], 16);
    assert_eq!(index[4990 * 16..], expected);
}

/// Far from the origin, coordinates are coarse but their differences are exact: what the lists say must be so in f64.
#[test]
fn a_cluster_far_away_loses_no_precision() {
    for middle in [0.0, 1e3, 1e6, -3e7] {
        let mut points = cloud(9, 1500, [middle, 0.0, middle], [20.0, 20.0, 20.0], 0.0);
        points.extend(cloud(10, 500, [0.0; 3], [5.0; 3], 0.0));
        let cpu = Cpu::new(1).unwrap();
        let (index, distance) = search(&cpu, &points, 16, Numbering::Rows);
        for (row, query) in points.iter().enumerate() {
            let exact = |point: &[f32; 3]| -> f64 {
                let square =
                    |axis: usize| (f64::from(point[axis]) - f64::from(query[axis])).powi(2);
                (0..3).map(square).sum()
            };
            let mut all: Vec<f64> = points.iter().map(exact).collect();
            all.sort_by(f64::total_cmp);
            for rank in 0..16 {
                let at = row * 16 + rank;
                let chosen = exact(&points[index[at] as usize]);
                // As near as the one at this rank, but for the last bits of f32.
                assert!(
                    (chosen - all[rank]).abs() <= 3e-7 * all[rank],
                    "{middle} {row}"
                );
                assert!((f64::from(distance[at]) - chosen).abs() <= 3e-7 * chosen);
            }
        }
    }
}

#[test]
fn points_that_are_no_numbers_are_refused_or_left_out() {
    let cpu = Cpu::new(1).unwrap();
    let mut points = cloud(1, 50, [0.0; 3], [1.0; 3], 0.0);
    points[7][1] = f32::NAN;
    points[20][2] = f32::INFINITY;
    points[30][0] = -2e18;
    let refused = PointTree::build(&cpu, &points, Numbering::Rows).unwrap_err();
    assert!(matches!(
        refused,
        PointsError::Coordinate {
            row: 7,
            axis: 'y',
            ..
        }
    ));
    let tree = PointTree::of_usable(&cpu, &points, Numbering::Rows).unwrap();
    assert_eq!((tree.len(), tree.left_out(), tree.lists()), (47, 3, 50));
    let mut index = vec![0; 50 * 16];
    tree.neighbours(&cpu, 16, &mut index, None);
    let kept: Vec<usize> = (0..50).filter(|row| ![7, 20, 30].contains(row)).collect();
    let usable: Vec<[f32; 3]> = kept.iter().map(|&row| points[row]).collect();
    let (expected, _) = brute_force(&usable, &usable, 16);
    for (list, expected) in kept.iter().zip(expected.chunks(16)) {
        let expected = expected.iter().map(|&place| kept[place as usize] as i32);
        assert!(index[list * 16..][..16].iter().copied().eq(expected));
    }
    assert_eq!(index[7 * 16..8 * 16], [-1; 16]);
}

#[test]
fn many_points_have_one_order_without_those_left_out() {
    let mut points = cloud(3, 40_000, [1.0; 3], [30.0, 20.0, 2.0], 0.0);
    for row in [0, 16_383, 16_384, 39_999] {
        points[row][row % 3] = f32::NAN;
    }
    let trees = cpus().map(|cpu| PointTree::of_usable(&cpu, &points, Numbering::Rows).unwrap());
    let orders: Vec<Vec<u32>> = trees.map(|tree| tree.rows().to_vec()).collect();
    assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
    let mut rows = orders[0].clone();
    rows.sort_unstable();
    let usable = |row: &u32| points[*row as usize].iter().all(|value| value.is_finite());
    assert!(rows.into_iter().eq((0..40_000).filter(usable)));
}

#[test]
fn memory_of_another_tree_leaves_nothing_behind() {
    for cpu in cpus() {
        let mut last: Option<PointTree> = None;
        for (seed, len) in [1000, 333, 300, 17, 17, 20, 999, 40, 1]
            .into_iter()
            .enumerate()
        {
            let points = cloud(seed as u64, len, [seed as f32; 3], [2.0; 3], 0.1);
            let tree = PointTree::build(&cpu, &points, Numbering::Rows).unwrap();
            let k = tree.list_len(16);
            let mut index = vec![0; len * k];
            tree.neighbours(&cpu, k, &mut index, None);
            assert_eq!(index, brute_force(&points, &points, k).0);
            // Two trees at a time: memory that held points comes to hold leaves.
            if let Some(last) = last.replace(tree) {
                last.give_back(&cpu);
            }
        }
    }
}

#[test]
fn the_largest_coordinates_are_searched_rightly() {
    check(&cloud(2, 100, [0.0; 3], [1e18; 3], 0.0), 16);
}

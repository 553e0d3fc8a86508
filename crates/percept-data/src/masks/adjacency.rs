//! Which masks of an image lie next to each other: O-MaMa's hard negatives.

use spade::{DelaunayTriangulation, Point2, Triangulation};

use super::Rle;

/// Neighbours among masks, by the Delaunay triangulation of their centroids.
///
/// Masks with equal centroids share a corner of the triangulation: they are neighbours of each other, and have the same other
/// neighbours. Centroids on one line are neighbours of the next on it. Four or more on one circle are triangulated in one of
/// the possible ways, always the same for the same masks. Empty masks have no neighbours, and fewer than three masks that are not
/// empty have none either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// For each mask its neighbours, ascending.
    neighbours: Vec<Vec<usize>>,
}

impl Adjacency {
    /// The neighbours among `masks`.
    pub fn of_masks(masks: &[Rle]) -> Self {
        let centroids: Vec<_> = masks.iter().map(Rle::centroid).collect();
        Self::of_centroids(&centroids)
    }

    /// The neighbours among points (y, x); what has no point has no neighbour. Coordinates are those of pixels: finite, and
    /// neither huge nor tiny.
    pub fn of_centroids(centroids: &[Option<(f64, f64)>]) -> Self {
        let mut neighbours = vec![Vec::new(); centroids.len()];
        let present = (0..).zip(centroids);
        let present: Vec<(usize, (f64, f64))> = present
            .filter_map(|(mask, at)| Some((mask, (*at)?)))
            .collect();
        if present.len() < 3 {
            return Self { neighbours };
        }
        let mut corners = DelaunayTriangulation::<Point2<f64>>::new();
        // The masks of each corner, in the order in which the corners came.
        let mut masks_of: Vec<Vec<usize>> = Vec::new();
        for (mask, (y, x)) in present {
            // Equal points are told by their corner; a point that no image has is left without neighbours.
            let Ok(corner) = corners.insert(Point2::new(x, y)) else {
                continue;
            };
            masks_of.resize_with(corners.num_vertices(), Vec::new);
            masks_of[corner.index()].push(mask);
        }
        let edges = corners.undirected_edges();
        let edges = edges.map(|edge| edge.vertices().map(|corner| corner.fix().index()));
        let itself = (0..masks_of.len()).map(|corner| [corner, corner]);
        for [a, b] in edges.chain(itself) {
            for &first in &masks_of[a] {
                for &second in masks_of[b].iter().filter(|&&second| second != first) {
                    neighbours[first].push(second);
                    neighbours[second].push(first);
                }
            }
        }
        for list in &mut neighbours {
            list.sort_unstable();
            list.dedup();
        }
        Self { neighbours }
    }

    /// The masks next to one, ascending. Panics past the end, as indexing does.
    pub fn neighbours(&self, mask: usize) -> &[usize] {
        &self.neighbours[mask]
    }

    /// The other masks that at most `order` steps lead to, ascending.
    pub fn within(&self, mask: usize, order: usize) -> Vec<usize> {
        let mut reached = self.walks(mask, order);
        reached[mask] = false;
        (0..reached.len()).filter(|&other| reached[other]).collect()
    }

    /// The matrix (A + A² + ... + A^order) > 0, row by row: from two steps on, who has neighbours comes back to itself.
    pub fn matrix(&self, order: usize) -> Vec<bool> {
        let rows = (0..self.neighbours.len()).map(|mask| self.walks(mask, order));
        rows.flatten().collect()
    }

    /// Where walks of one to `order` steps end.
    fn walks(&self, mask: usize, order: usize) -> Vec<bool> {
        let mut reached = vec![false; self.neighbours.len()];
        let mut ends = vec![mask];
        for _ in 0..order {
            let mut next = Vec::new();
            for end in ends {
                for &neighbour in &self.neighbours[end] {
                    if !reached[neighbour] {
                        reached[neighbour] = true;
                        next.push(neighbour);
                    }
                }
            }
            ends = next;
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::masks::PixelBox;
    use crate::safetensors::read_safetensors;

    fn of_points(points: &[(f64, f64)]) -> Adjacency {
        Adjacency::of_centroids(&points.iter().copied().map(Some).collect::<Vec<_>>())
    }

    /// Reference outputs for points in general position (tests/fixtures/omama_adjacency.safetensors).
    #[test]
    fn neighbours_are_those_of_the_reference() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/omama_adjacency.safetensors"
        );
        let stored: BTreeMap<_, _> = read_safetensors(path.as_ref())
            .unwrap()
            .into_iter()
            .collect();
        for n in [3, 5, 12, 40, 100] {
            let centroids = stored[&format!("n{n}.centroids")].to_f64();
            let (points, _) = centroids.as_chunks();
            let adjacency = of_points(&points.iter().map(|&[y, x]| (y, x)).collect::<Vec<_>>());
            for order in 1..=3 {
                let expected = stored[&format!("n{n}.adj{order}")].values::<u8>().unwrap();
                let found: Vec<u8> = adjacency.matrix(order).into_iter().map(u8::from).collect();
                assert_eq!(found, expected, "{n} points, order {order}");
            }
        }
    }

    #[test]
    fn empty_masks_do_not_shift_the_others() {
        let at = |x, y| {
            let (width, height) = (2, 2);
            Rle::filled_box(
                40,
                40,
                PixelBox {
                    x,
                    y,
                    width,
                    height,
                },
            )
            .unwrap()
        };
        let empty = Rle::empty(40, 40).unwrap();
        let masks = [at(1, 1), empty.clone(), at(30, 2), empty.clone(), at(5, 30)];
        let adjacency = Adjacency::of_masks(&masks);
        assert_eq!(adjacency.neighbours(0), [2, 4]);
        assert_eq!(adjacency.neighbours(4), [0, 2]);
        assert!(adjacency.neighbours(1).is_empty() && adjacency.within(3, 3).is_empty());
        let two = Adjacency::of_masks(&[at(1, 1), empty, at(30, 2)]);
        assert!((0..3).all(|mask| two.neighbours(mask).is_empty()));
    }

    #[test]
    fn centroids_on_a_line_are_neighbours_of_the_next() {
        // Not in the order of the line, and in a direction that rounding bends.
        let on_line = |t: f64| (0.1 * t, 0.3 * t);
        let adjacency = of_points(&[3.0, 1.0, 4.0, 2.0].map(|t| (t, 7.0)));
        let lists: Vec<_> = (0..4)
            .map(|mask| adjacency.neighbours(mask).to_vec())
            .collect();
        assert_eq!(lists, [vec![2, 3], vec![3], vec![0], vec![0, 1]]);
        assert_eq!(adjacency.within(1, 2), [0, 3]);
        let bent = of_points(&[0.0, 1.0, 2.0, 3.0, 7.0].map(on_line));
        for mask in 0..4 {
            assert!(bent.neighbours(mask).contains(&(mask + 1)), "{bent:?}");
        }
    }

    #[test]
    fn equal_centroids_are_neighbours_and_have_the_same_others() {
        let adjacency = of_points(&[(0.0, 0.0), (5.0, 5.0), (0.0, 9.0), (5.0, 5.0)]);
        assert_eq!(adjacency.neighbours(1), [0, 2, 3]);
        assert_eq!(adjacency.neighbours(3), [0, 1, 2]);
        assert_eq!(adjacency.neighbours(0), [1, 2, 3]);
        let one_place = of_points(&[(2.0, 3.0); 4]);
        assert_eq!(one_place.neighbours(2), [0, 1, 3]);
    }

    proptest! {
        #[test]
        fn neighbours_share_an_empty_circle(
            points in prop::collection::vec((0i32..30, 0i32..30), 3..14),
        ) {
            let floats: Vec<_> = points.iter().map(|&(y, x)| (f64::from(y), f64::from(x))).collect();
            let adjacency = of_points(&floats);
            for (a, &p) in points.iter().enumerate() {
                for (b, &q) in points.iter().enumerate().filter(|&(b, _)| b != a) {
                    let is_neighbour = adjacency.neighbours(a).contains(&b);
                    prop_assert_eq!(is_neighbour, adjacency.neighbours(b).contains(&a));
                    match circles_through(p, q, &points) {
                        // Several triangulations are right where more than three points share a circle.
                        Circles::Empty => prop_assert!(is_neighbour, "{:?} {:?}", p, q),
                        Circles::Touching => {}
                        Circles::None => prop_assert!(!is_neighbour, "{:?} {:?}", p, q),
                    }
                }
            }
        }

        #[test]
        fn the_matrix_is_a_sum_of_powers(
            points in prop::collection::vec((0i32..99, 0i32..99), 3..12), order in 1usize..4,
        ) {
            let floats: Vec<_> = points.iter().map(|&(y, x)| (f64::from(y), f64::from(x))).collect();
            let (adjacency, n) = (of_points(&floats), points.len());
            let first = adjacency.matrix(1);
            let (mut power, mut sum) = (first.clone(), first.clone());
            for _ in 1..order {
                let cell = |i: usize| (0..n).any(|k| power[i / n * n + k] && first[k * n + i % n]);
                power = (0..n * n).map(cell).collect();
                sum.iter_mut().zip(&power).for_each(|(s, &p)| *s |= p);
            }
            prop_assert_eq!(adjacency.matrix(order), sum.clone());
            for mask in 0..n {
                let others = (0..n).filter(|&j| j != mask && sum[mask * n + j]);
                prop_assert_eq!(adjacency.within(mask, order), others.collect::<Vec<_>>());
            }
        }
    }

    enum Circles {
        /// A circle through both points has no other point in it or on it.
        Empty,
        /// Circles through both have no other point in them, but some on them.
        Touching,
        None,
    }

    /// The circles through `p` and `q` have their centres at (p + q) / 2 + t n, n normal to q - p. Each other point r keeps
    /// t on one side of a bound; all in exact integers, as fractions.
    fn circles_through(p: (i32, i32), q: (i32, i32), points: &[(i32, i32)]) -> Circles {
        if p == q {
            return Circles::Empty;
        }
        let minus = |a: (i32, i32), b: (i32, i32)| (i64::from(a.0 - b.0), i64::from(a.1 - b.1));
        let dot = |a: (i64, i64), b: (i64, i64)| a.0 * b.0 + a.1 * b.1;
        let cross = |a: (i64, i64), b: (i64, i64)| a.0 * b.1 - a.1 * b.0;
        // r is outside where (r - p)·(r - q) > 2 t cross(q - p, r - p).
        let mut low: Option<(i64, i64)> = None;
        let mut high: Option<(i64, i64)> = None;
        let below = |a: (i64, i64), b: (i64, i64)| {
            i128::from(a.0) * i128::from(b.1) < i128::from(b.0) * i128::from(a.1)
        };
        for &r in points.iter().filter(|&&r| r != p && r != q) {
            let (value, side) = (
                dot(minus(r, p), minus(r, q)),
                cross(minus(q, p), minus(r, p)),
            );
            match side.signum() {
                0 if value < 0 => return Circles::None,
                0 => {}
                1 => {
                    let bound = (value, side);
                    high = Some(high.filter(|&high| !below(bound, high)).unwrap_or(bound));
                }
                _ => {
                    let bound = (-value, -side);
                    low = Some(low.filter(|&low| !below(low, bound)).unwrap_or(bound));
                }
            }
        }
        match (low, high) {
            (Some(low), Some(high)) if below(high, low) => Circles::None,
            (Some(low), Some(high)) if !below(low, high) => Circles::Touching,
            _ => Circles::Empty,
        }
    }
}

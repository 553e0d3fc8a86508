//! A bounding-volume hierarchy over placed solids.

/// An axis-aligned box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) low: [f64; 3],
    pub(crate) high: [f64; 3],
}

impl Bounds {
    pub(crate) const EMPTY: Self = Self {
        low: [f64::INFINITY; 3],
        high: [f64::NEG_INFINITY; 3],
    };

    pub(crate) fn around(centre: [f64; 3], reach: [f64; 3]) -> Self {
        Self {
            low: std::array::from_fn(|i| centre[i] - reach[i]),
            high: std::array::from_fn(|i| centre[i] + reach[i]),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            low: std::array::from_fn(|i| self.low[i].min(other.low[i])),
            high: std::array::from_fn(|i| self.high[i].max(other.high[i])),
        }
    }

    fn centre(&self, axis: usize) -> f64 {
        0.5 * (self.low[axis] + self.high[axis])
    }

    /// Half of the surface: the chance that a random ray meets the box, up to a factor.
    fn half_area(&self) -> f64 {
        let [x, y, z] = std::array::from_fn(|i| (self.high[i] - self.low[i]).max(0.0));
        x * y + y * z + z * x
    }

    /// Where a ray enters the box, if it does before `farthest`.
    #[inline]
    fn enter(&self, origin: [f64; 3], inverse: [f64; 3], farthest: f64) -> Option<f64> {
        let mut near: f64 = 0.0;
        let mut far = farthest;
        for axis in 0..3 {
            let a = (self.low[axis] - origin[axis]) * inverse[axis];
            let b = (self.high[axis] - origin[axis]) * inverse[axis];
            // min and max ignore the NaN of 0 * infinity: a ray within a face's plane counts as inside.
            near = near.max(a.min(b));
            far = far.min(a.max(b));
        }
        (near <= far).then_some(near)
    }
}

#[derive(Clone, Debug)]
struct Node {
    bounds: Bounds,
    /// Leaves: the first item. Inner nodes: the second child; the first one follows its parent.
    start: u32,
    /// How many items a leaf has; 0 for inner nodes.
    count: u32,
}

/// A tree of boxes; leaves refer to items by their number in the list that it was built from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bvh {
    nodes: Vec<Node>,
    items: Vec<u32>,
}

const LEAF_ITEMS: usize = 2;
/// Below this depth nodes are halved, so that no list of boxes makes a tree deeper than the stack.
const MAX_UNEVEN_DEPTH: usize = 30;
const STACK_DEPTH: usize = MAX_UNEVEN_DEPTH + 34;

impl Bvh {
    pub(crate) fn build(bounds: &[Bounds]) -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            items: (0..bounds.len() as u32).collect(),
        };
        if !bounds.is_empty() {
            tree.split(bounds, 0, bounds.len(), 0);
        }
        tree
    }

    fn split(&mut self, bounds: &[Bounds], start: usize, end: usize, depth: usize) {
        let here = self.nodes.len();
        let items = &mut self.items[start..end];
        let whole = items
            .iter()
            .fold(Bounds::EMPTY, |b, i| b.union(bounds[*i as usize]));
        self.nodes.push(Node {
            bounds: whole,
            start: start as u32,
            count: items.len() as u32,
        });
        if items.len() <= LEAF_ITEMS {
            return;
        }
        let sort = |items: &mut [u32], axis: usize| {
            items.sort_by(|a, b| {
                let key = |i: &u32| bounds[*i as usize].centre(axis);
                key(a).total_cmp(&key(b)).then(a.cmp(b))
            });
        };
        // The surface area heuristic: the cut that makes a random ray do the least work.
        let middle = items.len() / 2;
        let mut best = (f64::INFINITY, 0, middle);
        let mut left_areas = vec![0.0; items.len()];
        for axis in 0..3 {
            sort(items, axis);
            let mut left = Bounds::EMPTY;
            for (area, item) in left_areas.iter_mut().zip(items.iter()) {
                left = left.union(bounds[*item as usize]);
                *area = left.half_area();
            }
            let mut right = Bounds::EMPTY;
            for cut in (1..items.len()).rev() {
                right = right.union(bounds[items[cut] as usize]);
                let cost = left_areas[cut - 1] * cut as f64
                    + right.half_area() * (items.len() - cut) as f64;
                let allowed = depth < MAX_UNEVEN_DEPTH || cut == middle;
                let more_even = cost == best.0 && cut.abs_diff(middle) < best.2.abs_diff(middle);
                if allowed && (cost < best.0 || more_even) {
                    best = (cost, axis, cut);
                }
            }
        }
        let (_, axis, cut) = best;
        sort(items, axis);
        self.split(bounds, start, start + cut, depth + 1);
        let second = self.nodes.len() as u32;
        self.split(bounds, start + cut, end, depth + 1);
        self.nodes[here] = Node {
            bounds: whole,
            start: second,
            count: 0,
        };
    }

    /// Visits the items whose boxes the ray meets before `farthest`, nearer boxes first; `visit` returns the new
    /// farthest distance of interest.
    #[inline]
    pub(crate) fn cast(
        &self,
        origin: [f64; 3],
        direction: [f64; 3],
        mut farthest: f64,
        mut visit: impl FnMut(usize, f64) -> f64,
    ) {
        let inverse = direction.map(|d| 1.0 / d);
        let Some(root) = self.nodes.first() else {
            return;
        };
        if root.bounds.enter(origin, inverse, farthest).is_none() {
            return;
        }
        let mut stack = [(0u32, 0.0f64); STACK_DEPTH];
        let mut depth = 1;
        while depth > 0 {
            depth -= 1;
            let (mut at, near) = stack[depth];
            if near > farthest {
                continue;
            }
            loop {
                let node = &self.nodes[at as usize];
                if node.count > 0 {
                    for item in &self.items[node.start as usize..(node.start + node.count) as usize]
                    {
                        farthest = visit(*item as usize, farthest);
                    }
                    break;
                }
                let (first, second) = (at + 1, node.start);
                let enter = |child: u32| {
                    self.nodes[child as usize]
                        .bounds
                        .enter(origin, inverse, farthest)
                };
                at = match (enter(first), enter(second)) {
                    (None, None) => break,
                    (Some(_), None) => first,
                    (None, Some(_)) => second,
                    (Some(a), Some(b)) => {
                        let (near_child, far_child) = if a <= b {
                            (first, (second, b))
                        } else {
                            (second, (first, a))
                        };
                        stack[depth] = far_child;
                        depth += 1;
                        near_child
                    }
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_bounds() -> impl Strategy<Value = Bounds> {
        (
            prop::array::uniform3(-20.0..20.0f64),
            prop::array::uniform3(0.1..3.0f64),
        )
            .prop_map(|(centre, reach)| Bounds::around(centre, reach))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn finds_the_nearest_box_that_a_list_finds(
            boxes in prop::collection::vec(any_bounds(), 0..80),
            origin in prop::array::uniform3(-30.0..30.0f64),
            direction in prop::array::uniform3(-1.0..1.0f64),
        ) {
            let inverse = direction.map(|d| 1.0 / d);
            let nearest = |farthest: f64, b: &Bounds| b.enter(origin, inverse, farthest).unwrap_or(farthest);
            let expected = boxes.iter().fold(1e9, nearest);
            let mut found = 1e9;
            Bvh::build(&boxes).cast(origin, direction, 1e9, |item, farthest| {
                found = nearest(farthest, &boxes[item]);
                found
            });
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn many_equal_boxes_do_not_overflow() {
        let boxes = vec![Bounds::around([0.0; 3], [1.0; 3]); 3000];
        let mut visited = 0;
        Bvh::build(&boxes).cast([-5.0, 0.1, 0.2], [1.0, 0.0, 0.0], 100.0, |_, farthest| {
            visited += 1;
            farthest
        });
        assert_eq!(visited, 3000);
    }
}

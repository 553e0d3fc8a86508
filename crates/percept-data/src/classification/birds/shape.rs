//! Outlines, as the signed distance to them: below zero inside.

/// A place or a direction: right, down.
pub(super) type Point = [f32; 2];

/// An outline in the units of its frame.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Ellipse {
        centre: Point,
        radii: Point,
    },
    /// A line that thickens from one end to the other, with round ends.
    Limb {
        ends: [Point; 2],
        radii: [f32; 2],
    },
    /// A polygon with corners rounded outwards.
    Polygon {
        corners: Vec<Point>,
        rounding: f32,
    },
    /// Two outlines melted together over a length.
    Melted {
        parts: Box<[Shape; 2]>,
        over: f32,
    },
    /// What two outlines have in common.
    Common {
        parts: Box<[Shape; 2]>,
    },
}

impl Shape {
    pub(super) fn ellipse(centre: Point, radii: Point) -> Self {
        Self::Ellipse { centre, radii }
    }

    pub(super) fn circle(centre: Point, radius: f32) -> Self {
        Self::ellipse(centre, [radius, radius])
    }

    pub(super) fn limb(ends: [Point; 2], radii: [f32; 2]) -> Self {
        Self::Limb { ends, radii }
    }

    pub(super) fn polygon(corners: &[Point], rounding: f32) -> Self {
        let corners = corners.to_vec();
        Self::Polygon { corners, rounding }
    }

    pub(super) fn melted(self, other: Self, over: f32) -> Self {
        let parts = Box::new([self, other]);
        Self::Melted { parts, over }
    }

    pub(super) fn within(self, other: Self) -> Self {
        let parts = Box::new([self, other]);
        Self::Common { parts }
    }

    /// The distance to the outline, negative inside; near it exact or nearly so.
    pub(super) fn distance(&self, at: Point) -> f32 {
        match self {
            Self::Ellipse { centre, radii } => to_ellipse(minus(at, *centre), *radii),
            Self::Limb { ends, radii } => {
                let share = along(at, *ends);
                let nearest = mix(ends[0], ends[1], share);
                length(minus(at, nearest)) - (radii[0] + (radii[1] - radii[0]) * share)
            }
            Self::Polygon { corners, rounding } => to_polygon(at, corners) - rounding,
            Self::Melted { parts, over } => {
                let [a, b] = [0, 1].map(|i| parts[i].distance(at));
                // A parabola rounds the corner where both are equally far.
                let near = (over - (a - b).abs()).max(0.0) / over;
                a.min(b) - near * near * over * 0.25
            }
            Self::Common { parts } => parts[0].distance(at).max(parts[1].distance(at)),
        }
    }

    /// A box that holds it: smallest and largest coordinates.
    pub(super) fn bounds(&self) -> [Point; 2] {
        match self {
            Self::Ellipse { centre, radii } => [
                minus(*centre, *radii),
                [centre[0] + radii[0], centre[1] + radii[1]],
            ],
            Self::Limb { ends, radii } => around(ends, radii[0].max(radii[1])),
            Self::Polygon { corners, rounding } => around(corners, *rounding),
            Self::Melted { parts, over } => {
                let [a, b] = [0, 1].map(|i| parts[i].bounds());
                around(&[a, b].concat(), over * 0.25)
            }
            Self::Common { parts } => {
                let [a, b] = [0, 1].map(|i| parts[i].bounds());
                [
                    [a[0][0].max(b[0][0]), a[0][1].max(b[0][1])],
                    [a[1][0].min(b[1][0]), a[1][1].min(b[1][1])],
                ]
            }
        }
    }
}

fn around(points: &[Point], margin: f32) -> [Point; 2] {
    let edge = |axis: usize, pick: fn(f32, f32) -> f32, start: f32| {
        points
            .iter()
            .fold(start, |edge, point| pick(edge, point[axis]))
    };
    [
        [0, 1].map(|axis| edge(axis, f32::min, f32::MAX) - margin),
        [0, 1].map(|axis| edge(axis, f32::max, f32::MIN) + margin),
    ]
}

/// To first order in the distance, which is all that a soft edge needs.
fn to_ellipse(at: Point, radii: Point) -> f32 {
    let once = [at[0] / radii[0], at[1] / radii[1]];
    let twice = [once[0] / radii[0], once[1] / radii[1]];
    let slope = length(twice);
    if slope == 0.0 {
        return -radii[0].min(radii[1]);
    }
    let level = length(once);
    level * (level - 1.0) / slope
}

fn to_polygon(at: Point, corners: &[Point]) -> f32 {
    let mut nearest = f32::MAX;
    let mut is_inside = false;
    for (i, &to) in corners.iter().enumerate() {
        let from = corners[(i + corners.len() - 1) % corners.len()];
        let foot = mix(from, to, along(at, [from, to]));
        nearest = nearest.min(length(minus(at, foot)));
        let crosses = (from[1] > at[1]) != (to[1] > at[1]);
        if crosses {
            let x = from[0] + (at[1] - from[1]) / (to[1] - from[1]) * (to[0] - from[0]);
            is_inside ^= at[0] < x;
        }
    }
    if is_inside { -nearest } else { nearest }
}

/// How far along a line the nearest place to `at` is, as a share of it.
fn along(at: Point, [from, to]: [Point; 2]) -> f32 {
    let (way, here) = (minus(to, from), minus(at, from));
    let squared = way[0] * way[0] + way[1] * way[1];
    if squared == 0.0 {
        return 0.0;
    }
    ((way[0] * here[0] + way[1] * here[1]) / squared).clamp(0.0, 1.0)
}

fn minus(a: Point, b: Point) -> Point {
    [a[0] - b[0], a[1] - b[1]]
}

fn mix(a: Point, b: Point, share: f32) -> Point {
    [a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share]
}

fn length([x, y]: Point) -> f32 {
    (x * x + y * y).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples() -> [Shape; 6] {
        let square = [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]];
        [
            Shape::circle([0.5, 0.0], 1.0),
            Shape::ellipse([0.0, 0.3], [1.5, 0.6]),
            Shape::limb([[-1.0, 0.0], [1.0, 0.5]], [0.1, 0.4]),
            Shape::polygon(&square, 0.1),
            Shape::circle([-0.6, 0.0], 0.7).melted(Shape::circle([0.6, 0.0], 0.7), 0.3),
            Shape::circle([-0.3, 0.0], 0.7).within(Shape::circle([0.3, 0.0], 0.7)),
        ]
    }

    #[test]
    fn distances_of_simple_shapes() {
        let [circle, _, _, square, melted, common] = samples();
        assert_eq!(circle.distance([2.5, 0.0]), 1.0);
        assert!((square.distance([2.0, 0.0]) - 0.9).abs() < 1e-6);
        assert!((square.distance([0.0, 0.5]) + 0.6).abs() < 1e-6);
        // Melting fills the waist, and only there.
        assert!(melted.distance([0.0, 0.4]) < Shape::circle([-0.6, 0.0], 0.7).distance([0.0, 0.4]));
        assert!((melted.distance([1.3, 0.0])).abs() < 1e-6);
        assert!(common.distance([0.0, 0.0]) < 0.0 && common.distance([0.6, 0.0]) > 0.0);
    }

    proptest! {
        #[test]
        fn bounds_hold_the_inside(x in -3.0f32..3.0, y in -3.0f32..3.0) {
            for shape in samples() {
                if shape.distance([x, y]) < 0.0 {
                    let [low, high] = shape.bounds();
                    prop_assert!(low[0] <= x && x <= high[0] && low[1] <= y && y <= high[1], "{shape:?}");
                }
            }
        }
    }
}

//! Convex unit shapes, of which everything standing in the world is made.
//!
//! Each is the image of a unit shape inside the cube [-1, 1]^3. A ray is taken into the unit shape's space, where
//! the test is short; the ray parameter stays the same, because the map is affine.

use percept_data::points::pose::{add_scaled, dot};

/// A convex unit shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// The whole cube.
    Cuboid,
    /// The unit ball.
    Ellipsoid,
    /// Upright.
    Cylinder,
    /// Lying along y, like a wheel.
    Wheel,
    /// Upright, the tip at z = 1.
    Cone,
    /// A cube whose top is scaled by these factors along x and y: cabins (0.7, 0.9), gables (1, 0), pyramids (0, 0).
    Taper([f64; 2]),
}

/// Where a ray is inside a convex shape, and the outward normal (any length) where it enters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) enter: f64,
    pub(crate) exit: f64,
    pub(crate) normal: [f64; 3],
}

impl Shape {
    /// The part of the line `origin + t * direction` inside of the shape.
    #[inline]
    pub(crate) fn span(self, origin: [f64; 3], direction: [f64; 3]) -> Option<Span> {
        match self {
            Self::Cuboid => slabs(origin, direction),
            Self::Ellipsoid => {
                let a = dot(direction, direction);
                let b = dot(origin, direction);
                let c = dot(origin, origin) - 1.0;
                let root = real_root(b * b - a * c)?;
                let enter = (-b - root) / a;
                Some(Span {
                    enter,
                    exit: (-b + root) / a,
                    normal: add_scaled(origin, enter, direction),
                })
            }
            Self::Cylinder => round(origin, direction, [1.0, 0.0]),
            Self::Wheel => {
                let turned = |v: [f64; 3]| [v[0], -v[2], v[1]];
                let span = round(turned(origin), turned(direction), [1.0, 0.0])?;
                let n = span.normal;
                Some(Span {
                    normal: [n[0], n[2], -n[1]],
                    ..span
                })
            }
            Self::Cone => round(origin, direction, [0.5, 0.5]),
            Self::Taper([x, y]) => taper(origin, direction, x, y),
        }
    }
}

fn real_root(discriminant: f64) -> Option<f64> {
    (discriminant > 0.0).then(|| discriminant.sqrt())
}

#[inline]
fn slabs(origin: [f64; 3], direction: [f64; 3]) -> Option<Span> {
    let mut enter = f64::NEG_INFINITY;
    let mut exit = f64::INFINITY;
    let mut entered = 0;
    for axis in 0..3 {
        if direction[axis] == 0.0 {
            if origin[axis].abs() > 1.0 {
                return None;
            }
            continue;
        }
        let inverse = 1.0 / direction[axis];
        let near = (-inverse.signum() - origin[axis]) * inverse;
        let far = (inverse.signum() - origin[axis]) * inverse;
        if near > enter {
            (enter, entered) = (near, axis);
        }
        exit = exit.min(far);
    }
    let mut normal = [0.0; 3];
    normal[entered] = -direction[entered].signum();
    (enter < exit).then_some(Span {
        enter,
        exit,
        normal,
    })
}

/// Upright with circular sections of radius `offset - slope * z`, between z = -1 and 1.
fn round(origin: [f64; 3], direction: [f64; 3], [offset, slope]: [f64; 2]) -> Option<Span> {
    let (low, high, cap) = if direction[2] == 0.0 {
        if origin[2].abs() > 1.0 {
            return None;
        }
        (f64::NEG_INFINITY, f64::INFINITY, 0.0)
    } else {
        let inverse = 1.0 / direction[2];
        let sign = inverse.signum();
        (
            (-sign - origin[2]) * inverse,
            (sign - origin[2]) * inverse,
            -sign,
        )
    };
    let radius = offset - slope * origin[2];
    let shrink = slope * direction[2];
    let a = direction[0] * direction[0] + direction[1] * direction[1] - shrink * shrink;
    let b = origin[0] * direction[0] + origin[1] * direction[1] + radius * shrink;
    let c = origin[0] * origin[0] + origin[1] * origin[1] - radius * radius;
    let outside = |t: f64| a * t * t + 2.0 * b * t + c;
    let enters_by_cap = low.is_finite() && outside(low) <= 0.0;
    let leaves_by_cap = high.is_finite() && outside(high) <= 0.0;
    if enters_by_cap && leaves_by_cap {
        return Some(Span {
            enter: low,
            exit: high,
            normal: [0.0, 0.0, cap],
        });
    }
    let root = real_root(b * b - a * c)?;
    // The nearer root first, whatever the sign of a; between the caps the solid is one interval.
    let (first, second) = {
        let q = if b > 0.0 { -b - root } else { -b + root };
        let (r0, r1) = (q / a, c / q);
        if r0 < r1 { (r0, r1) } else { (r1, r0) }
    };
    let within = |t: f64| t >= low && t <= high;
    let enter = if enters_by_cap {
        low
    } else if within(first) {
        first
    } else if within(second) && leaves_by_cap {
        second
    } else {
        return None;
    };
    let exit = if leaves_by_cap {
        high
    } else if within(second) {
        second
    } else {
        first
    };
    let normal = if enters_by_cap {
        [0.0, 0.0, cap]
    } else {
        let p = add_scaled(origin, enter, direction);
        [p[0], p[1], slope * (offset - slope * p[2])]
    };
    (enter < exit).then_some(Span {
        enter,
        exit,
        normal,
    })
}

fn taper(origin: [f64; 3], direction: [f64; 3], top_x: f64, top_y: f64) -> Option<Span> {
    // The side |x| <= 1 - k (z + 1) leans inwards by k = (1 - top) / 2 for each unit of height.
    let (kx, ky) = (0.5 * (1.0 - top_x), 0.5 * (1.0 - top_y));
    let planes = [
        ([1.0, 0.0, kx], 1.0 - kx),
        ([-1.0, 0.0, kx], 1.0 - kx),
        ([0.0, 1.0, ky], 1.0 - ky),
        ([0.0, -1.0, ky], 1.0 - ky),
        ([0.0, 0.0, 1.0], 1.0),
        ([0.0, 0.0, -1.0], 1.0),
    ];
    let mut span = Span {
        enter: f64::NEG_INFINITY,
        exit: f64::INFINITY,
        normal: [0.0; 3],
    };
    for (normal, limit) in planes {
        let along = dot(normal, direction);
        let room = limit - dot(normal, origin);
        if along == 0.0 {
            if room < 0.0 {
                return None;
            }
            continue;
        }
        let t = room / along;
        if along > 0.0 {
            span.exit = span.exit.min(t);
        } else if t > span.enter {
            (span.enter, span.normal) = (t, normal);
        }
    }
    (span.enter < span.exit).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPES: [Shape; 7] = [
        Shape::Cuboid,
        Shape::Ellipsoid,
        Shape::Cylinder,
        Shape::Wheel,
        Shape::Cone,
        Shape::Taper([0.6, 0.9]),
        Shape::Taper([1.0, 0.0]),
    ];

    /// Membership, written independently of the ray tests.
    fn contains(shape: Shape, [x, y, z]: [f64; 3]) -> bool {
        let in_cube = x.abs() <= 1.0 && y.abs() <= 1.0 && z.abs() <= 1.0;
        in_cube
            && match shape {
                Shape::Cuboid => true,
                Shape::Ellipsoid => x * x + y * y + z * z <= 1.0,
                Shape::Cylinder => x * x + y * y <= 1.0,
                Shape::Wheel => x * x + z * z <= 1.0,
                Shape::Cone => (x * x + y * y).sqrt() <= 0.5 * (1.0 - z),
                Shape::Taper([tx, ty]) => {
                    let up = 0.5 * (z + 1.0);
                    x.abs() <= 1.0 + (tx - 1.0) * up && y.abs() <= 1.0 + (ty - 1.0) * up
                }
            }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn spans_agree_with_membership(
            origin in prop::array::uniform3(-3.0..3.0f64),
            target in prop::array::uniform3(-1.0..1.0f64),
        ) {
            let direction: [f64; 3] = std::array::from_fn(|i| target[i] - origin[i]);
            for shape in SHAPES {
                let span = shape.span(origin, direction);
                for step in -200..=400 {
                    let t = f64::from(step) * 0.01;
                    let inside = contains(shape, add_scaled(origin, t, direction));
                    let claimed = span.is_some_and(|s| s.enter <= t && t <= s.exit);
                    let near_edge = span.is_some_and(|s| (s.enter - t).abs() < 1e-9 || (s.exit - t).abs() < 1e-9);
                    prop_assert!(inside == claimed || near_edge, "{shape:?} t {t} inside {inside} {span:?}");
                }
                if let Some(span) = span {
                    prop_assert!(dot(span.normal, direction) <= 1e-9, "{shape:?}: normal looks away");
                }
            }
        }

        #[test]
        fn axis_parallel_rays_work(x in -1.5..1.5f64, y in -1.5..1.5f64, axis in 0..3usize) {
            let mut origin = [x, y, 0.3 * x];
            origin[axis] = -4.0;
            let mut direction = [0.0; 3];
            direction[axis] = 1.0;
            for shape in SHAPES {
                let span = shape.span(origin, direction);
                if let Some(Span { enter, exit, .. }) = span {
                    let middle = 0.5 * (enter + exit);
                    prop_assert!(contains(shape, add_scaled(origin, middle, direction)), "{shape:?} {span:?}");
                }
                let hit = (0..=800).any(|step| contains(shape, add_scaled(origin, f64::from(step) * 0.01, direction)));
                prop_assert!(!hit || span.is_some(), "{shape:?} missed from {origin:?} along {axis}");
            }
        }
    }
}

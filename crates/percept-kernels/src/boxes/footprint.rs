//! A box seen from above, and what of it many comparisons need.

/// How far outside of a box a corner still counts as inside, in metres: the public implementations' tolerance.
pub(crate) const MARGIN_M: f32 = 1e-2;

/// A box seen from above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BevBox {
    /// Its middle: x, y.
    pub center: [f32; 2],
    /// Length along the heading, and width.
    pub size: [f32; 2],
    /// Heading, radians counter-clockwise from x.
    pub yaw: f32,
}

/// A box with its corners, found once for many comparisons.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    pub(crate) center: [f32; 2],
    pub(crate) half: [f32; 2],
    pub(crate) sin: f32,
    pub(crate) cos: f32,
    pub(crate) corners: [[f32; 2]; 4],
    pub(crate) area: f32,
    /// From the middle to the sides of the upright box around it.
    reach: [f32; 2],
}

impl Footprint {
    pub(crate) fn new(bev: &BevBox) -> Footprint {
        let (sin, cos) = (libm::sinf(bev.yaw), libm::cosf(bev.yaw));
        let half = bev.size.map(|side| side / 2.0);
        let corners =
            [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]].map(|[along, across]| {
                let (x, y) = (along * half[0], across * half[1]);
                [
                    x * cos - y * sin + bev.center[0],
                    x * sin + y * cos + bev.center[1],
                ]
            });
        Footprint {
            center: bev.center,
            half,
            sin,
            cos,
            corners,
            area: bev.size[0] * bev.size[1],
            reach: [
                half[0] * cos.abs() + half[1] * sin.abs(),
                half[0] * sin.abs() + half[1] * cos.abs(),
            ],
        }
    }

    /// Whether a point lies inside, or outside by less than the margin.
    #[inline]
    pub(crate) fn contains(&self, point: [f32; 2]) -> bool {
        let (x, y) = (point[0] - self.center[0], point[1] - self.center[1]);
        let along = x * self.cos + y * self.sin;
        let across = y * self.cos - x * self.sin;
        along.abs() < self.half[0] + MARGIN_M && across.abs() < self.half[1] + MARGIN_M
    }

    /// At least the area that both cover: what the upright boxes around them share, margins included.
    #[inline]
    pub(crate) fn shared_area_bound(&self, other: &Footprint) -> f32 {
        // Twice the margin, so that rounding never turns the bound into less than the area.
        let side = |axis: usize| {
            let apart = (self.center[axis] - other.center[axis]).abs();
            let (a, b) = (self.reach[axis], other.reach[axis]);
            (a + b - apart).min(2.0 * a.min(b)).max(-4.0 * MARGIN_M) + 4.0 * MARGIN_M
        };
        let grown =
            |f: &Footprint| (2.0 * f.half[0] + 4.0 * MARGIN_M) * (2.0 * f.half[1] + 4.0 * MARGIN_M);
        (side(0) * side(1)).min(grown(self)).min(grown(other))
    }
}

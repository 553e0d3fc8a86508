//! Solids: shapes with a size, a material and a place, first in a body and then in the world.

use percept_data::points::Pose;
use percept_data::points::pose::add_scaled;

use super::bvh::Bounds;
use super::material::Material;
use super::shape::{Shape, Span};

/// A solid of a body, in the body's frame: x forward, y left, z up from the ground.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) shape: Shape,
    pub(crate) centre: [f64; 3],
    /// Half the extent along each axis.
    pub(crate) half: [f64; 3],
    /// A turn about the body's y axis, nose down.
    pub(crate) pitch_rad: f64,
    pub(crate) material: Material,
    /// SemanticKITTI's raw class, when the body stands still.
    pub(crate) class: u16,
}

impl Part {
    /// Spanning the given intervals of x, y and z.
    pub(crate) fn new(
        shape: Shape,
        x: [f64; 2],
        y: [f64; 2],
        z: [f64; 2],
        material: Material,
        class: u16,
    ) -> Self {
        let middle = |v: [f64; 2]| 0.5 * (v[0] + v[1]);
        let half = |v: [f64; 2]| 0.5 * (v[1] - v[0]);
        Self {
            shape,
            centre: [middle(x), middle(y), middle(z)],
            half: [half(x), half(y), half(z)],
            pitch_rad: 0.0,
            material,
            class,
        }
    }

    /// Turned about its own middle, nose down.
    pub(crate) fn pitched(self, pitch_rad: f64) -> Self {
        Self { pitch_rad, ..self }
    }

    /// The part's own axes in the body: where its centre is and how it is turned.
    fn frame(&self) -> Pose {
        let (sin, cos) = libm::sincos(self.pitch_rad);
        Pose {
            rotation: [[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]],
            translation: self.centre,
        }
    }
}

/// A part put into the world, ready for rays.
#[derive(Clone, Debug)]
pub(crate) struct PlacedSolid {
    shape: Shape,
    /// Rows of the affine map from the world into the unit shape's space.
    to_unit: [[f64; 4]; 3],
    /// Half the extent along each of its own axes.
    pub(crate) half: [f64; 3],
    /// How the solid moves while the sweep lasts.
    pub(crate) velocity: [f64; 3],
    pub(crate) material: Material,
    pub(crate) class: u16,
    pub(crate) instance: u16,
    pub(crate) bounds: Bounds,
}

impl PlacedSolid {
    /// `part` of a body whose frame stands at `body_to_world` at time 0 and moves with `velocity`; bounds hold for
    /// the `times_s` given.
    pub(crate) fn new(
        part: &Part,
        body_to_world: &Pose,
        velocity: [f64; 3],
        times_s: [f64; 2],
        class: u16,
        instance: u16,
    ) -> Self {
        let to_world = body_to_world.compose(&part.frame());
        let to_part = to_world.inverse();
        let to_unit = std::array::from_fn(|i| {
            let scale = 1.0 / part.half[i];
            let [x, y, z] = to_part.rotation[i];
            [
                x * scale,
                y * scale,
                z * scale,
                to_part.translation[i] * scale,
            ]
        });
        let reach: [f64; 3] = std::array::from_fn(|axis| {
            (0..3)
                .map(|i| (to_world.rotation[axis][i] * part.half[i]).abs())
                .sum()
        });
        let bounds = times_s
            .map(|t| Bounds::around(add_scaled(to_world.translation, t, velocity), reach))
            .into_iter()
            .fold(Bounds::EMPTY, Bounds::union);
        Self {
            shape: part.shape,
            to_unit,
            half: part.half,
            velocity,
            material: part.material,
            class,
            instance,
            bounds,
        }
    }

    /// A place of the world at `time_s`, in metres from the solid's middle along its own axes.
    pub(crate) fn own_place(&self, place: [f64; 3], time_s: f64) -> [f64; 3] {
        let [x, y, z] = add_scaled(place, -time_s, self.velocity);
        std::array::from_fn(|i| {
            let [a, b, c, d] = self.to_unit[i];
            (a * x + b * y + c * z + d) * self.half[i]
        })
    }

    /// Which of the solid's own axes a normal of the world points along most.
    pub(crate) fn facing(&self, normal: [f64; 3]) -> usize {
        let along = |i: usize| {
            let [x, y, z, _] = self.to_unit[i];
            (self.half[i] * (x * normal[0] + y * normal[1] + z * normal[2])).abs()
        };
        let horizontal = usize::from(along(1) > along(0));
        if along(2) > along(horizontal) {
            2
        } else {
            horizontal
        }
    }

    /// Where a ray cast at `time_s` runs inside of the solid; the normal is in the world, of any length.
    #[inline]
    pub(crate) fn span(&self, origin: [f64; 3], direction: [f64; 3], time_s: f64) -> Option<Span> {
        let origin = add_scaled(origin, -time_s, self.velocity);
        let unit = |row: &[f64; 4], v: [f64; 3]| row[0] * v[0] + row[1] * v[1] + row[2] * v[2];
        let o = [0, 1, 2].map(|i| unit(&self.to_unit[i], origin) + self.to_unit[i][3]);
        let d = [0, 1, 2].map(|i| unit(&self.to_unit[i], direction));
        let span = self.shape.span(o, d)?;
        // Normals transform by the transposed inverse of the map to the world: these very rows.
        let normal = std::array::from_fn(|axis| {
            (0..3).map(|i| span.normal[i] * self.to_unit[i][axis]).sum()
        });
        Some(Span { normal, ..span })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_solid_is_met_where_it_is_at_that_time() {
        let part = Part::new(
            Shape::Cuboid,
            [-1.0, 1.0],
            [-1.0, 1.0],
            [0.0, 2.0],
            Material::METAL,
            10,
        );
        let solid = PlacedSolid::new(&part, &Pose::IDENTITY, [10.0, 0.0, 0.0], [-0.1, 0.0], 10, 1);
        let enter = |t| {
            solid
                .span([-20.0, 0.0, 1.0], [1.0, 0.0, 0.0], t)
                .map(|s| s.enter)
        };
        assert!((enter(0.0).unwrap() - 19.0).abs() < 1e-12);
        assert!((enter(-0.1).unwrap() - 18.0).abs() < 1e-12);
        assert_eq!((solid.bounds.low[0], solid.bounds.high[0]), (-2.0, 1.0));
    }
}

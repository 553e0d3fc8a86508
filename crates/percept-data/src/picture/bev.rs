//! The bird's-eye part of a picture: rings, points, boxes and the ego vehicle, forward up.

use crate::points::{Box3d, EGO_HALF_EXTENT_M, LidarConvention, ObjectClass};

use super::canvas::{Area, Canvas, Colour};
use super::colours;
use super::style::{FAINT_INK, GRID, INK, PANEL, TEXT_SCALE};

/// The ground in a sensor's frame, and the sky: where the colours of heights begin and end.
const HEIGHTS_M: [f64; 2] = [-3.3, 2.7];

/// A box to draw: a true one or a found one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnBox {
    /// What it is.
    pub class: ObjectClass,
    /// Its middle: x, y in metres.
    pub centre: [f64; 2],
    /// Length (along the heading) and width, metres.
    pub size: [f64; 2],
    /// Heading, radians counter-clockwise from x.
    pub yaw_rad: f64,
    /// Metres a second along x and y, where known.
    pub velocity: Option<[f64; 2]>,
    /// How sure a network is, 0 to 1; fainter boxes are less sure. A true box has 1.
    pub score: f64,
}

impl From<&Box3d> for DrawnBox {
    fn from(object: &Box3d) -> Self {
        Self {
            class: object.class,
            centre: [object.centre[0], object.centre[1]],
            size: [object.size[0], object.size[1]],
            yaw_rad: object.yaw_rad,
            velocity: object.velocity,
            score: 1.0,
        }
    }
}

impl DrawnBox {
    /// The place `along` half lengths ahead of the middle and `across` half widths to the left of it.
    fn place(&self, along: f64, across: f64) -> [f64; 2] {
        let (sin, cos) = libm::sincos(self.yaw_rad);
        let (ahead, left) = (0.5 * along * self.size[0], 0.5 * across * self.size[1]);
        [
            self.centre[0] + ahead * cos - left * sin,
            self.centre[1] + ahead * sin + left * cos,
        ]
    }
}

/// Whether a point is a beam that met nothing, or the ego vehicle itself.
pub(super) fn is_own([x, y, _]: [f32; 3]) -> bool {
    x.abs() < EGO_HALF_EXTENT_M && y.abs() < EGO_HALF_EXTENT_M
}

/// The colour of a point by its height over the sensor.
pub(super) fn height_colour(z_m: f64) -> Colour {
    let [low, high] = HEIGHTS_M;
    colours::ramp(1.0 - (z_m - low) / (high - low))
}

/// A point to draw.
pub(super) struct Dot {
    pub(super) position: [f32; 3],
    pub(super) colour: Colour,
    pub(super) opacity: f64,
}

/// A square of the canvas, seen as the ground around the sensor.
pub(super) struct Bev<'a> {
    canvas: &'a mut Canvas,
    area: Area,
    view: View,
    reach_m: f64,
}

impl<'a> Bev<'a> {
    /// The ground up to `reach_m` metres from the sensor, in `area`.
    pub(super) fn new(
        canvas: &'a mut Canvas,
        area: Area,
        convention: LidarConvention,
        reach_m: f64,
    ) -> Self {
        canvas.fill(&area, PANEL);
        Self {
            canvas,
            area,
            view: View::new(&area, convention, reach_m),
            reach_m,
        }
    }

    /// Everything: the points (low ones first, so that what stands on the ground is not painted over), then the boxes.
    pub(super) fn draw(&mut self, mut dots: Vec<Dot>, boxes: impl Iterator<Item = DrawnBox>) {
        self.rings();
        dots.retain(|dot| !is_own(dot.position));
        dots.sort_by(|a, b| a.position[2].total_cmp(&b.position[2]));
        for dot in &dots {
            self.dot(dot);
        }
        for drawn in boxes {
            self.outline(&drawn);
        }
        self.ego();
        self.ring_names();
    }

    /// Metres from one ring to the next: about five rings.
    fn ring_step_m(&self) -> f64 {
        let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
        let step = steps.into_iter().find(|step| self.reach_m / step < 6.0);
        step.unwrap_or(self.reach_m / 5.0)
    }

    fn ring_radii_m(&self) -> impl Iterator<Item = f64> + use<> {
        let (step, reach) = (self.ring_step_m(), self.reach_m);
        (1..)
            .map(move |ring| f64::from(ring) * step)
            .take_while(move |radius| *radius < reach)
    }

    fn rings(&mut self) {
        for radius_m in self.ring_radii_m() {
            let radius = radius_m * self.view.pixels_per_m;
            self.canvas
                .circle(&self.area, self.view.centre, radius, GRID, 0.45);
        }
    }

    fn ring_names(&mut self) {
        for radius_m in self.ring_radii_m() {
            let [x, y] = self.view.centre;
            let (left, top) = (x + 4.0, y - radius_m * self.view.pixels_per_m + 4.0);
            let name = format!("{radius_m:.0} m");
            self.canvas
                .text(left as u32, top as u32, TEXT_SCALE, &name, FAINT_INK);
        }
    }

    fn dot(&mut self, dot: &Dot) {
        let [x, y, _] = dot.position.map(f64::from);
        let [x, y] = self.view.pixel([x, y]);
        let (left, top) = ((x - 0.5).floor() as i64, (y - 0.5).floor() as i64);
        for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let (x, y) = (left.saturating_add(dx), top.saturating_add(dy));
            self.canvas.blend(&self.area, x, y, dot.colour, dot.opacity);
        }
    }

    /// Four sides, a line from the middle to the nose, and the way of the next second.
    fn outline(&mut self, drawn: &DrawnBox) {
        let colour = colours::of_object(drawn.class);
        let opacity = 0.3 + 0.7 * drawn.score.clamp(0.0, 1.0);
        let corners = [(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)]
            .map(|(along, across)| drawn.place(along, across));
        let nose = drawn.place(1.0, 0.0);
        for side in 0..4 {
            self.line(corners[side], corners[(side + 1) % 4], 1.6, colour, opacity);
        }
        self.line(drawn.centre, nose, 1.6, colour, opacity);
        if let Some([vx, vy]) = drawn.velocity
            && vx * vx + vy * vy > 0.25
        {
            self.line(nose, [nose[0] + vx, nose[1] + vy], 1.2, INK, 0.8 * opacity);
        }
    }

    fn ego(&mut self) {
        let forward = self.view.forward_rad;
        let (sin, cos) = libm::sincos(forward);
        let at = |ahead: f64, left: f64| [ahead * cos - left * sin, ahead * sin + left * cos];
        let outline = [at(1.4, 0.9), at(-3.0, 0.9), at(-3.0, -0.9), at(1.4, -0.9)];
        for side in 0..4 {
            self.line(outline[side], outline[(side + 1) % 4], 1.6, INK, 1.0);
        }
        self.line(at(1.4, 0.9), at(2.2, 0.0), 1.6, INK, 1.0);
        self.line(at(1.4, -0.9), at(2.2, 0.0), 1.6, INK, 1.0);
    }

    fn line(&mut self, from: [f64; 2], to: [f64; 2], thickness: f64, colour: Colour, opacity: f64) {
        let (from, to) = (self.view.pixel(from), self.view.pixel(to));
        self.canvas
            .line(&self.area, from, to, thickness, colour, opacity);
    }
}

/// Places of the sensor's frame in the bird's-eye view, forward up.
struct View {
    centre: [f64; 2],
    pixels_per_m: f64,
    forward_rad: f64,
    sin: f64,
    cos: f64,
}

impl View {
    fn new(area: &Area, convention: LidarConvention, reach_m: f64) -> Self {
        let forward_rad = convention.forward_rad();
        let (sin, cos) = libm::sincos(std::f64::consts::FRAC_PI_2 - forward_rad);
        Self {
            centre: [
                f64::from(area.left) + 0.5 * f64::from(area.width),
                f64::from(area.top) + 0.5 * f64::from(area.height),
            ],
            pixels_per_m: 0.5 * f64::from(area.width) / reach_m,
            forward_rad,
            sin,
            cos,
        }
    }

    fn pixel(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let (right, up) = (self.cos * x - self.sin * y, self.sin * x + self.cos * y);
        [
            self.centre[0] + self.pixels_per_m * right,
            self.centre[1] - self.pixels_per_m * up,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_is_up_in_both_conventions() {
        let area = Area {
            left: 0,
            top: 0,
            width: 1000,
            height: 1000,
        };
        for (convention, ahead) in [
            (LidarConvention::NuScenes, [0.0, 30.0]),
            (LidarConvention::Kitti, [30.0, 0.0]),
        ] {
            let [x, y] = View::new(&area, convention, 52.0).pixel(ahead);
            assert!((x - 500.0).abs() < 1e-6 && y < 250.0, "{x} {y}");
        }
    }

    #[test]
    fn a_box_is_drawn_as_it_stands() {
        let bus = Box3d {
            class: ObjectClass::Bus,
            centre: [10.0, 5.0, 1.0],
            size: [8.0, 2.0, 2.0],
            yaw_rad: 0.7,
            velocity: None,
            lidar_points: 0,
            instance: 1,
        };
        let drawn = DrawnBox::from(&bus);
        let [x, y] = drawn.place(1.0, 1.0);
        let [front, left] = bus.corners_bev()[0];
        assert!((x - front).abs() < 1e-12 && (y - left).abs() < 1e-12);
    }
}

//! The ground around a sensor: rings, points, boxes and the ego vehicle, forward up.

use crate::colours::{Colour, UNKNOWN};
use crate::picture::{Anchor, Area, Fill, Picture, Stroke, TextStyle};
use crate::pixels::Pixels;
use crate::theme::{DARK, SMALL_TEXT_SIZE};

/// A box to draw: a true one or a found one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnBox {
    /// The place of its class among the classes' names.
    pub class: usize,
    /// Its middle: x, y in metres.
    pub centre: [f64; 2],
    /// Length (along the heading) and width, metres.
    pub size: [f64; 2],
    /// Heading, radians counter-clockwise from x.
    pub yaw_rad: f64,
    /// Metres per second along x and y, where known.
    pub velocity: Option<[f64; 2]>,
    /// How sure a network is, 0 to 1; fainter boxes are less sure. A true box has 1.
    pub score: f64,
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

/// A point to draw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DrawnPoint {
    /// Metres.
    pub position: [f32; 3],
    /// How much light came back, in any unit.
    pub intensity: f32,
    /// The place of its class among the classes' names, where it has one.
    pub class: Option<usize>,
    /// The laser, counted from the lowest, where it is known.
    pub ring: Option<u8>,
    /// Whether it belongs to an older sweep, and stays in the background.
    pub old: bool,
}

/// The ground up to some metres from the sensor, drawn into a square picture.
pub(crate) struct Bev {
    picture: Picture,
    view: View,
}

impl Bev {
    /// Points (low ones first, so that what stands on the ground is not painted over) with a colour each.
    pub(crate) fn new(view: View, points: &[DrawnPoint], colours: &[Colour]) -> Self {
        let mut dots: Vec<(&DrawnPoint, Colour)> =
            points.iter().zip(colours.iter().copied()).collect();
        dots.sort_by(|(a, _), (b, _)| {
            let key = |point: &DrawnPoint| (!point.old, point.position[2]);
            let ((a_own, a_z), (b_own, b_z)) = (key(a), key(b));
            a_own.cmp(&b_own).then(a_z.total_cmp(&b_z))
        });
        let mut ground = Pixels::filled(view.side_px, view.side_px, DARK.panel);
        for (point, colour) in dots {
            let [x, y, _] = point.position.map(f64::from);
            let opacity = if point.old { 0.4 } else { 0.9 };
            splat(&mut ground, view.pixel([x, y]), colour, opacity);
        }
        let side = f64::from(view.side_px);
        let mut picture = Picture::new(side, side, DARK.panel);
        let area = Area {
            left: 0.0,
            top: 0.0,
            width: side,
            height: side,
        };
        picture.image(area, ground);
        let mut bev = Self { picture, view };
        bev.rings();
        bev
    }

    /// The boxes, and what is the same in every view: the ego vehicle and the scale.
    pub(crate) fn finish(mut self, boxes: &[DrawnBox], colours: &[Colour]) -> Picture {
        // The surest last, so that they lie on top.
        let mut boxes: Vec<&DrawnBox> = boxes.iter().collect();
        boxes.sort_by(|a, b| a.score.total_cmp(&b.score));
        for drawn in boxes {
            let colour = colours.get(drawn.class).copied().unwrap_or(UNKNOWN);
            self.outline(drawn, colour);
        }
        self.ego();
        self.ring_names();
        self.scale_bar();
        self.picture
    }

    fn rings(&mut self) {
        for radius_m in self.view.ring_radii_m() {
            let radius = radius_m * self.view.pixels_per_m;
            let stroke = Stroke::new(DARK.grid, 1.0).faded(0.6);
            self.picture.circle(self.view.centre(), radius, stroke);
        }
    }

    fn ring_names(&mut self) {
        let [x, y] = self.view.centre();
        for radius_m in self.view.ring_radii_m() {
            let top = y - radius_m * self.view.pixels_per_m;
            let style = TextStyle::new(SMALL_TEXT_SIZE, DARK.faint_ink);
            let name = format!("{radius_m} m");
            self.picture.text([x + 5.0, top + 14.0], style, name);
        }
    }

    /// A bar as long as the step from ring to ring.
    fn scale_bar(&mut self) {
        let step_m = self.view.ring_step_m();
        let length = step_m * self.view.pixels_per_m;
        let (left, bottom) = (16.0, f64::from(self.view.side_px) - 16.0);
        let (right, top) = (left + length, bottom - 6.0);
        let bracket = vec![[left, top], [left, bottom], [right, bottom], [right, top]];
        self.picture.line(bracket, Stroke::new(DARK.ink, 1.5));
        let style = TextStyle::new(SMALL_TEXT_SIZE, DARK.ink).anchored(Anchor::Middle);
        let name = format!("{step_m} m");
        self.picture
            .text([0.5 * (left + right), top - 4.0], style, name);
    }

    /// Four sides, a line from the middle to the nose, and the way of the next second.
    fn outline(&mut self, drawn: &DrawnBox, colour: Colour) {
        let opacity = 0.25 + 0.75 * drawn.score.clamp(0.0, 1.0);
        let corners = [(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)]
            .map(|(along, across)| self.view.pixel(drawn.place(along, across)));
        let nose_m = drawn.place(1.0, 0.0);
        let nose = self.view.pixel(nose_m);
        let centre = self.view.pixel(drawn.centre);
        self.picture.polygon(
            corners.to_vec(),
            Fill {
                colour,
                opacity: 0.18 * opacity,
            },
        );
        let stroke = Stroke::new(colour, 2.0).faded(opacity);
        self.picture.outline(corners.to_vec(), stroke);
        self.picture.line(vec![centre, nose], stroke);
        if let Some([vx, vy]) = drawn.velocity
            && vx * vx + vy * vy > 0.25
        {
            let tip = self.view.pixel([nose_m[0] + vx, nose_m[1] + vy]);
            let stroke = Stroke::new(DARK.ink, 1.3).faded(0.85 * opacity);
            self.picture.line(vec![nose, tip], stroke);
            self.arrow_head(nose, tip, stroke);
        }
    }

    fn arrow_head(&mut self, from: [f64; 2], tip: [f64; 2], stroke: Stroke) {
        let way = [tip[0] - from[0], tip[1] - from[1]];
        let length = (way[0] * way[0] + way[1] * way[1]).sqrt();
        if !(length > 1.0 && length.is_finite()) {
            return;
        }
        let size = 5.0_f64.min(0.6 * length);
        let [ux, uy] = way.map(|part| part / length * size);
        let wing = |side: f64| [tip[0] - ux - side * 0.6 * uy, tip[1] - uy + side * 0.6 * ux];
        self.picture.line(vec![wing(1.0), tip, wing(-1.0)], stroke);
    }

    fn ego(&mut self) {
        let (sin, cos) = libm::sincos(self.view.forward_rad);
        let outline = [
            [2.2, 0.0],
            [1.4, 0.9],
            [-3.0, 0.9],
            [-3.0, -0.9],
            [1.4, -0.9],
        ]
        .map(|[ahead, left]| {
            let place = [ahead * cos - left * sin, ahead * sin + left * cos];
            self.view.pixel(place)
        });
        self.picture.polygon(outline.to_vec(), DARK.background);
        self.picture
            .outline(outline.to_vec(), Stroke::new(DARK.ink, 1.6));
    }
}

/// A soft dot, a little wider than a pixel: the pixels that a square around `centre` covers, by how much it covers them.
fn splat(ground: &mut Pixels, [x, y]: [f64; 2], colour: Colour, opacity: f64) {
    const HALF_SIDE: f64 = 0.9;
    // Beyond the picture, or no number at all.
    let side = f64::from(ground.width()) + 2.0;
    if !((-2.0..side).contains(&x) && (-2.0..side).contains(&y)) {
        return;
    }
    let cover = |centre: f64, pixel: i64| {
        let (low, high) = (pixel as f64, pixel as f64 + 1.0);
        (high.min(centre + HALF_SIDE) - low.max(centre - HALF_SIDE)).max(0.0)
    };
    let first = |centre: f64| (centre - HALF_SIDE).floor() as i64;
    for row in first(y)..first(y) + 3 {
        for column in first(x)..first(x) + 3 {
            let share = cover(x, column) * cover(y, row);
            if share > 0.0 {
                ground.blend(column, row, colour, opacity * share);
            }
        }
    }
}

/// Where places of the sensor's frame are in the picture, forward up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    side_px: u32,
    reach_m: f64,
    pixels_per_m: f64,
    forward_rad: f64,
    sin: f64,
    cos: f64,
}

impl View {
    /// A square of `side_px` pixels, `reach_m` metres from its middle to its edges.
    pub(crate) fn new(side_px: u32, forward_rad: f64, reach_m: f64) -> Self {
        // A view must reach somewhere; what comes from a file may be 0, negative or no number.
        let reach_m = if reach_m.is_finite() && reach_m > 0.0 {
            reach_m.clamp(0.01, 1e6)
        } else {
            1.0
        };
        let (sin, cos) = libm::sincos(std::f64::consts::FRAC_PI_2 - forward_rad);
        Self {
            side_px,
            reach_m,
            pixels_per_m: 0.5 * f64::from(side_px) / reach_m,
            forward_rad,
            sin,
            cos,
        }
    }

    fn centre(&self) -> [f64; 2] {
        [0.5 * f64::from(self.side_px); 2]
    }

    fn pixel(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let (right, up) = (self.cos * x - self.sin * y, self.sin * x + self.cos * y);
        let [cx, cy] = self.centre();
        [cx + self.pixels_per_m * right, cy - self.pixels_per_m * up]
    }

    /// Metres from one ring to the next, a round number: about five rings.
    fn ring_step_m(&self) -> f64 {
        let mut power = 0.001;
        loop {
            for digit in [1.0, 2.0, 5.0] {
                if self.reach_m / (digit * power) < 6.0 {
                    // As near as a decimal can be, so that it prints as one.
                    return (digit * power * 1e4).round() / 1e4;
                }
            }
            power *= 10.0;
        }
    }

    fn ring_radii_m(&self) -> impl Iterator<Item = f64> + use<> {
        let (step, reach) = (self.ring_step_m(), self.reach_m);
        (1..6)
            .map(move |ring| (f64::from(ring) * step * 1e4).round() / 1e4)
            .filter(move |radius| *radius < reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUSCENES_FORWARD: f64 = std::f64::consts::FRAC_PI_2;
    const KITTI_FORWARD: f64 = 0.0;

    #[test]
    fn forward_is_up_in_both_conventions() {
        for (forward_rad, ahead) in [
            (NUSCENES_FORWARD, [0.0, 30.0]),
            (KITTI_FORWARD, [30.0, 0.0]),
        ] {
            let [x, y] = View::new(1000, forward_rad, 52.0).pixel(ahead);
            assert!((x - 500.0).abs() < 1e-6 && y < 250.0, "{x} {y}");
        }
    }

    #[test]
    fn a_box_is_placed_as_it_stands() {
        let bus = DrawnBox {
            class: 0,
            centre: [10.0, 5.0],
            size: [8.0, 2.0],
            yaw_rad: std::f64::consts::FRAC_PI_2,
            velocity: None,
            score: 1.0,
        };
        let near =
            |[x, y]: [f64; 2], [a, b]: [f64; 2]| (x - a).abs() < 1e-12 && (y - b).abs() < 1e-12;
        assert!(near(bus.place(1.0, 0.0), [10.0, 9.0]));
        assert!(near(bus.place(1.0, 1.0), [9.0, 9.0]));
        assert!(near(bus.place(-1.0, -1.0), [11.0, 1.0]));
    }

    #[test]
    fn rings_are_round_numbers_within_the_reach() {
        let radii = |reach_m| {
            View::new(1000, 0.0, reach_m)
                .ring_radii_m()
                .collect::<Vec<_>>()
        };
        assert_eq!(radii(54.0), [10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(radii(75.2), [20.0, 40.0, 60.0]);
        assert_eq!(radii(0.5), [0.1, 0.2, 0.3, 0.4]);
        for reach_m in [0.0, -4.0, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
            let radii = radii(reach_m);
            assert!((1..=5).contains(&radii.len()), "{reach_m}: {radii:?}");
        }
    }

    #[test]
    fn a_dot_has_the_same_weight_wherever_it_falls() {
        let weight = |x: f64, y: f64| -> f64 {
            let mut ground = Pixels::filled(10, 10, [0; 3]);
            splat(&mut ground, [x, y], [200; 3], 1.0);
            ground.rgb().iter().map(|v| f64::from(*v)).sum()
        };
        let full = weight(5.5, 5.5);
        assert!(full > 600.0);
        for (x, y) in [(5.0, 5.0), (5.2, 5.9), (4.75, 5.4)] {
            assert!((weight(x, y) / full - 1.0).abs() < 0.01, "{x} {y}");
        }
        assert_eq!(
            weight(f64::NAN, 5.0) + weight(1e30, 5.0) + weight(-3.0, 2.0),
            0.0
        );
    }
}

//! Points and boxes from above, as one picture with its legend.

use crate::bev::{Bev, DrawnBox, DrawnPoint, View};
use crate::colours::{Colour, UNKNOWN, class_colours, ramp};
use crate::legend::{LEGEND_WIDTH, Legend};
use crate::picture::Picture;
use crate::theme::{DARK, MARGIN};

const SIDE_PX: u32 = 1000;
/// The ground in a sensor's frame, and the sky: where the colours of heights begin and end.
const HEIGHTS_M: [f64; 2] = [-3.3, 2.7];

/// What the colours of points tell.
#[derive(Clone, Copy, Debug, Default)]
pub enum PointColours<'a> {
    /// The height over the sensor.
    #[default]
    Height,
    /// How much light came back.
    Intensity,
    /// The class, by the classes' names.
    Class(&'a [&'a str]),
    /// The class, in colours of the classes' own.
    Painted {
        /// The classes' names.
        names: &'a [&'a str],
        /// As many colours.
        colours: &'a [Colour],
    },
}

/// Points and boxes to draw from above.
#[derive(Clone, Copy, Debug)]
pub struct BirdsEye<'a> {
    /// What stands above the picture.
    pub title: &'a str,
    /// The points.
    pub points: &'a [DrawnPoint],
    /// What their colours tell.
    pub colours: PointColours<'a>,
    /// The boxes.
    pub boxes: &'a [DrawnBox],
    /// The names of the boxes' classes.
    pub box_classes: &'a [&'a str],
    /// The azimuth of the forward direction, which is drawn upwards: radians counter-clockwise from x.
    pub forward_rad: f64,
    /// Metres from the sensor to the edge of the picture.
    pub reach_m: f64,
}

impl Default for BirdsEye<'_> {
    /// Nothing around a sensor that looks along x, up to 50 m.
    fn default() -> Self {
        Self {
            title: "",
            points: &[],
            colours: PointColours::Height,
            boxes: &[],
            box_classes: &[],
            forward_rad: 0.0,
            reach_m: 50.0,
        }
    }
}

/// Draws points from above, and boxes coloured by class with their headings and the way of their next second.
///
/// ```
/// use percept_picture::{BirdsEye, DrawnBox, DrawnPoint, PointColours, draw_birds_eye};
///
/// let point = DrawnPoint { position: [12.0, 3.0, -1.2], class: Some(1), ..DrawnPoint::default() };
/// let car = DrawnBox {
///     class: 0,
///     centre: [12.5, 3.5],
///     size: [4.6, 1.9],
///     yaw_rad: 0.1,
///     velocity: Some([8.0, 0.8]),
///     score: 0.9,
/// };
/// let picture = draw_birds_eye(&BirdsEye {
///     title: "one car ahead",
///     points: &[point],
///     colours: PointColours::Class(&["road", "car"]),
///     boxes: &[car],
///     box_classes: &["car", "pedestrian"],
///     reach_m: 54.0,
///     ..BirdsEye::default()
/// });
/// assert_eq!(picture.size(), [1280, 1076]);
/// ```
pub fn draw_birds_eye(scene: &BirdsEye<'_>) -> Picture {
    let side = f64::from(SIDE_PX);
    let width = side + MARGIN + LEGEND_WIDTH;
    let (mut picture, top) = Picture::titled(&DARK, scene.title, width, side);
    let view = View::new(SIDE_PX, scene.forward_rad, scene.reach_m);
    let box_colours = class_colours(scene.box_classes);
    let ground = Bev::new(view, scene.points, &scene.point_colours());
    picture.place([MARGIN, top], ground.finish(scene.boxes, &box_colours));

    let mut legend = Legend::new(&mut picture, [side + 2.0 * MARGIN, top]);
    if !scene.boxes.is_empty() {
        legend.heading("Boxes", scene.boxes.len());
        let classes = scene.boxes.iter().map(|drawn| drawn.class);
        legend.classes(scene.box_classes, &box_colours, classes);
        legend.gap();
    }
    legend.heading("Points", scene.points.len());
    match scene.colours {
        PointColours::Class(names) | PointColours::Painted { names, .. } => {
            let classes = scene.points.iter().filter_map(|point| point.class);
            legend.classes(names, &scene.palette(names), classes);
        }
        PointColours::Height => {
            let ends = HEIGHTS_M.map(|metres| format!("{metres:.1} m").replace('-', "−"));
            legend.gap();
            legend.scale("Height over the sensor", ends);
        }
        PointColours::Intensity => {
            let ends = scene
                .intensities()
                .map(|intensity| format!("{intensity:.3}"));
            legend.gap();
            legend.scale("Intensity", ends.map(|end| trimmed(&end)));
        }
    }
    picture
}

impl BirdsEye<'_> {
    /// A colour for each point.
    pub(crate) fn point_colours(&self) -> Vec<Colour> {
        let shade =
            |value: f32, [low, high]: [f64; 2]| ramp((f64::from(value) - low) / (high - low));
        match self.colours {
            PointColours::Height => self
                .points
                .iter()
                .map(|point| shade(point.position[2], HEIGHTS_M))
                .collect(),
            PointColours::Intensity => {
                let range = self.intensities();
                let colour = |point: &DrawnPoint| shade(point.intensity, range);
                self.points.iter().map(colour).collect()
            }
            PointColours::Class(names) | PointColours::Painted { names, .. } => {
                let colours = self.palette(names);
                self.points
                    .iter()
                    .map(|point| point.class.and_then(|class| colours.get(class)))
                    .map(|colour| colour.copied().unwrap_or(UNKNOWN))
                    .collect()
            }
        }
    }

    /// The colours of classes.
    fn palette(&self, names: &[&str]) -> Vec<Colour> {
        match self.colours {
            PointColours::Painted { colours, .. } => {
                let own = colours.iter().copied();
                own.chain(std::iter::repeat(UNKNOWN))
                    .take(names.len())
                    .collect()
            }
            _ => class_colours(names),
        }
    }

    /// The range of the colours: nearly all intensities, because a few mirrors outshine everything else.
    fn intensities(&self) -> [f64; 2] {
        let mut values: Vec<f32> = self
            .points
            .iter()
            .map(|point| point.intensity)
            .filter(|value| value.is_finite())
            .collect();
        values.sort_by(f32::total_cmp);
        let at = |percent: usize| values.get(values.len() * percent / 100).copied();
        match (at(0), at(95)) {
            (Some(low), Some(high)) if high > low => [low, high].map(f64::from),
            (Some(low), _) => [f64::from(low), f64::from(low) + 1.0],
            _ => [0.0, 1.0],
        }
    }
}

fn trimmed(number: &str) -> String {
    number
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn car() -> DrawnBox {
        DrawnBox {
            class: 0,
            centre: [0.0, 25.0],
            size: [4.0, 2.0],
            yaw_rad: 0.0,
            velocity: Some([0.0, 5.0]),
            score: 1.0,
        }
    }

    fn street<'a>(boxes: &'a [DrawnBox], points: &'a [DrawnPoint]) -> BirdsEye<'a> {
        BirdsEye {
            title: "one car",
            points,
            boxes,
            box_classes: &["car"],
            forward_rad: std::f64::consts::FRAC_PI_2,
            ..BirdsEye::default()
        }
    }

    #[test]
    fn a_box_shows_in_its_colour_where_it_stands() {
        let far = DrawnPoint {
            position: [f32::NAN, 1e30, 0.0],
            ..DrawnPoint::default()
        };
        let with = draw_birds_eye(&street(&[car()], &[far])).to_pixels();
        let without = draw_birds_eye(&street(&[], &[far])).to_pixels();
        // 25 m ahead is 250 pixels above the middle; the heading line runs 20 pixels to the right.
        let (x, y) = (20 + 500 + 10, 56 + 500 - 250);
        let [red, _, blue] = with.at(x, y).expect("a pixel");
        assert!(blue > red, "{red} {blue}");
        assert_ne!(with.at(x, y), without.at(x, y));
        assert_eq!(without.at(x, y), Some(DARK.panel));
    }

    #[test]
    fn points_have_the_colours_of_their_classes() {
        let points = [
            DrawnPoint {
                position: [0.0, 30.0, 0.0],
                class: Some(1),
                ..DrawnPoint::default()
            },
            DrawnPoint {
                class: Some(77),
                ..DrawnPoint::default()
            },
            DrawnPoint::default(),
        ];
        let names = ["road", "pedestrian"];
        let scene = BirdsEye {
            colours: PointColours::Class(&names),
            ..street(&[], &points)
        };
        let pedestrian = class_colours(&names)[1];
        assert_eq!(scene.point_colours(), [pedestrian, UNKNOWN, UNKNOWN]);
        let [red, _, blue] = draw_birds_eye(&scene)
            .to_pixels()
            .at(520, 256)
            .expect("a pixel");
        assert!(red > 150 && blue < 100, "{red} {blue}");
    }

    #[test]
    fn intensities_span_the_ramp_without_outliers() {
        let point = |intensity: f32| DrawnPoint {
            intensity,
            ..DrawnPoint::default()
        };
        let range = |intensities: &[f32]| {
            let points: Vec<DrawnPoint> = intensities.iter().copied().map(point).collect();
            street(&[], &points).intensities()
        };
        let mut many: Vec<f32> = (0..100).map(|v| v as f32).collect();
        many[99] = 1e9;
        assert_eq!(range(&many), [0.0, 95.0]);
        assert_eq!(range(&[]), [0.0, 1.0]);
        assert_eq!(range(&[f32::NAN, 3.0, f32::INFINITY]), [3.0, 4.0]);
    }

    #[test]
    fn the_same_scene_gives_the_same_bytes() {
        let draw = || draw_birds_eye(&street(&[car()], &[DrawnPoint::default()])).to_png();
        assert_eq!(draw(), draw());
    }
}

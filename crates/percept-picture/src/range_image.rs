//! What a spinning LiDAR saw: the bird's-eye view, and its sweep unrolled below it.

use crate::bev::DrawnPoint;
use crate::birds_eye::{BirdsEye, PointColours, draw_birds_eye};
use crate::colours::{Colour, ramp};
use crate::picture::{Area, Picture, TextStyle};
use crate::pixels::Pixels;
use crate::theme::{DARK, MARGIN, TEXT_SIZE};

const STRIP_HEIGHT: f64 = 128.0;
const CAPTION_HEIGHT: f64 = 28.0;
/// Fewer columns than sensors have, so that rounding leaves no gaps between them.
const COLUMNS: usize = 960;
/// The range at which the colours of ranges end.
const FAR_M: f64 = 60.0;

/// The beams of a spinning LiDAR.
#[derive(Clone, Copy, Debug)]
pub struct Scanner {
    /// How many.
    pub beams: usize,
    /// The lowest and the highest beam, in radians.
    pub elevations_rad: [f64; 2],
}

/// Draws a scene from above, and below it the newest sweep unrolled, coloured by range and as the points above: the rear at
/// both ends, forward in the middle, high beams at the top.
///
/// ```
/// use percept_picture::{BirdsEye, DrawnPoint, Scanner, draw_scan};
///
/// let wall: Vec<DrawnPoint> = (-50..50)
///     .map(|y| DrawnPoint { position: [20.0, y as f32 * 0.1, 0.5], ..DrawnPoint::default() })
///     .collect();
/// let scanner = Scanner { beams: 64, elevations_rad: [-0.43, 0.035] };
/// let picture = draw_scan(&BirdsEye { title: "a wall", points: &wall, ..BirdsEye::default() }, scanner);
/// assert!(picture.size()[1] > 1000);
/// ```
pub fn draw_scan(scene: &BirdsEye<'_>, scanner: Scanner) -> Picture {
    let mut picture = draw_birds_eye(scene);
    let top = picture.height - MARGIN;
    let below = match scene.colours {
        PointColours::Height => "Height",
        PointColours::Intensity => "Intensity",
        PointColours::Class(_) | PointColours::Painted { .. } => "Class",
    };
    let nearest = nearest_points(scene, scanner);
    let colours = scene.point_colours();
    let strip_width = picture.width - 2.0 * MARGIN;
    let size = [strip_width as u32, STRIP_HEIGHT as u32];
    let by_range = strip(&nearest, size, |range_m, _| {
        ramp(1.0 - (range_m / FAR_M).sqrt())
    });
    let as_above = strip(&nearest, size, |_, index| colours[index]);
    for (row, (caption, pixels)) in [("Range", by_range), (below, as_above)]
        .into_iter()
        .enumerate()
    {
        let top = top + row as f64 * (STRIP_HEIGHT + CAPTION_HEIGHT) + CAPTION_HEIGHT;
        let style = TextStyle::new(TEXT_SIZE, DARK.ink).medium();
        picture.text([MARGIN, top - 9.0], style, caption);
        let area = Area {
            left: MARGIN,
            top,
            width: strip_width,
            height: STRIP_HEIGHT,
        };
        picture.image(area, pixels);
    }
    picture.height = top + 2.0 * (STRIP_HEIGHT + CAPTION_HEIGHT) + MARGIN;
    picture
}

/// The highest beam at the top, in colours by range and index. Cells stay sharp: what lies between two beams is not between
/// what they met.
fn strip(
    nearest: &[(f64, usize)],
    [width, height]: [u32; 2],
    colour: impl Fn(f64, usize) -> Colour,
) -> Pixels {
    let beams = nearest.len() / COLUMNS;
    let mut strip = Pixels::filled(width, height, DARK.panel);
    for y in 0..height {
        let below = u64::from(height - 1 - y) * beams as u64 / u64::from(height);
        for x in 0..width {
            let column = u64::from(x) * COLUMNS as u64 / u64::from(width);
            let cell = below as usize * COLUMNS + column as usize;
            if let Some(&(range_m, index)) = nearest.get(cell)
                && range_m.is_finite()
            {
                strip.blend(i64::from(x), i64::from(y), colour(range_m, index), 1.0);
            }
        }
    }
    strip
}

/// For each beam, from the lowest, and each column: the range and the index of the nearest point of the newest sweep.
fn nearest_points(scene: &BirdsEye<'_>, scanner: Scanner) -> Vec<(f64, usize)> {
    let mut nearest = vec![(f64::INFINITY, 0); scanner.beams * COLUMNS];
    for (index, point) in scene.points.iter().enumerate() {
        let [x, y, z] = point.position.map(f64::from);
        let range_m = (x * x + y * y + z * z).sqrt();
        if point.old || !(range_m > 0.0 && range_m.is_finite()) {
            continue;
        }
        let left_of_forward = libm::atan2(y, x) - scene.forward_rad;
        let share = (0.5 - left_of_forward / (2.0 * std::f64::consts::PI)).rem_euclid(1.0);
        let column = ((share * COLUMNS as f64) as usize).min(COLUMNS - 1);
        let beam = beam(point, libm::asin(z / range_m), scanner);
        if let Some(cell) = nearest.get_mut(beam * COLUMNS + column)
            && range_m < cell.0
        {
            *cell = (range_m, index);
        }
    }
    nearest
}

/// The laser of a point, as it was stored or as its elevation tells.
fn beam(point: &DrawnPoint, elevation_rad: f64, scanner: Scanner) -> usize {
    let last = scanner.beams.saturating_sub(1);
    let [lowest, highest] = scanner.elevations_rad;
    let beam = match point.ring {
        Some(ring) => usize::from(ring),
        None => {
            let up = (elevation_rad - lowest) / (highest - lowest);
            (up * last as f64).round().max(0.0) as usize
        }
    };
    beam.min(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCANNER: Scanner = Scanner {
        beams: 32,
        elevations_rad: [-0.535, 0.186],
    };

    fn scene(points: &[DrawnPoint]) -> BirdsEye<'_> {
        BirdsEye {
            points,
            ..BirdsEye::default()
        }
    }

    fn point(position: [f32; 3], ring: Option<u8>) -> DrawnPoint {
        DrawnPoint {
            position,
            ring,
            ..DrawnPoint::default()
        }
    }

    #[test]
    fn the_nearest_point_is_seen_forward_in_the_middle() {
        let points = [
            point([30.0, 0.0, 0.0], Some(7)),
            point([10.0, 0.0, 0.0], Some(7)),
            point([0.0, 10.0, 0.0], Some(7)),
            // Straight down is the lowest beam.
            point([10.0, 0.0, -10.0], None),
        ];
        let nearest = nearest_points(&scene(&points), SCANNER);
        assert_eq!(nearest[7 * COLUMNS + COLUMNS / 2], (10.0, 1));
        assert_eq!(nearest[7 * COLUMNS + COLUMNS / 4], (10.0, 2));
        assert_eq!(nearest[COLUMNS / 2].1, 3);
        assert_eq!(
            nearest
                .iter()
                .filter(|(range, _)| range.is_finite())
                .count(),
            3
        );
    }

    #[test]
    fn empty_clouds_wild_points_and_no_beams_draw_an_empty_strip() {
        let wild = [
            point([1e30, -1e30, 5.0], Some(255)),
            point([f32::NAN; 3], None),
            point([0.0; 3], None),
        ];
        for points in [&wild[..], &[]] {
            for beams in [0, 1, 32] {
                let scanner = Scanner { beams, ..SCANNER };
                let pixels = draw_scan(&scene(points), scanner).to_pixels();
                assert_eq!([pixels.width(), pixels.height()], [1280, 1352]);
            }
        }
    }

    #[test]
    fn strips_show_below_the_ground() {
        let wall: Vec<DrawnPoint> = (0..32)
            .map(|ring| point([2.0, 0.0, 0.0], Some(ring)))
            .collect();
        let pixels = draw_scan(&scene(&wall), SCANNER).to_pixels();
        let [red, _, blue] = pixels.at(640, 1114).expect("a pixel");
        assert!(red > blue, "near is yellow: {red} {blue}");
        assert_eq!(pixels.at(200, 1114), Some(DARK.panel));
    }
}

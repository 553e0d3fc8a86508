//! A LiDAR sweep as an image of distances, as LCPR's public code makes it.

use std::f64::consts::PI;

use percept_data::points::{LidarConvention, LidarFrame, Point};

/// Points in a square of this half side around the sensor are the vehicle itself.
const EGO_M: f32 = 2.0;
/// What is farther away is left out.
const FARTHEST_M: f64 = 80.0;
/// The field of view: degrees above and below the horizon.
const UP_DEG: f64 = 10.0;
const DOWN_DEG: f64 = 30.0;
/// What stands where no point is.
pub(super) const EMPTY: f32 = -1.0;

/// Distances [rows, columns] in metres, the highest row first, forward in the middle, right of it to the right; -1 where no
/// point is.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeImage {
    /// Rows and columns.
    pub size: [usize; 2],
    /// Row by row.
    pub metres: Vec<f32>,
}

impl RangeImage {
    /// One in which nothing is seen.
    pub fn empty(size: [usize; 2]) -> Self {
        Self {
            metres: vec![EMPTY; size[0] * size[1]],
            size,
        }
    }
}

/// The range image of a frame's own sweep. Points above and below the field of view count for its border rows; of several points
/// in one pixel the nearest stays.
pub fn range_image(frame: &LidarFrame, size: [usize; 2]) -> RangeImage {
    let mut image = RangeImage::empty(size);
    if image.metres.is_empty() {
        return image;
    }
    for point in frame.own_sweep() {
        if let Some((place, metres)) = pixel(point, frame.convention, size) {
            let pixel = &mut image.metres[place];
            if *pixel == EMPTY || metres < *pixel {
                *pixel = metres;
            }
        }
    }
    image
}

fn pixel(
    point: &Point,
    convention: LidarConvention,
    [rows, columns]: [usize; 2],
) -> Option<(usize, f32)> {
    let [x, y, _] = point.position;
    if x.abs() < EGO_M && y.abs() < EGO_M {
        return None;
    }
    // Forward along x, left along y.
    let [x, y, z] = point.position.map(f64::from);
    let (x, y) = match convention {
        LidarConvention::NuScenes => (y, -x),
        LidarConvention::Kitti => (x, y),
    };
    let depth = (x * x + y * y + z * z).sqrt();
    // Also false where the depth is no number.
    if !(depth > 0.0 && depth < FARTHEST_M) {
        return None;
    }
    let column = 0.5 * (1.0 - libm::atan2(y, x) / PI) * columns as f64;
    let view = (UP_DEG + DOWN_DEG).to_radians();
    let height = (libm::asin(z / depth) + DOWN_DEG.to_radians()) / view;
    let row = (1.0 - height) * rows as f64;
    let place = |value: f64, count: usize| (value.floor().max(0.0) as usize).min(count - 1);
    let place = place(row, rows) * columns + place(column, columns);
    Some((place, depth as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(convention: LidarConvention, points: &[[f32; 3]]) -> Vec<(usize, usize, f32)> {
        let points = points.iter().map(|&position| Point {
            position,
            intensity: 0.0,
            age_s: 0.0,
            ring: None,
        });
        let frame = LidarFrame::from_points(convention, points.collect());
        let image = range_image(&frame, [32, 1056]);
        let seen = image.metres.iter().enumerate();
        seen.filter(|(_, metres)| **metres != EMPTY)
            .map(|(place, metres)| (place / 1056, place % 1056, *metres))
            .collect()
    }

    #[test]
    fn forward_is_in_the_middle_and_right_to_the_right() {
        // A hair to the right and above, so that no point lies on the border of two pixels.
        let forward = seen(LidarConvention::NuScenes, &[[0.001, 10.0, 0.001]]);
        assert_eq!(forward, [(7, 528, 10.0)]);
        let right = seen(LidarConvention::NuScenes, &[[10.0, -0.001, 0.001]]);
        assert_eq!(right, [(7, 792, 10.0)]);
        let kitti = seen(LidarConvention::Kitti, &[[10.0, -0.001, 0.001]]);
        assert_eq!(kitti, [(7, 528, 10.0)]);
    }

    #[test]
    fn the_nearest_stays_and_what_is_out_of_view_is_clamped() {
        let points = [
            [0.001, 20.0, 0.002],
            [0.0005, 10.0, 0.001],
            [1.9, 1.9, 0.0],
            [0.0, 81.0, 0.0],
            [0.01, 5.0, 30.0],
            [0.01, 5.0, -30.0],
            [f32::NAN, 5.0, 0.0],
        ];
        let rows: Vec<(usize, f32)> = seen(LidarConvention::NuScenes, &points)
            .into_iter()
            .map(|(row, _, metres)| (row, metres.round()))
            .collect();
        assert_eq!(rows, [(0, 30.0), (7, 10.0), (31, 30.0)]);
        assert!(seen(LidarConvention::NuScenes, &[]).is_empty());
    }
}

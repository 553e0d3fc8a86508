//! What a network has found, as one picture: the points from above, and the boxes.

use image::RgbImage;

use crate::points::{LidarConvention, PointCloud};

use super::bev::{Bev, Dot, DrawnBox, height_colour};
use super::canvas::{Area, Canvas};
use super::legend::Legend;
use super::style::{BACKGROUND, BEV_SIDE, INK, LEGEND_WIDTH, MARGIN, TITLE_SCALE};

/// Points and boxes to draw from above.
#[derive(Clone, Copy, Debug)]
pub struct Detections<'a> {
    /// What stands above the picture.
    pub title: &'a str,
    /// Rows of x, y, z, intensity, age, as in [`PointCloud::values`].
    pub points: &'a [f32],
    /// Which way is forward.
    pub convention: LidarConvention,
    /// The boxes.
    pub boxes: &'a [DrawnBox],
    /// Metres from the sensor to the edge of the picture.
    pub reach_m: f64,
}

/// Draws points coloured by height, and boxes coloured by class with their headings and the way of their next second.
pub fn draw_detections(detections: &Detections<'_>) -> RgbImage {
    let bev = Area {
        left: MARGIN,
        top: 2 * MARGIN + Canvas::text_height(TITLE_SCALE),
        width: BEV_SIDE,
        height: BEV_SIDE,
    };
    let legend_left = bev.left + BEV_SIDE + MARGIN;
    let (width, height) = (
        legend_left + LEGEND_WIDTH + MARGIN,
        bev.top + BEV_SIDE + MARGIN,
    );
    let mut canvas = Canvas::new(width, height, BACKGROUND);
    canvas.text(MARGIN, MARGIN, TITLE_SCALE, detections.title, INK);

    let (rows, _) = detections.points.as_chunks::<{ PointCloud::CHANNELS }>();
    let dots = rows
        .iter()
        .map(|&[x, y, z, _, age_s]| Dot {
            position: [x, y, z],
            colour: height_colour(f64::from(z)),
            // Older sweeps stay in the background.
            opacity: if age_s == 0.0 { 0.8 } else { 0.35 },
        })
        .collect();
    let reach_m = detections.reach_m;
    Bev::new(&mut canvas, bev, detections.convention, reach_m)
        .draw(dots, detections.boxes.iter().copied());

    let mut legend = Legend::new(&mut canvas, legend_left, bev.top);
    legend.row(None, "points", rows.len());
    legend.boxes(detections.boxes);
    legend.scale("height in m", [-3.0, 3.0], height_colour);
    canvas.image
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::ObjectClass;

    #[test]
    fn a_box_shows_in_its_colour_where_it_stands() {
        let car = DrawnBox {
            class: ObjectClass::Car,
            centre: [0.0, 20.0],
            size: [4.0, 2.0],
            yaw_rad: 0.0,
            velocity: Some([0.0, 5.0]),
            score: 1.0,
        };
        let draw = |boxes: &[DrawnBox]| {
            draw_detections(&Detections {
                title: "one car",
                points: &[5.0, 5.0, 0.0, 1.0, 0.0, f32::NAN, 1e30, 0.0, 0.0, 0.0],
                convention: LidarConvention::NuScenes,
                boxes,
                reach_m: 50.0,
            })
        };
        let (with, without) = (draw(&[car]), draw(&[]));
        // 20 m ahead is 200 pixels above the middle; the heading line runs 20 pixels to the right.
        let (x, y) = (
            MARGIN + BEV_SIDE / 2 + 10,
            2 * MARGIN + 15 + BEV_SIDE / 2 - 200,
        );
        let [red, _, blue] = with.get_pixel(x, y).0;
        assert!(blue > red, "{red} {blue}");
        assert_ne!(with.get_pixel(x, y), without.get_pixel(x, y));
    }

    #[test]
    fn any_reach_draws_some_rings_without_harm() {
        for reach_m in [0.5, 12.0, 54.0, 1e6] {
            let picture = draw_detections(&Detections {
                title: "",
                points: &[],
                convention: LidarConvention::Kitti,
                boxes: &[],
                reach_m,
            });
            assert_eq!(picture.width(), BEV_SIDE + LEGEND_WIDTH + 3 * MARGIN);
        }
    }
}

//! A frame with its truth as one picture: the bird's-eye view with boxes, and the range image below it.

use image::RgbImage;

use crate::points::{LEARNED_CLASS_NAMES, LidarFrame};

use super::bev::{Bev, Dot, DrawnBox, height_colour, is_own};
use super::canvas::{Area, Canvas, Colour};
use super::colours;
use super::legend::Legend;
use super::style::{BACKGROUND, BEV_SIDE, INK, LEGEND_WIDTH, MARGIN, PANEL, TITLE_SCALE};

const STRIP_HEIGHT: u32 = 128;
/// Metres from the sensor to the edge of the bird's-eye view.
const REACH_M: f64 = 52.0;
const RANGE_IMAGE_COLUMNS: usize = 960;
/// The range at which the range image's colours end.
const FAR_M: f64 = 60.0;

/// Draws `frame` under `title`.
pub fn draw_frame(frame: &LidarFrame, title: &str) -> RgbImage {
    let width = MARGIN * 3 + BEV_SIDE + LEGEND_WIDTH;
    let title_height = Canvas::text_height(TITLE_SCALE) + MARGIN;
    let bev = Area {
        left: MARGIN,
        top: MARGIN + title_height,
        width: BEV_SIDE,
        height: BEV_SIDE,
    };
    let strip = |row: u32| Area {
        left: MARGIN,
        top: bev.top + BEV_SIDE + MARGIN + row * (STRIP_HEIGHT + MARGIN),
        width: width - 2 * MARGIN,
        height: STRIP_HEIGHT,
    };
    let mut canvas = Canvas::new(width, strip(2).top, BACKGROUND);
    canvas.text(MARGIN, MARGIN, TITLE_SCALE, title, INK);
    let boxes: Option<Vec<DrawnBox>> = frame
        .boxes
        .as_ref()
        .map(|boxes| boxes.iter().map(DrawnBox::from).collect());
    let dots = (0..frame.points.len()).map(|index| dot(frame, index));
    Bev::new(&mut canvas, bev, frame.convention, REACH_M)
        .draw(dots.collect(), boxes.iter().flatten().copied());
    let legend = Legend::new(&mut canvas, bev.left + BEV_SIDE + MARGIN, bev.top);
    draw_legend(legend, frame, boxes.as_deref());
    for (row, by) in [StripColour::Range, StripColour::Class]
        .into_iter()
        .enumerate()
    {
        let area = strip(row as u32);
        canvas.fill(&area, PANEL);
        draw_range_image(&mut canvas, &area, frame, by);
    }
    canvas.image
}

fn dot(frame: &LidarFrame, index: usize) -> Dot {
    let point = &frame.points[index];
    Dot {
        position: point.position,
        colour: point_colour(frame, index),
        // Older sweeps are fainter.
        opacity: if point.age_s == 0.0 { 0.9 } else { 0.45 },
    }
}

fn point_colour(frame: &LidarFrame, index: usize) -> Colour {
    match frame.labels.as_ref().and_then(|labels| labels.get(index)) {
        Some(label) => colours::LEARNED[usize::from(label.learned_class())],
        // Without labels, height tells the most.
        None => height_colour(f64::from(frame.points[index].position[2])),
    }
}

fn draw_legend(mut legend: Legend<'_>, frame: &LidarFrame, boxes: Option<&[DrawnBox]>) {
    legend.row(None, "points", frame.points.len());
    if let Some(labels) = &frame.labels {
        let mut counts = [0; 20];
        for label in labels {
            counts[usize::from(label.learned_class())] += 1;
        }
        for class in (1..20).filter(|class| counts[*class] > 0) {
            let colour = colours::LEARNED[class];
            legend.row(Some(colour), LEARNED_CLASS_NAMES[class], counts[class]);
        }
    }
    if let Some(boxes) = boxes {
        legend.boxes(boxes);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StripColour {
    Range,
    Class,
}

/// The frame's own sweep unrolled: the rear at both ends, forward in the middle, high beams at the top.
fn draw_range_image(canvas: &mut Canvas, area: &Area, frame: &LidarFrame, by: StripColour) {
    let beams = frame.convention.beams();
    let [lowest, highest] = frame.convention.elevations_rad();
    let beam_height = area.height / beams as u32;
    // Fewer columns than the sensor has, so that rounding leaves no gaps between them.
    let columns = RANGE_IMAGE_COLUMNS;
    let mut nearest = vec![(f64::INFINITY, 0); beams * columns];
    for (index, point) in frame
        .own_sweep()
        .iter()
        .enumerate()
        .filter(|(_, p)| !is_own(p.position))
    {
        let [x, y, z] = point.position.map(f64::from);
        let range_m = point.range_m();
        let left_of_forward = libm::atan2(y, x) - frame.convention.forward_rad();
        let share = (0.5 - left_of_forward / (2.0 * std::f64::consts::PI)).rem_euclid(1.0);
        let beam = match point.ring {
            Some(ring) => usize::from(ring),
            None => {
                let up = (libm::asin(z / range_m) - lowest) / (highest - lowest);
                (up * (beams - 1) as f64).round().max(0.0) as usize
            }
        };
        let column = ((share * columns as f64) as usize).min(columns - 1);
        let cell = &mut nearest[beam.min(beams - 1) * columns + column];
        if range_m < cell.0 {
            *cell = (range_m, index);
        }
    }
    for (cell, (range_m, index)) in nearest
        .into_iter()
        .enumerate()
        .filter(|(_, (range, _))| range.is_finite())
    {
        let colour = match by {
            StripColour::Range => colours::ramp((range_m / FAR_M).sqrt()),
            StripColour::Class => point_colour(frame, index),
        };
        let (beam, column) = (cell / columns, cell % columns);
        let edge = |column: usize| area.left + (column * area.width as usize / columns) as u32;
        let top = area.top + (beams - 1 - beam) as u32 * beam_height;
        for x in edge(column)..edge(column + 1) {
            for y in top..top + beam_height {
                canvas.blend(area, i64::from(x), i64::from(y), colour, 1.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::{LidarConvention, Point};

    #[test]
    fn an_empty_frame_and_points_far_outside_draw_without_harm() {
        let far = Point {
            position: [1e30, -1e30, 5.0],
            intensity: 0.0,
            age_s: 0.0,
            ring: Some(255),
        };
        for points in [vec![], vec![far]] {
            for convention in [LidarConvention::NuScenes, LidarConvention::Kitti] {
                let picture = draw_frame(
                    &LidarFrame::from_points(convention, points.clone()),
                    "nothing",
                );
                assert!(picture.width() > 1000 && picture.height() > 1000);
            }
        }
    }
}

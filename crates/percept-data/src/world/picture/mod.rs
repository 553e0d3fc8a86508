//! A frame as one picture: the bird's-eye view with boxes, and the range image below it.

mod canvas;
mod colours;
mod glyphs;

use std::io::Cursor;

use image::{ImageFormat, ImageResult, RgbImage};

use crate::points::{
    Box3d, EGO_HALF_EXTENT_M, LEARNED_CLASS_NAMES, LidarFrame, ObjectClass, Point,
};

use canvas::{Area, Canvas, Colour};

const BACKGROUND: Colour = [14, 16, 22];
const PANEL: Colour = [19, 22, 30];
const INK: Colour = [206, 212, 224];
const FAINT_INK: Colour = [122, 130, 148];
const GRID: Colour = [70, 78, 96];

const MARGIN: u32 = 16;
const BEV_SIDE: u32 = 1000;
const LEGEND_WIDTH: u32 = 232;
const STRIP_HEIGHT: u32 = 128;
const TITLE_SCALE: u32 = 3;
const TEXT_SCALE: u32 = 2;
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
    canvas.fill(&bev, PANEL);
    draw_bev(&mut canvas, &bev, frame);
    let legend_left = bev.left + BEV_SIDE + MARGIN;
    draw_legend(&mut canvas, legend_left, bev.top, frame);
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

/// Draws `frame` under `title` as the bytes of a PNG file.
pub fn draw_frame_png(frame: &LidarFrame, title: &str) -> ImageResult<Vec<u8>> {
    let mut png = Cursor::new(Vec::new());
    draw_frame(frame, title).write_to(&mut png, ImageFormat::Png)?;
    Ok(png.into_inner())
}

/// Beams that met nothing, and the ego vehicle itself.
fn is_own(point: &Point) -> bool {
    point.position[0].abs() < EGO_HALF_EXTENT_M && point.position[1].abs() < EGO_HALF_EXTENT_M
}

fn point_colour(frame: &LidarFrame, index: usize) -> Colour {
    match frame.labels.as_ref().and_then(|labels| labels.get(index)) {
        Some(label) => colours::LEARNED[usize::from(label.learned_class())],
        // Without labels, height tells the most.
        None => colours::ramp(0.75 - (f64::from(frame.points[index].position[2]) + 1.8) / 6.0),
    }
}

/// Places of the sensor's frame in the bird's-eye view, forward up.
struct View {
    centre: [f64; 2],
    pixels_per_m: f64,
    sin: f64,
    cos: f64,
}

impl View {
    fn new(area: &Area, frame: &LidarFrame) -> Self {
        let turn = std::f64::consts::FRAC_PI_2 - frame.convention.forward_rad();
        let (sin, cos) = libm::sincos(turn);
        Self {
            centre: [
                f64::from(area.left) + 0.5 * f64::from(area.width),
                f64::from(area.top) + 0.5 * f64::from(area.height),
            ],
            pixels_per_m: 0.5 * f64::from(area.width) / REACH_M,
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

fn draw_bev(canvas: &mut Canvas, area: &Area, frame: &LidarFrame) {
    let view = View::new(area, frame);
    for ring in 1..=5 {
        canvas.circle(
            area,
            view.centre,
            10.0 * f64::from(ring) * view.pixels_per_m,
            GRID,
            0.45,
        );
    }
    // Low points first, so that what stands on the ground is not painted over; older sweeps fainter.
    let mut order: Vec<usize> = (0..frame.points.len())
        .filter(|i| !is_own(&frame.points[*i]))
        .collect();
    order.sort_by(|a, b| frame.points[*a].position[2].total_cmp(&frame.points[*b].position[2]));
    for index in order {
        let point = &frame.points[index];
        let [x, y] = view.pixel([f64::from(point.position[0]), f64::from(point.position[1])]);
        let colour = point_colour(frame, index);
        let opacity = if point.age_s == 0.0 { 0.9 } else { 0.45 };
        let (left, top) = ((x - 0.5).floor() as i64, (y - 0.5).floor() as i64);
        for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            canvas.blend(
                area,
                left.saturating_add(dx),
                top.saturating_add(dy),
                colour,
                opacity,
            );
        }
    }
    for object in frame.boxes.iter().flatten() {
        draw_box(canvas, area, &view, object);
    }
    draw_ego(canvas, area, &view, frame);
    for ring in 1..=5u32 {
        let [x, y] = [
            view.centre[0] + 4.0,
            view.centre[1] - 10.0 * f64::from(ring) * view.pixels_per_m + 4.0,
        ];
        canvas.text(
            x as u32,
            y as u32,
            TEXT_SCALE,
            &format!("{} m", 10 * ring),
            FAINT_INK,
        );
    }
}

fn draw_box(canvas: &mut Canvas, area: &Area, view: &View, object: &Box3d) {
    let colour = colours::of_object(object.class);
    let corners = object.corners_bev();
    for side in 0..4 {
        let (from, to) = (
            view.pixel(corners[side]),
            view.pixel(corners[(side + 1) % 4]),
        );
        canvas.line(area, from, to, 1.6, colour, 1.0);
    }
    let centre = [object.centre[0], object.centre[1]];
    let nose = [0, 1].map(|i| 0.5 * (corners[0][i] + corners[3][i]));
    canvas.line(area, view.pixel(centre), view.pixel(nose), 1.6, colour, 1.0);
    if let Some(velocity) = object.velocity
        && velocity.iter().map(|v| v * v).sum::<f64>() > 0.25
    {
        let in_a_second = [0, 1].map(|i| nose[i] + velocity[i]);
        canvas.line(
            area,
            view.pixel(nose),
            view.pixel(in_a_second),
            1.2,
            INK,
            0.8,
        );
    }
}

fn draw_ego(canvas: &mut Canvas, area: &Area, view: &View, frame: &LidarFrame) {
    let (sin, cos) = libm::sincos(frame.convention.forward_rad());
    let at =
        |ahead: f64, left: f64| view.pixel([ahead * cos - left * sin, ahead * sin + left * cos]);
    let outline = [at(1.4, 0.9), at(-3.0, 0.9), at(-3.0, -0.9), at(1.4, -0.9)];
    for side in 0..4 {
        canvas.line(area, outline[side], outline[(side + 1) % 4], 1.6, INK, 1.0);
    }
    canvas.line(area, at(1.4, 0.9), at(2.2, 0.0), 1.6, INK, 1.0);
    canvas.line(area, at(1.4, -0.9), at(2.2, 0.0), 1.6, INK, 1.0);
}

fn draw_legend(canvas: &mut Canvas, left: u32, top: u32, frame: &LidarFrame) {
    let mut y = top;
    let mut row = |canvas: &mut Canvas, colour: Option<Colour>, name: &str, count: usize| {
        if let Some(colour) = colour {
            canvas.fill(
                &Area {
                    left,
                    top: y,
                    width: 12,
                    height: 12,
                },
                colour,
            );
        }
        canvas.text(left + 20, y + 1, TEXT_SCALE, name, INK);
        let figures = count.to_string();
        let figures_left = left + LEGEND_WIDTH - figures.len() as u32 * 4 * TEXT_SCALE;
        canvas.text(figures_left, y + 1, TEXT_SCALE, &figures, FAINT_INK);
        y += 19;
    };
    row(canvas, None, "points", frame.points.len());
    if let Some(labels) = &frame.labels {
        let mut counts = [0; 20];
        for label in labels {
            counts[usize::from(label.learned_class())] += 1;
        }
        for class in (1..20).filter(|class| counts[*class] > 0) {
            row(
                canvas,
                Some(colours::LEARNED[class]),
                LEARNED_CLASS_NAMES[class],
                counts[class],
            );
        }
    }
    if let Some(boxes) = &frame.boxes {
        row(canvas, None, "boxes", boxes.len());
        for class in ObjectClass::ALL {
            let count = boxes.iter().filter(|object| object.class == class).count();
            if count > 0 {
                row(canvas, Some(colours::of_object(class)), class.name(), count);
            }
        }
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
        .filter(|(_, p)| !is_own(p))
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
    use crate::points::LidarConvention;

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

    #[test]
    fn forward_is_up_in_both_conventions() {
        for (convention, position) in [
            (LidarConvention::NuScenes, [0.0, 30.0, 0.0]),
            (LidarConvention::Kitti, [30.0, 0.0, 0.0]),
        ] {
            let point = Point {
                position,
                intensity: 0.0,
                age_s: 0.0,
                ring: None,
            };
            let frame = LidarFrame::from_points(convention, vec![point]);
            let area = Area {
                left: 0,
                top: 0,
                width: 1000,
                height: 1000,
            };
            let [x, y] =
                View::new(&area, &frame).pixel([f64::from(position[0]), f64::from(position[1])]);
            assert!((x - 500.0).abs() < 1e-6 && y < 250.0, "{x} {y}");
        }
    }
}

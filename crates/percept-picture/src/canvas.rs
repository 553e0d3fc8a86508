//! Shapes drawn as pixels, anti-aliased, by tiny-skia.

use tiny_skia::{
    ColorU8, FillRule, IntSize, LineCap, LineJoin, Mask, Paint, Path, PathBuilder, Pixmap,
    StrokeDash, Transform,
};

use crate::colours::Colour;
use crate::picture::{Anchor, Area, Fill, Shape, Stroke, TextStyle};
use crate::pixels::Pixels;

/// Beyond this many pixels from the corner nothing can be seen; places farther away are drawn there.
const FARTHEST_PX: f64 = 1e6;

/// A picture in the making.
pub(crate) struct Canvas {
    pixmap: Pixmap,
}

/// Where shapes are drawn: their origin, and the pixels that they may touch.
#[derive(Clone)]
struct Place {
    origin: [f64; 2],
    visible: Option<Mask>,
}

impl Place {
    fn transform(&self) -> Transform {
        Transform::from_translate(self.origin[0] as f32, self.origin[1] as f32)
    }
}

impl Canvas {
    pub(crate) fn new([width, height]: [u32; 2], background: Colour) -> Self {
        Self {
            pixmap: pixmap(&Pixels::filled(width, height, background)),
        }
    }

    pub(crate) fn draw(&mut self, shapes: &[Shape]) {
        let everywhere = Place {
            origin: [0.0; 2],
            visible: None,
        };
        self.draw_at(shapes, &everywhere);
    }

    pub(crate) fn into_pixels(self) -> Pixels {
        let (width, height) = (self.pixmap.width(), self.pixmap.height());
        let rgb = self
            .pixmap
            .pixels()
            .iter()
            .flat_map(|pixel| {
                let pixel = pixel.demultiply();
                [pixel.red(), pixel.green(), pixel.blue()]
            })
            .collect();
        Pixels::new(width, height, rgb).expect("three bytes were written for each pixel")
    }

    fn draw_at(&mut self, shapes: &[Shape], place: &Place) {
        for shape in shapes {
            match shape {
                Shape::Path {
                    points,
                    closed,
                    fill,
                    stroke,
                } => self.path(path(points, *closed), *fill, *stroke, place),
                Shape::Circle {
                    centre: [x, y],
                    radius,
                    fill,
                    stroke,
                } => {
                    let circle =
                        PathBuilder::from_circle(visible(*x), visible(*y), visible(*radius));
                    self.path(circle, *fill, *stroke, place);
                }
                Shape::Text { at, text, style } => self.text(*at, text, style, place),
                Shape::Image { area, pixels } => self.image(area, pixels, place),
                Shape::Group { area, shapes } => {
                    let inner = self.inside(area, place);
                    self.draw_at(shapes, &inner);
                }
            }
        }
    }

    /// The part of `place` within `area`.
    fn inside(&self, area: &Area, place: &Place) -> Place {
        let mut mask = Mask::new(self.pixmap.width(), self.pixmap.height());
        let corners = path(&area.corners(), true);
        if let (Some(mask), Some(corners)) = (&mut mask, corners) {
            match &place.visible {
                Some(outer) => {
                    mask.data_mut().copy_from_slice(outer.data());
                    mask.intersect_path(&corners, FillRule::Winding, false, place.transform());
                }
                None => mask.fill_path(&corners, FillRule::Winding, false, place.transform()),
            }
        }
        Place {
            origin: [place.origin[0] + area.left, place.origin[1] + area.top],
            visible: mask,
        }
    }

    fn path(
        &mut self,
        path: Option<Path>,
        fill: Option<Fill>,
        stroke: Option<Stroke>,
        place: &Place,
    ) {
        let Some(path) = path else { return };
        let (transform, visible) = (place.transform(), place.visible.as_ref());
        if let Some(fill) = fill {
            let paint = paint(fill.colour, fill.opacity);
            self.pixmap
                .fill_path(&path, &paint, FillRule::Winding, transform, visible);
        }
        if let Some(stroke) = stroke {
            let paint = paint(stroke.colour, stroke.opacity);
            let pen = tiny_skia::Stroke {
                width: stroke.width as f32,
                line_cap: LineCap::Butt,
                line_join: LineJoin::Round,
                dash: stroke.dash.and_then(|dash| {
                    StrokeDash::new(dash.map(|length| length as f32).to_vec(), 0.0)
                }),
                ..tiny_skia::Stroke::default()
            };
            self.pixmap
                .stroke_path(&path, &paint, &pen, transform, visible);
        }
    }

    fn text(&mut self, [x, y]: [f64; 2], text: &str, style: &TextStyle, place: &Place) {
        let Some(outline) = style.weight.outline(style.size, text) else {
            return;
        };
        let width = style.weight.text_width(style.size, text);
        let start = match style.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -0.5 * width,
            Anchor::End => -width,
        };
        let at = [place.origin[0] + x, place.origin[1] + y];
        // Letters are sharpest where their baseline lies between pixels.
        let transform = if style.upright {
            Transform::from_row(
                0.0,
                -1.0,
                1.0,
                0.0,
                at[0].round() as f32,
                (at[1] - start) as f32,
            )
        } else {
            Transform::from_translate((at[0] + start) as f32, at[1].round() as f32)
        };
        let paint = paint(style.colour, 1.0);
        self.pixmap.fill_path(
            &outline,
            &paint,
            FillRule::Winding,
            transform,
            place.visible.as_ref(),
        );
    }

    /// Copies an image, which is opaque and begins with a whole pixel, row by row.
    fn image(&mut self, area: &Area, pixels: &Pixels, place: &Place) {
        let sized = pixels.resized(area.width.round() as u32, area.height.round() as u32);
        let corner = [place.origin[0] + area.left, place.origin[1] + area.top];
        let [left, top] = corner.map(|edge| edge.round() as i64);
        let [width, height] = [self.pixmap.width(), self.pixmap.height()].map(i64::from);
        let mask = place.visible.as_ref().map(Mask::data);
        let target = self.pixmap.pixels_mut();
        for (row, y) in sized
            .rgb()
            .as_chunks::<3>()
            .0
            .chunks_exact(sized.width() as usize)
            .zip(top..)
        {
            if !(0..height).contains(&y) {
                continue;
            }
            for (pixel, x) in row.iter().zip(left..) {
                let at = (y * width + x) as usize;
                if (0..width).contains(&x) && mask.is_none_or(|mask| mask[at] != 0) {
                    let [red, green, blue] = *pixel;
                    target[at] = ColorU8::from_rgba(red, green, blue, u8::MAX).premultiply();
                }
            }
        }
    }
}

fn pixmap(pixels: &Pixels) -> Pixmap {
    let rgba = pixels
        .rgb()
        .as_chunks::<3>()
        .0
        .iter()
        .flat_map(|&[red, green, blue]| [red, green, blue, u8::MAX])
        .collect();
    IntSize::from_wh(pixels.width(), pixels.height())
        .and_then(|size| Pixmap::from_vec(rgba, size))
        .expect("an image has sides, and four bytes were written for each pixel")
}

fn paint(colour: Colour, opacity: f64) -> Paint<'static> {
    let [red, green, blue] = colour;
    let alpha = (opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, alpha);
    paint
}

fn visible(place: f64) -> f32 {
    place.clamp(-FARTHEST_PX, FARTHEST_PX) as f32
}

/// A line through all places that are numbers; none when fewer than two are.
fn path(points: &[[f64; 2]], closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for &[x, y] in points.iter().filter(|[x, y]| !x.is_nan() && !y.is_nan()) {
        let (x, y) = (visible(x), visible(y));
        if path.is_empty() {
            path.move_to(x, y);
        } else {
            path.line_to(x, y);
        }
    }
    if closed {
        path.close();
    }
    path.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Picture;

    const PAPER: Colour = [10, 20, 30];
    const RED: Colour = [200, 30, 20];

    fn area(left: f64, top: f64, width: f64, height: f64) -> Area {
        Area {
            left,
            top,
            width,
            height,
        }
    }

    #[test]
    fn shapes_cover_their_pixels_and_edges_are_smooth() {
        let mut picture = Picture::new(20.0, 10.0, PAPER);
        picture.rectangle(area(2.0, 2.0, 4.0, 4.0), RED);
        picture.line(vec![[8.0, 0.0], [18.0, 10.0]], Stroke::new(RED, 2.0));
        let pixels = picture.to_pixels();
        assert_eq!(pixels.at(3, 3), Some(RED));
        assert_eq!(pixels.at(7, 3), Some(PAPER));
        assert_eq!(pixels.at(13, 5), Some(RED));
        let between = pixels.at(12, 6).expect("a pixel")[0];
        assert!(between > PAPER[0] && between < RED[0], "{between}");
    }

    #[test]
    fn groups_shift_and_cut_what_they_hold() {
        let mut part = Picture::new(4.0, 4.0, PAPER);
        part.rectangle(area(-10.0, 1.0, 100.0, 2.0), RED);
        let mut whole = Picture::new(12.0, 12.0, PAPER);
        whole.place([5.0, 5.0], part);
        let pixels = whole.to_pixels();
        for y in 0..12 {
            for x in 0..12 {
                let inside = (5..9).contains(&x) && (6..8).contains(&y);
                let expected = if inside { RED } else { PAPER };
                assert_eq!(pixels.at(x, y), Some(expected), "{x} {y}");
            }
        }
    }

    #[test]
    fn places_that_are_no_numbers_or_far_away_do_no_harm() {
        let mut picture = Picture::new(10.0, 10.0, PAPER);
        let wild = vec![
            [f64::NAN, 3.0],
            [f64::INFINITY, 3.0],
            [1e300, -1e300],
            [f64::NAN; 2],
        ];
        picture.line(wild.clone(), Stroke::new(RED, 1.0));
        picture.polygon(wild, RED);
        picture.circle([f64::NAN, 0.0], 1e300, Stroke::new(RED, 1.0));
        picture.line(vec![[0.0, 5.5], [1e12, 5.5]], Stroke::new(RED, 1.0));
        assert_eq!(picture.to_pixels().at(9, 5), Some(RED));
    }

    #[test]
    fn text_stands_at_its_anchor() {
        for (anchor, columns) in [
            (Anchor::Start, 50..100),
            (Anchor::Middle, 25..75),
            (Anchor::End, 0..50),
        ] {
            let mut picture = Picture::new(100.0, 20.0, PAPER);
            let style = TextStyle::new(12.0, RED).anchored(anchor);
            picture.text([50.0, 14.0], style, "iiii");
            let pixels = picture.to_pixels();
            let inked = (0..100).filter(|&x| (0..20).any(|y| pixels.at(x, y) != Some(PAPER)));
            let inked: Vec<u32> = inked.collect();
            assert!(inked.len() > 6, "{anchor:?}");
            assert!(
                inked.iter().all(|x| columns.contains(x)),
                "{anchor:?} {inked:?}"
            );
        }
    }
}

use image::{Rgb, RgbImage};

use super::glyphs;

/// Red, green, blue.
pub(super) type Colour = [u8; 3];

/// A picture that clips what is drawn beyond its edges.
pub(super) struct Canvas {
    pub(super) image: RgbImage,
}

/// A rectangle of pixels to draw into.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: u32,
    pub(super) top: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Area {
    fn contains(&self, x: i64, y: i64) -> bool {
        let within = |v: i64, start: u32, length: u32| {
            v >= i64::from(start) && v < i64::from(start) + i64::from(length)
        };
        within(x, self.left, self.width) && within(y, self.top, self.height)
    }
}

impl Canvas {
    pub(super) fn new(width: u32, height: u32, background: Colour) -> Self {
        Self {
            image: RgbImage::from_pixel(width, height, Rgb(background)),
        }
    }

    /// Mixes `colour` into a pixel of `area`; `opacity` 0..=1.
    pub(super) fn blend(&mut self, area: &Area, x: i64, y: i64, colour: Colour, opacity: f64) {
        if !area.contains(x, y) {
            return;
        }
        if let Some(pixel) = self.image.get_pixel_mut_checked(x as u32, y as u32) {
            for (channel, new) in pixel.0.iter_mut().zip(colour) {
                let old = f64::from(*channel);
                *channel = (old + (f64::from(new) - old) * opacity).round() as u8;
            }
        }
    }

    pub(super) fn fill(&mut self, area: &Area, colour: Colour) {
        for y in area.top..area.top + area.height {
            for x in area.left..area.left + area.width {
                self.blend(area, i64::from(x), i64::from(y), colour, 1.0);
            }
        }
    }

    /// A smooth line of `thickness` pixels between two places in pixels.
    pub(super) fn line(
        &mut self,
        area: &Area,
        from: [f64; 2],
        to: [f64; 2],
        thickness: f64,
        colour: Colour,
        opacity: f64,
    ) {
        let way = [to[0] - from[0], to[1] - from[1]];
        let squared = (way[0] * way[0] + way[1] * way[1]).max(1e-9);
        let reach = 0.5 * thickness + 1.0;
        let edge = |a: f64, b: f64, limit: u32, start: u32| {
            let (low, high) = (f64::from(start), f64::from(start + limit));
            [
                (a.min(b) - reach).clamp(low, high) as i64,
                (a.max(b) + reach).clamp(low, high) as i64,
            ]
        };
        let [x0, x1] = edge(from[0], to[0], area.width, area.left);
        let [y0, y1] = edge(from[1], to[1], area.height, area.top);
        for y in y0..=y1 {
            for x in x0..=x1 {
                let p = [x as f64 + 0.5 - from[0], y as f64 + 0.5 - from[1]];
                let along = ((p[0] * way[0] + p[1] * way[1]) / squared).clamp(0.0, 1.0);
                let off = [p[0] - along * way[0], p[1] - along * way[1]];
                let cover = reach - 0.5 - (off[0] * off[0] + off[1] * off[1]).sqrt();
                if cover > 0.0 {
                    self.blend(area, x, y, colour, opacity * cover.min(1.0));
                }
            }
        }
    }

    /// A thin circle.
    pub(super) fn circle(
        &mut self,
        area: &Area,
        centre: [f64; 2],
        radius: f64,
        colour: Colour,
        opacity: f64,
    ) {
        const SEGMENTS: u32 = 180;
        let at = |segment: u32| {
            let (sin, cos) =
                libm::sincos(f64::from(segment) / f64::from(SEGMENTS) * 2.0 * std::f64::consts::PI);
            [centre[0] + radius * cos, centre[1] + radius * sin]
        };
        for segment in 0..SEGMENTS {
            self.line(area, at(segment), at(segment + 1), 1.0, colour, opacity);
        }
    }

    /// Text with its top left corner at (x, y), each dot of a letter `scale` pixels wide.
    pub(super) fn text(&mut self, x: u32, y: u32, scale: u32, text: &str, colour: Colour) {
        let everywhere = Area {
            left: 0,
            top: 0,
            width: self.image.width(),
            height: self.image.height(),
        };
        for (place, letter) in text.chars().enumerate() {
            let left = x + place as u32 * glyphs::ADVANCE * scale;
            for (row, bits) in glyphs::rows(letter).into_iter().enumerate() {
                for column in 0..3u32 {
                    if bits >> (2 - column) & 1 == 0 {
                        continue;
                    }
                    for dot in 0..scale * scale {
                        let (dx, dy) = (
                            column * scale + dot % scale,
                            row as u32 * scale + dot / scale,
                        );
                        self.blend(
                            &everywhere,
                            i64::from(left + dx),
                            i64::from(y + dy),
                            colour,
                            1.0,
                        );
                    }
                }
            }
        }
    }

    /// The width of a text in pixels.
    pub(super) fn text_width(scale: u32, text: &str) -> u32 {
        text.chars().count() as u32 * glyphs::ADVANCE * scale
    }

    /// The height of a line of text in pixels.
    pub(super) fn text_height(scale: u32) -> u32 {
        glyphs::HEIGHT * scale
    }
}

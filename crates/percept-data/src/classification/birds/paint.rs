use super::shape::{Point, Shape};
use crate::images::RgbImage;
use crate::random::{Draws, bell, key};

/// Red, green, blue from 0 to 1.
pub(super) type Colour = [f32; 3];

/// Where the units of a drawing lie in the picture, whose side is 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    origin: Point,
    /// The pictures of the unit steps right and down.
    right: Point,
    down: Point,
    /// The length of both.
    unit: f32,
}

impl Frame {
    pub(super) fn new(origin: [f64; 2], unit: f64, angle: f64) -> Self {
        let (sin, cos) = libm::sincosf(angle as f32);
        let unit = unit as f32;
        Self {
            origin: origin.map(|v| v as f32),
            right: [unit * cos, unit * sin],
            down: [-unit * sin, unit * cos],
            unit,
        }
    }

    /// With left and right exchanged.
    pub(super) fn mirrored(self) -> Self {
        Self {
            right: self.right.map(|v| -v),
            ..self
        }
    }

    /// A frame of the same unit at a place of this one, turned.
    pub(super) fn part(&self, at: Point, angle: f64) -> Self {
        let (sin, cos) = libm::sincosf(angle as f32);
        let turned = |a: f32, b: f32| [0, 1].map(|i| a * self.right[i] + b * self.down[i]);
        Self {
            origin: self.place(at),
            right: turned(cos, sin),
            down: turned(-sin, cos),
            unit: self.unit,
        }
    }

    pub(super) fn place(&self, [x, y]: Point) -> Point {
        [0, 1].map(|i| self.origin[i] + x * self.right[i] + y * self.down[i])
    }

    fn coordinates(&self, at: Point) -> Point {
        let away = [at[0] - self.origin[0], at[1] - self.origin[1]];
        let squared = self.unit * self.unit;
        [self.right, self.down].map(|axis| (away[0] * axis[0] + away[1] * axis[1]) / squared)
    }
}

/// A picture in the making.
pub(super) struct Canvas {
    side: usize,
    pixels: Vec<Colour>,
}

impl Canvas {
    pub(super) fn new(side: usize) -> Self {
        Self {
            side,
            pixels: vec![[0.0; 3]; side * side],
        }
    }

    /// Colours every pixel by its place.
    pub(super) fn fill(&mut self, colour: impl Fn(Point) -> Colour) {
        let step = 1.0 / self.side as f32;
        for (i, pixel) in self.pixels.iter_mut().enumerate() {
            let (x, y) = (i % self.side, i / self.side);
            *pixel = colour([(x as f32 + 0.5) * step, (y as f32 + 0.5) * step]);
        }
    }

    /// Paints a shape in one colour.
    pub(super) fn paint(&mut self, frame: &Frame, shape: &Shape, colour: Colour) {
        self.paint_soft(frame, shape, 0.0, |_, _| colour);
    }

    /// Paints a shape whose edge fades over `softness` of its units (over a pixel at least); the colour follows from the
    /// place and the distance to the outline.
    pub(super) fn paint_soft(
        &mut self,
        frame: &Frame,
        shape: &Shape,
        softness: f32,
        colour: impl Fn(Point, f32) -> Colour,
    ) {
        let pixel = 1.0 / (self.side as f32 * frame.unit);
        let fade = softness.max(pixel);
        let [[x0, y0], [x1, y1]] = shape.bounds();
        let corners = [[x0, y0], [x1, y0], [x0, y1], [x1, y1]].map(|corner| frame.place(corner));
        let margin = fade * frame.unit;
        let range = |axis: usize| {
            let low = corners.iter().fold(f32::MAX, |low, c| low.min(c[axis])) - margin;
            let high = corners.iter().fold(f32::MIN, |high, c| high.max(c[axis])) + margin;
            let side = self.side as f32;
            let clamp = |v: f32| (v * side).clamp(0.0, side) as usize;
            clamp(low)..(clamp(high) + 1).min(self.side)
        };
        let (columns, rows) = (range(0), range(1));
        let step = 1.0 / self.side as f32;
        for y in rows {
            for x in columns.clone() {
                let at = [(x as f32 + 0.5) * step, (y as f32 + 0.5) * step];
                let at = frame.coordinates(at);
                let distance = shape.distance(at);
                let cover = (0.5 - distance / fade).clamp(0.0, 1.0);
                if cover > 0.0 {
                    let old = &mut self.pixels[y * self.side + x];
                    *old = mixed(*old, colour(at, distance), cover);
                }
            }
        }
    }

    /// The picture under a light, with the grain of a sensor.
    pub(super) fn develop(self, draws: &mut Draws) -> RgbImage {
        let gain = draws.range(0.8, 1.15) as f32;
        let warmth = draws.range(-0.06, 0.06) as f32;
        let gains = [gain * (1.0 + warmth), gain, gain * (1.0 - warmth)];
        let grain = draws.range(0.0, 0.02) as f32;
        let noise = draws.word();
        let mut pixels = Vec::with_capacity(3 * self.pixels.len());
        for (i, colour) in self.pixels.iter().enumerate() {
            for channel in 0..3 {
                let word = key(&[noise, (3 * i + channel) as u64]);
                let value = colour[channel] * gains[channel] + grain * bell(word) as f32;
                pixels.push((value.clamp(0.0, 1.0) * 255.0 + 0.5) as u8);
            }
        }
        RgbImage {
            width: self.side,
            height: self.side,
            pixels,
        }
    }
}

pub(super) fn mixed(a: Colour, b: Colour, share: f32) -> Colour {
    [0, 1, 2].map(|i| a[i] + (b[i] - a[i]) * share)
}

/// A colour by its hue (share of the circle), its saturation and its value.
pub(super) fn from_hue(hue: f64, saturation: f64, value: f64) -> Colour {
    [5.0, 3.0, 1.0].map(|offset| {
        let at = (offset + 6.0 * hue).rem_euclid(6.0);
        (value - value * saturation * at.min(4.0 - at).clamp(0.0, 1.0)) as f32
    })
}

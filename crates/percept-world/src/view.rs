//! Pictures of a stage, with what every pixel shows.

use std::sync::{Mutex, PoisonError};

use percept_data::images::RgbImage;
use percept_data::points::Pose;
use percept_data::points::pose::dot;
use percept_kernels::Cpu;

use super::cast::{Gaps, Ray, Stage};
use super::error::WorldError;
use super::lens::Lens;
use super::look::Light;
use super::shade::look_along;
use super::weather::Illumination;

/// How large pictures are, and how carefully each pixel is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSize {
    width: usize,
    height: usize,
    samples: usize,
}

/// The longest side of a picture.
const MAX_SIDE: usize = 8192;
/// The most samples of a pixel.
const MAX_SAMPLES: usize = 256;

impl PictureSize {
    /// `width` by `height` pixels with one sample each.
    pub fn new(width: usize, height: usize) -> Result<Self, WorldError> {
        let side = 1..=MAX_SIDE;
        if !side.contains(&width) || !side.contains(&height) {
            return Err(WorldError::PictureSize { width, height });
        }
        Ok(Self {
            width,
            height,
            samples: 1,
        })
    }

    /// The same with the mean of `samples` looks for each pixel's colour: smoother edges, as many times the work.
    pub fn sampled(self, samples: usize) -> Result<Self, WorldError> {
        if !(1..=MAX_SAMPLES).contains(&samples) {
            return Err(WorldError::Samples { samples });
        }
        Ok(Self { samples, ..self })
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Looks at each pixel.
    pub fn samples(&self) -> usize {
        self.samples
    }
}

impl std::fmt::Display for PictureSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.width, self.height)?;
        match self.samples {
            1 => Ok(()),
            samples => write!(f, " with {samples} samples"),
        }
    }
}

/// A picture and what its pixels show, all in rows from the top.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The picture.
    pub image: RgbImage,
    /// Metres along the camera's axis to what the middle of the pixel shows; infinite for the sky.
    pub depth_m: Vec<f32>,
    /// SemanticKITTI's raw class in streets, the kind of object in rooms; 0 for the sky.
    pub classes: Vec<u16>,
    /// The instance, 0 for what is no object.
    pub instances: Vec<u16>,
}

/// One pinhole camera that looks at a stage.
pub(crate) struct Shot<'a> {
    pub(crate) stage: Stage<'a>,
    pub(crate) light: &'a Illumination,
    pub(crate) size: PictureSize,
    /// From the camera's frame (x to the right, y down, z forward) to pixels of this size.
    pub(crate) intrinsics: [[f64; 3]; 3],
    pub(crate) camera_to_world: Pose,
    /// When the picture is taken, on the clock of the solids that move.
    pub(crate) time_s: f64,
    /// The picture's own word, from which its noise follows.
    pub(crate) key: u64,
}

/// Rows that one block of work holds; blocks depend on sizes only.
const ROWS_PER_BLOCK: usize = 4;

#[derive(Clone, Copy)]
struct Pixel {
    colour: [u8; 3],
    depth_m: f32,
    class: u16,
    instance: u16,
}

/// Takes all the pictures; threads share blocks of rows.
pub(crate) fn take(cpu: &Cpu, shots: &[Shot<'_>]) -> Vec<View> {
    let eyes: Vec<Eye<'_>> = shots.iter().map(Eye::new).collect();
    let rows = |shot: &Shot<'_>| (0..shot.size.height).step_by(ROWS_PER_BLOCK);
    let blocks: Vec<(usize, usize)> = shots
        .iter()
        .enumerate()
        .flat_map(|(number, shot)| rows(shot).map(move |row| (number, row)))
        .collect();
    let results: Vec<Mutex<Vec<Pixel>>> = blocks.iter().map(|_| Mutex::default()).collect();
    cpu.parallel(blocks.len(), &|block, _| {
        let (number, first) = blocks[block];
        let eye = &eyes[number];
        let size = eye.shot.size;
        let last = (first + ROWS_PER_BLOCK).min(size.height);
        let pixels = (first..last)
            .flat_map(|y| (0..size.width).map(move |x| eye.pixel(x, y)))
            .collect();
        *results[block]
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = pixels;
    });
    let mut views: Vec<View> = shots.iter().map(|shot| empty(shot.size)).collect();
    for ((number, _), pixels) in blocks.iter().zip(results) {
        let view = &mut views[*number];
        for pixel in pixels.into_inner().unwrap_or_else(PoisonError::into_inner) {
            view.image.pixels.extend(pixel.colour);
            view.depth_m.push(pixel.depth_m);
            view.classes.push(pixel.class);
            view.instances.push(pixel.instance);
        }
    }
    views
}

fn empty(size: PictureSize) -> View {
    let pixels = size.width * size.height;
    View {
        image: RgbImage {
            width: size.width,
            height: size.height,
            pixels: Vec::with_capacity(3 * pixels),
        },
        depth_m: Vec::with_capacity(pixels),
        classes: Vec::with_capacity(pixels),
        instances: Vec::with_capacity(pixels),
    }
}

/// A shot with what all of its pixels share.
struct Eye<'a> {
    shot: &'a Shot<'a>,
    lens: Lens,
    /// The angle that a pixel covers in the middle of the picture.
    pixel_rad: f64,
}

impl<'a> Eye<'a> {
    fn new(shot: &'a Shot<'a>) -> Self {
        let [[fx, ..], [_, fy, _], _] = shot.intrinsics;
        Self {
            shot,
            lens: Lens::new(shot.light.exposure, shot.light.wetness, shot.key),
            pixel_rad: 1.0 / (fx * fy).sqrt(),
        }
    }

    fn pixel(&self, x: usize, y: usize) -> Pixel {
        let (width, samples) = (self.shot.size.width, self.shot.size.samples);
        let (mut sum, hit, along) = self.look([x as f64 + 0.5, y as f64 + 0.5]);
        let truth = hit.map_or((f32::INFINITY, 0, 0), |(distance_m, class, instance)| {
            ((distance_m * along) as f32, class, instance)
        });
        for sample in 1..samples {
            // Steps of the plastic number fill a square evenly, however many are taken.
            let within = |step: f64| (0.5 + sample as f64 * step).fract();
            let at = [
                x as f64 + within(0.754_877_666_246_693),
                y as f64 + within(0.569_840_290_998_053),
            ];
            let (light, ..) = self.look(at);
            sum = std::array::from_fn(|i| sum[i] + light[i]);
        }
        let mean = sum.map(|v| v / samples as f32);
        let (depth_m, class, instance) = truth;
        Pixel {
            colour: self.lens.develop(mean, y * width + x),
            depth_m,
            class,
            instance,
        }
    }

    /// Light along a place of the picture; what is met there with its distance; and the depth of a metre of the ray.
    fn look(&self, place: [f64; 2]) -> (Light, Option<(f64, u16, u16)>, f64) {
        let (ray, along) = self.ray(place);
        let (mut light, hit) = look_along(&self.shot.stage, self.shot.light, &ray, self.pixel_rad);
        let width = self.shot.size.width as f64;
        let middle = [0.5 * width, 0.5 * self.shot.size.height as f64];
        let on_glass = [0, 1].map(|i| (place[i] - middle[i]) / width);
        if let Some(bent) = self.lens.through_drop(on_glass) {
            // A drop changes what is seen, not what is there.
            let [x, y] = [0, 1].map(|i| bent[i] * width + middle[i]);
            let (ray, _) = self.ray([x, y]);
            light = look_along(&self.shot.stage, self.shot.light, &ray, self.pixel_rad).0;
        }
        let met = hit.map(|hit| (hit.distance_m, hit.label.class, hit.label.instance));
        (light, met, along)
    }

    /// The ray through a place of the picture, and the cosine of its angle with the camera's axis.
    fn ray(&self, [x, y]: [f64; 2]) -> (Ray, f64) {
        let [[fx, skew, cx], [_, fy, cy], _] = self.shot.intrinsics;
        let down = (y - cy) / fy;
        let ahead = [(x - cx - skew * down) / fx, down, 1.0];
        let along = 1.0 / dot(ahead, ahead).sqrt();
        let pose = &self.shot.camera_to_world;
        let ray = Ray {
            origin: pose.translation,
            direction: pose.rotate(ahead.map(|v| v * along)),
            time_s: self.shot.time_s,
            gaps: Gaps::Clumps,
        };
        (ray, along)
    }
}

//! Birds: a built-in set of pictures whose classes differ in small parts only.
//!
//! Every bird has the same body. Colours of the plumage, pose, size, light, background, and what hangs in front of it
//! vary within each class; beak, crown, wing, tail and eye make the class (see [`Kind`]). A picture is a function of
//! (seed, split, class, index) and of its side.

mod backdrop;
mod figure;
mod kind;
mod paint;
mod shape;

pub use kind::{Beak, Crown, Eye, Kind, MOST_CLASSES, Tail, Wing};

use self::paint::{Canvas, Frame};
use crate::images::RgbImage;
use crate::random::Draws;
use crate::{Sample, SampleError, Samples, SettingError};

/// The smallest and the largest picture, in pixels a side.
const SIDES: [usize; 2] = [16, 1024];
/// More pictures of a class than anybody draws.
const MOST_PER_CLASS: usize = 1 << 24;

/// Which of two sets of pictures that have nothing in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Split {
    #[default]
    Training,
    Testing,
}

/// How many birds, how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BirdsConfig {
    /// Classes, 2 to [`MOST_CLASSES`].
    pub classes: usize,
    /// Pictures of each class.
    pub per_class: usize,
    /// Pixels a side, 16 to 1024.
    pub side: usize,
    /// What draws everything that makes no class.
    pub seed: u64,
    /// Training or testing.
    pub split: Split,
}

impl Default for BirdsConfig {
    fn default() -> Self {
        Self {
            classes: 16,
            per_class: 100,
            side: 64,
            seed: 0,
            split: Split::Training,
        }
    }
}

/// Pictures of birds, drawn when they are asked for; classes take turns.
///
/// ```
/// use percept_data::Samples;
/// use percept_data::classification::{Birds, BirdsConfig};
/// let birds = Birds::new(BirdsConfig { classes: 4, per_class: 10, ..BirdsConfig::default() })?;
/// assert_eq!((birds.len(), birds.label(5)), (40, 1));
/// assert_eq!(birds.image(5).width, 64);
/// # Ok::<(), percept_data::SettingError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Birds {
    config: BirdsConfig,
    kinds: Vec<Kind>,
    classes: Vec<String>,
}

impl Birds {
    /// The label of a bird. Panics past the end, as indexing does.
    pub fn label(&self, index: usize) -> usize {
        assert!(index < self.len(), "bird {index} of {}", self.len());
        index % self.config.classes
    }

    /// The picture of a bird. Panics past the end, as indexing does.
    pub fn image(&self, index: usize) -> RgbImage {
        self.draw(self.label(index), index / self.config.classes)
    }

    /// The set that `config` describes.
    pub fn new(config: BirdsConfig) -> Result<Self, SettingError> {
        let [least_side, most_side] = SIDES;
        for (setting, value, least, most) in [
            ("classes", config.classes, 2, MOST_CLASSES),
            ("per_class", config.per_class, 1, MOST_PER_CLASS),
            ("side", config.side, least_side, most_side),
        ] {
            let is_fine = (least..=most).contains(&value);
            SettingError::unless(is_fine, setting, value, format!("{least} to {most}"))?;
        }
        let kinds: Vec<Kind> = (0..config.classes).map(Kind::of_class).collect();
        let classes = kinds.iter().enumerate();
        let classes = classes.map(|(class, kind)| format!("{class:02}: {kind}"));
        Ok(Self {
            config,
            classes: classes.collect(),
            kinds,
        })
    }

    /// What makes each class.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    fn draw(&self, class: usize, index: usize) -> RgbImage {
        let config = &self.config;
        let draws = |purpose: Purpose| {
            Draws::of(&[
                config.seed,
                config.split as u64,
                class as u64,
                index as u64,
                purpose as u64,
            ])
        };
        let mut canvas = Canvas::new(config.side);
        backdrop::behind(&mut canvas, &mut draws(Purpose::Behind));
        let frame = perch(&mut draws(Purpose::Perch));
        figure::bird(
            &mut canvas,
            &frame,
            &self.kinds[class],
            &mut draws(Purpose::Figure),
        );
        backdrop::in_front(&mut canvas, &frame, &mut draws(Purpose::InFront));
        canvas.develop(&mut draws(Purpose::Light))
    }
}

/// What random numbers are drawn for. The numbers behind the names are part of what a seed means.
#[derive(Clone, Copy)]
enum Purpose {
    Behind = 0,
    Perch = 1,
    Figure = 2,
    InFront = 3,
    Light = 4,
}

/// Where a bird sits, how large it is, how it leans and which way it looks. The picture's side is 1.
fn perch(draws: &mut Draws) -> Frame {
    let unit = draws.range(0.19, 0.25);
    let lean = draws.range(-0.22, 0.22);
    // The larger, the less room to move.
    let room = 0.5 - 1.75 * unit;
    let middle = [
        0.5 + draws.range(-room, room),
        0.52 + draws.range(-0.08, 0.08),
    ];
    let looks_left = draws.chance(0.5);
    let frame = Frame::new(middle, unit, lean);
    if looks_left { frame.mirrored() } else { frame }
}

impl Samples for Birds {
    fn len(&self) -> usize {
        self.config.classes * self.config.per_class
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn name(&self, index: usize) -> String {
        let number = index / self.config.classes;
        format!("bird {number} of class {}", self.classes[self.label(index)])
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let (name, image) = (self.name(index), self.image(index));
        Ok(super::sample(name, image, self.label(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded::fnv1a64;

    fn birds(config: BirdsConfig) -> Birds {
        Birds::new(config).unwrap()
    }

    #[test]
    fn a_picture_follows_from_its_counters_alone() {
        let few = birds(BirdsConfig {
            classes: 4,
            per_class: 3,
            ..BirdsConfig::default()
        });
        let many = birds(BirdsConfig {
            classes: 4,
            per_class: 50,
            ..BirdsConfig::default()
        });
        assert_eq!(few.image(6), many.image(6));
        let more_classes = birds(BirdsConfig {
            classes: 9,
            ..BirdsConfig::default()
        });
        // Picture 1 of class 2.
        assert_eq!(few.image(4 + 2), more_classes.image(9 + 2));
        let other = |config| birds(config).image(0);
        let base = BirdsConfig::default();
        assert_ne!(other(base), other(BirdsConfig { seed: 1, ..base }));
        assert_ne!(
            other(base),
            other(BirdsConfig {
                split: Split::Testing,
                ..base
            })
        );
        assert_ne!(few.image(0), few.image(1));
        assert_ne!(few.image(0), few.image(4));
    }

    #[test]
    fn the_first_pictures_have_the_known_bits() {
        let set = birds(BirdsConfig::default());
        let hashes = [0, 1, 38].map(|index| fnv1a64(&set.image(index).pixels));
        assert_eq!(
            hashes,
            [
                0x62c8_58bf_2769_b3e8,
                0xe229_7997_9b9f_5c24,
                0x1684_b700_23cf_75cf
            ]
        );
    }

    #[test]
    fn every_size_is_the_same_picture() {
        let image = |side| {
            birds(BirdsConfig {
                side,
                ..BirdsConfig::default()
            })
            .image(3)
        };
        let (small, large) = (image(32), image(128));
        let mut away = 0.0;
        for y in 0..32 {
            for x in 0..32 {
                for c in 0..3 {
                    let at = |dx: usize, dy: usize| {
                        f64::from(large.pixels[((4 * y + dy) * 128 + 4 * x + dx) * 3 + c])
                    };
                    let mean = (0..16).map(|i| at(i % 4, i / 4)).sum::<f64>() / 16.0;
                    away += (mean - f64::from(small.pixels[(y * 32 + x) * 3 + c])).abs();
                }
            }
        }
        assert!(away / (32.0 * 32.0 * 3.0) < 5.0, "{away}");
        for side in SIDES {
            assert_eq!(image(side).pixels.len(), 3 * side * side);
        }
    }

    /// The share of test pictures whose class a description finds: the class with the nearest mean.
    fn nearest_mean_accuracy<const N: usize>(describe: impl Fn(&RgbImage) -> [f64; N]) -> f64 {
        let config = BirdsConfig {
            per_class: 40,
            side: 32,
            ..BirdsConfig::default()
        };
        let described = |split| {
            let set = birds(BirdsConfig { split, ..config });
            let all = (0..set.len()).map(|i| (describe(&set.image(i)), set.label(i)));
            all.collect::<Vec<_>>()
        };
        let mut means = vec![[0.0; N]; config.classes];
        for (description, label) in described(Split::Training) {
            for (mean, value) in means[label].iter_mut().zip(description) {
                *mean += value / config.per_class as f64;
            }
        }
        let tested = described(Split::Testing);
        let nearest = |description: &[f64; N]| {
            let away = |mean: &[f64; N]| -> f64 {
                mean.iter()
                    .zip(description)
                    .map(|(a, b)| (a - b).powi(2))
                    .sum()
            };
            let all = means.iter().enumerate();
            all.min_by(|a, b| away(a.1).total_cmp(&away(b.1)))
                .map(|(class, _)| class)
        };
        let right = tested
            .iter()
            .filter(|(d, label)| nearest(d) == Some(*label))
            .count();
        right as f64 / tested.len() as f64
    }

    /// Chance is a sixteenth; a single part, seen perfectly, would give a quarter.
    #[test]
    fn colours_as_a_whole_do_not_tell_the_class() {
        let of_channel = |image: &RgbImage, c: usize, f: &dyn Fn(f64) -> f64| {
            let values = image.pixels.iter().skip(c).step_by(3);
            values.map(|&v| f(f64::from(v) / 255.0)).sum::<f64>() / (image.pixels.len() / 3) as f64
        };
        let mean = nearest_mean_accuracy(|image| [0, 1, 2].map(|c| of_channel(image, c, &|v| v)));
        assert!(mean < 0.125, "mean colour: {mean}");
        let spread = nearest_mean_accuracy(|image| {
            let means = [0, 1, 2].map(|c| of_channel(image, c, &|v| v));
            let deviations =
                [0, 1, 2].map(|c| of_channel(image, c, &|v| (v - means[c]).powi(2)).sqrt());
            [means, deviations].concat().try_into().unwrap_or([0.0; 6])
        });
        assert!(spread < 0.125, "mean and deviation: {spread}");
        let histogram = nearest_mean_accuracy(|image| {
            let mut counts = [0.0; 64];
            for pixel in image.pixels.chunks_exact(3) {
                let bin = pixel
                    .iter()
                    .fold(0, |bin, &v| bin * 4 + usize::from(v / 64));
                counts[bin] += 1.0 / 1024.0;
            }
            counts
        });
        assert!(histogram < 0.16, "histogram: {histogram}");
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let error = |config| Birds::new(config).unwrap_err().to_string();
        let base = BirdsConfig::default();
        assert_eq!(
            error(BirdsConfig {
                classes: 65,
                ..base
            }),
            "classes is 65: expected 2 to 64"
        );
        assert!(
            error(BirdsConfig {
                per_class: 0,
                ..base
            })
            .contains("per_class is 0")
        );
        assert!(error(BirdsConfig { side: 8, ..base }).contains("side is 8"));
    }
}

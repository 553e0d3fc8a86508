use serde::{Deserialize, Serialize};

use crate::SettingError;
use crate::random::{Draws, permutation};

/// Random brightness, contrast, saturation and hue, in random order, as torchvision's `ColorJitter` changes tensors.
///
/// Each of the first three is a factor from 1 - x (at least 0) to 1 + x; the hue turns by -x to x of the whole circle.
/// Zero leaves it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ColourJitter {
    pub brightness: f64,
    pub contrast: f64,
    pub saturation: f64,
    pub hue: f64,
}

impl ColourJitter {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        for (setting, value) in [
            ("jitter.brightness", self.brightness),
            ("jitter.contrast", self.contrast),
            ("jitter.saturation", self.saturation),
        ] {
            let is_fine = value >= 0.0 && value.is_finite();
            SettingError::unless(is_fine, setting, value, "0 or more")?;
        }
        let is_fine = (0.0..=0.5).contains(&self.hue);
        SettingError::unless(is_fine, "jitter.hue", self.hue, "0 to 0.5")
    }

    /// Changes the planes [3, H, W] of a picture of values from 0 to 1.
    pub(super) fn apply(&self, draws: &mut Draws, planes: &mut [f32]) {
        let factor = |draws: &mut Draws, by: f64| draws.range((1.0 - by).max(0.0), 1.0 + by) as f32;
        let changes = [
            (
                self.brightness,
                Change::Brightness(factor(draws, self.brightness)),
            ),
            (
                self.contrast,
                Change::Contrast(factor(draws, self.contrast)),
            ),
            (
                self.saturation,
                Change::Saturation(factor(draws, self.saturation)),
            ),
            (
                self.hue,
                Change::Hue(draws.range(-self.hue, self.hue) as f32),
            ),
        ];
        let words = [0; 4].map(|_| draws.word());
        for place in permutation(4, |index| words[index as usize]) {
            let (amount, change) = changes[place];
            if amount > 0.0 {
                change.apply(planes);
            }
        }
    }
}

/// One change of a picture's colours.
#[derive(Clone, Copy, Debug)]
enum Change {
    Brightness(f32),
    Contrast(f32),
    Saturation(f32),
    /// By a share of the circle.
    Hue(f32),
}

impl Change {
    fn apply(self, planes: &mut [f32]) {
        match self {
            Self::Brightness(factor) => {
                for value in planes {
                    *value = (*value * factor).clamp(0.0, 1.0);
                }
            }
            Self::Contrast(factor) => {
                let mean = mean_grey(planes);
                for value in planes {
                    *value = blend(*value, mean, factor);
                }
            }
            Self::Saturation(factor) => for_each_pixel(planes, |rgb| {
                let grey = grey(rgb);
                rgb.map(|value| blend(value, grey, factor))
            }),
            Self::Hue(turn) => for_each_pixel(planes, |rgb| turned(rgb, turn)),
        }
    }
}

fn blend(value: f32, other: f32, factor: f32) -> f32 {
    (factor * value + (1.0 - factor) * other).clamp(0.0, 1.0)
}

fn grey([red, green, blue]: [f32; 3]) -> f32 {
    0.2989 * red + 0.587 * green + 0.114 * blue
}

fn mean_grey(planes: &[f32]) -> f32 {
    let area = planes.len() / 3;
    let (red, rest) = planes.split_at(area);
    let (green, blue) = rest.split_at(area);
    let pixels = red.iter().zip(green).zip(blue);
    let sum: f64 = pixels
        .map(|((&r, &g), &b)| f64::from(grey([r, g, b])))
        .sum();
    (sum / area.max(1) as f64) as f32
}

fn for_each_pixel(planes: &mut [f32], change: impl Fn([f32; 3]) -> [f32; 3]) {
    let area = planes.len() / 3;
    let (red, rest) = planes.split_at_mut(area);
    let (green, blue) = rest.split_at_mut(area);
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        [*red, *green, *blue] = change([*red, *green, *blue]);
    }
}

/// The colour with its hue turned: six sides of the colour hexagon, along which one channel rises or falls.
fn turned([red, green, blue]: [f32; 3], turn: f32) -> [f32; 3] {
    let value = red.max(green).max(blue);
    let chroma = value - red.min(green).min(blue);
    if chroma == 0.0 {
        return [red, green, blue];
    }
    let sides = if value == red {
        (green - blue) / chroma
    } else if value == green {
        2.0 + (blue - red) / chroma
    } else {
        4.0 + (red - green) / chroma
    };
    let hue = sides + 6.0 * turn;
    // How far each channel lies below the largest, by its place on the hexagon.
    [5.0, 3.0, 1.0].map(|offset| {
        let at = (offset + hue).rem_euclid(6.0);
        value - chroma * at.min(4.0 - at).clamp(0.0, 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four pixels as planes.
    const PICTURE: [f32; 12] = [
        0.9, 0.25, 0.4, 0.05, 0.2, 0.5, 0.4, 0.8, 0.1, 0.75, 0.4, 0.3,
    ];

    /// What torchvision 0.29 gives.
    #[test]
    fn changes_equal_torchvision() {
        let table = [
            (
                Change::Brightness(1.3),
                [
                    1.0, 0.325, 0.52, 0.065, 0.26, 0.65, 0.52, 1.0, 0.13, 0.975, 0.52, 0.39,
                ],
            ),
            (
                Change::Contrast(0.6),
                [
                    0.717024, 0.327024, 0.417024, 0.207024, 0.297024, 0.477024, 0.417024, 0.657024,
                    0.237024, 0.6270241, 0.417024, 0.357024,
                ],
            ),
            (
                Change::Saturation(1.5),
                [
                    1.0, 0.1481375, 0.40002, 0.0, 0.101095, 0.5231375, 0.40002, 0.9406276, 0.0,
                    0.8981375, 0.40002, 0.1906275,
                ],
            ),
            (
                Change::Hue(0.1),
                [
                    0.9, 0.3, 0.4, 0.05, 0.68, 0.25, 0.4, 0.8, 0.1, 0.75, 0.4, 0.75,
                ],
            ),
            (
                Change::Hue(-0.35),
                [
                    0.12, 0.55, 0.4, 0.8, 0.1, 0.75, 0.4, 0.225, 0.9, 0.25, 0.4, 0.05,
                ],
            ),
        ];
        for (change, expected) in table {
            let mut planes = PICTURE;
            change.apply(&mut planes);
            for (got, expected) in planes.iter().zip(expected) {
                assert!((got - expected).abs() < 1e-6, "{change:?}: {planes:?}");
            }
        }
    }

    #[test]
    fn zero_changes_nothing_and_each_amount_changes_something() {
        let changed = |jitter: ColourJitter| {
            let mut planes = PICTURE;
            jitter.apply(&mut Draws::new(1, 2), &mut planes);
            planes != PICTURE
        };
        let none = ColourJitter::default();
        assert!(!changed(none));
        assert!(changed(ColourJitter {
            brightness: 0.3,
            ..none
        }));
        assert!(changed(ColourJitter {
            contrast: 0.3,
            ..none
        }));
        assert!(changed(ColourJitter {
            saturation: 0.3,
            ..none
        }));
        assert!(changed(ColourJitter { hue: 0.3, ..none }));
    }

    #[test]
    fn an_empty_picture_takes_the_same_draws_as_any() {
        let all = ColourJitter {
            brightness: 1.0,
            contrast: 1.0,
            saturation: 1.0,
            hue: 0.5,
        };
        let next_after = |planes: &mut [f32]| {
            let mut draws = Draws::new(1, 2);
            all.apply(&mut draws, planes);
            draws.word()
        };
        assert_eq!(next_after(&mut []), next_after(&mut PICTURE.clone()));
    }
}

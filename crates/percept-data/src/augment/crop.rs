use serde::{Deserialize, Serialize};

use crate::SettingError;
use crate::images::RgbImage;
use crate::random::Draws;

/// Tries before the middle of the picture is taken.
const TRIES: usize = 10;

/// A window of random area, proportions and place, by the rule of torchvision's `RandomResizedCrop`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Smallest and largest share of the picture's area.
    pub scale: [f64; 2],
    /// Smallest and largest width over height.
    pub ratio: [f64; 2],
}

impl Default for RandomResizedCrop {
    fn default() -> Self {
        Self {
            scale: [0.08, 1.0],
            ratio: [3.0 / 4.0, 4.0 / 3.0],
        }
    }
}

/// A rectangle of pixels within a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Window {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

impl RandomResizedCrop {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let [low, high] = self.scale;
        let is_fine = 0.0 < low && low <= high && high <= 1.0;
        SettingError::unless(is_fine, "crop.scale", self.scale, "0 < low <= high <= 1")?;
        let [low, high] = self.ratio;
        let is_fine = 0.0 < low && low <= high && high.is_finite();
        SettingError::unless(is_fine, "crop.ratio", self.ratio, "0 < low <= high")
    }

    /// A window in a picture of [height, width], both at least 1.
    pub fn window(&self, [height, width]: [usize; 2], draws: &mut Draws) -> Window {
        let area = height as f64 * width as f64;
        let [low, high] = self.ratio.map(libm::log);
        for _ in 0..TRIES {
            let target = area * draws.range(self.scale[0], self.scale[1]);
            let ratio = libm::exp(draws.range(low, high));
            let side = |square: f64| square.sqrt().round_ties_even() as usize;
            let (wide, tall) = (side(target * ratio), side(target / ratio));
            if (1..=width).contains(&wide) && (1..=height).contains(&tall) {
                return Window {
                    top: draws.below(height - tall + 1),
                    left: draws.below(width - wide + 1),
                    height: tall,
                    width: wide,
                };
            }
        }
        self.middle([height, width])
    }

    /// The largest window in the middle whose proportions are allowed.
    fn middle(&self, [height, width]: [usize; 2]) -> Window {
        let ratio = width as f64 / height as f64;
        let whole = |side: f64, most: usize| (side.round_ties_even() as usize).clamp(1, most);
        let (tall, wide) = if ratio < self.ratio[0] {
            (whole(width as f64 / self.ratio[0], height), width)
        } else if ratio > self.ratio[1] {
            (height, whole(height as f64 * self.ratio[1], width))
        } else {
            (height, width)
        };
        Window {
            top: (height - tall) / 2,
            left: (width - wide) / 2,
            height: tall,
            width: wide,
        }
    }
}

impl Window {
    /// The pixels of this window of `image`.
    pub(super) fn cut(&self, image: &RgbImage) -> Vec<u8> {
        let rows = image.pixels.chunks_exact(3 * image.width);
        rows.skip(self.top)
            .take(self.height)
            .flat_map(|row| &row[3 * self.left..][..3 * self.width])
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn windows_lie_within_the_picture(
            height in 1usize..400,
            width in 1usize..400,
            seed in any::<u64>(),
            scale in (0.01..1.0, 0.01..1.0),
            ratio in (0.1..10.0, 0.1..10.0),
        ) {
            let crop = RandomResizedCrop {
                scale: [f64::min(scale.0, scale.1), f64::max(scale.0, scale.1)],
                ratio: [f64::min(ratio.0, ratio.1), f64::max(ratio.0, ratio.1)],
            };
            prop_assert!(crop.check().is_ok());
            let window = crop.window([height, width], &mut Draws::new(seed, 0));
            prop_assert!(window.height >= 1 && window.top + window.height <= height, "{window:?}");
            prop_assert!(window.width >= 1 && window.left + window.width <= width, "{window:?}");
        }
    }

    #[test]
    fn area_proportions_and_place_spread_over_what_is_allowed() {
        let crop = RandomResizedCrop::default();
        let windows: Vec<Window> = (0..20_000)
            .map(|seed| crop.window([500, 500], &mut Draws::new(seed, 0)))
            .collect();
        let shares = windows
            .iter()
            .map(|w| (w.height * w.width) as f64 / 250_000.0);
        let ratios = windows.iter().map(|w| w.width as f64 / w.height as f64);
        let bounds = |values: &mut dyn Iterator<Item = f64>| {
            values.fold([f64::MAX, f64::MIN], |[low, high], v| {
                [low.min(v), high.max(v)]
            })
        };
        let [smallest, largest] = bounds(&mut shares.clone());
        assert!((0.078..0.085).contains(&smallest) && (0.98..=1.0).contains(&largest));
        let [narrowest, widest] = bounds(&mut ratios.clone());
        assert!((0.74..0.76).contains(&narrowest) && (1.32..1.35).contains(&widest));
        // Torchvision 0.29 gives these means on 100,000 windows of the same picture.
        let mean =
            |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / windows.len() as f64;
        let means = [mean(&mut shares.clone()), mean(&mut ratios.clone())];
        assert!((means[0] - 0.4783).abs() < 0.006, "{means:?}");
        assert!((means[1] - 1.0127).abs() < 0.006, "{means:?}");
        assert!(
            windows.iter().any(|w| w.top == 0) && windows.iter().any(|w| w.top + w.height == 500)
        );
    }

    #[test]
    fn strips_give_their_middle() {
        let crop = RandomResizedCrop::default();
        let window = |size| crop.window(size, &mut Draws::new(3, 0));
        let middle = |top, left, height, width| Window {
            top,
            left,
            height,
            width,
        };
        assert_eq!(window([4, 1000]), middle(0, 497, 4, 5));
        assert_eq!(window([1000, 6]), middle(496, 0, 8, 6));
        assert_eq!(window([1, 1]), middle(0, 0, 1, 1));
    }

    #[test]
    fn the_window_is_cut_out() {
        let image = RgbImage {
            width: 4,
            height: 3,
            pixels: (0..36).collect(),
        };
        let window = Window {
            top: 1,
            left: 2,
            height: 2,
            width: 1,
        };
        assert_eq!(window.cut(&image), [18, 19, 20, 30, 31, 32]);
    }
}

//! From light to a picture: exposure, tone, the sensor's noise, drops of rain on the glass.

use percept_data::random::{Draws, bell, hash};

use super::look::Light;

/// A camera's glass and sensor while one picture is taken.
#[derive(Clone, Debug)]
pub(crate) struct Lens {
    exposure: f32,
    /// Grain of a pixel of middle brightness, in display values.
    grain: f32,
    /// The picture's own word, from which its noise follows.
    key: u64,
    drops: Vec<Drop>,
}

/// A drop of water, in shares of the picture's width from its middle.
#[derive(Clone, Copy, Debug)]
struct Drop {
    centre: [f64; 2],
    radius: f64,
}

/// Brighter than this share of the exposure is white.
const WHITE: f32 = 3.5;

impl Lens {
    pub(crate) fn new(exposure: f32, rain: f32, key: u64) -> Self {
        let mut draws = Draws::of(&[key, 1]);
        let count = (f64::from(rain) * draws.range(10.0, 26.0)) as usize;
        let drops = (0..count).map(|_| Drop {
            centre: [draws.range(-0.5, 0.5), draws.range(-0.3, 0.3)],
            radius: draws.range(0.006, 0.028),
        });
        Self {
            drops: drops.collect(),
            exposure,
            // A sensor that must open more is noisier.
            grain: 1.2 + 0.5 * exposure.min(8.0),
            key,
        }
    }

    /// Where a pixel really looks: a drop turns what is behind it upside down. Places are in shares of the picture's
    /// width from its middle; `None` where the glass is dry.
    #[inline]
    pub(crate) fn through_drop(&self, place: [f64; 2]) -> Option<[f64; 2]> {
        let drop = self.drops.iter().find(|drop| {
            let [x, y] = [0, 1].map(|i| place[i] - drop.centre[i]);
            x * x + y * y < drop.radius * drop.radius
        })?;
        Some([0, 1].map(|i| drop.centre[i] - 3.0 * (place[i] - drop.centre[i])))
    }

    /// The display values of a pixel.
    #[inline]
    pub(crate) fn develop(&self, light: Light, pixel: usize) -> [u8; 3] {
        let noise = hash(self.key, 2, pixel as u64);
        std::array::from_fn(|channel| {
            let exposed = (self.exposure * light[channel]).max(0.0);
            // Reinhard's curve with a white point: bright things keep their shape.
            let toned = exposed * (1.0 + exposed / (WHITE * WHITE)) / (1.0 + exposed);
            let shown = 255.0 * (1.25 * toned).min(1.0).sqrt();
            let grain = self.grain * bell(hash(noise, 0, channel as u64)) as f32;
            (shown + grain + 0.5).clamp(0.0, 255.0) as u8
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brighter_light_is_brighter_and_noise_repeats() {
        let lens = Lens::new(1.0, 0.0, 7);
        let mean = |light: f32| {
            let sum: u32 = (0..500)
                .map(|pixel| u32::from(lens.develop([light; 3], pixel)[1]))
                .sum();
            sum as f32 / 500.0
        };
        assert!(mean(0.0) < 3.0 && mean(0.05) < mean(0.3) && mean(0.3) < mean(3.0));
        assert_eq!(lens.develop([0.2; 3], 9), lens.develop([0.2; 3], 9));
        assert_ne!(
            (0..9)
                .map(|p| lens.develop([0.2; 3], p))
                .collect::<Vec<_>>(),
            vec![lens.develop([0.2; 3], 0); 9]
        );
    }

    #[test]
    fn only_rain_wets_the_glass() {
        let wet = |rain: f32| {
            let lens = Lens::new(1.0, rain, 3);
            let places = (0..10_000).map(|i| [f64::from(i % 100), f64::from(i / 100)]);
            let on_glass = places.map(|p| p.map(|v| 0.01 * v - 0.5));
            on_glass.filter(|p| lens.through_drop(*p).is_some()).count()
        };
        assert_eq!(wet(0.0), 0);
        assert!((20..2000).contains(&wet(1.0)), "{}", wet(1.0));
    }
}

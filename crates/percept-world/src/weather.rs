//! Time of day and weather, and the light that they make.

use percept_data::points::pose::dot;
use percept_data::random::Draws;

use super::look::noise::rough2;
use super::look::{Light, mix};

/// The light and the air of a drive: what makes one place look different on two days.
///
/// ```
/// use percept_world::Weather;
///
/// let evening = Weather { rain: 0.6, ..Weather::DUSK };
/// assert_ne!(evening, Weather::NOON);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weather {
    /// Where the sun stands: radians counter-clockwise from the world's x axis.
    pub sun_azimuth_rad: f64,
    /// How high it stands; around 0 it is dusk.
    pub sun_elevation_rad: f64,
    /// How much of the sky clouds cover, 0..=1; from about 0.8 the sun is gone.
    pub overcast: f64,
    /// Light rain, 0..=1: wet streets, paler colours, drops on the lens.
    pub rain: f64,
    /// Where haze has swallowed all but a twentieth of the contrast.
    pub visibility_m: f64,
}

impl Weather {
    /// A clear day.
    pub const NOON: Self = Self {
        sun_azimuth_rad: -1.9,
        sun_elevation_rad: 0.9,
        overcast: 0.15,
        rain: 0.0,
        visibility_m: 4000.0,
    };
    /// Long shadows.
    pub const EVENING: Self = Self {
        sun_azimuth_rad: 2.7,
        sun_elevation_rad: 0.28,
        overcast: 0.3,
        visibility_m: 2000.0,
        ..Self::NOON
    };
    /// The sun has just set.
    pub const DUSK: Self = Self {
        sun_azimuth_rad: 2.9,
        sun_elevation_rad: -0.02,
        overcast: 0.35,
        visibility_m: 1500.0,
        ..Self::NOON
    };
    /// A grey day without shadows.
    pub const OVERCAST: Self = Self {
        overcast: 1.0,
        sun_elevation_rad: 0.6,
        visibility_m: 900.0,
        ..Self::NOON
    };
    /// Grey, wet, with drops on the lens.
    pub const RAIN: Self = Self {
        overcast: 1.0,
        rain: 0.7,
        sun_elevation_rad: 0.5,
        visibility_m: 400.0,
        ..Self::NOON
    };

    /// The named kinds, for whoever draws one at random.
    const KINDS: [Self; 5] = [
        Self::NOON,
        Self::EVENING,
        Self::DUSK,
        Self::OVERCAST,
        Self::RAIN,
    ];

    /// One of the kinds, with a sun and an air of its own.
    pub fn drawn(draws: &mut Draws) -> Self {
        let kind = Self::KINDS[draws.below(Self::KINDS.len())];
        Self {
            sun_azimuth_rad: draws.angle(),
            sun_elevation_rad: kind.sun_elevation_rad + draws.range(-0.05, 0.2),
            overcast: (kind.overcast + draws.range(-0.15, 0.15)).clamp(0.0, 1.0),
            rain: kind.rain * draws.range(0.6, 1.2),
            visibility_m: kind.visibility_m * draws.range(0.7, 1.3),
        }
    }

    /// In a few words, for captions.
    pub fn words(&self) -> &'static str {
        if self.rain > 0.05 {
            "rain"
        } else if self.sun_elevation_rad < 0.1 {
            "dusk"
        } else if self.overcast > 0.8 {
            "overcast"
        } else if self.sun_elevation_rad < 0.45 {
            "evening sun"
        } else {
            "sunny"
        }
    }
}

/// What shines on surfaces most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// From far away, along this direction (towards it).
    Sun([f64; 3]),
    /// From a place in the room; its light is given for a metre's distance.
    Lamp([f64; 3]),
}

/// All the light of a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Illumination {
    pub(crate) source: Source,
    pub(crate) source_colour: Light,
    pub(crate) ambient_from_above: Light,
    pub(crate) ambient_from_below: Light,
    sky: Option<Sky>,
    pub(crate) haze_per_m: f32,
    pub(crate) wetness: f32,
    /// How much windows and signs shine by themselves.
    pub(crate) darkness: f32,
    /// From light to the picture's brightness.
    pub(crate) exposure: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Sky {
    zenith: Light,
    horizon: Light,
    afterglow: Light,
    cloud: Light,
    cover: f32,
    disc: Light,
    sun: [f64; 3],
    seed: u32,
}

/// The mean brightness that the exposure aims at.
const MIDDLE_GREY: f32 = 0.38;
/// How much of the sky a surface in the open sees beyond its own half.
const HEADROOM: f32 = 0.85;

impl Illumination {
    /// Under the open sky; `seed` shapes the clouds.
    pub(crate) fn outdoors(weather: &Weather, seed: u32) -> Self {
        let (up, flat) = libm::sincos(weather.sun_elevation_rad);
        let (sin, cos) = libm::sincos(weather.sun_azimuth_rad);
        let sun = [flat * cos, flat * sin, up];
        let up = up as f32;
        let overcast = weather.overcast as f32;
        let day = rise(up, -0.25, 0.3);
        let brightness = 0.05 + 0.95 * day;
        let clear = {
            let open = 1.0 - rise(overcast, 0.45, 0.9);
            open * rise(up, -0.01, 0.12)
        };
        let high = rise(up, 0.02, 0.5);
        let sun_colour = mix([1.0, 0.5, 0.22], [1.0, 0.95, 0.86], high).map(|c| 3.6 * clear * c);
        let grey = rise(overcast, 0.4, 1.0);
        let zenith = mix([0.24, 0.5, 1.05], [0.6, 0.63, 0.68], grey).map(|c| c * brightness);
        let horizon = mix([0.95, 1.05, 1.18], [0.72, 0.74, 0.77], grey).map(|c| c * brightness);
        let low = (1.0 - rise(up.abs(), 0.0, 0.4)) * (1.0 - 0.8 * grey);
        let afterglow = [0.95, 0.42, 0.16].map(|c| c * low * (0.3 + 0.7 * day));
        let cloud = mix([0.95, 0.95, 0.95], [0.5, 0.52, 0.56], grey).map(|c| c * brightness);
        let cloud = mix(cloud, [0.9, 0.5, 0.35], 0.35 * low);
        let ambient = mix(zenith, horizon, 0.45).map(|c| 0.75 * c);
        let below = std::array::from_fn(|i| {
            0.16 * (ambient[i] + sun_colour[i] * up.max(0.0)) * [1.0, 0.95, 0.85][i]
        });
        let grey_of = |light: Light| (light[0] + light[1] + light[2]) / 3.0;
        let metered = 0.22 * (0.6 * grey_of(sun_colour) * up.max(0.15) + grey_of(ambient));
        Self {
            source: Source::Sun(if clear > 0.0 { sun } else { [0.0, 0.0, 1.0] }),
            source_colour: sun_colour,
            ambient_from_above: ambient,
            ambient_from_below: below,
            sky: Some(Sky {
                zenith,
                horizon,
                afterglow,
                cloud,
                cover: overcast,
                disc: sun_colour,
                sun,
                seed,
            }),
            haze_per_m: (3.0 / weather.visibility_m) as f32,
            wetness: (weather.rain as f32).clamp(0.0, 1.0),
            darkness: 1.0 - rise(up, -0.05, 0.2),
            // The eye of a camera does not open quite as much as the light fades.
            exposure: MIDDLE_GREY / libm::powf(metered, 0.64),
        }
    }

    /// Under one lamp in a room with pale walls.
    pub(crate) fn indoors(lamp: [f64; 3], warmth: f32, ambient: f32) -> Self {
        let colour = mix([1.0, 0.97, 0.92], [1.0, 0.82, 0.6], warmth);
        let above = colour.map(|c| ambient * c);
        Self {
            source: Source::Lamp(lamp),
            source_colour: colour.map(|c| 2.2 * c),
            ambient_from_above: above,
            ambient_from_below: above.map(|c| 0.5 * c),
            sky: None,
            haze_per_m: 0.0,
            wetness: 0.0,
            darkness: 0.0,
            exposure: MIDDLE_GREY / (0.22 * (0.5 + ambient)),
        }
    }

    /// The direction towards the source from a place, how far it is, and its light there on a surface that faces it.
    #[inline]
    pub(crate) fn towards_source(&self, place: [f64; 3]) -> ([f64; 3], f64, Light) {
        match self.source {
            Source::Sun(direction) => (direction, 250.0, self.source_colour),
            Source::Lamp(lamp) => {
                let way: [f64; 3] = std::array::from_fn(|i| lamp[i] - place[i]);
                let squared = dot(way, way).max(0.01);
                let distance = squared.sqrt();
                let fall = 1.0 / squared as f32;
                (
                    way.map(|v| v / distance),
                    distance - 0.05,
                    self.source_colour.map(|c| c * fall),
                )
            }
        }
    }

    /// The light from all around on a surface whose unit normal points up by `up`.
    #[inline]
    pub(crate) fn ambient(&self, up: f32) -> Light {
        let share = HEADROOM * (0.5 + 0.5 * up) + 0.5 * (1.0 - HEADROOM);
        mix(self.ambient_from_below, self.ambient_from_above, share)
    }

    /// What is seen along a direction where nothing stands, clouds and sun included.
    pub(crate) fn background(&self, direction: [f64; 3]) -> Light {
        let Some(sky) = &self.sky else {
            return self.ambient_from_above;
        };
        let mut light = self.mirrored(direction);
        let [x, y, z] = direction.map(|v| v as f32);
        if z > 0.0 {
            let flat = 1.6 / (z + 0.12);
            let shape = rough2(flat * x, flat * y, sky.seed);
            let edge = 0.75 - 0.7 * sky.cover;
            let cover = rise(shape, edge, edge + 0.25) * rise(z, 0.0, 0.15);
            light = mix(
                light,
                sky.cloud.map(|c| c * (0.8 + 0.4 * shape)),
                0.85 * cover,
            );
        }
        let towards = dot(direction, sky.sun) as f32;
        if towards > 0.9994 {
            light = std::array::from_fn(|i| light[i] + 4.0 * sky.disc[i]);
        }
        light
    }

    /// The same without clouds and sun, for what mirrors it and for haze.
    #[inline]
    pub(crate) fn mirrored(&self, direction: [f64; 3]) -> Light {
        let Some(sky) = &self.sky else {
            return self.ambient_from_above;
        };
        let up = (direction[2] as f32).max(0.0);
        let low = (1.0 - up) * (1.0 - up);
        let towards = (dot(direction, sky.sun) as f32).max(0.0);
        let glow = low * low * towards * towards * towards;
        let halo = {
            let t = towards * towards;
            let t = t * t;
            let t = t * t;
            t * t
        };
        let light = mix(sky.zenith, sky.horizon, low * (1.5 - 0.5 * low) * 0.95);
        std::array::from_fn(|i| light[i] + glow * sky.afterglow[i] + 0.12 * halo * sky.disc[i])
    }
}

/// From 0 at `low` to 1 at `high`, smoothly.
#[inline]
pub(crate) fn rise(v: f32, low: f32, high: f32) -> f32 {
    let t = ((v - low) / (high - low)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(light: Light) -> f32 {
        light.iter().sum::<f32>() / 3.0
    }

    #[test]
    fn days_differ_in_sun_and_shade() {
        let of = |weather: &Weather| Illumination::outdoors(weather, 1);
        assert!(grey(of(&Weather::NOON).source_colour) > 2.0);
        assert!(grey(of(&Weather::OVERCAST).source_colour) < 0.01);
        let evening = of(&Weather::EVENING).source_colour;
        assert!(evening[0] > 1.3 * evening[2], "the evening sun is warm");
        let (noon, dusk) = (of(&Weather::NOON), of(&Weather::DUSK));
        assert!(grey(dusk.ambient(1.0)) < 0.6 * grey(noon.ambient(1.0)));
        assert!(dusk.darkness > 0.8 && noon.darkness == 0.0);
        assert!(dusk.exposure > noon.exposure);
        assert_eq!(of(&Weather::RAIN).wetness, 0.7);
    }

    #[test]
    fn words_name_every_kind() {
        let words = Weather::KINDS.map(|kind| kind.words());
        assert_eq!(words, ["sunny", "evening sun", "dusk", "overcast", "rain"]);
    }

    #[test]
    fn a_lamp_fades_with_the_square_of_its_distance() {
        let light = Illumination::indoors([0.0, 0.0, 3.0], 0.2, 0.3);
        let at = |z: f64| grey(light.towards_source([0.0, 0.0, z]).2);
        assert!((at(1.0) * 4.0 - at(2.0)).abs() < 1e-5);
    }
}

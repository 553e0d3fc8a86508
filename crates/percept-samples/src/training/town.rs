//! A town as it was seen on all drives through it: in memory, and in a folder that keeps it for the next run.

use percept_data::images::RgbImage;
use percept_store::{Cache, Collection, Key, StoreError, TensorRef};

/// Cameras around the vehicle.
const CAMERAS: usize = 6;
/// Raised whenever the world renders the same tour in another way.
const VERSION: u32 = 1;

/// Everything that decides what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tour {
    pub(super) seed: u64,
    pub(super) passes: usize,
    /// Frames of each pass.
    pub(super) frames: usize,
    /// Height and width of the pictures, and of the range images.
    pub(super) camera: [usize; 2],
    pub(super) range: [usize; 2],
}

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) images: Vec<RgbImage>,
    pub(super) metres: Vec<f32>,
    pub(super) position: [f64; 3],
}

/// The frames of a tour, one behind the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Town {
    tour: Tour,
    pixels: Vec<u8>,
    metres: Vec<f32>,
    positions: Vec<f64>,
}

impl Tour {
    fn len(&self) -> usize {
        self.passes * self.frames
    }

    /// Bytes of one picture.
    fn picture(&self) -> usize {
        3 * self.camera[0] * self.camera[1]
    }

    /// Numbers of one range image.
    fn sweep(&self) -> usize {
        self.range[0] * self.range[1]
    }

    /// The town that the cache keeps, or one that is rendered now and kept.
    pub(super) fn kept_in(
        &self,
        cache: Option<&Cache>,
        render: impl FnOnce() -> Town,
    ) -> Result<Town, StoreError> {
        let Some(cache) = cache else {
            return Ok(render());
        };
        let towns = Collection::new("towns", VERSION)?;
        let sizes = [self.passes, self.frames].map(|v| v as u64);
        let sides = [self.camera, self.range].concat();
        let sides: Vec<u64> = sides.into_iter().map(|v| v as u64).collect();
        let key = Key::of()
            .part(&[self.seed])
            .part(&sizes)
            .part(&sides)
            .finish();
        if let Some(blob) = cache.get(&towns, key)? {
            let numbers = (
                blob.numbers::<u8>("pixels"),
                blob.numbers::<f32>("metres"),
                blob.numbers::<f64>("positions"),
            );
            if let (Some(pixels), Some(metres), Some(positions)) = numbers
                && pixels.len() == self.len() * CAMERAS * self.picture()
                && metres.len() == self.len() * self.sweep()
                && positions.len() == self.len() * 3
            {
                return Ok(Town {
                    tour: *self,
                    pixels: pixels.to_vec(),
                    metres: metres.to_vec(),
                    positions: positions.to_vec(),
                });
            }
        }
        let town = render();
        let lengths = [town.pixels.len(), town.metres.len(), town.positions.len()];
        let [pixels, metres, positions] = lengths.map(|length| [length]);
        let tensors = [
            TensorRef::new("pixels", &pixels, &town.pixels),
            TensorRef::new("metres", &metres, &town.metres),
            TensorRef::new("positions", &positions, &town.positions),
        ];
        cache.put(&towns, key, &tensors)?;
        Ok(town)
    }
}

impl Town {
    pub(super) fn empty(tour: &Tour) -> Self {
        Self {
            tour: *tour,
            pixels: Vec::with_capacity(tour.len() * CAMERAS * tour.picture()),
            metres: Vec::with_capacity(tour.len() * tour.sweep()),
            positions: Vec::with_capacity(tour.len() * 3),
        }
    }

    pub(super) fn tour(&self) -> &Tour {
        &self.tour
    }

    /// How many frames there are.
    pub(super) fn len(&self) -> usize {
        self.positions.len() / 3
    }

    /// Adds a frame, whose images and sweep have the sizes of the tour.
    pub(super) fn push(&mut self, seen: &Seen) {
        for image in &seen.images {
            self.pixels.extend(&image.pixels);
        }
        self.metres.extend(&seen.metres);
        self.positions.extend(seen.position);
    }

    /// A frame.
    pub(super) fn seen(&self, frame: usize) -> Seen {
        let [height, width] = self.tour.camera;
        let (picture, sweep) = (self.tour.picture(), self.tour.sweep());
        let pictures = &self.pixels[frame * CAMERAS * picture..][..CAMERAS * picture];
        let images = pictures.chunks_exact(picture).map(|pixels| RgbImage {
            width,
            height,
            pixels: pixels.to_vec(),
        });
        Seen {
            images: images.collect(),
            metres: self.metres[frame * sweep..][..sweep].to_vec(),
            position: std::array::from_fn(|i| self.positions[3 * frame + i]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOUR: Tour = Tour {
        seed: 3,
        passes: 2,
        frames: 1,
        camera: [2, 3],
        range: [1, 4],
    };

    fn town() -> Town {
        let mut town = Town::empty(&TOUR);
        for shade in [10, 20] {
            town.push(&Seen {
                images: vec![RgbImage::filled(3, 2, [shade; 3]); CAMERAS],
                metres: vec![f32::from(shade); 4],
                position: [f64::from(shade), 0.5, -1.0],
            });
        }
        town
    }

    #[test]
    fn a_frame_is_what_was_seen() {
        let seen = town().seen(1);
        assert_eq!(seen.images, vec![RgbImage::filled(3, 2, [20; 3]); 6]);
        assert_eq!(
            (seen.metres, seen.position),
            (vec![20.0; 4], [20.0, 0.5, -1.0])
        );
    }

    #[test]
    fn a_town_is_rendered_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 1 << 20).unwrap();
        let rendered = TOUR.kept_in(Some(&cache), town).unwrap();
        let kept = TOUR.kept_in(Some(&cache), || panic!("it was kept"));
        assert_eq!(kept.unwrap(), rendered);
        let other = Tour { seed: 4, ..TOUR };
        let mut was_rendered = false;
        let render = || {
            was_rendered = true;
            town()
        };
        other.kept_in(Some(&cache), render).unwrap();
        assert!(was_rendered);
    }
}

//! Tiles of sums with vectors of 512 bits and masks for what is left over, with the bits of those in tile.rs.

use std::arch::x86_64::*;

use super::tile::{FinishTile, PixelRun};
use super::vectors::{
    Addition, Bytes, Floats, LANES, Nothing, Place, Product, Scales, cut_off, load, mask, quads_of,
};
use super::{Addend, StraightOutput};
use crate::int8::tile::{TILE_PIXELS, TILE_ROWS};

/// Finishes a tile, unless its activation is curved or a sum of two is wanted as floats: then nothing is done, and the answer is false.
///
/// # Safety
/// This CPU must have the instructions ([`has_wide`](crate::int8::has_wide)), and no other block may write these pixels of these channels.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn finish(tile: &FinishTile<'_>) -> bool {
    let finish = tile.finish;
    let Some(results) = finish.straight() else {
        return false;
    };
    let scales = |factors, bias| Scales::of(tile.channel, tile.sums.len(), factors, bias);
    let own = scales(&finish.factors, &finish.bias);
    for &run in tile.runs {
        assert!(run.column + run.len <= TILE_PIXELS);
        let part = Part {
            tile,
            run,
            scales: own,
        };
        match (&finish.added, finish.residual) {
            (None, None) => part.finish(&results, Nothing),
            (None, Some(Addend::Bytes(bytes, scale))) => {
                let places = part.byte_places();
                let added = Bytes {
                    bytes: bytes[places.clone()].as_ptr(),
                    group_bytes: 4 * tile.out_pixels,
                    scale,
                };
                part.finish(&results, added);
            }
            (None, Some(Addend::Floats(floats))) => {
                let added = Floats {
                    unit: finish.unit,
                    floats: floats[part.float_places()].as_ptr(),
                    plane: tile.out_pixels,
                    channels: tile.channels - tile.channel,
                };
                part.finish(&results, added);
            }
            (Some([factors, bias]), None) => {
                assert_eq!(tile.added.len(), tile.sums.len(), "the sums of both");
                let added = Product {
                    scales: scales(factors, bias),
                    sums: tile.added.as_ptr(),
                };
                part.finish(&results, added);
            }
            (Some(_), Some(_)) => return false,
        }
    }
    true
}

/// A run of a tile's pixels.
struct Part<'a> {
    tile: &'a FinishTile<'a>,
    run: PixelRun,
    scales: Scales,
}

impl Part<'_> {
    /// From the first byte of the first group to the last one of the last.
    fn byte_places(&self) -> std::ops::Range<usize> {
        let (tile, run) = (self.tile, self.run);
        let quads = tile.channels.div_ceil(4);
        let first = (run.sample * quads + tile.channel / 4) * tile.out_pixels + run.pixel;
        4 * first..4 * (first + (tile.sums.len() - 1) * tile.out_pixels + run.len)
    }

    /// From the first pixel of the first channel to the last one of the last that there is.
    fn float_places(&self) -> std::ops::Range<usize> {
        let (tile, run) = (self.tile, self.run);
        let first = (run.sample * tile.channels + tile.channel) * tile.out_pixels + run.pixel;
        first..first + (self.channels() - 1) * tile.out_pixels + run.len
    }

    /// Channels of the tile that there are.
    fn channels(&self) -> usize {
        (self.tile.channels - self.tile.channel).min(self.tile.sums.len() * TILE_ROWS)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn finish(&self, results: &StraightOutput<'_>, added: impl Addition) {
        match *results {
            StraightOutput::Bytes { y, lowest } => {
                let places = self.byte_places();
                assert!(places.end <= y.len());
                let y = y.as_mut_ptr().wrapping_add(places.start);
                let group_bytes = 4 * self.tile.out_pixels;
                self.values(added, |place, values| {
                    let quads = quads_of(cut_off(values), lowest as i8);
                    // SAFETY: all places lie in the output, as asserted above, and blocks have their own pixels or channels.
                    unsafe {
                        let to = y.add(place.group * group_bytes);
                        let to = to.wrapping_offset(4 * place.pixel);
                        _mm512_mask_storeu_epi32(to.cast(), place.mask, quads);
                    }
                });
            }
            StraightOutput::Floats { y, lowest } => {
                let places = self.float_places();
                assert!(places.end <= y.len());
                let y = y.as_mut_ptr().wrapping_add(places.start);
                let (plane, channels) = (self.tile.out_pixels, self.channels());
                self.values(added, |place, values| {
                    let first = place.group * TILE_ROWS;
                    for i in 0..TILE_ROWS.min(channels - first) {
                        // A NaN stays one: it is the second operand that is given then.
                        let value = _mm512_max_ps(_mm512_set1_ps(lowest), values[i]);
                        // SAFETY: as above.
                        unsafe {
                            let to = y.add((first + i) * plane);
                            let to = to.wrapping_offset(place.pixel);
                            _mm512_mask_storeu_ps(to, place.mask, value);
                        }
                    }
                });
            }
        }
    }

    /// All values, a vector of pixels of a group at a time.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn values(&self, added: impl Addition, hear: impl Fn(Place, [__m512; TILE_ROWS])) {
        let run = self.run;
        for group in 0..self.tile.sums.len() {
            for pixel in (0..run.len).step_by(LANES) {
                let place = Place {
                    group,
                    column: run.column + pixel,
                    pixel: pixel as isize,
                    mask: mask(run.len - pixel),
                    other: (0, 0),
                };
                // SAFETY: groups are those of the tile, runs lie inside of it, and what is added is there for all of them.
                let values = unsafe {
                    let sums = load(self.tile.sums.as_ptr(), place);
                    added.add(place, self.scales.apply(group, sums))
                };
                hear(place, values);
            }
        }
    }
}

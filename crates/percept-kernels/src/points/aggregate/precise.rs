//! Scores of few channels, in f64.
//!
//! The first aggregation of a network sees coordinates, and its scores are large numbers that nearly agree: what is rounded off
//! them is what neighbours differ in. There are 8 channels only, so f64 costs little. A softmax sees differences to the
//! largest score; these are rounded.

use std::f64::consts::LOG2_E;

use super::tile::PANEL;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::points::MAX_NEIGHBOURS;
use crate::simd::{LANES, Simd};

/// Channels of features and encodings, padded.
pub(super) const CHANNELS: usize = LANES;
/// Points whose features a thread multiplies at a time.
const BLOCK: usize = 1024;

/// The weights of 8 or 16 scores.
#[derive(Debug)]
pub(super) struct PreciseScores {
    columns: usize,
    /// `[CHANNELS][columns]`; empty where features have no part in the scores.
    features: Vec<f64>,
    /// `[CHANNELS][columns]`
    encoding: Vec<f64>,
}

impl PreciseScores {
    /// Of the weight of a score in a column by a joined channel, features first.
    pub(super) fn new(
        columns: usize,
        has_features: bool,
        weight: impl Fn(usize, usize) -> f32,
    ) -> PreciseScores {
        assert!(columns == LANES || columns == PANEL, "8 or 16 scores");
        let part = |first: usize| {
            let all = (0..CHANNELS * columns).map(|at| (at % columns, first + at / columns));
            all.map(|(column, channel)| f64::from(weight(column, channel)))
                .collect()
        };
        PreciseScores {
            columns,
            features: if has_features { part(0) } else { Vec::new() },
            encoding: part(CHANNELS),
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        (self.features.len() + self.encoding.len()) * size_of::<f64>()
    }

    /// What features `[N][CHANNELS]` add to the scores, `[N][columns]`; empty where they add nothing.
    pub(super) fn feature_scores(&self, cpu: &Cpu, features: &[f32]) -> Vec<f64> {
        if self.features.is_empty() {
            return Vec::new();
        }
        let points = features.len() / CHANNELS;
        let mut scores = vec![0.0; points * self.columns];
        let shared = SharedMut::new(&mut scores);
        cpu.parallel(points.div_ceil(BLOCK), &|block, _| {
            let range = block * BLOCK..points.min((block + 1) * BLOCK);
            // SAFETY: blocks are disjoint.
            let scores =
                unsafe { shared.slice(range.start * self.columns..range.end * self.columns) };
            cpu.isa().run(FeatureScores {
                weights: self,
                features: &features[range.start * CHANNELS..range.end * CHANNELS],
                scores,
            });
        });
        scores
    }

    /// Powers of 2 whose shares are a point's softmax, none above 0: `[neighbours][PANEL]`, `columns` of them in each row.
    /// `encoding` has a row for each neighbour.
    #[inline(always)]
    pub(super) fn exponents<S: Simd>(
        &self,
        s: S,
        neighbours: &[u32],
        feature_scores: &[f64],
        encoding: &[f32],
        y: &mut [f32],
    ) {
        let k = neighbours.len();
        assert!((1..=MAX_NEIGHBOURS).contains(&k), "neighbours");
        assert!(encoding.len() == k * CHANNELS && y.len() == k * PANEL);
        let starts = |row: usize| match feature_scores.is_empty() {
            true => &[0.0; PANEL][..self.columns],
            false => &feature_scores[neighbours[row] as usize * self.columns..][..self.columns],
        };
        match (s.wide(), self.columns == PANEL) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Wide` proves AVX-512.
            (Some(_), true) => unsafe {
                avx512::exponents::<2>(&self.encoding, starts, encoding, y);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Some(_), false) => unsafe {
                avx512::exponents::<1>(&self.encoding, starts, encoding, y);
            },
            (_, true) => exponents::<PANEL>(&self.encoding, starts, encoding, y),
            (_, false) => exponents::<LANES>(&self.encoding, starts, encoding, y),
        }
    }
}

struct FeatureScores<'a> {
    weights: &'a PreciseScores,
    features: &'a [f32],
    scores: &'a mut [f64],
}

impl Kernel for FeatureScores<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let rows = self.features.as_chunks::<CHANNELS>().0;
        let scores = self.scores.as_chunks_mut::<PANEL>().0;
        for (row, scores) in rows.iter().zip(scores) {
            *scores = add_products([0.0; PANEL], &self.weights.features, row);
        }
    }
}

/// `sums + W x`. Not fused: a product of two f32 is exact in f64, so the bits are the same.
#[inline(always)]
fn add_products<const COLUMNS: usize>(
    mut sums: [f64; COLUMNS],
    weights: &[f64],
    x: &[f32; CHANNELS],
) -> [f64; COLUMNS] {
    let (weights, _) = weights.as_chunks::<COLUMNS>();
    for (&x, weights) in x.iter().zip(weights) {
        for column in 0..COLUMNS {
            sums[column] += f64::from(x) * weights[column];
        }
    }
    sums
}

#[inline(always)]
fn exponents<'a, const COLUMNS: usize>(
    weights: &[f64],
    starts: impl Fn(usize) -> &'a [f64],
    encoding: &[f32],
    y: &mut [f32],
) {
    let mut scores = [[0.0; COLUMNS]; MAX_NEIGHBOURS];
    let mut most = [f64::NEG_INFINITY; COLUMNS];
    let rows = encoding.as_chunks::<CHANNELS>().0;
    for (row, x) in rows.iter().enumerate() {
        let mut sums = [0.0; COLUMNS];
        sums.copy_from_slice(starts(row));
        scores[row] = add_products(sums, weights, x);
        for column in 0..COLUMNS {
            let score = scores[row][column];
            most[column] = if score > most[column] {
                score
            } else {
                most[column]
            };
        }
    }
    for (scores, y) in scores.iter().zip(y.as_chunks_mut::<PANEL>().0) {
        for column in 0..COLUMNS {
            y[column] = ((scores[column] - most[column]) * LOG2_E) as f32;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;
    use std::f64::consts::LOG2_E;
    use std::mem::MaybeUninit;

    use super::{CHANNELS, MAX_NEIGHBOURS, PANEL};
    use crate::simd::LANES;

    /// Rows at a time: as many sums in flight hide the latency of one.
    const ROWS: usize = 4;

    /// As [`exponents`](super::exponents), of `8 * VECTORS` columns.
    #[target_feature(enable = "avx512f")]
    pub(super) fn exponents<'a, const VECTORS: usize>(
        weights: &[f64],
        starts: impl Fn(usize) -> &'a [f64],
        encoding: &[f32],
        y: &mut [f32],
    ) {
        let columns = VECTORS * LANES;
        let rows = encoding.as_chunks::<CHANNELS>().0;
        assert!(weights.len() == CHANNELS * columns && rows.len() <= MAX_NEIGHBOURS);
        assert!(y.len() == rows.len() * PANEL && columns <= PANEL);
        // Not zeroed: that would take as long as the sums of a few neighbours.
        let mut scores = [const { MaybeUninit::<[__m512d; VECTORS]>::uninit() }; MAX_NEIGHBOURS];
        let mut most = [_mm512_set1_pd(f64::NEG_INFINITY); VECTORS];
        let mut wide = [[0.0; CHANNELS]; ROWS];
        for first in (0..rows.len()).step_by(ROWS) {
            // Past the last row it comes again, which changes nothing.
            let place = |row: usize| (first + row).min(rows.len() - 1);
            let mut sums = [[_mm512_setzero_pd(); VECTORS]; ROWS];
            for row in 0..ROWS {
                let start = starts(place(row));
                assert!(start.len() == columns);
                // SAFETY: lengths were checked above.
                unsafe {
                    let x = _mm256_loadu_ps(rows[place(row)].as_ptr());
                    _mm512_storeu_pd(wide[row].as_mut_ptr(), _mm512_cvtps_pd(x));
                    for j in 0..VECTORS {
                        sums[row][j] = _mm512_loadu_pd(start.as_ptr().add(j * LANES));
                    }
                }
            }
            for channel in 0..CHANNELS {
                for j in 0..VECTORS {
                    let at = channel * columns + j * LANES;
                    // SAFETY: the length of the weights was checked above.
                    let weights = unsafe { _mm512_loadu_pd(weights.as_ptr().add(at)) };
                    for row in 0..ROWS {
                        let x = _mm512_set1_pd(wide[row][channel]);
                        sums[row][j] = _mm512_fmadd_pd(x, weights, sums[row][j]);
                    }
                }
            }
            for row in 0..ROWS {
                for j in 0..VECTORS {
                    most[j] = _mm512_max_pd(sums[row][j], most[j]);
                }
                scores[place(row)].write(sums[row]);
            }
        }
        let log2_e = _mm512_set1_pd(LOG2_E);
        for row in 0..rows.len() {
            // SAFETY: written above, as all rows are.
            let scores = unsafe { scores[row].assume_init() };
            for j in 0..VECTORS {
                let power = _mm512_mul_pd(_mm512_sub_pd(scores[j], most[j]), log2_e);
                // SAFETY: y has PANEL numbers for each row.
                unsafe {
                    let to = y.as_mut_ptr().add(row * PANEL + j * LANES);
                    _mm256_storeu_ps(to, _mm512_cvtpd_ps(power));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::testing::numbers;

    struct Exponents<'a>(
        &'a PreciseScores,
        &'a [u32],
        &'a [f64],
        &'a [f32],
        &'a mut [f32],
    );

    impl Kernel for Exponents<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            self.0.exponents(s, self.1, self.2, self.3, self.4);
        }
    }

    /// Scores far from 0 that nearly agree lose nothing, and bits are the same everywhere.
    #[test]
    fn differences_are_rounded_once() {
        for (k, columns) in [(1, 16), (5, 8), (16, 16), (64, 16), (16, 8)] {
            let weight = numbers(1, columns * 2 * CHANNELS);
            let far = |seed: u64, len: usize| -> Vec<f32> {
                numbers(seed, len).iter().map(|x| 50.0 + x).collect()
            };
            let (encoding, features) = (far(2, k * CHANNELS), far(3, 9 * CHANNELS));
            let neighbours: Vec<u32> = (0..k as u32).map(|at| at * 7 % 9).collect();
            let has_features = columns == PANEL;
            let scores = PreciseScores::new(columns, has_features, |column, channel| {
                weight[column * 2 * CHANNELS + channel]
            });
            let score = |row: usize, column: usize| {
                let weight = &weight[column * 2 * CHANNELS..][..2 * CHANNELS];
                let near = &features[neighbours[row] as usize * CHANNELS..][..CHANNELS];
                let near = if has_features { near } else { &[] };
                let add = |sum: f64, (x, w): (&f32, &f32)| sum + f64::from(*x) * f64::from(*w);
                let start = near.iter().zip(weight).fold(0.0, add);
                let own = &encoding[row * CHANNELS..][..CHANNELS];
                own.iter().zip(&weight[CHANNELS..]).fold(start, add)
            };
            for isa in Isa::available() {
                let cpu = Cpu::with_isa(1, isa).unwrap();
                let feature_scores = scores.feature_scores(&cpu, &features);
                let mut y = vec![f32::NAN; k * PANEL];
                isa.run(Exponents(
                    &scores,
                    &neighbours,
                    &feature_scores,
                    &encoding,
                    &mut y,
                ));
                for column in 0..columns {
                    let most = (0..k).map(|row| score(row, column));
                    let most = most.fold(f64::NEG_INFINITY, f64::max);
                    for row in 0..k {
                        let expected = ((score(row, column) - most) * LOG2_E) as f32;
                        let got = y[row * PANEL + column];
                        assert_eq!(got, expected, "{isa}, {k} neighbours, {columns} columns");
                    }
                }
            }
        }
    }
}

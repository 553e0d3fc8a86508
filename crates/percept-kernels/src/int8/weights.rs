//! Quantised weights, and how tiles read them.

use super::scale::LARGEST;
use super::tile::{Operands, Packing, QUAD_LIMIT, Width};
use crate::aligned::AlignedBuf;
use crate::simd::ROUNDER;

/// How many products of bytes a sum may have: as many as cannot leave 32 bits.
const MOST_PRODUCTS: usize = i32::MAX as usize / (127 * 127);

/// In which order tiles take a row of weights: in *runs* of quads of four channels, each run a sum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuadOrder {
    channels: usize,
    taps: usize,
    channels_last: bool,
}

impl QuadOrder {
    /// Rows `[channels][taps]` of a convolution of maps, in one run.
    pub fn maps(channels: usize, taps: usize) -> QuadOrder {
        QuadOrder {
            channels,
            taps,
            channels_last: false,
        }
    }

    /// Rows `[taps][channels]` of a sparse convolution, with a run for each tap, or of a linear layer, with one tap.
    pub fn rows(channels: usize, taps: usize) -> QuadOrder {
        QuadOrder {
            channels,
            taps,
            channels_last: true,
        }
    }

    /// Weights of a row.
    pub fn len(&self) -> usize {
        self.channels * self.taps
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn runs(&self) -> usize {
        if self.channels_last { self.taps } else { 1 }
    }

    /// Quads of a run. Those of maps are filled up to an even number, for tiles that take two at a time.
    pub(super) fn run_len(&self) -> usize {
        let quads = self.channels.div_ceil(4);
        if self.channels_last {
            quads
        } else {
            (quads * self.taps).next_multiple_of(2)
        }
    }

    /// Where in a row byte `lane` of quad `quad` of run `run` stands.
    fn place(&self, run: usize, quad: usize, lane: usize) -> Option<usize> {
        let (channel, tap) = match self.channels_last {
            true => (4 * quad + lane, run),
            false => (quad / self.taps * 4 + lane, quad % self.taps),
        };
        let index = match self.channels_last {
            true => tap * self.channels + channel,
            false => channel * self.taps + tap,
        };
        (channel < self.channels).then_some(index)
    }

    /// Whether in all groups of four products that a tile adds in 16 bits, the weights of one sign stay within the limit.
    fn is_bounded(&self, row: &[i8]) -> bool {
        let weight = |run: usize, quad: usize, lane: usize| {
            let inside = quad < self.run_len();
            let place = inside.then(|| self.place(run, quad, lane)).flatten();
            place.map_or(0, |place| i32::from(row[place]))
        };
        (0..self.runs()).all(|run| {
            (0..self.run_len()).step_by(2).all(|quad| {
                [0, 2].into_iter().all(|lane| {
                    let group = [
                        weight(run, quad, lane),
                        weight(run, quad, lane + 1),
                        weight(run, quad + 1, lane),
                        weight(run, quad + 1, lane + 1),
                    ];
                    let positive: i32 = group.iter().map(|w| w.max(&0)).sum();
                    let negative: i32 = group.iter().map(|w| w.min(&0)).sum();
                    positive <= QUAD_LIMIT && -negative <= QUAD_LIMIT
                })
            })
        })
    }
}

/// Weights as bytes, with a scale for each row: an output channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ByteWeights {
    /// Row after row.
    pub values: Vec<i8>,
    /// What one step of a row stands for.
    pub scales: Vec<f32>,
}

impl ByteWeights {
    /// Quantises rows, each by its largest magnitude. A row of zeros has scale 1.
    pub fn quantize(rows: usize, weights: &[f32]) -> ByteWeights {
        let width = weights.len() / rows.max(1);
        assert_eq!(width * rows, weights.len(), "rows of one length");
        let mut quantized = ByteWeights {
            values: vec![0; weights.len()],
            scales: vec![1.0; rows],
        };
        let parts = weights.chunks_exact(width.max(1));
        for ((row, to), scale) in parts
            .zip(quantized.values.chunks_exact_mut(width.max(1)))
            .zip(&mut quantized.scales)
        {
            *scale = row_scale(row);
            quantize_row(row, *scale, to);
        }
        quantized
    }

    /// Rows that lie on grids already: the integers, by the step of each row.
    pub fn on_grids(steps: Vec<f32>, weights: &[f32]) -> ByteWeights {
        let width = weights.len() / steps.len().max(1);
        assert_eq!(width * steps.len(), weights.len(), "rows of one length");
        let mut values = vec![0; weights.len()];
        let parts = weights.chunks_exact(width.max(1)).zip(&steps);
        for ((row, &step), to) in parts.zip(values.chunks_exact_mut(width.max(1))) {
            quantize_row(row, step, to);
        }
        ByteWeights {
            values,
            scales: steps,
        }
    }

    /// Quantises rows so that CPUs without dot products of bytes can add four products in 16 bits: a row that breaks the
    /// limit gets the next coarser scale that keeps it, 1 to 3 % for most.
    pub fn quantize_bounded(rows: usize, weights: &[f32], order: &QuadOrder) -> ByteWeights {
        assert_eq!(weights.len(), rows * order.len(), "length of the weights");
        let mut quantized = ByteWeights::quantize(rows, weights);
        let width = order.len().max(1);
        let parts = weights.chunks_exact(width);
        for ((row, to), scale) in parts
            .zip(quantized.values.chunks_exact_mut(width))
            .zip(&mut quantized.scales)
        {
            while !order.is_bounded(to) {
                *scale *= 1.005;
                quantize_row(row, *scale, to);
            }
        }
        quantized
    }

    /// The numbers that they stand for.
    pub fn dequantize(&self) -> Vec<f32> {
        let width = self.values.len() / self.scales.len().max(1);
        let rows = self.values.chunks_exact(width.max(1)).zip(&self.scales);
        rows.flat_map(|(row, &scale)| row.iter().map(move |&q| f32::from(q) * scale))
            .collect()
    }

    /// What tiles may take for granted.
    pub(super) fn operands(&self, order: &QuadOrder, signed: bool) -> Operands {
        assert!(
            order.len() <= MOST_PRODUCTS,
            "sums of {} products do not fit 32 bits",
            order.len()
        );
        assert_eq!(
            self.values.len(),
            self.scales.len() * order.len(),
            "length of the weights"
        );
        let mut rows = self.values.chunks_exact(order.len().max(1));
        if signed {
            Operands::Signed
        } else if rows.all(|row| order.is_bounded(row)) {
            Operands::Bounded
        } else {
            Operands::Positive
        }
    }

    /// Packs some rows, those of one run behind those of another.
    pub(super) fn pack(
        &self,
        order: &QuadOrder,
        rows: std::ops::Range<usize>,
        packing: Packing,
        width: Width,
    ) -> AlignedBuf {
        let Packing { height, deep } = packing;
        let depth = order.run_len().next_multiple_of(deep);
        let run_quads = rows.len().next_multiple_of(height) * depth;
        let mut packed = AlignedBuf::zeroed(order.runs() * run_quads * width.quad_bytes());
        for run in 0..order.runs() {
            for (index, row) in rows.clone().enumerate() {
                let values = &self.values[row * order.len()..][..order.len()];
                let (tile, within) = (index / height, index % height);
                for quad in 0..order.run_len() {
                    let part = (tile * depth + quad / deep * deep) * height;
                    let start = run * run_quads + part + within * deep + quad % deep;
                    for lane in 0..4 {
                        let Some(place) = order.place(run, quad, lane) else {
                            continue;
                        };
                        width.put(packed.bytes_mut(), start * 4 + lane, values[place]);
                    }
                }
            }
        }
        packed
    }

    /// As row tiles read them: `[run][rows / 16][quad][16 rows][4]`.
    pub(super) fn pack_panels(&self, order: &QuadOrder, width: Width) -> AlignedBuf {
        self.pack(order, 0..self.scales.len(), Packing::PANELS, width)
    }

    /// `factor` times the sums of the weights, `[run][row]`, filled up with zeros to a multiple of `together` rows.
    pub(super) fn starts(&self, order: &QuadOrder, factor: i32, together: usize) -> Vec<i32> {
        let rows = self.scales.len();
        let padded = rows.next_multiple_of(together);
        let mut starts = vec![0; order.runs() * padded];
        for run in 0..order.runs() {
            for row in 0..rows {
                let values = &self.values[row * order.len()..];
                let places = (0..order.run_len())
                    .flat_map(|quad| (0..4).filter_map(move |lane| order.place(run, quad, lane)));
                let sum: i32 = places.map(|place| i32::from(values[place])).sum();
                starts[run * padded + row] = factor * sum;
            }
        }
        starts
    }
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Width::Byte => 1,
            Width::Word => 2,
        }
    }

    fn put(self, bytes: &mut [u8], index: usize, value: i8) {
        match self {
            Width::Byte => bytes[index] = value as u8,
            Width::Word => {
                bytes[2 * index..][..2].copy_from_slice(&i16::from(value).to_ne_bytes());
            }
        }
    }

    /// Bytes of a quad.
    pub(super) fn quad_bytes(self) -> usize {
        4 * self.bytes()
    }
}

fn row_scale(row: &[f32]) -> f32 {
    let largest = row.iter().fold(0.0f32, |largest, w| largest.max(w.abs()));
    if largest > 0.0 {
        largest / LARGEST
    } else {
        1.0
    }
}

fn quantize_row(row: &[f32], scale: f32, to: &mut [i8]) {
    for (&weight, q) in row.iter().zip(to) {
        // Rounded to the nearest, ties to even, without the call that `round_ties_even` is on CPUs that may lack SSE4.1.
        *q = ((weight / scale).clamp(-LARGEST, LARGEST) + ROUNDER - ROUNDER) as i8;
    }
}

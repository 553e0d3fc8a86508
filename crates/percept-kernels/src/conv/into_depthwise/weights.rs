//! Weights with output channels side by side.

use crate::conv::ConvShape;
use crate::gemm::pixels::CHANNELS;

/// Weights of the depthwise convolution, `[vector][tap][channel]`, filled up with zeros.
#[derive(Debug)]
pub struct PackedDepthwise {
    packed: Vec<f32>,
    taps: usize,
    channels: usize,
}

impl PackedDepthwise {
    /// Packs weights [channels, 1, height, width].
    pub fn pack(shape: &ConvShape, weight: &[f32]) -> PackedDepthwise {
        shape.check(Some(weight.len()), shape.in_len(), shape.out_len());
        let (channels, taps) = (shape.out_channels, shape.taps());
        let mut packed = vec![0.0; channels.next_multiple_of(CHANNELS) * taps];
        for (channel, weight) in weight.chunks_exact(taps.max(1)).enumerate() {
            let start = channel / CHANNELS * CHANNELS * taps + channel % CHANNELS;
            for (tap, &weight) in weight.iter().enumerate() {
                packed[start + tap * CHANNELS] = weight;
            }
        }
        PackedDepthwise {
            packed,
            taps,
            channels,
        }
    }

    pub(super) fn check(&self, shape: &ConvShape) {
        assert_eq!(
            [self.taps, self.channels],
            [shape.taps(), shape.out_channels],
            "the weights were packed for other channels"
        );
    }

    /// Of 16 channels.
    pub(super) fn vector(&self, vector: usize) -> &[f32] {
        let len = self.taps * CHANNELS;
        &self.packed[vector * len..][..len]
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.packed[..])
    }
}

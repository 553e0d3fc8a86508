//! Kernels on maps of which a part is known: run on another size, or on the part that is not known.

use std::sync::Arc;

use percept_kernels::Cpu;
use percept_kernels::conv::{
    CellMask, ConvShape, ConvTransposeShape, Coverage, EmptyResponse, conv2d_settled,
};

use crate::kernel::{Kernel, epilogue};

impl Kernel {
    /// The same kernel on a map of another size and one sample, with the size that comes out; `None` where it is none of
    /// those that follow an empty map.
    pub fn on_map(&self, [height, width]: [usize; 2]) -> Option<(Kernel, [usize; 2])> {
        match self {
            Kernel::Conv {
                shape,
                weights,
                bias,
                activation,
                scaled: false,
            } => {
                let shape = ConvShape {
                    batch: 1,
                    height,
                    width,
                    ..*shape
                };
                let size = [shape.out_height(), shape.out_width()];
                let kernel = Kernel::Conv {
                    shape,
                    weights: Arc::clone(weights),
                    bias: bias.clone(),
                    activation: *activation,
                    scaled: false,
                };
                Some((kernel, size))
            }
            Kernel::ConvTranspose {
                shape,
                weights,
                bias,
                activation,
            } => {
                let shape = ConvTransposeShape {
                    batch: 1,
                    height,
                    width,
                    ..*shape
                };
                let size = [shape.out_height(), shape.out_width()];
                let kernel = Kernel::ConvTranspose {
                    shape,
                    weights: Arc::clone(weights),
                    bias: bias.clone(),
                    activation: *activation,
                };
                Some((kernel, size))
            }
            Kernel::Concat { .. } | Kernel::Joined => {
                Some((Kernel::Concat { outer: 1 }, [height, width]))
            }
            _ => None,
        }
    }

    /// Runs a convolution whose unreached cells have the answer to the empty map; returns the share computed.
    pub fn run_settled(
        &self,
        cpu: &Cpu,
        reads: &[&[f32]],
        in_place: bool,
        reached: &CellMask,
        empty: &EmptyResponse,
        coverage: Coverage,
        y: &mut [f32],
    ) -> f64 {
        let Kernel::Conv {
            shape,
            weights,
            bias,
            activation,
            scaled: false,
        } = self
        else {
            unreachable!("only convolutions have an answer to the empty map")
        };
        let epilogue = epilogue(bias, reads.get(1), in_place, *activation);
        let x = reads[0];
        conv2d_settled(
            cpu, shape, weights, x, epilogue, reached, empty, coverage, y,
        )
    }
}

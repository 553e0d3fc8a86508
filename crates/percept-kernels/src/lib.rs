//! The muscle of percept: CPU kernels on slices.
//!
//! Every kernel is a free function on slices that takes a [`Cpu`] (instruction set, threads and scratch memory) and a
//! shape. Work is cut into blocks that depend on the shape only, so results are the same bits at any thread count.
//! A slice whose length does not match the shape is a caller's bug and panics with a clear message.

pub mod activation;
pub mod aligned;
pub mod attention;
pub mod boxes;
pub mod conv;
pub mod cpu;
pub mod cross_entropy;
pub mod elementwise;
pub mod epilogue;
pub mod gemm;
pub mod gradient;
pub mod grid;
pub mod int8;
pub mod isa;
pub mod kept;
pub mod layout;
pub mod machine;
pub mod mapped;
pub mod math;
pub mod nearest;
pub mod norm;
pub mod normalize;
pub mod optimiser;
mod placement;
pub mod points;
pub mod pool2d;
mod radix;
pub mod random;
pub mod reduce;
pub mod reference;
pub mod resize;
mod rows;
pub mod simd;
pub mod softmax;
pub mod sparse;
pub mod spd;
pub mod strides;
#[cfg(test)]
mod testing;
pub mod threads;
pub mod voxelize;

pub use activation::Activation;
pub use aligned::{AlignedBuf, Arena, ArenaError};
pub use cpu::{Cpu, CpuError, Scratch};
pub use epilogue::Epilogue;
pub use isa::{Isa, IsaError};
pub use kept::Kept;
pub use mapped::MappedFile;

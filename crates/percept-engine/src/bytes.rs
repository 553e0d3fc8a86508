//! Values that are bytes in memory: what a byte stands for, and how they lie.

use std::collections::BTreeMap;

use percept_graph::ValueId;
use percept_kernels::int8::{ByteScale, map_len, row_len};

/// How bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Maps [N, C, H, W] in quads of channels.
    Quads,
    /// Rows along the last axis, each filled up to whole quads.
    Rows,
}

/// A value as bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ByteForm {
    pub scale: ByteScale,
    pub layout: Layout,
}

/// The values that are bytes; all others are what the graph says.
pub type ByteForms = BTreeMap<ValueId, ByteForm>;

impl ByteForm {
    /// Memory of a value of this shape.
    pub fn bytes(&self, shape: &[usize]) -> usize {
        match (self.layout, shape) {
            (Layout::Quads, [batch, channels, pixels @ ..]) => {
                map_len(*batch, *channels, pixels.iter().product())
            }
            (_, [outer @ .., columns]) => outer.iter().product::<usize>() * row_len(*columns),
            (_, []) => row_len(1),
        }
    }
}

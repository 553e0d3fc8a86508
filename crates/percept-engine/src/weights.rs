//! Weights in the form that kernels want: folded, packed once, and the source given back.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use percept_graph::{Graph, Node, NodeId, Op, Tensor, WeightSource};
use percept_kernels::conv::{
    ConvAlgorithm, PackedChannels, PackedConv, PackedConvTranspose, PackedDepthwise,
};
use percept_kernels::gemm::PackedLinear;
use percept_kernels::int8::{ByteConv, ByteDepthwise, ByteLinear, ByteSparseConv, ByteWinograd};
use percept_kernels::norm::fold_batch_norm;
use percept_kernels::sparse::PackedSparseConv;

use crate::EngineError;
use crate::lowering::LoweredNode;
use crate::precision::Precision;

/// A vector of parameters, shared by every plan that uses it.
pub type Vector = Arc<Vec<f32>>;

/// What a kernel reads of a node's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    /// Whose form it is.
    pub form: Form,
    /// What the numbers are.
    pub precision: Precision,
}

impl Packing {
    fn vector(position: usize) -> Self {
        Self {
            form: Form::Vector(position),
            precision: Precision::F32,
        }
    }
}

/// The form of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A convolution by this algorithm.
    Conv(ConvAlgorithm),
    /// A convolution that a depthwise one follows.
    Expansion,
    /// That depthwise convolution.
    Depthwise,
    /// A transposed convolution.
    Transposed,
    /// Bytes, for inputs that are signed or not.
    Bytes {
        /// Whether the input has negative numbers.
        signed: bool,
    },
    /// Bytes, transformed for Winograd.
    WinogradBytes,
    /// A linear layer.
    Linear,
    /// A sparse convolution.
    Sparse,
    /// One parameter, by its position, with what follows folded in.
    Vector(usize),
    /// The first parameter as it is.
    Tensor,
}

/// Something that weights are packed to.
pub trait Packed: Any + Send + Sync {
    /// Memory held.
    fn bytes(&self) -> usize;
}

macro_rules! packed {
    ($($kernel:ty),*) => {
        $(impl Packed for $kernel {
            fn bytes(&self) -> usize { <$kernel>::bytes(self) }
        })*
    };
}
packed!(
    PackedConv,
    PackedConvTranspose,
    PackedChannels,
    PackedDepthwise,
    PackedLinear,
    PackedSparseConv,
    ByteConv,
    ByteDepthwise,
    ByteLinear,
    ByteSparseConv,
    ByteWinograd
);

impl Packed for Vec<f32> {
    fn bytes(&self) -> usize {
        size_of_val(self.as_slice())
    }
}

impl Packed for Tensor<'static> {
    fn bytes(&self) -> usize {
        Tensor::bytes(self).len()
    }
}

struct Held {
    bytes: usize,
    packed: Arc<dyn Any + Send + Sync>,
}

/// Packed weights and what they took.
pub struct Weights {
    source: Arc<dyn WeightSource>,
    held: HashMap<(NodeId, Packing), Held>,
    /// Time spent reading or generating values.
    pub reading: Duration,
    /// Time spent folding and packing.
    pub packing: Duration,
}

/// Position of a contraction's bias among its parameters.
pub const BIAS: usize = 1;

/// The factors and offsets that follow a contraction's channels.
pub struct ChannelAffine {
    pub scale: Vec<f64>,
    shift: Vec<f64>,
}

impl ChannelAffine {
    /// Those of a batch norm or a layer scale, whose parameters `read` gives by their positions.
    pub fn of(
        follower: &Node,
        mut read: impl FnMut(usize) -> Result<Vec<f32>, EngineError>,
    ) -> Result<Self, EngineError> {
        let Op::BatchNorm(op) = &follower.op else {
            let scale: Vec<f64> = read(0)?.into_iter().map(f64::from).collect();
            let shift = vec![0.0; scale.len()];
            return Ok(Self { scale, shift });
        };
        let (weight, bias, mean, variance) = (read(0)?, read(1)?, read(2)?, read(3)?);
        let eps = f64::from(op.eps);
        let (scale, shift) = fold_batch_norm(&weight, &bias, &mean, &variance, eps);
        Ok(Self { scale, shift })
    }

    /// The bias of a contraction that this follows, b · scale + shift; `None` when there is nothing to add.
    pub fn fold(affine: Option<&Self>, own: Option<Vec<f32>>) -> Option<Vec<f32>> {
        let Some(Self { scale, shift }) = affine else {
            return own;
        };
        let own = |k: usize| own.as_ref().map_or(0.0, |own| f64::from(own[k]));
        let folded = (0..scale.len()).map(|k| (own(k) * scale[k] + shift[k]) as f32);
        Some(folded.collect())
    }
}

impl Weights {
    /// Nothing packed yet.
    pub fn new(source: Arc<dyn WeightSource>) -> Self {
        Self {
            source,
            held: HashMap::new(),
            reading: Duration::ZERO,
            packing: Duration::ZERO,
        }
    }

    /// Where the values come from.
    pub fn source(&self) -> &dyn WeightSource {
        &*self.source
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.held.values().map(|held| held.bytes).sum()
    }

    /// Bytes that one node holds.
    pub fn node_bytes(&self, node: NodeId) -> usize {
        let of_node = self.held.iter().filter(|((owner, _), _)| *owner == node);
        of_node.map(|(_, held)| held.bytes).sum()
    }

    /// The weights of a contraction, packed when they are not yet, and its bias. `pack` gets the values and the factors of
    /// the output channels that what follows brings.
    pub fn contraction<P: Packed>(
        &mut self,
        graph: &Graph,
        step: &LoweredNode,
        packing: Packing,
        pack: impl FnOnce(Cow<'_, [f32]>, Option<&[f64]>) -> P,
    ) -> Result<(Arc<P>, Option<Vector>), EngineError> {
        let node = graph.node(step.node);
        let bias = Packing::vector(BIAS);
        if let Some(packed) = self.get(node, packing) {
            return Ok((packed, self.get(node, bias)));
        }
        let affine = self.channel_affine(graph, step)?;
        let scale = affine.as_ref().map(|affine| affine.scale.as_slice());
        let param = graph.param(node.params[0]);
        let start = Instant::now();
        let weight = self.source.read(&param.name, &param.shape)?;
        let read = Instant::now();
        let packed = pack(weight, scale);
        self.source.release(&param.name);
        self.reading += read - start;
        self.packing += read.elapsed();
        let packed = self.keep(node, packing, packed);
        if let Some(folded) = self.folded_bias(graph, node, affine.as_ref())? {
            self.keep(node, bias, folded);
        }
        Ok((packed, self.get(node, bias)))
    }

    /// A parameter of a node as it is, by its position.
    pub fn vector(
        &mut self,
        graph: &Graph,
        node: &Node,
        position: usize,
    ) -> Result<Vector, EngineError> {
        let packing = Packing::vector(position);
        if let Some(vector) = self.get(node, packing) {
            return Ok(vector);
        }
        let values = self.read(graph, node, position)?;
        Ok(self.keep(node, packing, values))
    }

    /// The first parameter of a node as a tensor.
    pub fn tensor(
        &mut self,
        graph: &Graph,
        node: &Node,
    ) -> Result<Arc<Tensor<'static>>, EngineError> {
        let packing = Packing {
            form: Form::Tensor,
            precision: Precision::F32,
        };
        if let Some(tensor) = self.get(node, packing) {
            return Ok(tensor);
        }
        let shape = graph.param(node.params[0]).shape.clone();
        let tensor = Tensor::from_values(shape, self.read(graph, node, 0)?)?;
        Ok(self.keep(node, packing, tensor))
    }

    /// y = x · scale + shift, the inference form of a batch norm that stands alone.
    pub fn batch_norm(&mut self, graph: &Graph, node: &Node) -> Result<[Vector; 2], EngineError> {
        let [scale, shift] = [0, 1].map(Packing::vector);
        if let (Some(scale), Some(shift)) = (self.get(node, scale), self.get(node, shift)) {
            return Ok([scale, shift]);
        }
        let affine = ChannelAffine::of(node, |position| self.read(graph, node, position))?;
        let single = |values: Vec<f64>| values.into_iter().map(|v| v as f32).collect::<Vec<_>>();
        Ok([
            self.keep(node, scale, single(affine.scale)),
            self.keep(node, shift, single(affine.shift)),
        ])
    }

    fn get<P: Packed>(&self, node: &Node, packing: Packing) -> Option<Arc<P>> {
        let held = self.held.get(&(node.id, packing))?;
        Arc::clone(&held.packed).downcast().ok()
    }

    fn keep<P: Packed>(&mut self, node: &Node, packing: Packing, packed: P) -> Arc<P> {
        let bytes = packed.bytes();
        let shared = Arc::new(packed);
        let packed = Arc::clone(&shared) as Arc<dyn Any + Send + Sync>;
        self.held.insert((node.id, packing), Held { bytes, packed });
        shared
    }

    fn read(
        &mut self,
        graph: &Graph,
        node: &Node,
        position: usize,
    ) -> Result<Vec<f32>, EngineError> {
        let param = graph.param(node.params[position]);
        let start = Instant::now();
        let values = self.source.read(&param.name, &param.shape)?.into_owned();
        self.source.release(&param.name);
        self.reading += start.elapsed();
        Ok(values)
    }

    /// The bias of a contraction with what follows folded in; `None` when there is nothing to add.
    fn folded_bias(
        &mut self,
        graph: &Graph,
        node: &Node,
        affine: Option<&ChannelAffine>,
    ) -> Result<Option<Vec<f32>>, EngineError> {
        let own = match node.params.len() > BIAS {
            true => Some(self.read(graph, node, BIAS)?),
            false => None,
        };
        Ok(ChannelAffine::fold(affine, own))
    }

    fn channel_affine(
        &mut self,
        graph: &Graph,
        step: &LoweredNode,
    ) -> Result<Option<ChannelAffine>, EngineError> {
        let Some(follower) = step.fused.follower else {
            return Ok(None);
        };
        let node = graph.node(follower);
        ChannelAffine::of(node, |position| self.read(graph, node, position)).map(Some)
    }
}

/// Multiplies each row of `width` weights by the factor of the channel that it belongs to.
pub fn scale_rows<'a>(
    mut weight: Cow<'a, [f32]>,
    width: usize,
    scale: Option<&[f64]>,
    channel_of: impl Fn(usize) -> usize,
) -> Cow<'a, [f32]> {
    if let Some(scale) = scale {
        for (row, values) in weight.to_mut().chunks_exact_mut(width).enumerate() {
            let factor = scale[channel_of(row)];
            values
                .iter_mut()
                .for_each(|w| *w = (f64::from(*w) * factor) as f32);
        }
    }
    weight
}

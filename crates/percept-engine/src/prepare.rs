//! Weights in the form that kernels want: folded, packed once, and the source given back.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use percept_graph::{
    BatchNorm, Conv2d, ConvTranspose2d, Graph, Linear, Node, NodeId, Op, SparseConv3d, WeightSource,
};
use percept_kernels::Cpu;
use percept_kernels::conv::{
    ConvAlgorithm, ConvShape, ConvTransposeShape, PackedConv, PackedConvTranspose,
};
use percept_kernels::gemm::PackedLinear;
use percept_kernels::norm::fold_batch_norm;
use percept_kernels::sparse::PackedSparseConv;

use crate::lowering::Step;
use crate::{EngineError, shapes};

/// A vector of parameters, shared by every plan that uses it.
pub type Vector = Arc<[f32]>;

/// Packed weights and what they took.
pub struct Weights {
    source: Arc<dyn WeightSource>,
    convs: HashMap<(NodeId, ConvAlgorithm), Arc<PackedConv>>,
    transposed: BTreeMap<NodeId, Arc<PackedConvTranspose>>,
    linears: BTreeMap<NodeId, Arc<PackedLinear>>,
    sparse: BTreeMap<NodeId, Arc<PackedSparseConv>>,
    vectors: BTreeMap<(NodeId, usize), Vector>,
    /// Time spent reading or generating values.
    pub reading: Duration,
    /// Time spent folding and packing.
    pub packing: Duration,
}

/// Position of a contraction's bias among its parameters.
const BIAS: usize = 1;

/// The factors and offsets that follow a contraction's channels.
struct ChannelAffine {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

impl Weights {
    /// Nothing packed yet.
    pub fn new(source: Arc<dyn WeightSource>) -> Self {
        Self {
            source,
            convs: HashMap::new(),
            transposed: BTreeMap::new(),
            linears: BTreeMap::new(),
            sparse: BTreeMap::new(),
            vectors: BTreeMap::new(),
            reading: Duration::ZERO,
            packing: Duration::ZERO,
        }
    }

    /// Where the values come from.
    pub fn source(&self) -> &dyn WeightSource {
        &*self.source
    }

    /// Bytes held by packed weights and vectors.
    pub fn bytes(&self) -> usize {
        let convs = self.convs.values().map(|packed| packed.bytes());
        let transposed = self.transposed.values().map(|packed| packed.bytes());
        let linears = self.linears.values().map(|packed| packed.bytes());
        let sparse = self.sparse.values().map(|packed| packed.bytes());
        let vectors = self.vectors.values().map(|vector| 4 * vector.len());
        let packed = convs.chain(transposed).chain(linears).chain(sparse);
        packed.chain(vectors).sum()
    }

    /// Bytes of packed weights that one node holds.
    pub fn node_bytes(&self, node: NodeId) -> usize {
        let convs = self
            .convs
            .iter()
            .filter(|((owner, _), _)| *owner == node)
            .map(|(_, packed)| packed.bytes());
        let vectors = self
            .vectors
            .iter()
            .filter(|((owner, _), _)| *owner == node)
            .map(|(_, v)| 4 * v.len());
        let transposed = self.transposed.get(&node).map(|packed| packed.bytes());
        let linear = self.linears.get(&node).map(|packed| packed.bytes());
        let sparse = self.sparse.get(&node).map(|packed| packed.bytes());
        let packed = convs.chain(transposed).chain(linear).chain(sparse);
        packed.chain(vectors).sum()
    }

    /// Packed weights of a convolution step for this algorithm, and its bias.
    pub fn conv(
        &mut self,
        cpu: &Cpu,
        graph: &Graph,
        step: &Step,
        conv: &Conv2d,
        shape: &ConvShape,
        algorithm: ConvAlgorithm,
    ) -> Result<(Arc<PackedConv>, Option<Vector>), EngineError> {
        let node = graph.node(step.node);
        let key = (node.id, algorithm);
        if !self.convs.contains_key(&key) {
            let affine = self.channel_affine(graph, step)?;
            let scale = affine.as_ref().map(|affine| affine.scale.as_slice());
            let per_channel = conv.in_channels / conv.groups * conv.kernel[0] * conv.kernel[1];
            let packed = self.pack(graph, node, |weight| {
                let weight = scale_rows(weight, per_channel, scale);
                PackedConv::pack(cpu, shape, algorithm, &weight)
            })?;
            self.convs.insert(key, Arc::new(packed));
            self.fold_bias(graph, node, conv.bias, affine)?;
        }
        Ok((Arc::clone(&self.convs[&key]), self.bias(node)))
    }

    /// Packed weights of a transposed convolution step, and its bias.
    pub fn conv_transpose(
        &mut self,
        graph: &Graph,
        step: &Step,
        op: &ConvTranspose2d,
        shape: &ConvTransposeShape,
    ) -> Result<(Arc<PackedConvTranspose>, Option<Vector>), EngineError> {
        let node = graph.node(step.node);
        if !self.transposed.contains_key(&node.id) {
            let affine = self.channel_affine(graph, step)?;
            let packed = self.pack(graph, node, |weight| {
                let weight = scale_transposed(weight, op, affine.as_ref());
                PackedConvTranspose::pack(shape, &weight)
            })?;
            self.transposed.insert(node.id, Arc::new(packed));
            self.fold_bias(graph, node, op.conv.bias, affine)?;
        }
        Ok((Arc::clone(&self.transposed[&node.id]), self.bias(node)))
    }

    /// Packed weights of a transposed convolution that computes the same as the pointwise one of `shape`, and its bias.
    pub fn pointwise_transposed(
        &mut self,
        cpu: &Cpu,
        graph: &Graph,
        step: &Step,
        op: &ConvTranspose2d,
        shape: &ConvShape,
    ) -> Result<(Arc<PackedConv>, Option<Vector>), EngineError> {
        let node = graph.node(step.node);
        let key = (node.id, ConvAlgorithm::Pointwise);
        if !self.convs.contains_key(&key) {
            let affine = self.channel_affine(graph, step)?;
            let packed = self.pack(graph, node, |weight| {
                let weight = scale_transposed(weight, op, affine.as_ref());
                let [inputs, outputs] = [shape.in_channels, shape.out_channels];
                let turned: Vec<f32> = (0..inputs * outputs)
                    .map(|at| weight[at % inputs * outputs + at / inputs])
                    .collect();
                PackedConv::pack(cpu, shape, ConvAlgorithm::Pointwise, &turned)
            })?;
            self.convs.insert(key, Arc::new(packed));
            self.fold_bias(graph, node, op.conv.bias, affine)?;
        }
        Ok((Arc::clone(&self.convs[&key]), self.bias(node)))
    }

    /// Packed weights of a linear step, and its bias.
    pub fn linear(
        &mut self,
        cpu: &Cpu,
        graph: &Graph,
        step: &Step,
        op: &Linear,
    ) -> Result<(Arc<PackedLinear>, Option<Vector>), EngineError> {
        let node = graph.node(step.node);
        if !self.linears.contains_key(&node.id) {
            let affine = self.channel_affine(graph, step)?;
            let scale = affine.as_ref().map(|affine| affine.scale.as_slice());
            let packed = self.pack(graph, node, |weight| {
                let weight = scale_rows(op.as_matrix(&weight), op.in_features, scale);
                PackedLinear::pack(cpu, &weight, op.out_features, op.in_features)
            })?;
            self.linears.insert(node.id, Arc::new(packed));
            self.fold_bias(graph, node, op.bias, affine)?;
        }
        Ok((Arc::clone(&self.linears[&node.id]), self.bias(node)))
    }

    /// Packed weights of a sparse convolution step, and its bias.
    pub fn sparse_conv(
        &mut self,
        graph: &Graph,
        step: &Step,
        op: &SparseConv3d,
    ) -> Result<(Arc<PackedSparseConv>, Option<Vector>), EngineError> {
        let node = graph.node(step.node);
        if !self.sparse.contains_key(&node.id) {
            let affine = self.channel_affine(graph, step)?;
            let scale = affine.as_ref().map(|affine| affine.scale.as_slice());
            let packed = self.pack(graph, node, |weight| {
                let weight = scale_rows(weight, op.window.taps() * op.in_channels, scale);
                PackedSparseConv::pack(&shapes::sparse_conv(op), &weight)
            })?;
            self.sparse.insert(node.id, Arc::new(packed));
            self.fold_bias(graph, node, op.bias, affine)?;
        }
        Ok((Arc::clone(&self.sparse[&node.id]), self.bias(node)))
    }

    /// A parameter of a node as it is, by its position.
    pub fn vector(
        &mut self,
        graph: &Graph,
        node: &Node,
        position: usize,
    ) -> Result<Vector, EngineError> {
        if let Some(vector) = self.vectors.get(&(node.id, position)) {
            return Ok(Arc::clone(vector));
        }
        let vector: Vector = Arc::from(self.read(graph, node, position)?);
        self.vectors
            .insert((node.id, position), Arc::clone(&vector));
        Ok(vector)
    }

    /// y = x · scale + shift, the inference form of a batch norm that stands alone.
    pub fn batch_norm(
        &mut self,
        graph: &Graph,
        node: &Node,
        op: &BatchNorm,
    ) -> Result<[Vector; 2], EngineError> {
        let keys = [(node.id, 0), (node.id, 1)];
        if !self.vectors.contains_key(&keys[0]) {
            let affine = self.batch_norm_affine(graph, node, op)?;
            let vectors = [affine.scale, affine.shift];
            for (key, values) in keys.iter().zip(vectors) {
                self.vectors
                    .insert(*key, values.into_iter().map(|v| v as f32).collect());
            }
        }
        Ok(keys.map(|key| Arc::clone(&self.vectors[&key])))
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

    /// Reads a node's weight, packs it, and gives its memory back.
    fn pack<P>(
        &mut self,
        graph: &Graph,
        node: &Node,
        pack: impl FnOnce(Cow<'_, [f32]>) -> P,
    ) -> Result<P, EngineError> {
        let param = graph.param(node.params[0]);
        let start = Instant::now();
        let weight = self.source.read(&param.name, &param.shape)?;
        let read = Instant::now();
        let packed = pack(weight);
        self.source.release(&param.name);
        self.reading += read - start;
        self.packing += read.elapsed();
        Ok(packed)
    }

    /// A contraction's bias, what follows folded in; `None` when there is nothing to add.
    fn bias(&self, node: &Node) -> Option<Vector> {
        self.vectors.get(&(node.id, BIAS)).cloned()
    }

    /// Keeps the bias of a contraction with what follows folded in: b · scale + shift.
    fn fold_bias(
        &mut self,
        graph: &Graph,
        node: &Node,
        has_bias: bool,
        affine: Option<ChannelAffine>,
    ) -> Result<(), EngineError> {
        let own = if has_bias {
            Some(self.read(graph, node, BIAS)?)
        } else {
            None
        };
        let folded: Vector = match (own, affine) {
            (None, None) => return Ok(()),
            (Some(own), None) => own.into(),
            (own, Some(ChannelAffine { scale, shift })) => {
                let own = |k: usize| own.as_ref().map_or(0.0, |own| f64::from(own[k]));
                (0..scale.len())
                    .map(|k| (own(k) * scale[k] + shift[k]) as f32)
                    .collect()
            }
        };
        self.vectors.insert((node.id, BIAS), folded);
        Ok(())
    }

    fn channel_affine(
        &mut self,
        graph: &Graph,
        step: &Step,
    ) -> Result<Option<ChannelAffine>, EngineError> {
        if let Some(id) = step.fused.batch_norm {
            let node = graph.node(id);
            let Op::BatchNorm(op) = &node.op else {
                unreachable!("the fold pass took a batch norm")
            };
            return self.batch_norm_affine(graph, node, op).map(Some);
        }
        if let Some(id) = step.fused.layer_scale {
            let gamma = self.read(graph, graph.node(id), 0)?;
            let scale: Vec<f64> = gamma.into_iter().map(f64::from).collect();
            let shift = vec![0.0; scale.len()];
            return Ok(Some(ChannelAffine { scale, shift }));
        }
        Ok(None)
    }

    fn batch_norm_affine(
        &mut self,
        graph: &Graph,
        node: &Node,
        op: &BatchNorm,
    ) -> Result<ChannelAffine, EngineError> {
        let mut part = |position| self.read(graph, node, position);
        let (weight, bias, mean, variance) = (part(0)?, part(1)?, part(2)?, part(3)?);
        let eps = f64::from(op.eps);
        let (scale, shift) = fold_batch_norm(&weight, &bias, &mean, &variance, eps);
        Ok(ChannelAffine { scale, shift })
    }
}

/// Scales the output channels of transposed weights [in, out of the group, taps].
fn scale_transposed<'a>(
    mut weight: Cow<'a, [f32]>,
    op: &ConvTranspose2d,
    affine: Option<&ChannelAffine>,
) -> Cow<'a, [f32]> {
    let Some(affine) = affine else {
        return weight;
    };
    let taps = op.conv.kernel[0] * op.conv.kernel[1];
    let group_out = op.conv.out_channels / op.conv.groups;
    let group_in = op.conv.in_channels / op.conv.groups;
    for (row, values) in weight.to_mut().chunks_exact_mut(taps).enumerate() {
        let (input, output) = (row / group_out, row % group_out);
        let scale = affine.scale[input / group_in * group_out + output];
        values
            .iter_mut()
            .for_each(|w| *w = (f64::from(*w) * scale) as f32);
    }
    weight
}

/// Multiplies each row of `width` weights by its factor.
fn scale_rows<'a>(
    mut weight: Cow<'a, [f32]>,
    width: usize,
    scale: Option<&[f64]>,
) -> Cow<'a, [f32]> {
    if let Some(scale) = scale {
        for (row, &factor) in weight.to_mut().chunks_exact_mut(width).zip(scale) {
            row.iter_mut()
                .for_each(|w| *w = (f64::from(*w) * factor) as f32);
        }
    }
    weight
}

//! Weights in the form that kernels want: folded, packed once, and the source given back.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use percept_graph::{
    BatchNorm, Conv2d, ConvTranspose2d, Graph, Linear, Node, NodeId, Op, WeightSource,
};
use percept_kernels::Cpu;
use percept_kernels::conv::{
    ConvAlgorithm, ConvShape, ConvTransposeShape, PackedConv, PackedConvTranspose,
};
use percept_kernels::gemm::PackedLinear;

use crate::EngineError;
use crate::lowering::Step;

/// A vector of parameters, shared by every plan that uses it.
pub type Vector = Arc<[f32]>;

/// Packed weights and what they took.
pub struct Weights {
    source: Arc<dyn WeightSource>,
    convs: HashMap<(NodeId, ConvAlgorithm), Arc<PackedConv>>,
    transposed: BTreeMap<NodeId, Arc<PackedConvTranspose>>,
    linears: BTreeMap<NodeId, Arc<PackedLinear>>,
    vectors: BTreeMap<(NodeId, usize), Vector>,
    /// Time spent reading or generating values.
    pub reading: Duration,
    /// Time spent folding and packing.
    pub packing: Duration,
}

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
        let vectors = self.vectors.values().map(|vector| 4 * vector.len());
        convs.chain(transposed).chain(linears).chain(vectors).sum()
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
        convs.chain(vectors).chain(transposed).chain(linear).sum()
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
        let affine = self.channel_affine(graph, step)?;
        let key = (node.id, algorithm);
        let packed = match self.convs.get(&key) {
            Some(packed) => Arc::clone(packed),
            None => {
                let scale = affine.as_ref().map(|affine| affine.scale.as_slice());
                let per_channel = conv.in_channels / conv.groups * conv.kernel[0] * conv.kernel[1];
                let packed = self.pack(graph, node, |weight| {
                    let weight = scale_rows(weight, per_channel, scale);
                    PackedConv::pack(cpu, shape, algorithm, &weight)
                })?;
                let packed = Arc::new(packed);
                self.convs.insert(key, Arc::clone(&packed));
                packed
            }
        };
        Ok((packed, self.bias(graph, node, conv.bias, affine)?))
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
        let affine = self.channel_affine(graph, step)?;
        if !self.transposed.contains_key(&node.id) {
            let taps = op.conv.kernel[0] * op.conv.kernel[1];
            let group_out = op.conv.out_channels / op.conv.groups;
            let group_in = op.conv.in_channels / op.conv.groups;
            let packed = self.pack(graph, node, |mut weight| {
                if let Some(affine) = &affine {
                    // Weight [in, out of the group, taps]: the output channel is the middle axis.
                    for (row, values) in weight.to_mut().chunks_exact_mut(taps).enumerate() {
                        let (input, output) = (row / group_out, row % group_out);
                        let channel = input / group_in * group_out + output;
                        values
                            .iter_mut()
                            .for_each(|w| *w = (f64::from(*w) * affine.scale[channel]) as f32);
                    }
                }
                PackedConvTranspose::pack(shape, &weight)
            })?;
            self.transposed.insert(node.id, Arc::new(packed));
        }
        let packed = Arc::clone(&self.transposed[&node.id]);
        Ok((packed, self.bias(graph, node, op.conv.bias, affine)?))
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
        let affine = self.channel_affine(graph, step)?;
        if !self.linears.contains_key(&node.id) {
            let scale = affine.as_ref().map(|affine| affine.scale.as_slice());
            let packed = self.pack(graph, node, |weight| {
                let weight = scale_rows(weight, op.in_features, scale);
                PackedLinear::pack(cpu, &weight, op.out_features, op.in_features)
            })?;
            self.linears.insert(node.id, Arc::new(packed));
        }
        let packed = Arc::clone(&self.linears[&node.id]);
        Ok((packed, self.bias(graph, node, op.bias, affine)?))
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

    /// The bias of a contraction with what follows folded in: (b · scale + shift), or `None` when there is nothing to add.
    fn bias(
        &mut self,
        graph: &Graph,
        node: &Node,
        has_bias: bool,
        affine: Option<ChannelAffine>,
    ) -> Result<Option<Vector>, EngineError> {
        const BIAS: usize = 1;
        let key = (node.id, BIAS);
        if let Some(vector) = self.vectors.get(&key) {
            return Ok(Some(Arc::clone(vector)));
        }
        let own = if has_bias {
            Some(self.read(graph, node, BIAS)?)
        } else {
            None
        };
        let folded: Option<Vector> = match (own, affine) {
            (None, None) => None,
            (Some(own), None) => Some(own.into()),
            (own, Some(ChannelAffine { scale, shift })) => {
                let own = |k: usize| own.as_ref().map_or(0.0, |own| f64::from(own[k]));
                Some(
                    (0..scale.len())
                        .map(|k| (own(k) * scale[k] + shift[k]) as f32)
                        .collect(),
                )
            }
        };
        if let Some(vector) = &folded {
            self.vectors.insert(key, Arc::clone(vector));
        }
        Ok(folded)
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
        let factor = |(&w, &v): (&f32, &f32)| f64::from(w) / (f64::from(v) + eps).sqrt();
        let scale: Vec<f64> = weight.iter().zip(&variance).map(factor).collect();
        let offset = |((&b, &m), &s): ((&f32, &f32), &f64)| f64::from(b) - f64::from(m) * s;
        let shift = bias.iter().zip(&mean).zip(&scale).map(offset).collect();
        Ok(ChannelAffine { scale, shift })
    }
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

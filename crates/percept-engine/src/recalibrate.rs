//! Running statistics measured anew: what batch norms of a network need after its widths have changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use percept_graph::{Graph, NodeId, Op, Tensor, ValueId, WeightSource};
use percept_kernels::Cpu;

use crate::{EngineError, Options, TrainStep};

/// Measures the batch norms of a network on batches of inputs: each batch's mean and unbiased variance, averaged over all
/// batches, as PyTorch does with `momentum=None`.
pub struct Recalibration {
    step: TrainStep,
    norms: Vec<Norm>,
    batches: usize,
}

struct Norm {
    name: String,
    /// What it normalises.
    input: ValueId,
    channels: usize,
    sums: [Vec<f64>; 2],
    /// Batches in which it had more than one value of each channel.
    measured: usize,
}

/// The new statistics of one batch norm: the names of its buffers, and what they become.
pub type Statistics = Vec<(String, Vec<f32>)>;

impl Recalibration {
    /// A network whose batch norms from node `first` on are measured, in the order of the graph; those before keep their
    /// statistics.
    pub fn new(
        graph: &Graph,
        first: NodeId,
        weights: Arc<dyn WeightSource>,
        cpu: Cpu,
        options: Options,
    ) -> Result<Self, EngineError> {
        let measured: BTreeSet<String> = graph.nodes()[first.index()..]
            .iter()
            .filter(|node| matches!(node.op, Op::BatchNorm(_)))
            .map(|node| format!("{}.running_var", node.name))
            .collect();
        let mut trained = graph
            .clone()
            .partly_in_training(|name| measured.contains(name));
        let mut norms = Vec::new();
        let mut outputs = Vec::new();
        for node in trained.nodes() {
            if let Op::BatchNormTraining(op) = &node.op {
                outputs.push((format!("{}.mean", node.name), node.outputs[1]));
                outputs.push((format!("{}.variance", node.name), node.outputs[2]));
                norms.push(Norm {
                    name: node.name.clone(),
                    input: node.inputs[0],
                    channels: op.norm.channels,
                    sums: [0, 1].map(|_| vec![0.0; op.norm.channels]),
                    measured: 0,
                });
            }
        }
        for (name, value) in outputs {
            trained = trained.with_output(&name, value);
        }
        Ok(Self {
            step: TrainStep::new(trained, weights, cpu, options)?,
            norms,
            batches: 0,
        })
    }

    /// Takes one batch into account.
    pub fn add(&mut self, inputs: &[(&str, &Tensor<'_>)]) -> Result<(), EngineError> {
        let graph = self.step.program().graph().clone();
        let shapes: Vec<(&str, Vec<usize>)> = inputs
            .iter()
            .map(|(name, tensor)| (*name, tensor.shape().to_vec()))
            .collect();
        let sizes = graph.bind(&shapes)?;
        let outputs = self.step.step(inputs)?;
        for norm in &mut self.norms {
            let elements: usize = graph.value_shape(norm.input, &sizes)?.iter().product();
            let each = elements / norm.channels.max(1);
            // One value has no variance.
            if each < 2 {
                continue;
            }
            let unbiased = each as f64 / (each - 1) as f64;
            for ((sums, what), factor) in norm
                .sums
                .iter_mut()
                .zip(["mean", "variance"])
                .zip([1.0, unbiased])
            {
                let name = format!("{}.{what}", norm.name);
                let found = outputs.iter().find(|(output, _)| *output == name);
                if let Some((_, tensor)) = found {
                    let values = tensor.to_f32();
                    for (sum, value) in sums.iter_mut().zip(values.iter()) {
                        *sum += f64::from(*value) * factor;
                    }
                }
            }
            norm.measured += 1;
        }
        self.batches += 1;
        Ok(())
    }

    /// Batches that were taken into account.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// The averages; nothing of norms that never had two values of a channel.
    pub fn statistics(&self) -> Statistics {
        let norms = self.norms.iter().filter(|norm| norm.measured > 0);
        norms
            .flat_map(|norm| {
                let names = ["running_mean", "running_var"];
                names.into_iter().zip(&norm.sums).map(|(buffer, sums)| {
                    let mean = sums.iter().map(|sum| (sum / norm.measured as f64) as f32);
                    (format!("{}.{buffer}", norm.name), mean.collect())
                })
            })
            .collect()
    }
}

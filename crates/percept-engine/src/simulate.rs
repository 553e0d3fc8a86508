//! Quantised networks on floats: what layers in integers would see, computed by the kernels for f32.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use percept_graph::{Graph, WeightError, WeightGrid, WeightSource};

use crate::EngineError;
use crate::precision::{PrecisionPlan, Quantization, is_contraction};

impl PrecisionPlan {
    /// The network with quantisers in front of the layers that the plan has in integers. Run it on [`RoundedWeights`].
    pub fn quantize(&self, graph: Graph) -> Result<Graph, EngineError> {
        self.check(&graph)?;
        Ok(graph.quantized(|node| {
            let grids = self
                .quantization(&node.name)
                .filter(|_| is_contraction(node))?;
            Some((grids.weight, grids.input))
        }))
    }

    /// The plan that a network was quantised by, layer by layer.
    pub fn of_graph(graph: &Graph) -> Self {
        let layers = graph.nodes().iter();
        let layers = layers.filter_map(|node| {
            let (weight, input) = graph.grids(node)?;
            Some((node.name.as_str(), Quantization { weight, input }))
        });
        layers.fold(Self::new(), |plan, (name, grids)| plan.with(name, grids))
    }
}

/// Weights of which some lie on grids of integers.
pub struct RoundedWeights {
    source: Arc<dyn WeightSource>,
    grids: BTreeMap<String, WeightGrid>,
}

impl RoundedWeights {
    /// The weights of a quantised network: those that have a grid are moved to it. Weights that lie on it stay as they are.
    pub fn new(source: Arc<dyn WeightSource>, graph: &Graph) -> Self {
        let params = graph.params().iter();
        let grids = params.filter_map(|param| Some((param.name.clone(), param.grid?)));
        Self {
            source,
            grids: grids.collect(),
        }
    }
}

impl WeightSource for RoundedWeights {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let mut values = self.source.read(name, shape)?;
        if let Some(grid) = self.grids.get(name) {
            grid.round(values.to_mut(), shape);
        }
        Ok(values)
    }

    fn release(&self, name: &str) {
        self.source.release(name);
    }

    fn describe(&self) -> String {
        self.source.describe()
    }
}

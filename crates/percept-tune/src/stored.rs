//! A plan of precisions and quantised weights as a file.

use std::collections::BTreeMap;
use std::path::Path;

use percept_data::safetensors::SafetensorsWriter;
use percept_data::{STEP, TensorSource};
use percept_engine::{PrecisionPlan, Quantization};
use percept_graph::{Amax, Graph, InputGrid, Per, Sign, Tensor, WeightGrid, WeightSource};
use serde::{Deserialize, Serialize};

use crate::TuneError;

/// Where the plan stands in a file's metadata.
pub const PLAN_KEY: &str = "percept.plan";

/// A plan as a file keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredPlan {
    /// How it was made, for people.
    pub made_by: String,
    /// Layers that are not in f32.
    pub layers: BTreeMap<String, StoredLayer>,
}

/// The grids of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredLayer {
    /// Bits of a weight.
    pub weight_bits: u8,
    /// Whether channels have scales of their own.
    pub per_channel: bool,
    /// Bits of an input.
    pub input_bits: u8,
    /// The largest magnitude of an input; measured in every run when none.
    pub amax: Option<f32>,
    /// Whether inputs are never negative.
    pub non_negative: bool,
}

impl From<Quantization> for StoredLayer {
    fn from(grids: Quantization) -> Self {
        Self {
            weight_bits: grids.weight.bits,
            per_channel: grids.weight.per == Per::Channel,
            input_bits: grids.input.bits,
            amax: match grids.input.amax {
                Amax::Dynamic => None,
                Amax::Static(amax) => Some(amax),
            },
            non_negative: grids.input.sign == Sign::NonNegative,
        }
    }
}

impl From<StoredLayer> for Quantization {
    fn from(layer: StoredLayer) -> Self {
        Quantization {
            weight: WeightGrid {
                bits: layer.weight_bits,
                per: match layer.per_channel {
                    true => Per::Channel,
                    false => Per::Tensor,
                },
            },
            input: InputGrid {
                bits: layer.input_bits,
                amax: layer.amax.map_or(Amax::Dynamic, Amax::Static),
                sign: match layer.non_negative {
                    true => Sign::NonNegative,
                    false => Sign::Signed,
                },
            },
        }
    }
}

impl StoredPlan {
    /// The plan that a network was quantised by.
    pub fn of_graph(graph: &Graph, made_by: String) -> Self {
        let plan = PrecisionPlan::of_graph(graph);
        let layers = graph.nodes().iter();
        let layers = layers.filter_map(|node| {
            let grids = plan.quantization(&node.name)?;
            graph.grids(node)?;
            Some((node.name.clone(), grids.into()))
        });
        Self {
            made_by,
            layers: layers.collect(),
        }
    }

    /// The plan of a weight file; none where it has none.
    pub fn of_weights(weights: &dyn TensorSource) -> Result<Option<Self>, TuneError> {
        let text = weights.metadata(PLAN_KEY);
        let plan = text.map(serde_json::from_str).transpose();
        plan.map_err(|error| TuneError::DamagedPlan {
            file: weights.describe(),
            reason: error.to_string(),
        })
    }

    /// As the engine takes it.
    pub fn plan(&self) -> PrecisionPlan {
        let layers = self.layers.iter();
        layers.fold(PrecisionPlan::new(), |plan, (name, layer)| {
            plan.with(name, Quantization::from(*layer))
        })
    }
}

/// Writes the weights of a quantised network: integers with their steps where it has grids, floats elsewhere, and its plan.
/// Returns the bytes of integers, of steps, and of floats.
pub fn write_quantized(
    path: &Path,
    graph: &Graph,
    weights: &dyn WeightSource,
    made_by: String,
    metadata: impl IntoIterator<Item = (String, String)>,
) -> Result<[u64; 3], TuneError> {
    let mut file = SafetensorsWriter::create(path)?;
    let mut bytes = [0u64; 3];
    for param in graph.params() {
        let values = weights.read(&param.name, &param.shape)?;
        let mut add = |name: &str, kind: usize, tensor: Tensor<'_>| {
            bytes[kind] += tensor.bytes().len() as u64;
            file.add(name, &tensor)
        };
        let shape = param.shape.as_slice();
        match param.grid {
            None => {
                let tensor = Tensor::from_values(shape, &values[..])
                    .map_err(percept_graph::WeightError::from)?;
                add(&param.name, 2, tensor)?;
            }
            Some(grid) => {
                let integers = grid.integers(&values, shape);
                let steps = grid.steps(&values, shape);
                let integers = Tensor::from_values(shape, integers)
                    .map_err(percept_graph::WeightError::from)?;
                let steps = Tensor::from_values([steps.len()], steps)
                    .map_err(percept_graph::WeightError::from)?;
                add(&param.name, 0, integers)?;
                add(&format!("{}{STEP}", param.name), 1, steps)?;
            }
        }
        weights.release(&param.name);
    }
    let plan = StoredPlan::of_graph(graph, made_by);
    let plan = serde_json::to_string(&plan).expect("a plan is JSON");
    let mut metadata: BTreeMap<String, String> = metadata.into_iter().collect();
    metadata.insert(PLAN_KEY.to_owned(), plan);
    file.finish(&metadata)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use percept_data::seeded::Family;
    use percept_data::{Dequantized, ModelWeights, open_weights};
    use percept_engine::RoundedWeights;
    use percept_graph::{Builder, Conv2d, Dim};

    use super::*;

    fn network() -> Graph {
        let mut b = Builder::new("Layers");
        let x = b.input("x", [1, 4, 8, 8].map(Dim::from));
        let x = b.conv2d("first", x, Conv2d::new(4, 32, 3).padding(1));
        let x = b.conv2d("second", x, Conv2d::new(32, 16, 1));
        b.output("y", x);
        b.finish().unwrap()
    }

    #[test]
    fn what_is_written_is_what_a_simulation_reads() {
        let mut four = Quantization::dynamic(8).with_input(2.5, Sign::NonNegative);
        four.weight = WeightGrid {
            bits: 4,
            per: Per::Tensor,
        };
        let plan = PrecisionPlan::new()
            .with("first", Quantization::dynamic(16))
            .with("second", four);
        let graph = plan.quantize(network()).unwrap();
        let float = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.safetensors");
        let extra = [("note".to_owned(), "kept".to_owned())];
        let bytes = write_quantized(&path, &graph, &*float, "by hand".to_owned(), extra).unwrap();
        assert_eq!(bytes, [4 * 32 * 9 + 32 * 16, 33 * 4, (32 + 16) * 4]);

        let stored = open_weights(&path).unwrap();
        assert_eq!(stored.metadata("note"), Some("kept"));
        let found = StoredPlan::of_weights(&*stored).unwrap().unwrap();
        assert_eq!((found.plan(), found.made_by.as_str()), (plan, "by hand"));
        let read = Dequantized::new(stored);
        let rounded = RoundedWeights::new(float, &graph);
        for param in graph.params() {
            let (a, b) = (
                read.read_f32(&param.name).unwrap(),
                rounded.read(&param.name, &param.shape).unwrap(),
            );
            for (a, b) in a.iter().zip(b.iter()) {
                assert!(
                    (a - b).abs() <= 1e-6 * b.abs(),
                    "{}: {a} against {b}",
                    param.name
                );
            }
        }
    }

    #[test]
    fn a_damaged_plan_is_told() {
        let text = "{\"made_by\": \"x\", \"layers\": {\"a\": 3}}".to_owned();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.safetensors");
        let metadata = BTreeMap::from([(PLAN_KEY.to_owned(), text)]);
        percept_data::safetensors::write_safetensors(&path, &[], &metadata).unwrap();
        let error = StoredPlan::of_weights(&*open_weights(&path).unwrap()).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

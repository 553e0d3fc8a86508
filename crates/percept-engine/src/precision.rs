//! Which layers compute in which precision.

use std::collections::BTreeMap;
use std::fmt;

use percept_graph::{Amax, Graph, InputGrid, Node, Op, Per, Sign, WeightGrid};

use crate::EngineError;

/// What a layer's products are computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// Inputs of 9 to 16 bits with weights of at most 8.
    I16,
    /// Inputs and weights of at most 8 bits, summed in 32-bit integers.
    I8,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::F32 => "f32",
            Precision::I16 => "i16",
            Precision::I8 => "i8",
        })
    }
}

/// The grids of integers that a layer's weights and its input lie on.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Quantization {
    pub weight: WeightGrid,
    pub input: InputGrid,
}

impl Quantization {
    /// Weights of 8 bits with a scale for each channel, and signed inputs of this many bits, measured in every run.
    pub fn dynamic(input_bits: u8) -> Self {
        Self {
            weight: WeightGrid {
                bits: 8,
                per: Per::Channel,
            },
            input: InputGrid::dynamic(input_bits),
        }
    }

    /// The same with the range of the input known beforehand.
    pub fn with_input(mut self, amax: f32, sign: Sign) -> Self {
        self.input.amax = Amax::Static(amax);
        self.input.sign = sign;
        self
    }

    /// What the products are computed in.
    pub fn precision(&self) -> Precision {
        match self.input.bits {
            ..=8 => Precision::I8,
            _ => Precision::I16,
        }
    }
}

/// How one layer computes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LayerPrecision {
    /// In 32-bit floats.
    #[default]
    Float,
    /// In integers.
    Integer(Quantization),
}

impl From<Quantization> for LayerPrecision {
    fn from(quantization: Quantization) -> Self {
        LayerPrecision::Integer(quantization)
    }
}

/// Integers without further words are those that need no calibration.
impl From<Precision> for LayerPrecision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => LayerPrecision::Float,
            Precision::I16 => Quantization::dynamic(16).into(),
            Precision::I8 => Quantization::dynamic(8).into(),
        }
    }
}

/// A precision for each scope that is to differ from [`Precision::F32`]; an inner scope decides before an outer one.
///
/// It is about layers with weights. What surrounds them follows the types of their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrecisionPlan {
    by_scope: BTreeMap<String, LayerPrecision>,
}

impl PrecisionPlan {
    /// Everything in f32.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same plan with this precision for a scope: a layer's name, a module's, or "" for the whole network.
    pub fn with(mut self, scope: impl Into<String>, precision: impl Into<LayerPrecision>) -> Self {
        self.by_scope.insert(scope.into(), precision.into());
        self
    }

    /// Whether everything is in f32.
    pub fn is_float(&self) -> bool {
        let mut layers = self.by_scope.values();
        layers.all(|layer| *layer == LayerPrecision::Float)
    }

    /// The scopes it speaks of, with their precisions.
    pub fn scopes(&self) -> impl Iterator<Item = (&str, LayerPrecision)> {
        let scopes = self.by_scope.iter();
        scopes.map(|(scope, layer)| (scope.as_str(), *layer))
    }

    /// How the node of this name computes.
    pub fn layer(&self, node: &str) -> LayerPrecision {
        let mut scope = node;
        loop {
            if let Some(&layer) = self.by_scope.get(scope) {
                return layer;
            }
            scope = match (scope.rsplit_once('.'), scope) {
                (Some((outer, _)), _) => outer,
                (None, "") => return LayerPrecision::default(),
                (None, _) => "",
            };
        }
    }

    /// What the products of the node of this name are computed in.
    pub fn of(&self, node: &str) -> Precision {
        self.quantization(node)
            .map_or(Precision::F32, |grids| grids.precision())
    }

    /// The grids of the node of this name; none where it computes in floats.
    pub fn quantization(&self, node: &str) -> Option<Quantization> {
        match self.layer(node) {
            LayerPrecision::Float => None,
            LayerPrecision::Integer(grids) => Some(grids),
        }
    }

    /// Refuses scopes that hold no node of the graph, and grids that nobody can compute on.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), EngineError> {
        let holds = |scope: &str, node: &str| {
            let rest = node.strip_prefix(scope);
            scope.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        for (scope, layer) in self.scopes() {
            let scope = scope.to_owned();
            if !graph.nodes().iter().any(|node| holds(&scope, &node.name)) {
                return Err(EngineError::UnknownScope { scope });
            }
            if let LayerPrecision::Integer(grids) = layer
                && let Some(problem) = problem_of(&grids)
            {
                return Err(EngineError::BadGrid { scope, problem });
            }
        }
        Ok(())
    }
}

/// Whether a node multiplies its input by weights: what a plan of precisions is about.
pub fn is_contraction(node: &Node) -> bool {
    matches!(
        node.op,
        Op::Conv2d(_) | Op::ConvTranspose2d(_) | Op::Linear(_) | Op::SparseConv3d(_)
    )
}

fn problem_of(grids: &Quantization) -> Option<String> {
    let (weight, input) = (grids.weight.bits, grids.input.bits);
    match grids.input.amax {
        _ if !(2..=8).contains(&weight) => Some(format!("weights of {weight} bits; 2 to 8 work")),
        _ if !(2..=16).contains(&input) => Some(format!("inputs of {input} bits; 2 to 16 work")),
        Amax::Static(amax) if !(amax.is_finite() && amax >= 0.0) => {
            Some(format!("an input range of {amax}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_scope_decides() {
        let calibrated = Quantization::dynamic(8).with_input(3.5, Sign::NonNegative);
        let plan = PrecisionPlan::new()
            .with("layer1", Precision::I8)
            .with("layer1.0.conv2", Precision::F32)
            .with("layer1.0.conv3", calibrated)
            .with("fc", Precision::I16);
        for (node, expected) in [
            ("layer1.0.conv1", Precision::I8),
            ("layer1.0.conv2", Precision::F32),
            ("layer1.0.conv3", Precision::I8),
            ("layer10.conv1", Precision::F32),
            ("fc", Precision::I16),
            ("conv1", Precision::F32),
        ] {
            assert_eq!(plan.of(node), expected, "{node}");
        }
        assert_eq!(plan.quantization("layer1.0.conv3"), Some(calibrated));
        assert_eq!(plan.quantization("layer1.0.conv2"), None);
        assert_eq!(
            plan.quantization("fc").unwrap().input,
            InputGrid::dynamic(16)
        );
        let whole = PrecisionPlan::new().with("", Precision::I8);
        assert_eq!(whole.of("layer1.0.conv1"), Precision::I8);
        assert!(!whole.is_float() && PrecisionPlan::new().is_float());
    }

    #[test]
    fn grids_that_nobody_can_compute_on_are_refused() {
        let mut grids = Quantization::dynamic(8);
        assert_eq!(problem_of(&grids), None);
        grids.weight.bits = 1;
        assert_eq!(
            problem_of(&grids).unwrap(),
            "weights of 1 bits; 2 to 8 work"
        );
        let wide = Quantization::dynamic(17);
        assert_eq!(
            problem_of(&wide).unwrap(),
            "inputs of 17 bits; 2 to 16 work"
        );
        let torn = Quantization::dynamic(8).with_input(f32::NAN, Sign::Signed);
        assert_eq!(problem_of(&torn).unwrap(), "an input range of NaN");
    }
}

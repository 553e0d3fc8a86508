//! From a network and what was seen of it to a plan of precisions.

use percept_engine::{PrecisionPlan, Quantization, is_contraction};
use percept_graph::{Graph, InputGrid, Node, Op, Per, Sign, WeightGrid};

use crate::{Calibration, Calibrator, TuneError};

/// How the ranges of inputs are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Measured beforehand.
    Static,
    /// Measured in every run.
    Dynamic,
    /// Inputs have 16 bits, measured in every run: only the weights are small.
    WeightOnly,
}

/// Which layers become integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// Convolutions of maps and linear layers.
    Dense,
    /// Sparse convolutions too.
    #[default]
    All,
}

/// How a network is quantised.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Recipe {
    pub scheme: Scheme,
    pub calibrator: Calibrator,
    pub weight: WeightGrid,
    /// Bits of inputs; those of [`Scheme::WeightOnly`] are 16.
    pub input_bits: u8,
    pub layers: Layers,
    /// Scopes that stay in f32.
    pub float: Vec<String>,
    /// Scopes whose inputs have 16 bits.
    pub wide: Vec<String>,
}

impl Recipe {
    /// 8 bits, a scale for each channel, all layers.
    pub fn new(scheme: Scheme) -> Self {
        Self {
            scheme,
            calibrator: Calibrator::Max,
            weight: WeightGrid {
                bits: 8,
                per: Per::Channel,
            },
            input_bits: 8,
            layers: Layers::All,
            float: Vec::new(),
            wide: Vec::new(),
        }
    }

    /// Bits of inputs, as the scheme has them.
    pub fn input_bits(&self) -> u8 {
        match self.scheme {
            Scheme::WeightOnly => 16,
            _ => self.input_bits,
        }
    }

    /// Whether it must see samples.
    pub fn needs_calibration(&self) -> bool {
        self.scheme == Scheme::Static
    }

    /// The layers of a network that it makes integers of.
    pub fn takes<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = &'a Node> {
        graph.nodes().iter().filter(|node| {
            let is_wanted = match (&node.op, self.layers) {
                (Op::SparseConv3d(_), Layers::Dense) => false,
                _ => is_contraction(node),
            };
            is_wanted && !self.float.iter().any(|scope| holds(scope, &node.name))
        })
    }

    /// The grids of one layer.
    pub fn grids(
        &self,
        node: &Node,
        calibration: Option<&Calibration>,
    ) -> Result<Quantization, TuneError> {
        let layer = node.name.as_str();
        let is_wide = self.wide.iter().any(|scope| holds(scope, layer));
        let bits = match is_wide {
            true => 16,
            false => self.input_bits(),
        };
        let mut grids = Quantization {
            weight: self.weight,
            input: InputGrid::dynamic(bits),
        };
        // The channels of a transposed convolution's weights are those of its input, over which sums run. With a scale for each
        // there is nothing to compute in integers.
        if self.needs_calibration() && matches!(node.op, Op::ConvTranspose2d(_)) {
            grids.weight.per = Per::Tensor;
        }
        if !self.needs_calibration() {
            return Ok(grids);
        }
        let seen = calibration.and_then(|calibration| calibration.of(layer));
        let seen = seen.ok_or_else(|| TuneError::NotCalibrated {
            layer: layer.to_owned(),
        })?;
        let sign = match seen.is_non_negative() {
            true => Sign::NonNegative,
            false => Sign::Signed,
        };
        Ok(grids.with_input(self.calibrator.amax(seen, bits), sign))
    }

    /// The plan of a network, layer by layer.
    pub fn plan(
        &self,
        graph: &Graph,
        calibration: Option<&Calibration>,
    ) -> Result<PrecisionPlan, TuneError> {
        for scope in self.float.iter().chain(&self.wide) {
            if !graph.nodes().iter().any(|node| holds(scope, &node.name)) {
                let scope = scope.clone();
                return Err(percept_engine::EngineError::UnknownScope { scope }.into());
            }
        }
        if self.needs_calibration() && calibration.is_none_or(|seen| seen.samples() == 0) {
            return Err(TuneError::NoSamples);
        }
        let mut plan = PrecisionPlan::new();
        for node in self.takes(graph) {
            plan = plan.with(&node.name, self.grids(node, calibration)?);
        }
        match plan.is_float() {
            true => Err(TuneError::NoLayers),
            false => Ok(plan),
        }
    }
}

/// Whether a node stands in a scope, or is it.
pub(crate) fn holds(scope: &str, node: &str) -> bool {
    let rest = node.strip_prefix(scope);
    scope.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

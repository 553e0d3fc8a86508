//! The weights of one network: any source of tensors, checked to fit a graph and read as the engine asks.

use std::borrow::Cow;
use std::path::Path;

use percept_graph::{Graph, WeightError};
use thiserror::Error;

use crate::error::FileError;
use crate::load_report::{LoadError, LoadReport};
use crate::names::{NameMap, Renamed};
use crate::quantized::Dequantized;
use crate::seeded::{Family, Seeded};
use crate::weights::{TensorSource, missing, open_weights};

/// Weights that fit a graph.
pub struct ModelWeights {
    source: Box<dyn TensorSource>,
}

/// Why a file's weights cannot be used for a network.
#[derive(Debug, Error)]
pub enum ModelWeightsError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It holds other tensors than the network declares.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl ModelWeights {
    /// Weights made from the names of the graph's parameters, by the conventions of `family`.
    pub fn seeded(family: Family, graph: &Graph) -> Self {
        Self {
            source: Box::new(Seeded::of(family, graph)),
        }
    }

    /// Weights from a file that follows the graph's names, or one of some other layouts: (its name, (name there, name in
    /// the graph) of each tensor). The layout that fits best is taken; the report says what matched.
    pub fn open<'a>(
        path: &Path,
        graph: &Graph,
        layouts: impl IntoIterator<Item = (&'a str, &'a [(String, String)])>,
    ) -> Result<(Self, LoadReport), ModelWeightsError> {
        let (weights, report) = Self::open_partly(path, graph, layouts)?;
        Ok((weights, report.require_complete()?))
    }

    /// The same, of a file that may lack parameters or have them in another shape, as the report tells.
    pub fn open_partly<'a>(
        path: &Path,
        graph: &Graph,
        layouts: impl IntoIterator<Item = (&'a str, &'a [(String, String)])>,
    ) -> Result<(Self, LoadReport), FileError> {
        let open = || open_weights(path).map(Dequantized::new);
        let mut best: Box<dyn TensorSource> = Box::new(open()?);
        let mut report = compare(graph, &best);
        for (layout, renames) in layouts {
            if report.is_complete() {
                break;
            }
            let map: NameMap = renames
                .iter()
                .map(|(there, here)| (there.as_str(), here.as_str()))
                .collect();
            let renamed: Box<dyn TensorSource> = Box::new(Renamed::new(open()?, map));
            let mut other = compare(graph, &renamed);
            if other.matched > report.matched {
                other.weights = format!("{} (names of {layout})", other.weights);
                (best, report) = (renamed, other);
            }
        }
        Ok((Self { source: best }, report))
    }

    /// Weights from any source that follows the graph's names.
    pub fn of(
        source: Box<dyn TensorSource>,
        graph: &Graph,
    ) -> Result<(Self, LoadReport), LoadError> {
        let (weights, report) = Self::partly_of(source, graph);
        Ok((weights, report.require_complete()?))
    }

    /// The same, of a source that may lack parameters or have them in another shape, as the report tells.
    pub fn partly_of(source: Box<dyn TensorSource>, graph: &Graph) -> (Self, LoadReport) {
        let source: Box<dyn TensorSource> = Box::new(Dequantized::new(source));
        let report = compare(graph, &source);
        (Self { source }, report)
    }
}

fn compare(graph: &Graph, source: &dyn TensorSource) -> LoadReport {
    let params = graph.params().iter();
    let declared = params.map(|param| (param.name.as_str(), param.shape.as_slice()));
    LoadReport::compare(declared, source)
}

impl percept_graph::WeightSource for ModelWeights {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let found = self
            .source
            .shape(name)
            .ok_or_else(|| missing(&self.source, name))?;
        if found != shape {
            let (name, expected) = (name.to_owned(), shape.to_vec());
            return Err(WeightError::WrongShape {
                name,
                expected,
                got: found,
            });
        }
        self.source.read_f32(name)
    }

    fn release(&self, name: &str) {
        self.source.release(name);
    }

    fn describe(&self) -> String {
        self.source.describe()
    }
}

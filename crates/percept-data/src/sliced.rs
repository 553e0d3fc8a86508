//! A narrow network's parameters out of weights of the whole one.

use percept_graph::{DType, Part, Slicing, Tensor, WeightError};

use crate::weights::TensorSource;

/// Weights of which a part is read. A tensor that has the narrow shape already is taken as it is, so that weights of the narrow
/// network serve too; and running statistics that a training kept for this very part are taken instead of the whole network's.
pub struct Sliced<S> {
    source: S,
    slicing: Slicing,
}

impl<S: TensorSource> Sliced<S> {
    /// The parts that `slicing` names.
    pub fn new(source: S, slicing: Slicing) -> Self {
        Self { source, slicing }
    }

    /// What the source has of the narrow network's own under another name.
    fn own(&self, name: &str) -> Option<String> {
        let own = self.slicing.own_name(name)?;
        self.source.shape(&own).is_some().then_some(own)
    }

    /// The part to cut out of a tensor, where the source has the whole.
    fn part(&self, name: &str) -> Option<&Part> {
        let part = self.slicing.part(name)?;
        (self.source.shape(name)? == part.whole).then_some(part)
    }
}

impl<S: TensorSource> TensorSource for Sliced<S> {
    fn names(&self) -> Vec<&str> {
        self.source.names()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        if let Some(own) = self.own(name) {
            return self.source.shape(&own);
        }
        match self.part(name) {
            Some(part) => Some(part.narrow.clone()),
            None => self.source.shape(name),
        }
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        self.source.dtype(name)
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        if let Some(own) = self.own(name) {
            return self.source.read(&own);
        }
        let tensor = self.source.read(name)?;
        let Some(part) = self.part(name) else {
            return Ok(tensor);
        };
        let width = tensor.dtype().size_bytes();
        let mut bytes = Vec::with_capacity(width * part.narrow.iter().product::<usize>());
        for place in part.places() {
            bytes.extend_from_slice(&tensor.bytes()[place * width..(place + 1) * width]);
        }
        Ok(Tensor::new(tensor.dtype(), part.narrow.clone(), bytes)?)
    }

    fn release(&self, name: &str) {
        self.source.release(name);
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.source.metadata(key)
    }

    fn describe(&self) -> String {
        match self.slicing.is_whole() {
            true => self.source.describe(),
            false => format!("{}, sliced", self.source.describe()),
        }
    }
}

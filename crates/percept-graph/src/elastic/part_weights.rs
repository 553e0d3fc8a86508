//! Weights of a part of a network, read out of those of the whole.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Slicing;
use crate::{WeightError, WeightSource};

/// The leading parts of whole weights, with some tensors in place of them: statistics that were measured anew.
pub struct PartWeights {
    whole: Arc<dyn WeightSource>,
    slicing: Slicing,
    replaced: BTreeMap<String, Vec<f32>>,
}

impl PartWeights {
    /// The parts that `slicing` names.
    pub fn new(whole: Arc<dyn WeightSource>, slicing: Slicing) -> Self {
        Self {
            whole,
            slicing,
            replaced: BTreeMap::new(),
        }
    }

    /// The same with these tensors instead of their own.
    pub fn replacing(self, tensors: impl IntoIterator<Item = (String, Vec<f32>)>) -> Self {
        Self {
            replaced: tensors.into_iter().collect(),
            ..self
        }
    }
}

impl WeightSource for PartWeights {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        if let Some(values) = self.replaced.get(name) {
            return Ok(Cow::Borrowed(values));
        }
        match self.slicing.part(name) {
            Some(part) => {
                let whole = self.whole.read(name, &part.whole)?;
                Ok(Cow::Owned(part.take(&whole)))
            }
            None => self.whole.read(name, shape),
        }
    }

    fn release(&self, name: &str) {
        self.whole.release(name);
    }

    fn describe(&self) -> String {
        format!("{}, sliced", self.whole.describe())
    }
}

//! Weights from several files: a backbone from here, a head from there.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::names::{NameMap, Renamed};
use crate::weights::{TensorSource, missing};
use percept_graph::{DType, Tensor, WeightError};

/// Several sources as one. Where two have a tensor of one name, the later is asked.
pub struct Assembled {
    pieces: Vec<Box<dyn TensorSource>>,
    /// The piece that has each name.
    owners: BTreeMap<String, usize>,
}

impl Assembled {
    /// Sources, each whole or of one scope of a network, whose names may have the scope in front or not.
    pub fn new(pieces: impl IntoIterator<Item = (Option<String>, Box<dyn TensorSource>)>) -> Self {
        let pieces: Vec<Box<dyn TensorSource>> = pieces
            .into_iter()
            .map(|(scope, source)| match scope {
                Some(scope) => scoped(&scope, source),
                None => source,
            })
            .collect();
        let mut owners = BTreeMap::new();
        for (piece, source) in pieces.iter().enumerate() {
            owners.extend(
                source
                    .names()
                    .into_iter()
                    .map(|name| (name.to_owned(), piece)),
            );
        }
        Self { pieces, owners }
    }

    fn owner(&self, name: &str) -> Option<&dyn TensorSource> {
        Some(&*self.pieces[*self.owners.get(name)?])
    }
}

/// The source with `scope` in front of every name that has it not.
fn scoped(scope: &str, source: Box<dyn TensorSource>) -> Box<dyn TensorSource> {
    let prefix = format!("{scope}.");
    let map: NameMap = source
        .names()
        .into_iter()
        .filter(|name| !name.starts_with(&prefix))
        .map(|name| (name, format!("{prefix}{name}")))
        .collect();
    Box::new(Renamed::new(source, map))
}

impl TensorSource for Assembled {
    fn names(&self) -> Vec<&str> {
        self.owners.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.owner(name)?.shape(name)
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        self.owner(name)?.dtype(name)
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        self.owner(name)
            .ok_or_else(|| missing(self, name))?
            .read(name)
    }

    fn read_f32(&self, name: &str) -> Result<Cow<'_, [f32]>, WeightError> {
        let owner = self.owner(name).ok_or_else(|| missing(self, name))?;
        owner.read_f32(name)
    }

    fn release(&self, name: &str) {
        if let Some(owner) = self.owner(name) {
            owner.release(name);
        }
    }

    fn describe(&self) -> String {
        let pieces: Vec<String> = self.pieces.iter().map(TensorSource::describe).collect();
        pieces.join(" + ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryWeights;

    fn source(description: &str, names: &[&str], value: f32) -> Box<dyn TensorSource> {
        let tensors = names.iter().map(|name| {
            let tensor = Tensor::from_values([1], vec![value]).unwrap();
            ((*name).to_owned(), tensor)
        });
        Box::new(MemoryWeights::new(description, tensors))
    }

    #[test]
    fn pieces_go_where_they_belong() {
        let whole = source("whole", &["trunk.weight", "head.weight"], 1.0);
        let bare = source("bare", &["weight", "bias"], 2.0);
        let named = source("named", &["trunk.bias"], 3.0);
        let of = |scope: &str| Some(scope.to_owned());
        let weights = Assembled::new([(None, whole), (of("head"), bare), (of("trunk"), named)]);
        let value = |name: &str| weights.read_f32(name).unwrap()[0];
        let names = ["head.bias", "head.weight", "trunk.bias", "trunk.weight"];
        assert_eq!(weights.names(), names);
        assert_eq!(names.map(value), [2.0, 2.0, 3.0, 1.0]);
        assert_eq!(weights.describe(), "whole + bare + named");
        assert!(weights.read("weight").is_err() && weights.shape("weight").is_none());
    }
}

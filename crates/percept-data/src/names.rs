//! Weights under other names: a checkpoint of one library in the layout of another.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::weights::TensorSource;
use percept_graph::{DType, Tensor, WeightError};

/// New names for old ones. Names that it does not hold stay as they are.
#[derive(Clone, Debug, Default)]
pub struct NameMap {
    new_to_old: HashMap<String, String>,
    old_to_new: HashMap<String, String>,
}

impl NameMap {
    /// The name that `old` gets.
    pub fn new_name<'a>(&'a self, old: &'a str) -> &'a str {
        self.old_to_new.get(old).map_or(old, String::as_str)
    }

    /// The name that `new` had.
    pub fn old_name<'a>(&'a self, new: &'a str) -> &'a str {
        self.new_to_old.get(new).map_or(new, String::as_str)
    }

    /// The map in the other direction.
    pub fn inverse(self) -> NameMap {
        NameMap {
            new_to_old: self.old_to_new,
            old_to_new: self.new_to_old,
        }
    }
}

impl<Old: Into<String>, New: Into<String>> FromIterator<(Old, New)> for NameMap {
    fn from_iter<I: IntoIterator<Item = (Old, New)>>(pairs: I) -> NameMap {
        let mut map = NameMap::default();
        for (old, new) in pairs {
            let (old, new) = (old.into(), new.into());
            map.new_to_old.insert(new.clone(), old.clone());
            map.old_to_new.insert(old, new);
        }
        map
    }
}

/// A source seen through a [`NameMap`]: it is asked by the new names.
pub struct Renamed<S> {
    source: S,
    map: NameMap,
}

impl<S: TensorSource> Renamed<S> {
    /// `source` under the new names of `map`.
    pub fn new(source: S, map: NameMap) -> Renamed<S> {
        Renamed { source, map }
    }
}

impl<S: TensorSource> TensorSource for Renamed<S> {
    fn names(&self) -> Vec<&str> {
        self.source
            .names()
            .into_iter()
            .map(|old| self.map.new_name(old))
            .collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.source.shape(self.map.old_name(name))
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        self.source.dtype(self.map.old_name(name))
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        self.source.read(self.map.old_name(name))
    }

    fn read_f32(&self, name: &str) -> Result<Cow<'_, [f32]>, WeightError> {
        self.source.read_f32(self.map.old_name(name))
    }

    fn release(&self, name: &str) {
        self.source.release(self.map.old_name(name));
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.source.metadata(key)
    }

    fn describe(&self) -> String {
        self.source.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::MemoryWeights;

    #[test]
    fn a_renamed_source_answers_to_the_new_names() {
        let values = [1.0f32];
        let tensor = || Tensor::from_values(vec![1], &values).unwrap();
        let source = MemoryWeights::new(
            "timm.pth",
            [
                ("conv_stem.weight".to_owned(), tensor()),
                ("other".to_owned(), tensor()),
            ],
        );
        let map: NameMap = [("conv_stem.weight", "features.0.0.weight")]
            .into_iter()
            .collect();
        assert_eq!(
            map.clone().inverse().new_name("features.0.0.weight"),
            "conv_stem.weight"
        );

        let boxed: Box<dyn TensorSource + '_> = Box::new(source);
        let renamed = Renamed::new(boxed, map);
        assert_eq!(renamed.names(), ["features.0.0.weight", "other"]);
        assert_eq!(*renamed.read_f32("features.0.0.weight").unwrap(), [1.0]);
        assert_eq!(renamed.shape("other"), Some(vec![1]));
        assert_eq!(renamed.describe(), "timm.pth");
        assert!(renamed.read("missing").is_err());
    }
}

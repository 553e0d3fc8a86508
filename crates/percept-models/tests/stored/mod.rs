//! Reference outputs: fixtures of this repository, and whole references where they exist.

use std::path::Path;

use percept_data::TensorSource as _;
use percept_data::safetensors::Safetensors;
pub use percept_testing::shared;

/// A file of reference outputs.
pub struct Golden {
    file: Safetensors,
}

impl Golden {
    /// A fixture of this repository.
    pub fn fixture(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        Self::open(&folder.join(format!("{name}.safetensors")))
    }

    /// Any file.
    pub fn open(path: &Path) -> Self {
        Self {
            file: Safetensors::open(path).expect("the reference opens"),
        }
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.file.shape(name)
    }

    /// The values of a tensor.
    pub fn values(&self, name: &str) -> Vec<f32> {
        self.file
            .read_f32(name)
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .into_owned()
    }

    /// The values of a tensor, as exact as they are stored.
    pub fn doubles(&self, name: &str) -> Vec<f64> {
        let tensor = self.file.read(name);
        let tensor = tensor.unwrap_or_else(|error| panic!("{name}: {error}"));
        tensor.to_f64().into_owned()
    }

    /// The values of a tensor of whole numbers.
    pub fn indices(&self, name: &str) -> Vec<usize> {
        let tensor = self
            .file
            .read(name)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        tensor
            .to_f64()
            .iter()
            .map(|&index| index as usize)
            .collect()
    }
}

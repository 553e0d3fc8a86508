//! Files of plain tensors, which a network takes as they are.

use std::path::{Path, PathBuf};

use percept_data::arrays::{read_npy, read_npz};
use percept_data::safetensors::Safetensors;
use percept_data::{Datum, FileError, Sample, SampleError, Samples, TensorSource as _};
use percept_graph::Tensor;

use crate::error::OpenError;

/// A sample per file: a tensor for each input, named as it or `input.NAME`. The only tensor of a file serves the only input
/// under any name.
pub(crate) struct TensorFiles {
    inputs: Vec<String>,
    files: Vec<PathBuf>,
}

impl TensorFiles {
    /// Whether a file holds named tensors. (A `.npy` file may as well hold points.)
    pub(crate) fn takes(path: &Path) -> bool {
        matches!(ending(path).as_str(), "safetensors" | "npz")
    }

    /// These files, each of which must have all of `inputs`.
    pub(crate) fn open(paths: &[&Path], inputs: Vec<String>) -> Result<Self, OpenError> {
        for path in paths {
            let present = match ending(path).as_str() {
                "safetensors" => {
                    let file = Safetensors::open(path)?;
                    file.names().into_iter().map(str::to_owned).collect()
                }
                "npz" => {
                    let arrays = read_npz(path)?.into_iter();
                    arrays.map(|(name, _)| name).collect()
                }
                "npy" => vec![String::new()],
                _ => {
                    return Err(OpenError::NotTensors {
                        path: path.to_path_buf(),
                    });
                }
            };
            let absent = inputs
                .iter()
                .find(|input| stored(input, &inputs, &present).is_none());
            if let Some(input) = absent {
                return Err(OpenError::NoTensor {
                    path: path.to_path_buf(),
                    input: input.clone(),
                    present,
                });
            }
        }
        Ok(Self {
            inputs,
            files: paths.iter().map(|path| path.to_path_buf()).collect(),
        })
    }
}

/// The name under which a file stores an input.
fn stored<'a>(input: &str, inputs: &[String], present: &'a [String]) -> Option<&'a String> {
    let prefixed = format!("input.{input}");
    let named = present
        .iter()
        .find(|name| **name == input || **name == prefixed);
    named.or(match (inputs, present) {
        ([_], [only]) => Some(only),
        _ => None,
    })
}

impl Samples for TensorFiles {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn name(&self, index: usize) -> String {
        self.files[index].display().to_string()
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let path = &self.files[index];
        let tensors = read(path)?;
        let present: Vec<String> = tensors.iter().map(|(name, _)| name.clone()).collect();
        let mut sample = Sample {
            name: self.name(index),
            parts: Vec::new(),
        };
        for input in &self.inputs {
            let name = stored(input, &self.inputs, &present);
            let found = name.and_then(|name| tensors.iter().find(|(known, _)| known == name));
            let (_, tensor) = found.ok_or_else(|| SampleError::NoPart {
                sample: sample.name.clone(),
                part: input.clone(),
                present: present.clone(),
            })?;
            sample = sample.with(input, Datum::Tensor(tensor.clone()));
        }
        Ok(sample)
    }
}

fn read(path: &Path) -> Result<Vec<(String, Tensor<'static>)>, FileError> {
    match ending(path).as_str() {
        "npy" => Ok(vec![(String::new(), read_npy(path)?)]),
        "npz" => read_npz(path),
        _ => {
            let file = Safetensors::open(path)?;
            let names = file.names();
            let read = names.into_iter().map(|name| {
                let tensor = file.read(name).map_err(|error| error_of(path, error))?;
                Ok((name.to_owned(), tensor.into_owned()))
            });
            read.collect()
        }
    }
}

fn error_of(path: &Path, error: percept_graph::WeightError) -> FileError {
    FileError::new(path, std::io::Error::other(error.to_string()))
}

fn ending(path: &Path) -> String {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.unwrap_or_default().to_ascii_lowercase()
}

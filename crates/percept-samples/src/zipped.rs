//! Samples whose parts come from different places.

use percept_data::{Sample, SampleError, Samples};

use crate::error::OpenError;

/// Sample by sample, the parts of all sources.
pub(crate) struct Zipped {
    sources: Vec<Box<dyn Samples>>,
}

impl Zipped {
    /// Sources of these parts, which must hold as many samples as each other.
    pub(crate) fn new(parts: Vec<&str>, sources: Vec<Box<dyn Samples>>) -> Result<Self, OpenError> {
        let lengths: Vec<usize> = sources.iter().map(|source| source.len()).collect();
        if let Some(other) = lengths.iter().position(|length| *length != lengths[0]) {
            return Err(OpenError::OtherLength {
                a_part: parts[0].to_owned(),
                a: lengths[0],
                b_part: parts[other].to_owned(),
                b: lengths[other],
            });
        }
        Ok(Self { sources })
    }
}

impl Samples for Zipped {
    fn len(&self) -> usize {
        self.sources.first().map_or(0, |source| source.len())
    }

    fn name(&self, index: usize) -> String {
        let names: Vec<String> = self.sources.iter().map(|s| s.name(index)).collect();
        names.join(" + ")
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let mut parts = Vec::new();
        for source in &self.sources {
            parts.extend(source.sample(index)?.parts);
        }
        Ok(Sample {
            name: self.name(index),
            parts,
        })
    }
}

//! How a network's declared parameters match a source of weights.

use std::collections::HashSet;
use std::fmt;

use percept_graph::PART_SEPARATOR;
use thiserror::Error;

use crate::weights::TensorSource;

/// Names of each kind that are printed; the rest is counted.
const SHOWN: usize = 8;

/// A parameter that a network declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its public state-dict name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// A parameter whose shape in the source is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongShape {
    /// Its name.
    pub name: String,
    /// The shape that the network declares.
    pub expected: Vec<usize>,
    /// The shape in the source.
    pub found: Vec<usize>,
}

/// What of a source fits a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// The description of the source.
    pub weights: String,
    /// Parameters found with their shape.
    pub matched: usize,
    /// Parameters that the source does not have.
    pub missing: Vec<Parameter>,
    /// Tensors of the source that no parameter asks for.
    pub unexpected: Vec<String>,
    /// Parameters found with another shape.
    pub wrong_shaped: Vec<WrongShape>,
}

/// Weights that do not fit the network.
#[derive(Debug, Error)]
#[error("the weights do not fit the network\n{0}")]
pub struct LoadError(pub Box<LoadReport>);

impl LoadReport {
    /// Compares the `declared` parameters with what `source` holds.
    ///
    /// Batch counters (`num_batches_tracked`) that nobody declares are not reported: PyTorch writes them beside
    /// every batch norm, and inference has no use for them.
    pub fn compare<'a>(
        declared: impl IntoIterator<Item = (&'a str, &'a [usize])>,
        source: &dyn TensorSource,
    ) -> LoadReport {
        let mut report = LoadReport {
            weights: source.describe(),
            matched: 0,
            missing: Vec::new(),
            unexpected: Vec::new(),
            wrong_shaped: Vec::new(),
        };
        let mut asked_for = HashSet::new();
        for (name, shape) in declared {
            asked_for.insert(name);
            let (name, expected) = (name.to_owned(), shape.to_vec());
            match source.shape(&name) {
                None => report.missing.push(Parameter {
                    name,
                    shape: expected,
                }),
                Some(found) if found == expected => report.matched += 1,
                Some(found) => report.wrong_shaped.push(WrongShape {
                    name,
                    expected,
                    found,
                }),
            }
        }
        let unasked = source
            .names()
            .into_iter()
            .filter(|name| !asked_for.contains(name));
        // Counters that nothing reads, and what parts of an elastic network have beside the whole one.
        let unexpected = unasked.filter(|name| {
            !name.ends_with("num_batches_tracked") && !name.contains(PART_SEPARATOR)
        });
        report.unexpected = unexpected.map(str::to_owned).collect();
        report
    }

    /// Whether every declared parameter was found with its shape.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.wrong_shaped.is_empty()
    }

    /// The report itself when it is complete (extra tensors do no harm), an error that tells it otherwise.
    pub fn require_complete(self) -> Result<LoadReport, LoadError> {
        if self.is_complete() {
            Ok(self)
        } else {
            Err(LoadError(Box::new(self)))
        }
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let declared = self.matched + self.missing.len() + self.wrong_shaped.len();
        write!(
            f,
            "weights: {}, {} of {declared} parameters match",
            self.weights, self.matched
        )?;
        list(f, "missing", &self.missing, |it| {
            format!("{} {:?}", it.name, it.shape)
        })?;
        list(f, "wrong shape", &self.wrong_shaped, |it| {
            format!(
                "{}: expected {:?}, found {:?}",
                it.name, it.expected, it.found
            )
        })?;
        list(f, "unexpected", &self.unexpected, Clone::clone)
    }
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    items: &[T],
    line: impl Fn(&T) -> String,
) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    write!(f, "\n  {title} ({}):", items.len())?;
    for item in items.iter().take(SHOWN) {
        write!(f, "\n    {}", line(item))?;
    }
    match items.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "\n    ... and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::MemoryWeights;
    use percept_graph::{DType, Tensor};

    fn source(tensors: &[(&str, &[usize])]) -> MemoryWeights<'static> {
        let tensors = tensors.iter().map(|(name, shape)| {
            let bytes = vec![0; shape.iter().product()];
            (
                (*name).to_owned(),
                Tensor::new(DType::U8, shape.to_vec(), bytes).unwrap(),
            )
        });
        MemoryWeights::new("test.pth", tensors)
    }

    #[test]
    fn every_kind_of_mismatch_is_told() {
        let source = source(&[
            ("conv.weight", &[4, 3]),
            ("fc.weight", &[10, 8]),
            ("old.weight", &[1]),
            ("bn.num_batches_tracked", &[]),
        ]);
        let declared: [(&str, &[usize]); 3] = [
            ("conv.weight", &[4, 3]),
            ("fc.weight", &[1000, 8]),
            ("fc.bias", &[1000]),
        ];
        let report = LoadReport::compare(declared, &source);
        assert_eq!(
            report.to_string(),
            "weights: test.pth, 1 of 3 parameters match\n  \
               missing (1):\n    fc.bias [1000]\n  \
               wrong shape (1):\n    fc.weight: expected [1000, 8], found [10, 8]\n  \
               unexpected (1):\n    old.weight"
        );
        assert!(!report.is_complete());
        assert!(
            report
                .require_complete()
                .unwrap_err()
                .to_string()
                .contains("do not fit")
        );
    }

    #[test]
    fn extra_tensors_do_not_make_a_report_incomplete() {
        let source = source(&[("a", &[1]), ("b", &[2])]);
        let report = LoadReport::compare([("a", &[1usize][..])], &source);
        assert_eq!(
            (report.matched, report.unexpected.as_slice()),
            (1, &["b".to_owned()][..])
        );
        assert!(report.require_complete().is_ok());
    }

    #[test]
    fn the_text_is_bounded() {
        let names: Vec<String> = (0..1000).map(|i| format!("layer{i}.weight")).collect();
        let declared = names.iter().map(|name| (name.as_str(), &[1usize][..]));
        let text = LoadReport::compare(declared, &source(&[])).to_string();
        assert_eq!(text.lines().count(), 2 + SHOWN + 1);
        assert!(text.ends_with("... and 992 more"));
    }
}

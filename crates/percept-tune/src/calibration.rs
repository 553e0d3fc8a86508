//! What the layers of a network multiply, watched on samples: a histogram for each value that some layer reads.

use std::collections::BTreeMap;
use std::path::Path;

use percept_data::safetensors::{Safetensors, write_safetensors};
use percept_data::{Example, FileError, TensorSource as _};
use percept_engine::{Program, is_contraction};
use percept_graph::{Graph, Tensor, ValueId};

use crate::histogram::BINS;
use crate::{Histogram, TuneError};

/// Histograms of the inputs of a network's layers. Memory is bounded by the number of layers, however many samples there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Samples that were watched.
    samples: u64,
    histograms: Vec<Histogram>,
    /// Which histogram is that of a layer's input; layers that read one value share it.
    of_layer: BTreeMap<String, usize>,
    /// The same by value, while samples are watched.
    of_value: BTreeMap<ValueId, usize>,
}

impl Calibration {
    /// Nothing watched yet, of a network without quantisers.
    pub fn new(graph: &Graph) -> Self {
        let mut of_value = BTreeMap::new();
        let mut of_layer = BTreeMap::new();
        for node in graph.nodes().iter().filter(|node| is_contraction(node)) {
            let next = of_value.len();
            let at = *of_value.entry(node.inputs[0]).or_insert(next);
            of_layer.insert(node.name.clone(), at);
        }
        Self {
            samples: 0,
            histograms: vec![Histogram::default(); of_value.len()],
            of_layer,
            of_value,
        }
    }

    /// Runs a network on a sample, or several at once, and watches. A number that is none is an error which names the layer and the
    /// sample.
    pub fn watch(
        &mut self,
        program: &mut Program,
        example: &Example,
        sample: &str,
    ) -> Result<(), TuneError> {
        let inputs = example.taken_by(program.graph());
        let mut seen = vec![false; self.histograms.len()];
        let mut wrong: Option<(String, u64)> = None;
        program.run_observed(&inputs, &mut |node, values| {
            let Some(&at) = self.of_value.get(&node.inputs[0]) else {
                return;
            };
            if std::mem::replace(&mut seen[at], true) {
                return;
            }
            let histogram = &mut self.histograms[at];
            let before = histogram.not_finite();
            histogram.add(values);
            let count = histogram.not_finite() - before;
            if count > 0 && wrong.is_none() {
                wrong = Some((node.name.clone(), count));
            }
        })?;
        self.samples += example.samples as u64;
        match wrong {
            None => Ok(()),
            Some((layer, count)) => Err(TuneError::NotANumber {
                sample: sample.to_owned(),
                layer,
                count,
            }),
        }
    }

    /// Samples that were watched.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// What a layer multiplies; none where no sample reached it.
    pub fn of(&self, layer: &str) -> Option<&Histogram> {
        let histogram = &self.histograms[*self.of_layer.get(layer)?];
        (histogram.count() > 0).then_some(histogram)
    }

    /// The file that keeps the calibration of a weight file, so that another calibrator needs no second pass.
    pub fn beside(weights: &Path) -> std::path::PathBuf {
        weights.with_extension(ENDING)
    }

    /// Whether a path is that of a calibration.
    pub fn is_named(path: &Path) -> bool {
        path.to_string_lossy().ends_with(ENDING)
    }

    /// Writes all histograms of `network`, with what else there is to say.
    pub fn write(
        &self,
        path: &Path,
        network: &str,
        metadata: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), FileError> {
        let count = self.histograms.len();
        let bins: Vec<i64> = self
            .histograms
            .iter()
            .flat_map(|histogram| histogram.bins.iter().map(|&count| count as i64))
            .collect();
        let numbers = self.histograms.iter();
        let counts =
            |pick: fn(&Histogram) -> i64| -> Vec<i64> { numbers.clone().map(pick).collect() };
        let ranges = numbers.clone().flat_map(|h| [h.smallest, h.largest]);
        let tensors = [
            ("bins", Tensor::from_values([count, BINS], bins)),
            (
                "zeros",
                Tensor::from_values([count], counts(|h| h.zeros as i64)),
            ),
            (
                "exponents",
                Tensor::from_values([count], counts(|h| i64::from(h.exponent))),
            ),
            (
                "ranges",
                Tensor::from_values([count, 2], ranges.collect::<Vec<f32>>()),
            ),
        ];
        let tensors = tensors.map(|(name, tensor)| {
            let tensor = tensor.expect("lengths follow from the number of histograms");
            (name.to_owned(), tensor)
        });
        let layers = serde_json::to_string(&self.of_layer).expect("names and numbers are JSON");
        let own = [
            (NETWORK, network.to_owned()),
            (SAMPLES, self.samples.to_string()),
            (LAYERS, layers),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value));
        let metadata = metadata.into_iter().chain(own).collect();
        write_safetensors(path, &tensors, &metadata)
    }

    /// Reads the histograms of `network` back.
    pub fn read(path: &Path, network: &str) -> Result<Self, TuneError> {
        let file = Safetensors::open(path)?;
        let wrong = |reason: String| TuneError::NoCalibration {
            file: path.display().to_string(),
            reason,
        };
        let text = |key: &str| {
            let found = file.metadata().get(key);
            found.ok_or_else(|| wrong(format!("it says nothing of `{key}`")))
        };
        let found = text(NETWORK)?;
        if found != network {
            return Err(TuneError::OtherNetwork {
                found: found.clone(),
                asked: network.to_owned(),
            });
        }
        let samples = text(SAMPLES)?.parse();
        let samples = samples.map_err(|error| wrong(format!("its number of samples: {error}")))?;
        let of_layer: BTreeMap<String, usize> = serde_json::from_str(text(LAYERS)?)
            .map_err(|error| wrong(format!("its layers: {error}")))?;
        let tensor = |name: &str| file.read(name).map_err(TuneError::from);
        let (bins, zeros) = (tensor("bins")?, tensor("zeros")?);
        let (exponents, ranges) = (tensor("exponents")?, tensor("ranges")?);
        let (count, width) = match bins.shape() {
            &[count, width] => (count, width),
            _ => return Err(wrong("its bins are no table".to_owned())),
        };
        let fits = width == BINS
            && zeros.shape() == [count]
            && exponents.shape() == [count]
            && ranges.shape() == [count, 2]
            && of_layer.values().all(|&at| at < count);
        if !fits {
            return Err(wrong("its tables do not fit each other".to_owned()));
        }
        let whole = |tensor: &Tensor<'_>| -> Result<Vec<u64>, TuneError> {
            let numbers: &[i64] = tensor.values().map_err(|error| wrong(error.to_string()))?;
            let numbers = numbers.iter().map(|&n| u64::try_from(n));
            let numbers: Result<Vec<u64>, _> = numbers.collect();
            numbers.map_err(|error| wrong(format!("a count: {error}")))
        };
        let (bins, zeros) = (whole(&bins)?, whole(&zeros)?);
        let exponents: &[i64] = exponents
            .values()
            .map_err(|error| wrong(error.to_string()))?;
        let ranges = ranges.to_f32();
        let histograms = (0..count).map(|at| {
            let exponent = i32::try_from(exponents[at])
                .ok()
                .filter(|e| (-160..=160).contains(e));
            Some(Histogram {
                exponent: exponent?,
                bins: bins[at * BINS..(at + 1) * BINS].to_vec(),
                zeros: zeros[at],
                smallest: ranges[2 * at],
                largest: ranges[2 * at + 1],
                not_finite: 0,
            })
        });
        let histograms: Option<Vec<Histogram>> = histograms.collect();
        Ok(Self {
            samples,
            histograms: histograms.ok_or_else(|| wrong("a bin has no width".to_owned()))?,
            of_layer,
            of_value: BTreeMap::new(),
        })
    }
}

const ENDING: &str = "calibration.safetensors";
const NETWORK: &str = "percept.calibration";
const SAMPLES: &str = "percept.samples";
const LAYERS: &str = "percept.layers";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use percept_engine::{Options, Program};
    use percept_graph::{Builder, Conv2d, Dim, WeightError, WeightSource};
    use percept_kernels::Cpu;

    use super::*;

    struct Ones;

    impl WeightSource for Ones {
        fn read(
            &self,
            _: &str,
            shape: &[usize],
        ) -> Result<std::borrow::Cow<'_, [f32]>, WeightError> {
            Ok(vec![1.0; shape.iter().product()].into())
        }

        fn describe(&self) -> String {
            "ones".to_owned()
        }
    }

    fn network() -> Graph {
        let mut b = Builder::new("Layers");
        let x = b.input("x", [Dim::from(1), 2.into(), Dim::symbol("H"), 4.into()]);
        let x = b.conv2d("first", x, Conv2d::new(2, 2, 1));
        let x = b.relu("relu", x);
        let left = b.conv2d("left", x, Conv2d::new(2, 1, 1));
        let right = b.conv2d("right", x, Conv2d::new(2, 1, 1));
        b.output("left", left);
        b.output("right", right);
        b.finish().unwrap()
    }

    fn watched(samples: &[Vec<f32>]) -> Result<Calibration, TuneError> {
        let graph = network();
        let mut calibration = Calibration::new(&graph);
        let cpu = Cpu::new(1).unwrap();
        let mut program = Program::new(graph, Arc::new(Ones), cpu, Options::default());
        for sample in samples {
            let x = Tensor::from_values([1, 2, sample.len() / 8, 4], sample.clone()).unwrap();
            let example = Example::of_one([("x", x)]);
            calibration.watch(&mut program, &example, "picture 7")?;
        }
        Ok(calibration)
    }

    #[test]
    fn layers_are_watched_where_they_are_fused() {
        let calibration = watched(&[vec![-0.25; 8], vec![3.0; 16]]).unwrap();
        assert_eq!(calibration.samples(), 2);
        let first = calibration.of("first").unwrap();
        assert_eq!((first.amax(), first.count()), (3.0, 24));
        assert!(!first.is_non_negative());
        // Two channels of ones and a bias of one, behind a ReLU: 0.5 and 7.
        let left = calibration.of("left").unwrap();
        assert_eq!((left.amax(), left.count()), (7.0, 24));
        assert!(left.is_non_negative());
        assert_eq!(calibration.of("right"), Some(left));
        assert_eq!(calibration.of("relu"), None);
    }

    #[test]
    fn a_number_that_is_none_is_named_with_its_layer_and_sample() {
        let mut sample = vec![1.0; 8];
        sample[3] = f32::NAN;
        let error = watched(&[sample]).unwrap_err().to_string();
        assert_eq!(
            error,
            "picture 7: 1 numbers that first would multiply are NaN or infinite"
        );
    }

    #[test]
    fn a_calibration_survives_its_file_and_damage_is_told() {
        let calibration = watched(&[vec![0.5; 8]]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = Calibration::beside(&folder.path().join("net.safetensors"));
        assert!(Calibration::is_named(&path));
        calibration.write(&path, "net", []).unwrap();
        let again = Calibration::read(&path, "net").unwrap();
        assert_eq!(again.of("left"), calibration.of("left"));
        assert_eq!(again.samples(), 1);
        let error = Calibration::read(&path, "other").unwrap_err().to_string();
        assert_eq!(error, "the calibration is of `net`, not of `other`");
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 9, 200, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(Calibration::read(&path, "net").is_err(), "{length}");
        }
        let other = folder.path().join("w.safetensors");
        write_safetensors(&other, &[], &BTreeMap::new()).unwrap();
        let error = Calibration::read(&other, "net").unwrap_err().to_string();
        assert!(error.contains("no calibration of percept"), "{error}");
    }
}

//! How a run saves memory: what is computed again on the way back, and in which type values wait for it.

use std::sync::Arc;

use percept_data::SettingError;
use percept_engine::Recording;
use percept_graph::{DType, Graph, Recompute, Tensor, WeightSource};
use serde::{Deserialize, Serialize};

use crate::frozen::Names;
use crate::probe::batch_of;
use crate::stepper::{StepInputs, Variant, random_counter};
use crate::{Learner, TrainConfig, TrainError};

/// The type in which values wait for the backward pass. Sums and gradients are f32 with each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Activations {
    #[default]
    F32,
    F16,
    BF16,
}

/// What is computed again: modules, [`ELEMENTWISE`], or [`AUTO`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Names", into = "Vec<String>")]
pub struct Recomputed(Vec<String>);

/// The word for norms and activations: what one pass over a kept value gives back.
pub const ELEMENTWISE: &str = "elementwise";
/// The word for as much as a limit needs.
pub const AUTO: &str = "auto";

impl From<Names> for Recomputed {
    fn from(names: Names) -> Self {
        Self(names.into())
    }
}

impl From<Recomputed> for Vec<String> {
    fn from(recomputed: Recomputed) -> Self {
        recomputed.0
    }
}

/// A number of bytes, which may be written with a unit.
///
/// ```
/// use percept_train::ByteLimit;
/// let limit: ByteLimit = serde_json::from_str("\"1.5 GiB\"")?;
/// assert_eq!(limit.bytes(), 3 << 29);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "u64")]
pub struct ByteLimit(u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl TryFrom<Written> for ByteLimit {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let text = match written {
            Written::Number(bytes) => return Ok(Self(bytes)),
            Written::Text(text) => text,
        };
        let wrong = || format!("`{text}` is no size; write 450MiB, 1.5GB or a number of bytes");
        let unit = text.find(|c: char| c.is_ascii_alphabetic());
        let (number, unit) = text.split_at(unit.unwrap_or(text.len()));
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "kib" => f64::from(1 << 10),
            "mib" => f64::from(1 << 20),
            "gib" => f64::from(1 << 30),
            _ => return Err(wrong()),
        };
        match number > 0.0 {
            true => Ok(Self((number * factor) as u64)),
            false => Err(wrong()),
        }
    }
}

impl From<ByteLimit> for u64 {
    fn from(limit: ByteLimit) -> u64 {
        limit.0
    }
}

impl ByteLimit {
    /// The number.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl Activations {
    /// The type, where it is not that of the forward pass.
    fn narrow(self) -> Option<DType> {
        match self {
            Activations::F32 => None,
            Activations::F16 => Some(DType::F16),
            Activations::BF16 => Some(DType::BF16),
        }
    }
}

impl Recomputed {
    fn is_auto(&self) -> bool {
        self.0.iter().any(|word| word == AUTO)
    }

    fn named(&self) -> Recompute {
        let modules = self.0.iter().filter(|word| *word != ELEMENTWISE);
        Recompute {
            modules: modules.cloned().collect(),
            elementwise: self.0.iter().any(|word| word == ELEMENTWISE),
        }
    }
}

impl TrainConfig {
    /// Refuses `auto` without a limit, and a limit beside modules that were named.
    pub(crate) fn check_saving(&self) -> Result<(), SettingError> {
        let is_auto = self.recompute.is_auto();
        let words = self.recompute.0.join(",");
        let (alone, limited) = (self.recompute.0.len() <= 1, self.max_memory.is_some());
        let expected = "auto alone, and with it max_memory";
        SettingError::unless(!is_auto || alone && limited, "recompute", &words, expected)?;
        let expected = "auto where max_memory is set";
        let fits = !limited || is_auto || self.recompute.0.is_empty();
        SettingError::unless(fits, "recompute", words, expected)
    }

    /// The training step with what saves memory.
    pub(crate) fn save(&self, graph: Graph, again: &Recompute) -> Result<Graph, TrainError> {
        let graph = graph.recomputing(again)?;
        let graph = match self.activations.narrow() {
            Some(dtype) => graph.keeping(dtype),
            None => graph,
        };
        Ok(graph.with_early_updates())
    }
}

/// What a limit led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// What is computed again.
    pub again: Recompute,
    /// Bytes that a step takes: values, parameters, statistics, moments and working memory.
    pub bytes: u64,
}

/// What is computed again; and how it was found, where a limit asked for it.
pub(crate) fn settle(
    learner: &Learner,
    config: &TrainConfig,
    weights: &Arc<dyn WeightSource>,
    threads: usize,
) -> Result<(Recompute, Option<Fitted>), TrainError> {
    let Some(limit) = config.max_memory else {
        return Ok((config.recompute.named(), None));
    };
    let rehearsal = Rehearsal {
        learner,
        config,
        weights,
        threads,
        limit: limit.bytes(),
    };
    let fitted = rehearsal.fit()?;
    Ok((fitted.again.clone(), Some(fitted)))
}

/// Steps on noise that show what a plan takes.
struct Rehearsal<'a> {
    learner: &'a Learner,
    config: &'a TrainConfig,
    weights: &'a Arc<dyn WeightSource>,
    threads: usize,
    limit: u64,
}

/// What a plan takes.
enum Taken {
    Within(u64),
    /// At least so much.
    Above(u64),
}

impl Rehearsal<'_> {
    /// The first of ever more frugal plans that stays within the limit: nothing again, norms and activations, and then module by
    /// module, those first that give most for their work.
    fn fit(&self) -> Result<Fitted, TrainError> {
        let modules = self.modules()?;
        let plan = |count: usize| Recompute {
            elementwise: count > 0,
            modules: modules[..count.saturating_sub(1)].to_vec(),
        };
        let (mut above, mut within) = (0, modules.len() + 1);
        let mut bytes = match self.taken(&plan(within))? {
            Taken::Within(bytes) => bytes,
            Taken::Above(least) => {
                let limit = self.limit;
                return Err(TrainError::MemoryLimit { limit, least });
            }
        };
        // `above` counts plans that are known to take too much.
        while above < within {
            let middle = above + (within - above) / 2;
            match self.taken(&plan(middle))? {
                Taken::Within(less) => (within, bytes) = (middle, less),
                Taken::Above(_) => above = middle + 1,
            }
        }
        Ok(Fitted {
            again: plan(within),
            bytes,
        })
    }

    fn modules(&self) -> Result<Vec<String>, TrainError> {
        let variant = self.variant(&Recompute::default())?;
        let graph = variant.program().graph();
        let shapes = self.shapes(graph)?;
        let named: Vec<_> = shapes
            .iter()
            .map(|(n, s)| (n.as_str(), s.clone()))
            .collect();
        let modules = graph.recomputable_modules(&graph.bind(&named)?)?;
        Ok(modules.into_iter().map(|module| module.module).collect())
    }

    /// The shapes of everything that a graph takes.
    fn shapes(&self, graph: &Graph) -> Result<Vec<(String, Vec<usize>)>, TrainError> {
        let example = self.learner.lesson.rehearsal(self.samples())?;
        let shape_of = |name: &str| match example.get(name) {
            Some(tensor) => tensor.shape().to_vec(),
            None if name == percept_graph::RANDOM_COUNTER => vec![2],
            None => Vec::new(),
        };
        let inputs = graph.inputs().iter();
        Ok(inputs
            .map(|input| (input.name.clone(), shape_of(&input.name)))
            .collect())
    }

    fn samples(&self) -> usize {
        self.config.batch.div_ceil(self.config.parts)
    }

    fn variant(&self, again: &Recompute) -> Result<Variant, TrainError> {
        let graph = self.learner.lesson.graphs().swap_remove(0);
        Variant::new(graph, self.config, again, self.weights, self.threads)
    }

    /// What a step takes. One that is planned to take too much is not run.
    fn taken(&self, again: &Recompute) -> Result<Taken, TrainError> {
        let mut variant = self.variant(again)?;
        let shapes = self.shapes(variant.program().graph())?;
        let planned = variant.planned_bytes(&shapes)? as u64;
        if planned > self.limit {
            return Ok(Taken::Above(planned));
        }
        let batch = batch_of(self.learner.lesson.rehearsal(self.samples())?);
        let first = StepInputs {
            done: 0,
            rate: 0.0,
            momentum: 0.0,
        };
        let mut recording = Recording::default();
        let counter = |part| -> Tensor<'static> { random_counter(self.config.seed, part) };
        let lesson = &*self.learner.lesson;
        variant.gradients(lesson, &batch, &first, counter, Some(&mut recording))?;
        let memory = variant
            .program()
            .memory_at_peak(&recording.runs[0].bindings);
        let bytes = memory.total_bytes() as u64;
        Ok(match bytes <= self.limit {
            true => Taken::Within(bytes),
            false => Taken::Above(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use percept_models::{Settings, zoo};

    use crate::stepper::Stepper;

    /// EfficientNet has dropout, running statistics and squeeze and excite: everything that could go astray.
    fn learner(config: &TrainConfig) -> Learner {
        let entry = zoo::find("efficientnet-b0").unwrap();
        let model = entry.build(&Settings::none().with("classes", 2)).unwrap();
        let classes = ["wren", "robin"].map(str::to_owned);
        let course = entry.course.unwrap();
        Learner::new(&model, &course, &config.lesson_options(), &classes).unwrap()
    }

    /// The state after two steps, by its bits, with what a limit led to.
    fn learned(set: &[&str], threads: usize) -> Result<(Vec<u32>, Option<Fitted>), TrainError> {
        let set = ["size=32", "batch=4"].iter().chain(set);
        let config = TrainConfig::parse("", set).unwrap();
        let learner = learner(&config);
        let weights = Arc::new(crate::InitialParameters::of(&learner, 1));
        let mut stepper = Stepper::new(&learner, &config, weights, threads)?;
        for done in 0..2 {
            let inputs = StepInputs {
                done,
                rate: 0.05,
                momentum: 0.0,
            };
            let parts = (0..config.parts).map(|_| learner.lesson.rehearsal(4 / config.parts));
            let mut batch = batch_of(learner.lesson.rehearsal(4).unwrap());
            batch.parts = parts.collect::<Result<_, _>>().unwrap();
            stepper.run(&batch, inputs, None)?;
        }
        let state = stepper.state()?;
        let bits = state.iter().flat_map(|(_, tensor)| {
            let values: Vec<u32> = tensor.to_f32().iter().map(|v| v.to_bits()).collect();
            values
        });
        Ok((bits.collect(), stepper.fitted().cloned()))
    }

    #[test]
    fn runs_that_compute_again_learn_the_same_bits() {
        let (expected, _) = learned(&[], 1).unwrap();
        for again in [
            "elementwise",
            "features",
            "features.1,features.2.0,elementwise",
        ] {
            let again = format!("recompute={again}");
            assert!(learned(&[&again], 2).unwrap().0 == expected, "{again}");
        }
        let (expected, _) = learned(&["parts=2"], 1).unwrap();
        let (got, _) = learned(&["parts=2", "recompute=features"], 1).unwrap();
        assert!(got == expected);
        let (rounded, _) = learned(&["activations=f16"], 1).unwrap();
        assert!(rounded != learned(&[], 1).unwrap().0, "rounding is seen");
    }

    #[test]
    fn a_limit_is_kept_or_refused_with_what_can_be_done() {
        let (expected, fitted) = learned(&["max_memory=4GB"], 1).unwrap();
        let whole = fitted.unwrap();
        assert_eq!(whole.again, Recompute::default());
        let Err(TrainError::MemoryLimit { limit, least }) = learned(&["max_memory=1MiB"], 1) else {
            panic!("a step cannot do with a megabyte");
        };
        assert!(limit == 1 << 20 && least < whole.bytes);
        // Parameters take most of it here, so there is not much between the two.
        let limit = (whole.bytes + 2 * least) / 3;
        let (got, fitted) = learned(&[&format!("max_memory={limit}")], 1).unwrap();
        let fitted = fitted.unwrap();
        assert!(fitted.bytes <= limit && fitted.again != Recompute::default());
        assert!(got == expected);
    }

    #[test]
    fn a_module_that_is_not_there_is_named_with_the_nearest() {
        let error = learned(&["recompute=feature.2"], 1)
            .unwrap_err()
            .to_string();
        let expected =
            "recompute: the network has no module `feature.2`; did you mean `features.2`?";
        assert_eq!(error, expected);
    }

    fn config(set: &[&str]) -> Result<TrainConfig, String> {
        TrainConfig::parse("", set).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_and_words_are_read() {
        let config = config(&["recompute=layer1, elementwise", "activations=bf16"]).unwrap();
        let expected = Recompute {
            modules: vec!["layer1".to_owned()],
            elementwise: true,
        };
        assert_eq!(config.recompute.named(), expected);
        assert_eq!(config.activations, Activations::BF16);
        for (text, bytes) in [("450MiB", 450 << 20), ("1.5 GB", 1_500_000_000), ("7", 7)] {
            let config = self::config(&[&format!("max_memory={text}")]).unwrap();
            assert_eq!(
                config.max_memory.map(ByteLimit::bytes),
                Some(bytes),
                "{text}"
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (set, expected) in [
            (
                vec!["max_memory=much"],
                "`much` is no size; write 450MiB, 1.5GB or a number of bytes",
            ),
            (vec!["recompute=auto"], "auto alone, and with it max_memory"),
            (
                vec!["recompute=layer1", "max_memory=1GB"],
                "auto where max_memory is set",
            ),
            (vec!["activations=f8"], "unknown variant `f8`"),
        ] {
            let error = config(&set).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}

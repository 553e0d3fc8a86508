//! A lesson whose frozen part is computed once: the same lesson for the rest of the network.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use percept_data::loader::EpochPlan;
use percept_data::{BatchError, Example, Prepare, Sample, SampleError, SampleKey};
use percept_graph::{FrozenCut, Graph, WeightSource};
use percept_kernels::Cpu;
use percept_models::LessonError;
use percept_models::lesson::{Asked, Epoch, Lesson, Metric, NamedOutputs, TrainingGraph};
use serde_json::{Map, Value};

use super::{FeatureError, FeatureOptions, Features};
use crate::Frozen;

/// A lesson for what is left of a network behind its frozen part.
pub struct CutLesson {
    whole: Arc<dyn Lesson>,
    graphs: Vec<TrainingGraph>,
    inference: Graph,
    features: Arc<Features>,
}

impl CutLesson {
    /// Cuts every graph of a lesson at what `freeze` leaves as it is; none where there is nothing to cut.
    pub fn new(
        whole: &Arc<dyn Lesson>,
        freeze: &Frozen,
        weights: &Arc<dyn WeightSource>,
        options: &FeatureOptions,
    ) -> Result<Option<Self>, FeatureError> {
        let recurring = whole.recurring();
        let cut = |graph: &Graph| graph.cut_frozen(&recurring, |name| freeze.trains(name));
        let graphs = whole.graphs();
        let cuts: Option<Vec<FrozenCut>> = graphs.iter().map(|g| cut(&g.graph)).collect();
        let Some((mut cuts, inference)) = cuts.zip(cut(&whole.inference())) else {
            return Ok(None);
        };
        cuts.push(inference);
        let features = Arc::new(Features::new(&cuts, weights, options)?);
        let inference = cuts.pop().expect("pushed above").rest;
        let graphs = graphs.into_iter().zip(cuts);
        let graphs = graphs.map(|(whole, cut)| TrainingGraph {
            graph: cut.rest,
            ..whole
        });
        Ok(Some(Self {
            graphs: graphs.collect(),
            whole: Arc::clone(whole),
            inference,
            features,
        }))
    }

    /// What is computed once.
    pub fn features(&self) -> &Arc<Features> {
        &self.features
    }
}

impl fmt::Debug for CutLesson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CutLesson").field(&self.whole).finish()
    }
}

/// Adds features to what another preparation makes.
struct WithFeatures {
    inner: Arc<dyn Prepare>,
    features: Arc<Features>,
}

impl Prepare for WithFeatures {
    fn prepare(&self, cpu: &Cpu, sample: &Sample, key: &SampleKey) -> Result<Example, SampleError> {
        let mut example = self.inner.prepare(cpu, sample, key)?;
        let completed = self.features.complete(&mut example);
        completed.map_err(|error| SampleError::Unusable {
            sample: sample.name.clone(),
            reason: error.to_string(),
        })?;
        Ok(example)
    }

    fn batch(&self, examples: Vec<Example>) -> Result<Example, BatchError> {
        self.inner.batch(examples)
    }
}

impl Lesson for CutLesson {
    fn samples(&self) -> &'static str {
        self.whole.samples()
    }

    fn sizes(&self) -> BTreeMap<String, [usize; 2]> {
        self.whole.sizes()
    }

    fn settings(&self) -> Map<String, Value> {
        let mut settings = self.whole.settings();
        let kind = serde_json::to_value(self.features.kind).unwrap_or_default();
        settings.insert("features".to_owned(), kind);
        settings
    }

    fn check_classes(&self, classes: &[String]) -> Result<(), LessonError> {
        self.whole.check_classes(classes)
    }

    fn graphs(&self) -> Vec<TrainingGraph> {
        self.graphs.clone()
    }

    fn parameters(&self) -> Vec<String> {
        self.whole.parameters()
    }

    fn choose(&self, seed: u64, step: u64) -> usize {
        self.whole.choose(seed, step)
    }

    fn preparation(&self) -> Arc<dyn Prepare> {
        Arc::new(WithFeatures {
            inner: self.whole.preparation(),
            features: Arc::clone(&self.features),
        })
    }

    fn observe(
        &self,
        outputs: &NamedOutputs<'_>,
        examples: &Example,
    ) -> Result<Vec<(&'static str, f64)>, LessonError> {
        self.whole.observe(outputs, examples)
    }

    fn plans(&self) -> bool {
        self.whole.plans()
    }

    fn epoch_len(&self, samples: usize) -> usize {
        self.whole.epoch_len(samples)
    }

    fn plan(&self, epoch: Epoch, network: &mut dyn Asked) -> Result<EpochPlan, LessonError> {
        self.whole.plan(epoch, network)
    }

    fn inference(&self) -> Graph {
        self.inference.clone()
    }

    fn evaluation(&self) -> Arc<dyn Prepare> {
        Arc::new(WithFeatures {
            inner: self.whole.evaluation(),
            features: Arc::clone(&self.features),
        })
    }

    fn judged_at_once(&self) -> usize {
        self.whole.judged_at_once()
    }

    fn metric(&self, classes: &[String]) -> Box<dyn Metric> {
        self.whole.metric(classes)
    }

    fn rehearsal(&self, samples: usize) -> Result<Example, LessonError> {
        let mut examples = self.whole.rehearsal(samples)?;
        let completed = self.features.rehearse(&mut examples);
        completed.map_err(|error| LessonError::Asked(error.into()))?;
        Ok(examples)
    }
}

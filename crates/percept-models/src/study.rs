//! Studies: what a network's report compares, as data. A study is rows of settings, what is measured of each, and what a
//! published text says; the command reads it without knowing the network.

pub mod pipeline;

use pipeline::PipelineStudy;

/// A comparison over settings of a network.
#[derive(Clone, Copy, Debug)]
pub struct Study {
    /// What a user types.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Settings of all rows; a user's own have the last word.
    pub shared: &'static [(&'static str, &'static str)],
    /// What is compared.
    pub rows: &'static [StudyRow],
    /// What is measured of each row.
    pub measured: Measured,
}

/// One way to set up the network.
#[derive(Clone, Copy, Debug)]
pub struct StudyRow {
    /// What people read.
    pub title: &'static str,
    /// The settings of the network that make the row; those of the first row are varied by all.
    pub set: &'static [(&'static str, &'static str)],
    /// The settings of a training run that make it, varied in the same way.
    pub run: &'static [(&'static str, &'static str)],
}

/// What is measured of each row.
#[derive(Clone, Copy, Debug)]
pub enum Measured {
    /// Training steps, beside inference, by component.
    Steps(StepStudy),
    /// Whole trainings, each with several seeds, held against the first row.
    Trainings,
    /// Inferences of clouds of several sizes, in both forms that memory can be dealt with; it has no rows of settings.
    Clouds(CloudStudy),
    /// One inference, by component and by operator, and what the elastic axes of the network reach; it has no rows of settings.
    Inference(InferenceStudy),
    /// Ways to quantise trained weights, judged by the network's metric; it has no rows of settings.
    Quantized(QuantizeStudy),
    /// A whole pipeline, from files to moved parameters, held against a published text; it has no rows of settings.
    Pipeline(PipelineStudy),
}

/// Where the time and the memory of an inference are, held against a published profile.
#[derive(Clone, Copy, Debug)]
pub struct InferenceStudy {
    /// The components of the network.
    pub components: &'static [Component],
    /// The operators of the published profile.
    pub published: &'static [PublishedOperator],
    /// What the published text says about it.
    pub findings: &'static [Finding],
}

/// A line of a published profile.
#[derive(Clone, Copy, Debug)]
pub struct PublishedOperator {
    /// What it is called there.
    pub name: &'static str,
    /// What does the same here, by kinds of ops; none where nothing does.
    pub kinds: &'static [&'static str],
    /// Megabytes (MiB) that it allocated in all its calls.
    pub mebibytes: f64,
    /// Its calls.
    pub calls: u32,
}

/// Something that a published text says about a profile.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// What it says.
    pub says: &'static str,
    /// What the measurement is about, before its figure.
    pub here: &'static str,
    /// Which figure that is.
    pub evidence: Measure,
}

/// A figure of an inference.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// What is held at the peak, and by whom, beside the sum of all that is allocated.
    Peak,
    /// The share of these components in the time.
    Share(&'static [usize]),
    /// What is saved by the axes whose names begin so, at their first levels: of the parameters and of the multiply-adds.
    Reach(&'static [&'static str]),
}

/// What quantising a network costs, way by way.
#[derive(Clone, Copy, Debug)]
pub struct QuantizeStudy {
    /// The ways; the first is what the others are held against.
    pub ways: &'static [Way],
    /// Held-out samples to judge by, where nobody says otherwise.
    pub samples: usize,
    /// Training samples to calibrate on.
    pub calibrated: usize,
    /// Figures of the metric that are shown, by key.
    pub figures: &'static [&'static str],
    /// The metric's table of classes and the column of it that is shown, by keys.
    pub by_class: [&'static str; 2],
    /// What a published report says.
    pub says: &'static [&'static str],
}

/// A way to quantise a network.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What people read.
    pub title: &'static str,
    /// How ranges of inputs are known.
    pub ranges: Ranges,
    /// Whether sparse convolutions become integers too.
    pub sparse: bool,
    /// Bits of a weight.
    pub weight_bits: u8,
    /// Scopes whose inputs have 16 bits.
    pub wide: &'static [&'static str],
    /// Scopes that stay in f32.
    pub float: &'static [&'static str],
}

/// How ranges of inputs are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// There are none: everything is in f32.
    Float,
    /// Measured beforehand.
    Static,
    /// Measured in every run.
    Dynamic,
    /// Inputs have 16 bits, measured in every run.
    WeightOnly,
}

/// How time and memory grow with the points of a cloud, and what the lean form of a network is good for.
#[derive(Clone, Copy, Debug)]
pub struct CloudStudy {
    /// Points of a cloud, where nobody says otherwise.
    pub points: &'static [usize],
    /// Clouds at once, where nobody says otherwise.
    pub batches: &'static [usize],
    /// Parts of an inference whose share of the time is shown.
    pub components: &'static [Component],
    /// The largest difference between the two forms, in deviations of the output.
    pub tolerance: f64,
    /// What a published text says.
    pub claims: &'static [Claim],
}

/// Something that a published text says, and what is done here.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// What it says.
    pub says: &'static str,
    /// What is done here instead.
    pub here: &'static str,
    /// What tells how much that is worth.
    pub evidence: Evidence,
}

/// Which of the measured figures speaks for a claim.
#[derive(Clone, Copy, Debug)]
pub enum Evidence {
    /// How much less memory the lean form takes at its peak.
    LessPeak,
    /// How much less time it takes.
    LessTime,
    /// How much memory grows from one run to the next.
    Steady,
    /// How far the outputs of the two forms are from each other.
    Answers,
    /// The share of a component in the time of the lean form.
    Share(usize),
    /// How the time of a point grows with the size of the cloud.
    Growth,
}

/// Where the time of a training step goes.
#[derive(Clone, Copy, Debug)]
pub struct StepStudy {
    /// Samples in a step, where nobody says otherwise.
    pub batches: &'static [usize],
    /// The components of a step.
    pub components: &'static [Component],
    /// What the components that are not part of every training are called together.
    pub own: &'static str,
    /// Rows that take so long that one step tells enough.
    pub slow: &'static [usize],
    /// Rows whose components are shown.
    pub detailed: &'static [usize],
    /// Changes from one row to another.
    pub changes: &'static [Change],
    /// How long a training is: steps of an epoch, and epochs.
    pub training: [u32; 2],
    /// What a published report measured and says.
    pub published: Option<PublishedSteps>,
}

/// A part of a step that people speak of.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// What people read.
    pub name: &'static str,
    /// The scopes that make it, forward and backward.
    pub scopes: &'static [&'static str],
    /// Whether an ordinary training of the same backbone would not have it.
    pub is_own: bool,
}

/// A change from one row of a study to another.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// What people read.
    pub title: &'static str,
    /// The row before it.
    pub from: usize,
    /// The row after it.
    pub to: usize,
}

/// Times of a published report, on a machine of its own, and what it says about them.
#[derive(Clone, Copy, Debug)]
pub struct PublishedSteps {
    /// The row that it measured.
    pub row: usize,
    /// Samples in a step.
    pub batch: usize,
    /// Milliseconds of an inference.
    pub inference_ms: f64,
    /// Milliseconds of a step.
    pub step_ms: f64,
    /// Its words for step / inference, for the time of an epoch, and for that of a training.
    pub says: [&'static str; 3],
}

impl Study {
    /// The names of the settings that the rows vary.
    pub fn varied(&self) -> impl Iterator<Item = &'static str> {
        let first = self.rows.first().into_iter();
        let settings = first.flat_map(|row| row.set.iter().chain(row.run));
        settings.map(|(name, _)| *name)
    }
}

impl StudyRow {
    /// The value of a setting in this row; empty where the row leaves it as it is.
    pub fn value(&self, name: &str) -> &'static str {
        let mut settings = self.set.iter().chain(self.run);
        let found = settings.find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Its name in a path: `ce-pac` of `CE + PaC`.
    pub fn folder_name(&self) -> String {
        let words = self.title.split(|c: char| !c.is_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join("-").to_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{Settings, zoo};

    use super::pipeline::Cost;
    use super::*;

    /// Studies are data that nobody compiles: they must name settings, rows and scopes that exist.
    #[test]
    fn every_study_is_about_a_network_that_can_be_built() {
        let entries = zoo::entries().filter(|entry| !entry.studies.is_empty());
        let mut studies = 0;
        for (entry, study) in entries.flat_map(|e| e.studies.iter().map(move |s| (e, s))) {
            studies += 1;
            let mut modules: BTreeSet<String> = BTreeSet::new();
            let folders: BTreeSet<String> = study.rows.iter().map(StudyRow::folder_name).collect();
            assert_eq!(
                folders.len(),
                study.rows.len(),
                "{}: folders differ",
                study.name
            );
            for row in study.rows {
                let set = study.shared.iter().chain(row.set);
                let settings = set.fold(Settings::none(), |set, (k, v)| set.with(k, v));
                let model = entry
                    .build(&settings)
                    .unwrap_or_else(|error| panic!("{} {}: {error}", study.name, row.title));
                if let Measured::Clouds(_) | Measured::Inference(_) = study.measured {
                    continue;
                }
                let course = entry.course.expect("it is taught");
                let lesson = (course.lesson)(&model, &Default::default()).unwrap();
                for training in lesson.graphs() {
                    let nodes = training.graph.nodes().iter();
                    modules.extend(nodes.map(|node| node.name.clone()));
                }
            }
            if let Measured::Quantized(quantized) = study.measured {
                let model = entry.build(&Settings::none()).unwrap();
                assert!(entry.course.is_some(), "{}: nothing judges it", study.name);
                assert_eq!(quantized.ways[0].ranges, Ranges::Float);
                for scope in quantized
                    .ways
                    .iter()
                    .flat_map(|way| way.wide.iter().chain(way.float))
                {
                    let mut nodes = model.graph.nodes().iter();
                    assert!(nodes.any(|node| node.name.starts_with(scope)), "{scope}");
                }
            }
            if let Measured::Clouds(clouds) = study.measured {
                let set = study.shared.iter();
                let settings = set.fold(Settings::none(), |set, (k, v)| set.with(k, v));
                let model = entry.build(&settings).unwrap();
                let nodes = || model.form(true).nodes().iter().map(|node| &node.name);
                for component in clouds.components {
                    let is_there = |scope: &&str| nodes().any(|name| name.starts_with(*scope));
                    assert!(component.scopes.iter().any(is_there), "{component:?}");
                }
                for claim in clouds.claims {
                    if let Evidence::Share(component) = claim.evidence {
                        assert!(component < clouds.components.len(), "{}", claim.says);
                    }
                }
            }
            if let Measured::Inference(inference) = study.measured {
                let model = entry.build(&Settings::none()).unwrap();
                let nodes = || model.graph.nodes().iter();
                for scope in inference.components.iter().flat_map(|c| c.scopes) {
                    let inside = format!("{scope}.");
                    let is_there = |name: &str| name == *scope || name.starts_with(&inside);
                    assert!(nodes().any(|node| is_there(&node.name)), "{scope}");
                }
                for finding in inference.findings {
                    match finding.evidence {
                        Measure::Peak => {}
                        Measure::Share(of) => {
                            assert!(of.iter().all(|at| *at < inference.components.len()));
                        }
                        Measure::Reach(prefixes) => {
                            let axes = model.graph.axes();
                            let is_there = |prefix: &&str| {
                                axes.iter().any(|axis| axis.name.starts_with(*prefix))
                            };
                            assert!(prefixes.iter().all(is_there), "{}", finding.says);
                        }
                    }
                }
            }
            if let Measured::Pipeline(pipeline) = study.measured {
                assert!(entry.course.is_some(), "{}: nothing teaches it", study.name);
                let model = entry.build(&Settings::none()).unwrap();
                let course = entry.course.expect("asked above");
                let lesson = (course.lesson)(&model, &Default::default()).unwrap();
                let graph = &lesson.graphs()[0].graph;
                for scope in pipeline.components.iter().flat_map(|c| c.scopes) {
                    let mut nodes = graph.nodes().iter();
                    assert!(nodes.any(|node| node.name.starts_with(scope)), "{scope}");
                }
                for stage in pipeline.stages {
                    if let Cost::Component(at) = stage.cost {
                        assert!(at < pipeline.components.len(), "{}", stage.name);
                    }
                }
                let stages = pipeline.share.stages.iter();
                assert!({ stages }.all(|stage| *stage < pipeline.stages.len()));
            }
            if let Measured::Steps(steps) = study.measured {
                let rows = steps
                    .changes
                    .iter()
                    .flat_map(|change| [change.from, change.to]);
                let rows = rows.chain(steps.slow.iter().copied());
                let mut rows = rows.chain(steps.detailed.iter().copied());
                assert!(rows.all(|row| row < study.rows.len()), "{}", study.name);
                for scope in steps
                    .components
                    .iter()
                    .flat_map(|component| component.scopes)
                {
                    let inside = format!("{scope}.");
                    let is_there = |name: &String| name == scope || name.starts_with(&inside);
                    assert!(
                        modules.iter().any(is_there),
                        "{}: no scope {scope}",
                        study.name
                    );
                }
            }
        }
        assert!(studies >= 2);
    }
}

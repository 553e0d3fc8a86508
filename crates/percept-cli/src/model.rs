//! The network that a verb is about: built from the zoo, with its weights.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use percept_data::safetensors::Safetensors;
use percept_data::seeded::Seeded;
use percept_data::{
    Assembled, LoadError, LoadReport, ModelWeights, Sliced, TensorSource, open_weights,
};
use percept_engine::PrecisionPlan;
use percept_graph::{Choice, Graph, Slicing, WeightSource};
use percept_models::zoo::{self, Entry};
use percept_models::{Card, Model, ModelError, Settings};
use percept_report::counted;
use percept_samples::Given;
use percept_tune::StoredPlan;

use crate::fail::{Blame, Fail, Result};
use crate::options::Common;

/// Which network, configured how.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Network, as `percept models` lists them
    pub model: String,
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// How a network is configured, and with which weights.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Configure the network; may be given several times (`percept models NAME` lists the keys)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Weights: .safetensors, or a PyTorch .pth/.pt checkpoint; SCOPE=FILE for those of one module; or `seeded` [default: those
    /// that come with the network, or seeded]
    #[arg(long, value_name = "[SCOPE=]FILE", num_args = 1..)]
    pub weights: Vec<Given>,
    /// A part of an elastic network's weights, such as 2,2/3,1/4,4/1,2: short for --set granularity=..
    #[arg(long, value_name = "LEVELS")]
    pub granularity: Option<String>,
    /// Do without this part of a sample, such as camera; may be given several times (`percept models NAME` lists the parts)
    #[arg(long, value_name = "PART")]
    pub without: Vec<String>,
}

/// What `--weights` says.
enum Chosen<'a> {
    Seeded,
    Shipped(&'static [u8]),
    Files(&'a [Given]),
}

impl ModelArgs {
    /// Builds the network as the card of its weights describes it.
    pub fn build(&self) -> Result<Model> {
        self.check_granularity()?;
        let mut model = build_for(&self.model, &self.settings(), &self.config.weights)?;
        for part in &self.config.without {
            model = model.without(part)?;
        }
        Ok(model)
    }

    /// Refuses --granularity for a network without that setting, and names those that it has in its place.
    fn check_granularity(&self) -> Result<()> {
        let entry = find(&self.model)?;
        let mut settings = entry.settings.iter();
        if self.config.granularity.is_none() || settings.any(|it| it.name == "granularity") {
            return Ok(());
        }
        let fail = Fail::usage(format!("{} has no --granularity", self.model));
        let settings = entry.settings.iter();
        let elastic: Vec<String> = settings
            .filter(|setting| setting.levels_of(&Choice::whole()).is_some())
            .map(|setting| format!("--set {}=..", setting.name))
            .collect();
        Err(match elastic.is_empty() {
            true => fail.hint("it is not elastic: leave it out"),
            false => fail.hint(format!(
                "{} chooses a part; `percept elastic show {}` lists the axes",
                elastic.join(" or "),
                self.model
            )),
        })
    }

    /// What the user sets, with what is short for a setting.
    pub fn settings(&self) -> Vec<String> {
        let granularity = self.config.granularity.iter();
        let mut set = self.config.set.clone();
        set.extend(granularity.map(|text| format!("granularity={text}")));
        set
    }

    /// The card of its weights, where they have one.
    pub fn card(&self) -> Result<Option<Card>> {
        let entry = find(&self.model)?;
        Chosen::of(entry, &self.config.weights)?.card(entry)
    }

    /// The plan of precisions of its weights, where they are integers.
    pub fn plan(&self) -> Result<Option<PrecisionPlan>> {
        let plan = Chosen::of(find(&self.model)?, &self.config.weights)?.plan(&self.model)?;
        Ok(plan.map(|(plan, _)| plan))
    }

    /// The one file with all of its weights, where that is what is named.
    pub fn whole_file(&self) -> Option<&Path> {
        match self.config.weights.as_slice() {
            [file] if file.part.is_none() && !is_seeded(file) => Some(&file.path),
            _ => None,
        }
    }

    /// The same, with seeded weights where none are named.
    pub fn or_seeded(&self) -> Self {
        let mut args = self.clone();
        if args.config.weights.is_empty() {
            args.config.weights = vec![Given {
                part: None,
                path: SEEDED.into(),
            }];
        }
        args
    }

    /// Its weights, checked to fit; says on stderr where they come from.
    pub fn load(&self, model: &Model, common: &Common) -> Result<Arc<dyn WeightSource>> {
        let entry = zoo::find(model.name)?;
        let (weights, note) = Chosen::of(entry, &self.config.weights)?.load(entry, model)?;
        common.note(note);
        Ok(weights)
    }
}

/// The word for weights that follow from names.
const SEEDED: &str = "seeded";

fn is_seeded(given: &Given) -> bool {
    given.part.is_none() && given.path.as_os_str() == SEEDED
}

impl<'a> Chosen<'a> {
    fn of(entry: &Entry, given: &'a [Given]) -> Result<Self> {
        match given {
            [] => Ok(entry.shipped.map_or(Self::Seeded, Self::Shipped)),
            [only] if is_seeded(only) => Ok(Self::Seeded),
            files if files.iter().any(is_seeded) => Err(Fail::usage(
                "--weights seeded stands alone: every parameter comes from its name",
            )),
            files => Ok(Self::Files(files)),
        }
    }

    /// The card of the weights of the whole network.
    fn card(&self, entry: &Entry) -> Result<Option<Card>> {
        match self {
            Self::Seeded => Ok(None),
            Self::Shipped(bytes) => Ok(Card::of_weights(&shipped(entry, bytes)?)?),
            Self::Files(files) => {
                let whole = files.iter().find(|file| file.part.is_none());
                let card = whole.map(|file| Card::read(&file.path)).transpose()?;
                Ok(card.flatten())
            }
        }
    }

    /// The network with these settings; its card settles what is not set.
    fn build(&self, entry: &Entry, asked: &Settings) -> Result<Model> {
        let build = |settings: &Settings| {
            let built = entry.build(settings);
            built.map_err(|error| blame(entry.name, error))
        };
        let Some(card) = self.card(entry)? else {
            return build(asked);
        };
        let settings = card.settings_for(entry.name, asked).map_err(|error| {
            let fail = Fail::from(error);
            match self {
                Self::Shipped(_) => fail.hint("--weights seeded takes other settings"),
                _ => fail,
            }
        })?;
        self.quantized(build(&settings)?.described_by(&card))
    }

    /// The network with quantisers, where its weights are integers.
    fn quantized(&self, mut model: Model) -> Result<Model> {
        if let Some((plan, weights)) = self.plan(model.name)? {
            let quantized = plan.quantize(model.graph);
            model.graph =
                quantized.map_err(|error| Fail::bad_input(format!("{weights}: {error}")))?;
            // What a lean form computes in its own ops has no quantisers: it serves where those layers are floats.
            let is_whole = |lean: &Graph| {
                PrecisionPlan::of_graph(lean) == PrecisionPlan::of_graph(&model.graph)
            };
            model.lean = model.lean.and_then(|lean| plan.quantize(lean).ok());
            model.lean = model.lean.filter(is_whole);
        }
        Ok(model)
    }

    /// The plan of precisions that comes with the weights of the whole network, and what these are.
    fn plan(&self, name: &str) -> Result<Option<(PrecisionPlan, String)>> {
        let plan_of = |weights: &dyn TensorSource| {
            let stored = StoredPlan::of_weights(weights).bad_input()?;
            Ok(stored.map(|stored| (stored.plan(), weights.describe())))
        };
        match self {
            Self::Seeded => Ok(None),
            Self::Shipped(bytes) => plan_of(&shipped(find(name)?, bytes)?),
            Self::Files(files) => match files.iter().find(|file| file.part.is_none()) {
                Some(file) => plan_of(&*open_weights(&file.path)?),
                None => Ok(None),
            },
        }
    }

    /// The weights, and a line that says what they are.
    fn load(&self, entry: &Entry, model: &Model) -> Result<(Arc<dyn WeightSource>, String)> {
        let (weights, report) = match self {
            Self::Seeded => {
                let whole = model.whole.as_ref().unwrap_or(&model.graph);
                let seeded = Seeded::of(model.family, whole);
                let weights = ModelWeights::of(fitting(Box::new(seeded), model)?, &model.graph);
                let weights = weights.bug()?.0;
                let note = format!("weights: {}", weights.describe());
                return Ok((Arc::new(weights), note));
            }
            Self::Shipped(bytes) => {
                let source = on_seeded(entry, model, Box::new(shipped(entry, bytes)?));
                ModelWeights::of(fitting(source, model)?, &model.graph).bug()?
            }
            Self::Files(files) => {
                let (weights, report) = open_partly(files, entry, model)?;
                (weights, report.require_complete().bad_input()?)
            }
        };
        Ok((Arc::new(weights), describe_load(&report)))
    }
}

/// Weights with the seeded ones of modules that the network never trains, where they do not have them.
fn on_seeded(entry: &Entry, model: &Model, source: Box<dyn TensorSource>) -> Box<dyn TensorSource> {
    if entry.seeded.is_empty() {
        return source;
    }
    let params = model.graph.params().iter();
    let params = params.filter(|param| entry.may_be_seeded(&param.name));
    let declared = params.map(|param| (param.name.clone(), param.shape.clone()));
    let named = format!("seeded {}", entry.seeded.join(", "));
    let seeded = Seeded::new(model.family, declared).described(&named);
    Box::new(Assembled::new([
        (None, Box::new(seeded) as _),
        (None, source),
    ]))
}

/// What of these files fits a network.
fn open_partly(
    files: &[Given],
    entry: &Entry,
    model: &Model,
) -> Result<(ModelWeights, LoadReport)> {
    if let [Given { part: None, path }] = files
        && model.whole.is_none()
        && entry.seeded.is_empty()
    {
        let layouts = model.other_layouts.iter();
        let layouts = layouts.map(|layout| (layout.name, layout.renames.as_slice()));
        return Ok(ModelWeights::open_partly(path, &model.graph, layouts)?);
    }
    let pieces = files.iter().map(|file| {
        if let Some(scope) = &file.part {
            require_module(model, scope)?;
        }
        let source = open_weights(&file.path)?;
        Ok((file.part.clone(), source))
    });
    let pieces = Assembled::new(pieces.collect::<Result<Vec<_>>>()?);
    let source = fitting(on_seeded(entry, model, Box::new(pieces)), model)?;
    Ok(ModelWeights::partly_of(source, &model.graph))
}

/// Refuses weights of a module that a network does not have.
fn require_module(model: &Model, scope: &str) -> Result<()> {
    let mut modules: Vec<&str> = Vec::new();
    for param in model.graph.params() {
        let inside = param.name.strip_prefix(scope);
        if inside.is_some_and(|rest| rest.starts_with('.')) {
            return Ok(());
        }
        let module = param.name.split('.').next().unwrap_or_default();
        if !modules.contains(&module) {
            modules.push(module);
        }
    }
    let message = format!(
        "--weights {scope}=..: {} has no module `{scope}`",
        model.name
    );
    Err(Fail::usage(message).hint(format!("it has {}", modules.join(", "))))
}

/// Weights that training begins with: what of these files fits; says on stderr what begins anew.
pub fn starting(
    files: &[Given],
    model: &Model,
    common: &Common,
) -> Result<Option<Arc<dyn WeightSource>>> {
    let entry = find(model.name)?;
    if files.is_empty() && entry.seeded.is_empty() {
        return Ok(None);
    }
    let (weights, report) = open_partly(files, entry, model)?;
    if report.matched == 0 {
        return Err(Fail::bad_input(LoadError(Box::new(report))));
    }
    if !files.is_empty() {
        common.note(format_args!("begins with {report}"));
    }
    Ok(Some(Arc::new(weights)))
}

/// Weights of which an elastic network takes a part, where it is narrow and they are whole.
fn fitting(source: Box<dyn TensorSource>, model: &Model) -> Result<Box<dyn TensorSource>> {
    let Some(whole) = &model.whole else {
        return Ok(source);
    };
    let slicing = Slicing::between(whole, &model.graph).bug()?;
    Ok(Box::new(Sliced::new(source, slicing)))
}

/// The weights that come with a network.
fn shipped(entry: &Entry, bytes: &'static [u8]) -> Result<Safetensors> {
    let name = format!("trained weights that come with {}", entry.name);
    Safetensors::embedded(&name, bytes).bug()
}

/// Builds a network of the zoo with `--set` options and `--weights`, whose card settles what was not set.
pub fn build_for(name: &str, set: &[String], weights: &[Given]) -> Result<Model> {
    let asked = Settings::parse(set).map_err(ModelError::from)?;
    let entry = zoo::find(name).map_err(|error| blame(name, error))?;
    Chosen::of(entry, weights)?.build(entry, &asked)
}

/// Builds a network of the zoo with `--set` options alone.
pub fn build(name: &str, set: &[String]) -> Result<Model> {
    let settings = Settings::parse(set).map_err(ModelError::from)?;
    zoo::build(name, &settings).map_err(|error| blame(name, error))
}

/// A network of the zoo that is not built yet.
pub fn find(name: &str) -> Result<&'static Entry> {
    zoo::find(name).map_err(|error| blame(name, error))
}

/// An unknown name comes with the nearest one.
fn blame(name: &str, error: ModelError) -> Fail {
    let hint = match &error {
        ModelError::UnknownModel {
            suggestion: Some(nearest),
            ..
        } => Some(format!("did you mean `{nearest}`?")),
        ModelError::UnknownModel { .. } => Some("`percept models` lists them".to_owned()),
        ModelError::Settings(_) => Some(format!("`percept models {name}` lists the settings")),
        _ => None,
    };
    Fail {
        hint,
        ..Fail::from(error)
    }
}

fn describe_load(report: &LoadReport) -> String {
    let matched = counted(report.matched, "tensor");
    match report.unexpected.len() {
        0 => format!("weights: {}, {matched}", report.weights),
        extra => format!(
            "weights: {}, {matched}; {extra} more were not needed",
            report.weights
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use half::f16;
    use percept_data::safetensors::write_safetensors;
    use percept_graph::Tensor;

    use super::*;

    /// A linear layer that ships its weights, in half precision: the identity.
    fn shipping() -> Entry {
        let mut entry = *zoo::find("linear").unwrap();
        let set = ["in_features=2", "out_features=2", "bias=false"];
        let model = entry.build(&Settings::parse(set).unwrap()).unwrap();
        let halves = [1.0, 0.0, 0.0, 1.0].map(f16::from_f32).to_vec();
        let weight = Tensor::from_values([2, 2], halves).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let card = Card::of(&model, vec!["left".to_owned(), "right".to_owned()]);
        let tensors = [("layer.weight".to_owned(), weight)];
        write_safetensors(file.path(), &tensors, &BTreeMap::from([card.metadata()])).unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        entry.shipped = Some(bytes.leak());
        entry
    }

    #[test]
    fn weights_that_come_with_a_network_are_taken_by_default() {
        let entry = shipping();
        let chosen = Chosen::of(&entry, &[]).unwrap();
        let model = chosen.build(&entry, &Settings::none()).unwrap();
        assert_eq!(model.classes[..], ["left", "right"]);
        let (weights, note) = chosen.load(&entry, &model).unwrap();
        assert_eq!(
            note,
            "weights: trained weights that come with linear, 1 tensor"
        );
        assert_eq!(
            *weights.read("layer.weight", &[2, 2]).unwrap(),
            [1.0, 0.0, 0.0, 1.0]
        );

        let other = Settings::parse(["in_features=3"]).unwrap();
        let fail = chosen.build(&entry, &other).unwrap_err();
        assert_eq!(
            fail.error.to_string(),
            "in_features=3 contradicts the weights, which have in_features=2"
        );
        assert!(fail.hint.unwrap().contains("--weights seeded"));
    }

    #[test]
    fn seeded_weights_can_be_asked_for() {
        let entry = shipping();
        let seeded = ["seeded".parse().unwrap()];
        let chosen = Chosen::of(&entry, &seeded).unwrap();
        let asked = Settings::parse(["in_features=3", "out_features=2"]).unwrap();
        let model = chosen.build(&entry, &asked).unwrap();
        assert!(model.classes.is_empty());
        let (_, note) = chosen.load(&entry, &model).unwrap();
        assert_eq!(note, "weights: seeded, accuracy means nothing");
    }
}

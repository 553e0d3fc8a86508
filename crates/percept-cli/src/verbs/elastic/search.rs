//! `percept elastic search`: the part of a network that is worth its price.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::ProgressBar;
use percept_data::POSITION;
use percept_graph::{Choice, Graph, PriceList, Scored, Scoring, Tensor, TensorError, Unit};
use percept_models::Model;
use percept_models::zoo::Entry;
use percept_places::NEAR_M;
use percept_samples::Places;
use percept_world::{WorldConfig, WorldKind};
use serde_json::json;

use super::budget::{Budget, measured};
use super::evaluate::{evaluate, table};
use super::front::Report;
use super::judge::{Judge, Route};
use super::score::{Samples, Scorer};
use super::show::narrowed;
use super::spread_batches;
use crate::fail::{Blame, Fail, Result};
use crate::inputs::{InputArgs, batch};
use crate::model::{self, ModelArgs};
use crate::options::{Common, EngineArgs, parse_picture};
use crate::outcome::{Outcome, write_picture};
use crate::progress;

/// Search the part of a network that keeps most of its answers within a budget
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept elastic search lcpr-small --budget macs=70%
  percept elastic search lcpr-small --budget latency=15ms --score recall --samples 200 \\
      --picture front.svg
  percept elastic search lcpr-small --budget params=95% --axes fusion3.mid,fusion4.mid \\
      --method exhaustive
  percept elastic search lcpr --budget params=95% --fix stage1.inner,stage2.inner

greedy: from the whole network on, each axis is tried a level lower, and what loses the least for what it saves is kept.
exhaustive: all configurations. monotone: those whose level never falls with depth.
agreement: the mean cosine of a part's first output with the whole network's, over the samples; no labels are needed. recall: \
recall@1 on a route of the synthetic world that is driven three times; the first drive is the database.
The batch norms of every part are measured on the samples before it is scored. What two parts have in common is computed once: values \
in front of each axis are kept, within --cache-mb. Axes that change the size of the first output are left alone.")]
pub struct SearchArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// What the part may cost: params=90%, macs=70%, latency=15ms, or a number of parameters or MACs
    #[arg(long, value_name = "UNIT=COST")]
    budget: Budget,
    /// How configurations are tried
    #[arg(long, value_enum, default_value_t = Method::Greedy)]
    method: Method,
    /// What a part is judged by
    #[arg(long, value_enum, default_value_t = Score::Agreement)]
    score: Score,
    /// With --score recall: which network describes the database
    #[arg(long, value_enum, default_value_t = Database::Part)]
    database: Database,
    /// Samples to score on
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    samples: u32,
    /// Samples that batch norms are measured on
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    recalibrate: u32,
    /// Axes that may change [default: all]
    #[arg(long, value_name = "AXIS", value_delimiter = ',')]
    axes: Vec<String>,
    /// Axes that stay whole
    #[arg(long, value_name = "AXIS", value_delimiter = ',')]
    fix: Vec<String>,
    /// Configurations that are scored at most, by exhaustive and monotone
    #[arg(long, value_name = "N", default_value_t = 1024)]
    most: usize,
    /// Megabytes of values that are kept from one part to the next
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    cache_mb: u64,
    /// Then find places by the parts of the front, on another route of so many frames, with their own database and with that of the
    /// whole network
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(2..=100_000))]
    evaluate: Option<u64>,
    /// Parts of the front that --evaluate takes at most, from the whole network to the smallest
    #[arg(long, value_name = "N", default_value_t = 8, requires = "evaluate")]
    parts: usize,
    /// Draw score against cost, with the Pareto front, as .svg or .png; may be given several times
    #[arg(long, value_name = "FILE", value_parser = parse_picture)]
    picture: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Method {
    Greedy,
    Exhaustive,
    Monotone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Score {
    Agreement,
    Recall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Database {
    /// The part itself
    Part,
    /// The whole network
    Whole,
}

/// Drives of a route.
const DRIVES: usize = 3;
/// Samples at once where nobody says.
const BATCH: usize = 8;

pub fn run(args: &SearchArgs, common: &Common) -> Result<Outcome> {
    if args.budget.of(u64::MAX) == 0 {
        return Err(Fail::usage("--budget: no part costs nothing").hint("give a cost above 0"));
    }
    let model = args.input.shape.sized(args.model.build()?)?;
    if model.whole.is_some() {
        return Err(Fail::usage("the search begins with the whole network")
            .hint("leave --granularity and the other levels out"));
    }
    let entry = model::find(model.name)?;
    let shapes = args.input.shape.shapes(&model)?;
    let mut prices =
        PriceList::new(|choice| narrowed(entry, &model, choice), &shapes).bad_input()?;
    let may = args.movable(entry, &model, &prices)?;
    let weights = args.model.load(&model, common)?;
    let options = args.engine.options();
    let (samples, route) = args.samples(&model, common)?;
    let unit = args.budget.unit;
    if unit == Unit::Nanoseconds {
        let one = first_of(&samples.batches[0]).bug()?;
        common.note("measuring what each layer takes here, level by level");
        prices = measured(prices, entry, &model, &weights, &one, common, options)?;
    }
    let limit = args.cache_mb << 20;
    let mut scorer = Scorer::new(entry, &model, weights, samples, common, options);
    scorer.keep_in_front_of(&may, limit)?;
    let whole_rows = scorer.whole()?;
    let scored_on = whole_rows.len();
    let judge = match route {
        None => Judge::Agreement { whole: whole_rows },
        Some(route) => Judge::Recall(Route {
            whole: (args.database == Database::Whole).then_some(whole_rows),
            ..route
        }),
    };
    let what = judge.what();
    scorer.judge = Some(judge);

    let whole: Vec<usize> = prices.axes().iter().map(|axis| axis.levels).collect();
    let most = unit.of(prices.price(&whole));
    let budget = args.budget.of(most);
    let moves = |axis: &str| may.iter().any(|known| known == axis);
    let tried = match args.method {
        Method::Greedy => None,
        Method::Exhaustive => Some(prices.all_of(moves, args.most)),
        Method::Monotone => {
            let all = prices.never_falling(moves);
            Some((all.len() <= args.most).then_some(all))
        }
    };
    let tried = tried.map(|tried| {
        let many = || Fail::usage(format!("more than {} configurations", args.most));
        tried.ok_or_else(|| many().hint("--axes names some of the axes; --most allows more"))
    });
    let tried = tried.transpose()?;
    // The most that a greedy search asks for: every axis in every round.
    let axes = prices.axes().iter().filter(|axis| moves(&axis.name));
    let rounds: usize = axes.map(|axis| axis.levels - 1).sum();
    let expected = tried.as_ref().map_or(rounds * may.len(), Vec::len);
    let bar = progress::bar(common, expected, "scoring");
    common.note(format_args!(
        "scoring {expected} parts at most, on {scored_on} samples"
    ));
    let counted = Counted {
        scorer: &mut scorer,
        bar: &bar,
        common,
        told: Instant::now(),
    };
    let found = match tried {
        None => prices.greedy(unit, budget, moves, counted),
        Some(tried) => prices.among(unit, budget, tried, counted),
    };
    bar.finish_and_clear();
    let found = found?;
    let report = Report {
        entry,
        prices: &prices,
        found: &found,
        unit,
        what,
        most,
    };
    for path in &args.picture {
        write_picture(path, &report.picture(model.name, budget))?;
    }
    if !found.met {
        common.note("no configuration of these axes is within the budget");
    }
    let mut outcome = report.outcome(model.name, budget, scored_on, &scorer.spent);
    outcome.passed = found.met;
    if let Some(frames) = args.evaluate {
        let whole_first = found.scored.iter().find(|scored| scored.levels == whole);
        let mut parts: Vec<&Scored> = whole_first.into_iter().collect();
        let front = found.front(unit);
        let narrow: Vec<&Scored> = front
            .into_iter()
            .rev()
            .filter(|s| s.levels != whole)
            .collect();
        parts.extend(spread(&narrow, args.parts.saturating_sub(1)));
        let seed = args.input.source.seed + 1;
        let on = [seed, frames];
        let evaluated = evaluate(&mut scorer, &model, &prices, unit, &parts, on, common)?;
        outcome.text += &format!(
            "\non another route, {frames} frames in the database, {} queries (95 % intervals, paired)\n{}",
            2 * frames,
            table(&evaluated)
        );
        outcome.record["evaluated"] = json!(evaluated);
    }
    Ok(outcome)
}

impl SearchArgs {
    /// Axes that may change.
    fn movable(&self, entry: &Entry, model: &Model, prices: &PriceList) -> Result<Vec<String>> {
        let axes = prices.axes();
        for asked in self.axes.iter().chain(&self.fix) {
            if !axes.iter().any(|axis| axis.name == *asked) {
                let known: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
                return Err(Fail::usage(format!("no axis `{asked}`"))
                    .hint(format!("there are {}", known.join(", "))));
            }
        }
        let width = |graph: &Graph| {
            let (_, value) = graph.outputs().first()?;
            graph.value(*value).ty.shape.last().cloned()
        };
        let keeps_width = |axis: &str| {
            let lowest = narrowed(entry, model, &Choice::whole().with(axis, 1));
            lowest.is_ok_and(|graph| width(&graph) == width(&model.graph))
        };
        let names = axes.iter().map(|axis| &axis.name);
        let may = names.filter(|axis| {
            let is_asked = self.axes.is_empty() || self.axes.contains(axis);
            is_asked && !self.fix.contains(axis) && keeps_width(axis)
        });
        let may: Vec<String> = may.cloned().collect();
        match may.is_empty() {
            true => Err(Fail::usage("no axis is left that may change")),
            false => Ok(may),
        }
    }

    /// The samples in batches of two at least, and where they are on the route that recall is judged on.
    fn samples(&self, model: &Model, common: &Common) -> Result<(Samples, Option<Route>)> {
        let each = self.input.shape.batch.unwrap_or(BATCH).max(2);
        let cpu = common.cpu()?;
        let asked = self.samples as usize;
        let source: Box<dyn percept_data::Samples> = match self.score {
            Score::Agreement => {
                let mut input = self.input.clone();
                input.shape.batch = Some(asked);
                input.open(model, &cpu)?
            }
            Score::Recall if !self.input.source.input.is_empty() => {
                return Err(
                    Fail::usage("recall is judged on a route of the synthetic world")
                        .hint("leave --input out, or search by agreement"),
                );
            }
            Score::Recall => Box::new(self.route(model, cpu.threads())?),
        };
        let samples = asked.min(source.len());
        let (mut batches, mut order) = (Vec::new(), Vec::new());
        let mut positions = vec![[f64::NAN; 2]; samples];
        let bar = progress::bar(common, samples, "reading samples");
        for indices in spread_batches(samples, each) {
            let mut examples = Vec::new();
            order.extend(&indices);
            for index in indices {
                let sample = source.sample(index)?;
                if let Ok(position) = sample.tensor(POSITION)
                    && let [x, y, ..] = *position.to_f64()
                {
                    positions[index] = [x, y];
                }
                examples.push(model.example(&cpu, &sample)?);
                bar.inc(1);
            }
            let tensors = batch(model, examples)?.tensors.into_iter();
            let taken = model.graph.inputs();
            let is_taken = |name: &str| taken.iter().any(|input| input.name == name);
            batches.push(tensors.filter(|(name, _)| is_taken(name)).collect());
        }
        bar.finish_and_clear();
        if samples < 2 {
            return Err(Fail::bad_input("no two samples to score on"));
        }
        let route = (self.score == Score::Recall).then(|| Route {
            database: 0..samples.div_ceil(DRIVES),
            positions,
            near_m: NEAR_M,
            whole: None,
        });
        let samples = Samples {
            measured: batches_for(self.recalibrate as usize, &batches),
            batches,
            order,
        };
        Ok((samples, route))
    }

    /// A route of the synthetic world, driven three times.
    fn route(&self, model: &Model, threads: usize) -> Result<Places> {
        if !Places::takes(model) {
            let message = format!(
                "{} does not look at a route: it takes other samples",
                model.name
            );
            return Err(Fail::usage(message).hint("search by agreement"));
        }
        let config = WorldConfig {
            passes: DRIVES,
            frames_per_pass: (self.samples as usize).div_ceil(DRIVES),
            ..WorldConfig::new(WorldKind::Places, self.input.source.seed)
        };
        Ok(Places::new(model, config, threads)?)
    }
}

/// The tensors of a batch.
type Inputs = BTreeMap<String, Tensor<'static>>;

/// At most so many of them, evenly, the first and the last among them.
fn spread<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    match (all.len(), most) {
        (length, most) if length <= most => all.to_vec(),
        (_, 0) => Vec::new(),
        (_, 1) => all[..1].to_vec(),
        (length, most) => (0..most)
            .map(|i| all[i * (length - 1) / (most - 1)])
            .collect(),
    }
}

/// As many batches as hold so many samples.
fn batches_for(samples: usize, batches: &[Inputs]) -> usize {
    let held = |batch: &Inputs| {
        batch
            .values()
            .next()
            .and_then(|t| t.shape().first().copied())
    };
    let mut seen = 0;
    let enough = batches.iter().position(|batch| {
        seen += held(batch).unwrap_or(0);
        seen >= samples
    });
    enough.map_or(batches.len(), |last| last + 1)
}

/// The first sample of a batch.
fn first_of(batch: &Inputs) -> std::result::Result<Inputs, TensorError> {
    let first = batch.iter().map(|(name, tensor)| {
        let mut shape = tensor.shape().to_vec();
        let samples = shape.first().copied().unwrap_or(1).max(1);
        if let Some(size) = shape.first_mut() {
            *size = 1;
        }
        let values = tensor.to_f32();
        let one = values[..values.len() / samples].to_vec();
        Ok((name.clone(), Tensor::from_values(shape, one)?))
    });
    first.collect()
}

/// Scores, and tells how far it is.
struct Counted<'s, 'a> {
    scorer: &'s mut Scorer<'a>,
    bar: &'s ProgressBar,
    common: &'s Common,
    /// When that was said last, where no bar is seen.
    told: Instant,
}

/// How long a search says nothing where no bar is seen.
const SILENCE: Duration = Duration::from_secs(10);

impl Scoring<Fail> for Counted<'_, '_> {
    fn score(&mut self, choice: &Choice) -> Result<f64> {
        let score = self.scorer.score(choice);
        self.bar.inc(1);
        if self.bar.is_hidden() && self.told.elapsed() >= SILENCE {
            self.told = Instant::now();
            let (scored, most) = (self.bar.position(), self.bar.length().unwrap_or_default());
            self.common
                .note(format_args!("scored {scored} of at most {most}"));
        }
        score
    }

    fn goes_on_from(&mut self, choice: &Choice) -> Result<()> {
        self.scorer.goes_on_from(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_batches_are_measured() {
        let batch = |samples: usize| {
            let tensor = Tensor::from_values([samples, 1], vec![0.0f32; samples]).unwrap();
            Inputs::from([("x".to_owned(), tensor)])
        };
        let batches = [batch(4), batch(4), batch(2)];
        assert_eq!(
            [3, 4, 5, 99].map(|samples| batches_for(samples, &batches)),
            [1, 1, 2, 3]
        );
        let first = first_of(&batches[0]).unwrap();
        assert_eq!(first["x"].shape(), [1, 1]);
    }

    #[test]
    fn parts_are_spread_evenly() {
        let all: Vec<usize> = (0..10).collect();
        assert_eq!(spread(&all, 4), [0, 3, 6, 9]);
        assert_eq!(spread(&all, 99), all);
        assert_eq!(spread(&all, 1), [0]);
        assert!(spread(&all, 0).is_empty());
    }
}

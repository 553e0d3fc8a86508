//! `percept place`: places kept by their descriptors, and found again.

mod bench;
mod describe;
mod draw;
mod eval;
mod export;
mod forget;
mod index;
mod query;

use std::path::PathBuf;

use clap::Subcommand;
use percept_models::Settings;
use percept_models::answer::AnswerKind;
use percept_models::zoo::{self, Entry};
use percept_places::{PlaceError, PlaceIndex};

use crate::fail::{Fail, Result};
use crate::model::{ConfigArgs, ModelArgs};
use crate::options::Common;
use crate::outcome::Outcome;

/// Keep places by their descriptors, and find them again
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept place index --index town.places
  percept place query --index town.places --picture match.png
  percept place index --index kitti.places --without camera --input velodyne/ --poses poses.csv
  percept place eval --index kitti.places --without camera --input later/ --poses later.csv
  percept place export --index town.places --npy descriptors.npy --csv places.csv

Without --input, places are those of a synthetic town: the first drive through it is indexed, later ones, in another lane, \
light and traffic, are the queries. An index remembers the network and what it does without; other descriptors are refused, \
but those of a narrower part of an elastic network are not.")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Index(index::IndexArgs),
    Query(query::QueryArgs),
    Eval(eval::EvalArgs),
    Forget(forget::ForgetArgs),
    Export(export::ExportArgs),
    Bench(bench::BenchArgs),
}

pub fn run(args: &Args, common: &Common) -> Result<Option<Outcome>> {
    let outcome = match &args.verb {
        Verb::Index(args) => index::run(args, common),
        Verb::Query(args) => query::run(args, common),
        Verb::Eval(args) => eval::run(args, common),
        Verb::Forget(args) => forget::run(args),
        Verb::Export(args) => export::run(args),
        Verb::Bench(args) => return bench::run(args, common),
    };
    outcome.map(Some)
}

/// The network that describes places.
#[derive(clap::Args, Clone, Debug)]
struct NetworkArgs {
    /// Network that gives descriptors [default: one with trained weights, else the smallest]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

impl NetworkArgs {
    fn chosen(&self) -> Result<ModelArgs> {
        let model = match &self.model {
            Some(name) => name.clone(),
            None => usual()?.name.to_owned(),
        };
        Ok(ModelArgs {
            model,
            config: self.config.clone(),
        })
    }
}

/// A network of the zoo that gives descriptors: one with trained weights, else the smallest.
fn usual() -> Result<&'static Entry> {
    let describing = zoo::entries().filter_map(|entry| {
        let model = entry.build(&Settings::none()).ok()?;
        let size = model.graph.parameter_count();
        (model.head.kind() == AnswerKind::Descriptor).then_some((entry, size))
    });
    let best = describing.min_by_key(|(entry, size)| (entry.shipped.is_none(), *size));
    let best = best.map(|(entry, _)| entry);
    best.ok_or_else(|| Fail::usage("no network gives descriptors"))
}

/// Where the places are kept.
#[derive(clap::Args, Clone, Debug)]
struct IndexFile {
    /// File of the index
    #[arg(long = "index", value_name = "FILE")]
    path: PathBuf,
}

impl IndexFile {
    /// Refuses a file that is no index, or can be none, before a network is loaded for it.
    fn check(&self) -> Result<()> {
        let folder = self.path.parent();
        if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty())
            && !folder.is_dir()
        {
            return Err(Fail::bad_input(format!(
                "{}: there is no folder {}",
                self.path.display(),
                folder.display()
            )));
        }
        match PlaceIndex::read(&self.path) {
            Err(error @ PlaceError::NotAnIndex { .. }) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Metres on the ground, in words.
fn position_text(position: Option<[f64; 2]>) -> String {
    match position {
        Some([x, y]) => format!("{x:.1}, {y:.1}"),
        None => "unknown".to_owned(),
    }
}

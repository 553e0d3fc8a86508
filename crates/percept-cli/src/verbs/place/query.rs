//! `percept place query`: where was this?

use std::path::PathBuf;

use percept_data::{Sample, Samples};
use percept_models::Model;
use percept_places::NEAR_M;
use percept_report::Table;
use percept_samples::{Given, OpenOptions, open};
use serde_json::{Value, json};

use super::describe::{DescribeArgs, Described, Drives};
use super::draw::{Match, draw};
use super::position_text;
use crate::fail::Result;
use crate::options::{Common, parse_picture, parse_top};
use crate::outcome::{Outcome, write_picture};

/// Describe frames and look for the nearest places of an index
#[derive(clap::Args)]
pub struct QueryArgs {
    #[command(flatten)]
    describe: DescribeArgs,
    /// Places to show of each query
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_top)]
    top: usize,
    /// Of the synthetic town's later drives: the first frames only
    #[arg(long, value_name = "N", default_value_t = 5)]
    first: usize,
    /// Draw each query beside what was found, as .png or .svg; of several queries the number of each goes into the name
    #[arg(long, value_name = "FILE", value_parser = parse_picture)]
    picture: Option<PathBuf>,
    /// Where the frames of the index are, for --picture [default: the synthetic town, or the frames that ask]
    #[arg(long, value_name = "[PART=]PATH", num_args = 1.., requires = "picture")]
    indexed: Vec<Given>,
}

/// Frames that an index may name.
struct Shown {
    indexed: Option<Box<dyn Samples>>,
}

impl Shown {
    fn open(args: &QueryArgs, model: &Model, threads: usize) -> Result<Self> {
        let options = OpenOptions {
            threads,
            ..OpenOptions::default()
        };
        let indexed = match args.indexed.is_empty() {
            true => None,
            false => Some(open(model, &args.indexed, &options)?),
        };
        Ok(Self { indexed })
    }

    /// The frame that was indexed under this name, where it can be found.
    fn frame(&self, source: &Described, name: &str) -> Option<Sample> {
        let samples: &dyn Samples = match &self.indexed {
            Some(samples) => &**samples,
            None => &*source.samples,
        };
        let index = (0..samples.len()).find(|&index| samples.name(index) == name)?;
        samples.sample(index).ok()
    }
}

/// The file of a query's picture: of several, with its number.
fn numbered(path: &std::path::Path, number: usize, queries: usize) -> PathBuf {
    if queries == 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.{ending}"))
}

pub fn run(args: &QueryArgs, common: &Common) -> Result<Outcome> {
    let DescribeArgs { source, .. } = &args.describe;
    let (index, mut describer) = args.describe.ask(common)?;
    let cpu = common.cpu()?;
    let threads = cpu.threads();
    let mut source = source.open(&describer.model, Drives::Later, threads)?;
    if source.frames_per_pass.is_some() {
        source.wanted.end = source.wanted.end.min(source.wanted.start + args.first);
    }
    let at_hand = Shown::open(args, &describer.model, threads)?;
    let (mut text, mut records): (String, Vec<Value>) = (String::new(), Vec::new());
    let queries = source.wanted.len();
    describer.each(&source, common, |_, query, sample| {
        // One more, for the margin of the last.
        let found = index.search(&cpu, &query.descriptor, args.top + 1)?;
        let found = found.into_iter().next().unwrap_or_default();
        let mut table = Table::new(&["<place", "x, y m", "distance", "margin", "apart m"]);
        let mut answers = Vec::new();
        let mut frames: Vec<(Sample, String, Option<bool>)> = Vec::new();
        for (rank, near) in found.iter().take(args.top).enumerate() {
            let place = index.place(near.place);
            // How much farther the next place is: the surer, the more.
            let margin = found
                .get(rank + 1)
                .map(|next| next.distance - near.distance);
            let apart = query.position.zip(place.position);
            let apart = apart.map(|(a, b)| (a[0] - b[0]).hypot(a[1] - b[1]));
            let shown = |value: Option<f64>, digits: usize| match value {
                Some(value) => format!("{value:.digits$}"),
                None => String::new(),
            };
            table.row([
                place.name.to_owned(),
                position_text(place.position),
                format!("{:.4}", near.distance),
                shown(margin, 4),
                shown(apart, 1),
            ]);
            if args.picture.is_some()
                && let Some(frame) = at_hand.frame(&source, place.name)
            {
                let caption = format!("{:.3}: {}", near.distance, place.name);
                frames.push((frame, caption, apart.map(|apart| apart <= NEAR_M)));
            }
            answers.push(json!({
                "place": place.name, "position_m": place.position, "distance": near.distance,
                "margin": margin, "apart_m": apart,
            }));
        }
        text += &format!(
            "{} at {}\n{}\n",
            query.name,
            position_text(query.position),
            table.render()
        );
        if let Some(path) = &args.picture {
            let found: Vec<Match<'_>> = frames
                .iter()
                .map(|(sample, caption, right)| Match {
                    sample,
                    caption: caption.clone(),
                    right: *right,
                })
                .collect();
            if found.is_empty() {
                common.note("the frames that were found are not at hand: --indexed names them");
            }
            let drawn = draw(&query.name, sample, &found)?;
            write_picture(&numbered(path, records.len(), queries), &drawn)?;
        }
        records.push(json!({
            "query": query.name, "position_m": query.position, "answers": answers,
        }));
        Ok(())
    })?;
    let record = json!({
        "index": index.path().display().to_string(), "places": index.len(), "queries": records,
    });
    Ok(Outcome::new(text, record))
}

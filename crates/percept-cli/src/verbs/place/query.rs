//! `percept place query`: where was this?

use percept_report::Table;
use serde_json::{Value, json};

use super::describe::{DescribeArgs, Drives};
use super::position_text;
use crate::fail::Result;
use crate::options::Common;
use crate::outcome::Outcome;

/// Describe frames and look for the nearest places of an index
#[derive(clap::Args)]
pub struct QueryArgs {
    #[command(flatten)]
    describe: DescribeArgs,
    /// Places to show of each query
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,
    /// Of the synthetic town's later drives: the first frames only
    #[arg(long, value_name = "N", default_value_t = 5)]
    first: usize,
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
    let (mut text, mut records): (String, Vec<Value>) = (String::new(), Vec::new());
    describer.each(&source, common, |_, query, _| {
        // One more, for the margin of the last.
        let found = index.search(&cpu, &query.descriptor, args.top + 1)?;
        let found = found.into_iter().next().unwrap_or_default();
        let mut table = Table::new(&["<place", "x, y m", "distance", "margin", "apart m"]);
        let mut answers = Vec::new();
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

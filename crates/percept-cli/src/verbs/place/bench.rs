//! `percept place bench`: how long a search takes here.

use std::path::PathBuf;

use percept_data::safetensors::write_safetensors;
use percept_data::seeded::Stream;
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_kernels::nearest::{ByteRows, Near, nearest, nearest_through_bytes};
use percept_report::{Table, bytes, counted, milliseconds};
use serde_json::json;

use crate::fail::{Blame, Result};
use crate::options::{Common, parse_top};
use crate::outcome::Outcome;
use crate::verbs::bench::{Timed, pace, timed};

/// Measure the search of places: the nearest of so many descriptors, exactly
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept place bench --places 1000000 --width 256 --queries 64

Descriptors are noise from a fixed stream. Searched is in two ways that find the same: through all numbers, and through bytes \
first, of which the few rows that may be nearest are then compared in full.")]
pub struct BenchArgs {
    /// Places of the index
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    places: u32,
    /// Numbers of a descriptor
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    width: u32,
    /// Queries at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    queries: u32,
    /// Places to find of each
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = parse_top)]
    top: usize,
    /// Searches of each way
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    repeats: u64,
    /// Search through bytes once for each line of stdin, for a comparison with other engines
    #[arg(long, hide = true)]
    paced: bool,
    /// Write the numbers of the rows that were found as .safetensors
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

struct Searched {
    cpu: Cpu,
    rows: Vec<f32>,
    through: ByteRows,
    queries: Vec<f32>,
    width: usize,
    top: usize,
}

impl Searched {
    fn new(args: &BenchArgs, cpu: Cpu) -> Self {
        let width = args.width as usize;
        let drawn = |name: &str, rows: u32| -> Vec<f32> {
            let stream = Stream::named(name);
            let numbers = 0..u64::from(rows) * width as u64;
            numbers.map(|index| stream.uniform(index) - 0.5).collect()
        };
        let rows = drawn("places", args.places);
        let mut through = ByteRows::new(width);
        through.extend(&cpu, &rows);
        Self {
            queries: drawn("queries", args.queries),
            cpu,
            rows,
            through,
            width,
            top: args.top,
        }
    }

    fn plainly(&self) -> Vec<Vec<Near>> {
        let rows = [&self.rows[..]];
        nearest(
            &self.cpu,
            self.width,
            &self.queries,
            &rows,
            self.top,
            |_| true,
        )
    }

    fn through_bytes(&self) -> Vec<Vec<Near>> {
        let rows = [&self.rows[..]];
        nearest_through_bytes(
            &self.cpu,
            &self.through,
            &self.queries,
            &rows,
            self.top,
            |_| true,
        )
    }
}

/// None where lines were answered, and everything was said.
pub fn run(args: &BenchArgs, common: &Common) -> Result<Option<Outcome>> {
    let searched = Searched::new(args, common.cpu()?);
    let threads = searched.cpu.threads();
    let found = searched.through_bytes();
    if let Some(path) = &args.save {
        let rows: Vec<f32> = found.iter().flatten().map(|near| near.row as f32).collect();
        let shape = [found.len(), rows.len() / found.len().max(1)];
        let rows = Tensor::from_values(shape, rows).bug()?;
        write_safetensors(path, &[("rows".to_owned(), rows)], &Default::default())?;
    }
    if args.paced {
        pace(threads, || Ok(timed(|| searched.through_bytes())))?;
        return Ok(None);
    }
    let is_same = found == searched.plainly();
    let mut table = Table::new(&["<search", "ms", "CPU ms", "reads"]);
    let mut record = json!({
        "places": args.places, "width": args.width, "queries": args.queries, "top": args.top,
        "threads": threads, "repeats": args.repeats, "same": is_same,
    });
    let plain = 4 * searched.rows.len() as u64;
    let compressed = searched.through.held_bytes() as u64;
    type Way = fn(&Searched) -> Vec<Vec<Near>>;
    let ways: [(&str, Way, u64); 2] = [
        ("all numbers", Searched::plainly, plain),
        ("bytes first", Searched::through_bytes, compressed),
    ];
    for (name, way, reads) in ways {
        let runs: Vec<Timed> = (0..args.repeats)
            .map(|_| timed(|| way(&searched)))
            .collect();
        let median = |of: fn(&Timed) -> f64| {
            let mut times: Vec<f64> = runs.iter().map(of).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let [wall, cpu] = [median(|t| t.wall_ms), median(|t| t.cpu_ms)];
        table.row([
            name.to_owned(),
            milliseconds(wall),
            milliseconds(cpu),
            bytes(reads),
        ]);
        record[name.replace(' ', "_")] = json!({"wall_ms": wall, "cpu_ms": cpu, "bytes": reads});
    }
    let same = if is_same {
        "the same"
    } else {
        "OTHER ROWS: a bug"
    };
    let text = format!(
        "{} nearest of {} of {} numbers, {}, {}\n\n{}\nboth find {same}\n",
        args.top,
        counted(args.places, "place"),
        args.width,
        counted(args.queries, "query"),
        counted(threads, "thread"),
        table.render()
    );
    Ok(Some(Outcome {
        passed: is_same,
        ..Outcome::new(text, record)
    }))
}

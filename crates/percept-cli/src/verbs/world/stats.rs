//! `percept world stats`.

use std::path::PathBuf;

use percept_data::points::LidarDataset;
use percept_kernels::Cpu;
use percept_report::Table;
use percept_world::{CloudStatistics, World, WorldError, compare_statistics};
use serde_json::json;

use super::{StreetArgs, blame_points, blame_world};
use crate::fail::Result;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;

/// Count what frames look like, beside real data when it is given
#[derive(clap::Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    world: StreetArgs,
    /// Frames to count
    #[arg(long, value_name = "N", default_value_t = 20)]
    frames: usize,
    /// Count this data too (may be repeated): a .pcd.bin or .bin cloud, a nuScenes or a SemanticKITTI folder
    #[arg(long, value_name = "PATH")]
    compare: Vec<PathBuf>,
}

pub(super) fn run(args: &StatsArgs, common: &Common, cpu: &Cpu) -> Result<Outcome> {
    if args.frames == 0 {
        return Err(blame_world(WorldError::NoFrames));
    }
    let bar = progress::bar(common, args.frames, "counting frames");
    let mut world = World::new(args.world.config());
    // Frames some way apart, so that they show different places.
    let frames = (0..args.frames).map(|index| {
        bar.inc(1);
        world.frame(cpu, 8 * index)
    });
    let mut sources = vec![(
        format!("{}, seed {}", args.world.kind, args.world.seed),
        CloudStatistics::of(frames),
    )];
    bar.finish_and_clear();
    for path in &args.compare {
        let dataset = LidarDataset::open(path).map_err(blame_points)?;
        let frames = dataset.frames().min(args.frames);
        let read = (0..frames)
            .map(|index| dataset.frame(index, 1))
            .collect::<std::result::Result<Vec<_>, _>>();
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();
        sources.push((name, CloudStatistics::of(read.map_err(blame_points)?)));
    }
    let (names, statistics): (Vec<String>, Vec<CloudStatistics>) = sources.into_iter().unzip();
    let rows = compare_statistics(&statistics);
    let mut headers = vec!["<"];
    headers.extend(names.iter().map(String::as_str));
    let mut table = Table::new(&headers);
    for row in &rows {
        let cells = row
            .values
            .iter()
            .map(|value| value.map_or("-".to_owned(), number));
        table.row(std::iter::once(row.name.clone()).chain(cells));
    }
    Ok(Outcome::new(
        table.render(),
        json!({"sources": names, "rows": rows}),
    ))
}

/// Whole when large, two digits behind the point when small.
fn number(value: f64) -> String {
    if value >= 1000.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

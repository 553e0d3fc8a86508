//! `percept world`: the synthetic world, written, drawn and counted.

use std::path::PathBuf;

use clap::Subcommand;
use percept_data::atomic::write_atomically;
use percept_data::points::{
    EGO_HALF_EXTENT_M, LEARNED_CLASS_NAMES, LidarDataset, LidarFrame, ObjectClass, Point,
    PointsError,
};
use percept_kernels::Cpu;
use percept_picture::{BirdsEye, DrawnBox, DrawnPoint, Picture, PointColours, Scanner, draw_scan};
use percept_report::{Table, bytes};
use percept_world::{
    CloudStatistics, MAX_SWEEPS, MakeOptions, World, WorldConfig, WorldError, WorldKind,
    compare_statistics, make,
};
use serde_json::json;

use crate::fail::{Blame, Fail, Result};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;

/// Make, draw and count a synthetic street with its LiDAR and its truth
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept world make --kind nuscenes --frames 40 --seed 1 --out street
  percept world show --kind semantickitti --seed 3 --image street.png
  percept world show --data street --frame 7 --sweeps 10
  percept world stats --compare LIDAR_TOP.pcd.bin

The same seed gives the same bits on every machine and any number of threads.")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Make(MakeArgs),
    Show(ShowArgs),
    Stats(StatsArgs),
}

/// Write a world in a public layout into --out DIR
#[derive(clap::Args)]
struct MakeArgs {
    #[command(flatten)]
    world: WorldArgs,
    /// Frames to write: keyframes at 2 Hz (nuscenes), scans at 10 Hz (semantickitti)
    #[arg(long, value_name = "N", default_value_t = 40)]
    frames: usize,
    /// Sweeps that each frame can merge, the ones between keyframes included [default: 10, semantickitti: 1]
    #[arg(long, value_name = "N")]
    sweeps: Option<usize>,
    /// Replace a world that percept made there before
    #[arg(long)]
    force: bool,
}

/// Draw a frame: bird's-eye view with boxes, and range image, as one PNG
#[derive(clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    world: WorldArgs,
    /// Draw this data instead: a .pcd.bin or .bin cloud, a nuScenes or a SemanticKITTI folder
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Which frame
    #[arg(long, value_name = "N", default_value_t = 0)]
    frame: usize,
    /// Sweeps to merge
    #[arg(long, value_name = "N", default_value_t = 1)]
    sweeps: usize,
    /// Picture to write
    #[arg(long, value_name = "FILE", default_value = "world.png")]
    image: PathBuf,
}

/// Count what frames look like, beside real data when it is given
#[derive(clap::Args)]
struct StatsArgs {
    #[command(flatten)]
    world: WorldArgs,
    /// Frames to count
    #[arg(long, value_name = "N", default_value_t = 20)]
    frames: usize,
    /// Count this data too (may be repeated): a .pcd.bin or .bin cloud, a nuScenes or a SemanticKITTI folder
    #[arg(long, value_name = "PATH")]
    compare: Vec<PathBuf>,
}

#[derive(clap::Args)]
struct WorldArgs {
    /// The dataset to imitate: nuscenes or semantickitti
    #[arg(long, value_name = "KIND", default_value = "nuscenes")]
    kind: WorldKind,
    /// Everything follows from it
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

impl WorldArgs {
    fn config(&self, sweeps: usize) -> WorldConfig {
        WorldConfig {
            sweeps,
            ..WorldConfig::new(self.kind, self.seed)
        }
    }
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let cpu = common.cpu()?;
    match &args.verb {
        Verb::Make(args) => run_make(args, common, &cpu),
        Verb::Show(args) => run_show(args, &cpu),
        Verb::Stats(args) => run_stats(args, common, &cpu),
    }
}

fn run_make(args: &MakeArgs, common: &Common, cpu: &Cpu) -> Result<Outcome> {
    let out = common.out.clone().ok_or_else(|| {
        Fail::usage("world make needs a folder to make").hint("name it with --out DIR")
    })?;
    let sweeps = args.sweeps.unwrap_or(match args.world.kind {
        WorldKind::NuScenes => MAX_SWEEPS,
        WorldKind::SemanticKitti | WorldKind::Places => 1,
    });
    let config = args.world.config(sweeps);
    let options = MakeOptions {
        config,
        frames: args.frames,
        cameras: None,
        out: out.clone(),
        force: args.force,
    };
    let bar = progress::bar(common, args.frames, "making frames");
    let summary = make(cpu, &options, |done| bar.set_position(done as u64)).map_err(blame_world)?;
    bar.finish_and_clear();
    let text = format!(
        "{}: {} frames, {} clouds, {} points, {} boxes, {}\n",
        out.display(),
        summary.frames,
        summary.clouds,
        summary.points,
        summary.boxes,
        bytes(summary.bytes)
    );
    let record = json!({
        "made": summary, "kind": config.kind.to_string(), "seed": config.seed, "sweeps": sweeps,
        "folder": out.display().to_string(),
    });
    Ok(Outcome::new(text, record))
}

fn run_show(args: &ShowArgs, cpu: &Cpu) -> Result<Outcome> {
    if !(1..=MAX_SWEEPS).contains(&args.sweeps) {
        return Err(blame_world(WorldError::Sweeps {
            sweeps: args.sweeps,
        }));
    }
    let (frame, title): (LidarFrame, String) = match &args.data {
        Some(path) => {
            let dataset = LidarDataset::open(path).map_err(blame_points)?;
            let frame = dataset
                .frame(args.frame, args.sweeps)
                .map_err(blame_points)?;
            let name = path
                .file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy()
                .into_owned();
            (frame, format!("{name}, frame {}", args.frame))
        }
        None => {
            let frame = World::new(args.world.config(args.sweeps)).frame(cpu, args.frame);
            (
                frame,
                format!(
                    "{}, seed {}, frame {}",
                    args.world.kind, args.world.seed, args.frame
                ),
            )
        }
    };
    let png = draw(&frame, &title).to_png();
    write_atomically(&args.image, |file| file.write_all(&png))
        .map_err(|error| anyhow::anyhow!("{}: {error}", args.image.display()))
        .bad_input()?;
    let boxes = frame.boxes.as_ref().map(Vec::len);
    let boxes_text = boxes.map_or("no boxes".to_owned(), |count| format!("{count} boxes"));
    let text = format!(
        "{}: {} points, {boxes_text}\n",
        args.image.display(),
        frame.points.len()
    );
    let record = json!({
        "image": args.image.display().to_string(), "title": title, "points": frame.points.len(), "boxes": boxes,
    });
    Ok(Outcome::new(text, record))
}

/// Metres from the sensor to the edge of the bird's-eye view.
const REACH_M: f64 = 52.0;

/// A frame with its truth.
fn draw(frame: &LidarFrame, title: &str) -> Picture {
    let labels = frame.labels.as_deref();
    let point = |(index, point): (usize, &Point)| DrawnPoint {
        position: point.position,
        intensity: point.intensity,
        class: labels
            .and_then(|labels| labels.get(index))
            .map(|label| usize::from(label.learned_class())),
        ring: point.ring,
        old: point.age_s != 0.0,
    };
    let points: Vec<DrawnPoint> = frame
        .points
        .iter()
        .enumerate()
        .filter(|(_, point)| {
            let [x, y, _] = point.position.map(f32::abs);
            x >= EGO_HALF_EXTENT_M || y >= EGO_HALF_EXTENT_M
        })
        .map(point)
        .collect();
    let boxes: Vec<DrawnBox> = frame
        .boxes
        .iter()
        .flatten()
        .map(|object| DrawnBox {
            class: object.class.id(),
            centre: [object.centre[0], object.centre[1]],
            size: [object.size[0], object.size[1]],
            yaw_rad: object.yaw_rad,
            velocity: object.velocity,
            score: 1.0,
        })
        .collect();
    let scene = BirdsEye {
        title,
        points: &points,
        // Without labels, height tells the most.
        colours: labels.map_or(PointColours::Height, |_| {
            PointColours::Class(&LEARNED_CLASS_NAMES)
        }),
        boxes: &boxes,
        box_classes: &ObjectClass::ALL.map(ObjectClass::name),
        forward_rad: frame.convention.forward_rad(),
        reach_m: REACH_M,
    };
    let scanner = Scanner {
        beams: frame.convention.beams(),
        elevations_rad: frame.convention.elevations_rad(),
    };
    draw_scan(&scene, scanner)
}

fn run_stats(args: &StatsArgs, common: &Common, cpu: &Cpu) -> Result<Outcome> {
    if args.frames == 0 {
        return Err(blame_world(WorldError::NoFrames));
    }
    let bar = progress::bar(common, args.frames, "counting frames");
    let mut world = World::new(args.world.config(1));
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

fn blame_world(error: WorldError) -> Fail {
    match &error {
        WorldError::Exists { .. } => {
            Fail::usage(&error).hint("--force replaces a world that percept made")
        }
        WorldError::NotOurs { .. } => {
            Fail::usage(&error).hint("name another folder, or remove it yourself")
        }
        WorldError::NoFrames
        | WorldError::Sweeps { .. }
        | WorldError::PictureSize { .. }
        | WorldError::Samples { .. }
        | WorldError::UnknownChannel { .. } => Fail::usage(&error),
        WorldError::Io { .. } => Fail::bad_input(&error),
    }
}

fn blame_points(error: PointsError) -> Fail {
    match &error {
        PointsError::NoSuchFrame { .. } => Fail::usage(&error),
        _ => Fail::bad_input(&error),
    }
}

//! `percept world make`.

use std::path::PathBuf;

use clap::ValueEnum;
use percept_kernels::Cpu;
use percept_report::{bytes, counted};
use percept_world::{
    EgoExoConfig, MAX_SWEEPS, MakeOptions, MakeRoomsOptions, MakeSummary, RoomLayout, WorldConfig,
    WorldKind, make, make_rooms,
};
use serde_json::json;

use super::{Kind, Size, WorldArgs, blame_world, no_street};
use crate::fail::{Fail, Result};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;

/// Write a world in a public layout into --out DIR
#[derive(clap::Args)]
pub(super) struct MakeArgs {
    #[command(flatten)]
    world: WorldArgs,
    /// Frames to write: keyframes at 2 Hz (nuscenes; places: per pass), scans at 10 Hz (semantickitti), pairs a second
    /// apart (egoexo: per take) [default: 40, egoexo: 8]
    #[arg(long, value_name = "N")]
    frames: Option<usize>,
    /// Sweeps that each frame can merge, the ones between keyframes included [default: 10, others than nuscenes: 1]
    #[arg(long, value_name = "N")]
    sweeps: Option<usize>,
    /// Pictures of the street's cameras (nuscenes, places) [default: 704x256]
    #[arg(long, value_name = "WxH")]
    size: Option<Size>,
    /// Cameras to write: all, or channels such as CAM_FRONT,CAM_BACK [default: all for places, none for nuscenes]
    #[arg(long, value_name = "CHANNELS", value_delimiter = ',')]
    cameras: Vec<String>,
    /// Rooms to write (egoexo)
    #[arg(long, value_name = "N", default_value_t = 5)]
    takes: usize,
    /// How rooms are laid out
    #[arg(long, value_name = "LAYOUT", default_value = "omama")]
    layout: Layout,
    /// Replace a world that percept made there before
    #[arg(long)]
    force: bool,
}

/// Pictures of the street's cameras where nobody says.
const PICTURES: Size = Size {
    width: 704,
    height: 256,
};

#[derive(Clone, Copy, ValueEnum)]
enum Layout {
    /// The public layout of O-MaMa
    Omama,
    /// A folder per object of each pair
    Pairs,
}

pub(super) fn run(args: &MakeArgs, common: &Common, cpu: &Cpu) -> Result<Outcome> {
    let out = common.out.clone().ok_or_else(|| {
        Fail::usage("world make needs a folder to make").hint("name it with --out DIR")
    })?;
    match args.world.kind {
        Kind::World(kind) => streets(args, kind, out, common, cpu),
        Kind::EgoExo if args.size.is_some() => Err(no_street()),
        Kind::EgoExo => rooms(args, out, common, cpu),
    }
}

fn streets(
    args: &MakeArgs,
    kind: WorldKind,
    out: PathBuf,
    common: &Common,
    cpu: &Cpu,
) -> Result<Outcome> {
    let frames = args.frames.unwrap_or(40);
    let sweeps = args.sweeps.unwrap_or(match kind {
        WorldKind::NuScenes => MAX_SWEEPS,
        WorldKind::SemanticKitti | WorldKind::Places => 1,
    });
    let config = WorldConfig {
        sweeps,
        frames_per_pass: frames,
        ..args.world.street(kind)
    };
    let wants_cameras = match kind {
        WorldKind::Places => true,
        WorldKind::NuScenes => !args.cameras.is_empty(),
        WorldKind::SemanticKitti if args.cameras.is_empty() => false,
        WorldKind::SemanticKitti => {
            return Err(Fail::usage("--cameras: the semantickitti layout has none"));
        }
    };
    let rig = || args.world.rig(args.size.unwrap_or(PICTURES), &args.cameras);
    let options = MakeOptions {
        config,
        frames,
        cameras: wants_cameras.then(rig).transpose()?,
        out: out.clone(),
        force: args.force,
    };
    let total = match kind {
        WorldKind::Places => config.passes * frames,
        WorldKind::NuScenes | WorldKind::SemanticKitti => frames,
    };
    let bar = progress::bar(common, total, "making frames");
    let summary = make(cpu, &options, |done| bar.set_position(done as u64)).map_err(blame_world)?;
    bar.finish_and_clear();
    let pictures = match summary.pictures {
        0 => String::new(),
        count => counted(count, "picture") + ", ",
    };
    let text = format!(
        "{}: {}, {}, {}, {}, {pictures}{}\n",
        out.display(),
        counted(summary.frames, "frame"),
        counted(summary.clouds, "cloud"),
        counted(summary.points, "point"),
        counted(summary.boxes, "box"),
        bytes(summary.bytes)
    );
    let record = json!({
        "made": summary, "kind": kind.to_string(), "seed": config.seed, "sweeps": sweeps,
        "folder": out.display().to_string(),
    });
    Ok(Outcome::new(text, record))
}

fn rooms(args: &MakeArgs, out: PathBuf, common: &Common, cpu: &Cpu) -> Result<Outcome> {
    let config = EgoExoConfig {
        seed: args.world.seed,
        frames_per_take: args.frames.unwrap_or(8),
        ego: args.world.picture(args.world.ego_size)?,
        exo: args.world.picture(args.world.exo_size)?,
    };
    let options = MakeRoomsOptions {
        config,
        takes: args.takes,
        layout: match args.layout {
            Layout::Omama => RoomLayout::Omama,
            Layout::Pairs => RoomLayout::Pairs,
        },
        out: out.clone(),
        force: args.force,
    };
    let bar = progress::bar(common, args.takes * config.frames_per_take, "making pairs");
    let done = |done: usize| bar.set_position(done as u64);
    let summary: MakeSummary = make_rooms(cpu, &options, done).map_err(blame_world)?;
    bar.finish_and_clear();
    let text = format!(
        "{}: {}, {}, {}, {}\n",
        out.display(),
        counted(args.takes, "take"),
        counted(summary.frames, "pair"),
        counted(summary.masks, "mask"),
        bytes(summary.bytes)
    );
    let record = json!({
        "made": summary, "kind": "egoexo", "seed": config.seed, "takes": args.takes,
        "folder": out.display().to_string(),
    });
    Ok(Outcome::new(text, record))
}

//! `percept world`: the synthetic world, written, drawn and counted.

mod make;
mod show;
mod stats;

use std::str::FromStr;

use clap::Subcommand;
use percept_data::points::{CAMERA_CHANNELS, PointsError};
use percept_world::{CameraRig, PictureSize, WorldConfig, WorldError, WorldKind};

use crate::fail::{Fail, Result};
use crate::options::Common;
use crate::outcome::Outcome;

/// Make, draw and count synthetic streets with LiDAR and cameras, and rooms seen from two sides, with their truth
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept world make --kind nuscenes --frames 40 --seed 1 --out street
  percept world make --kind places --frames 40 --passes 3 --size 704x256 --out town
  percept world make --kind egoexo --takes 5 --frames 8 --out rooms
  percept world show --kind places --frame 12 --image town.png
  percept world show --kind egoexo --seed 3 --image room.png
  percept world show --data street --frame 7 --sweeps 10
  percept world stats --compare LIDAR_TOP.pcd.bin

The same seed gives the same bits on every machine and any number of threads.")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Make(make::MakeArgs),
    Show(show::ShowArgs),
    Stats(stats::StatsArgs),
}

/// What is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    World(WorldKind),
    EgoExo,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "egoexo" => Ok(Self::EgoExo),
            _ => name
                .parse()
                .map(Self::World)
                .map_err(|error: String| error.replace(" or ", ", ") + " or egoexo"),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::World(kind) => kind.fmt(f),
            Self::EgoExo => f.write_str("egoexo"),
        }
    }
}

/// A world of streets.
#[derive(clap::Args)]
struct StreetArgs {
    /// The dataset to imitate: nuscenes, semantickitti or places
    #[arg(long, value_name = "KIND", default_value = "nuscenes")]
    kind: WorldKind,
    /// Everything follows from it
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

impl StreetArgs {
    fn config(&self) -> WorldConfig {
        WorldConfig::new(self.kind, self.seed)
    }
}

/// Any world.
#[derive(clap::Args)]
struct WorldArgs {
    /// What to imitate: nuscenes, semantickitti, places or egoexo
    #[arg(long, value_name = "KIND", default_value = "nuscenes")]
    kind: Kind,
    /// Everything follows from it
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Looks at each pixel of a picture
    #[arg(long, value_name = "N", default_value_t = 1)]
    samples: usize,
    /// Drives through the town (places) [default: 3]
    #[arg(long, value_name = "N")]
    passes: Option<usize>,
    /// Pictures of the camera on the head (egoexo)
    #[arg(long, value_name = "WxH", default_value = "704x704")]
    ego_size: Size,
    /// Pictures of the camera on the stand (egoexo)
    #[arg(long, value_name = "WxH", default_value = "960x540")]
    exo_size: Size,
}

impl WorldArgs {
    fn street(&self, kind: WorldKind) -> WorldConfig {
        let usual = WorldConfig::new(kind, self.seed);
        WorldConfig {
            passes: self.passes.unwrap_or(usual.passes),
            ..usual
        }
    }

    /// A size with this world's number of samples.
    fn picture(&self, size: Size) -> Result<PictureSize> {
        PictureSize::new(size.width, size.height)
            .and_then(|size| size.sampled(self.samples))
            .map_err(blame_world)
    }

    /// The cameras of these channels; all of them where none is named.
    fn rig(&self, size: Size, channels: &[String]) -> Result<CameraRig> {
        let rig = CameraRig::nuscenes(self.picture(size)?);
        let named: Vec<&str> = match channels {
            [all] if all == "all" => CAMERA_CHANNELS.to_vec(),
            [] => CAMERA_CHANNELS.to_vec(),
            some => some.iter().map(String::as_str).collect(),
        };
        rig.only(&named).map_err(blame_world)
    }
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    width: usize,
    height: usize,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let sides = text.split_once(['x', 'X']);
        let parsed = sides.and_then(|(width, height)| {
            Some(Self {
                width: width.parse().ok()?,
                height: height.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| format!("{text:?} is no size: expected WIDTHxHEIGHT, as 704x256"))
    }
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let cpu = common.cpu()?;
    match &args.verb {
        Verb::Make(args) => make::run(args, common, &cpu),
        Verb::Show(args) => show::run(args, &cpu),
        Verb::Stats(args) => stats::run(args, common, &cpu),
    }
}

/// The error for pictures of a street where there is none.
fn no_street() -> Fail {
    Fail::usage("--size is of a street's pictures; egoexo has rooms")
        .hint("--ego-size and --exo-size are of theirs")
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
        | WorldError::NoPasses
        | WorldError::NoTakes
        | WorldError::Sweeps { .. }
        | WorldError::PictureSize { .. }
        | WorldError::Samples { .. }
        | WorldError::UnknownChannel { .. } => Fail::usage(&error),
        WorldError::Io { .. } | WorldError::File(_) => Fail::bad_input(&error),
    }
}

fn blame_points(error: PointsError) -> Fail {
    match &error {
        PointsError::NoSuchFrame { .. } => Fail::usage(&error),
        _ => Fail::bad_input(&error),
    }
}

//! Worlds written in the public layouts, whole or not at all.

mod nuscenes;
mod omama;
mod pair_folder;
mod semantic_kitti;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use percept_data::atomic::without_temporary_name;
use percept_data::images::{RgbImage, encode_jpeg};
use percept_kernels::Cpu;
use serde::Serialize;

use super::camera::CameraRig;
use super::error::WorldError;
use super::room::{EgoExo, EgoExoConfig};
use super::stream::{MAX_SWEEPS, World, WorldConfig, WorldKind};

/// What to write where.
#[derive(Clone, Debug)]
pub struct MakeOptions {
    /// Which world.
    pub config: WorldConfig,
    /// How many frames (keyframes in nuScenes); a world of places has its own number.
    pub frames: usize,
    /// The cameras whose pictures are written, in the layouts that have any.
    pub cameras: Option<CameraRig>,
    /// The folder to make.
    pub out: PathBuf,
    /// Replace a world that stands there already.
    pub force: bool,
}

/// Which rooms to write where.
#[derive(Clone, Debug)]
pub struct MakeRoomsOptions {
    /// Which rooms.
    pub config: EgoExoConfig,
    /// How many of them.
    pub takes: usize,
    /// How.
    pub layout: RoomLayout,
    /// The folder to make.
    pub out: PathBuf,
    /// Replace what percept made there before.
    pub force: bool,
}

/// How pairs of pictures are laid out on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomLayout {
    /// As the public O-MaMa system has them: takes with annotations, lists of pairs, stacks of candidates.
    Omama,
    /// A folder for each object of each pair: ego is the source, exo the destination.
    Pairs,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MakeSummary {
    /// Frames.
    pub frames: usize,
    /// Point clouds, sweeps between keyframes included.
    pub clouds: usize,
    /// Points in all of them.
    pub points: usize,
    /// Boxes in all frames.
    pub boxes: usize,
    /// Pictures.
    pub pictures: usize,
    /// Masks, true ones and candidates.
    pub masks: usize,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Good enough that blocks do not show.
const JPEG_QUALITY: u8 = 92;

/// The file that marks a folder as ours, and tells how to make it again.
const MARKER: &str = "percept-world.json";

#[derive(Serialize)]
struct Marker {
    kind: String,
    seed: u64,
    frames: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweeps: Option<usize>,
    percept: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    passes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pictures: Option<String>,
}

/// Writes a world into `options.out`. `progress` hears the number of finished frames.
///
/// Everything goes into a hidden folder beside the output, which takes its place when it is complete; on an error
/// it is removed, and what stood at the output before stays.
pub fn make(
    cpu: &Cpu,
    options: &MakeOptions,
    mut progress: impl FnMut(usize),
) -> Result<MakeSummary, WorldError> {
    let mut world = World::new(options.config);
    if world.frames().is_some() && options.config.passes == 0 {
        return Err(WorldError::NoPasses);
    }
    let frames = world.frames().unwrap_or(options.frames);
    if frames == 0 {
        return Err(WorldError::NoFrames);
    }
    let sweeps = options.config.sweeps;
    if !(1..=MAX_SWEEPS).contains(&sweeps) {
        return Err(WorldError::Sweeps { sweeps });
    }
    write_whole(&options.out, options.force, |folder| {
        match options.config.kind {
            WorldKind::NuScenes | WorldKind::Places => {
                let cameras = options.cameras.as_ref();
                nuscenes::write(cpu, &mut world, frames, cameras, folder, &mut progress)?;
            }
            WorldKind::SemanticKitti => {
                semantic_kitti::write(cpu, &mut world, frames, folder, &mut progress)?;
            }
        }
        folder.write_json(
            MARKER,
            &Marker {
                kind: options.config.kind.to_string(),
                seed: options.config.seed,
                frames,
                sweeps: Some(sweeps),
                percept: env!("CARGO_PKG_VERSION"),
                passes: world.frames().map(|_| options.config.passes),
                pictures: options.cameras.as_ref().map(|rig| rig.size().to_string()),
            },
        )
    })
}

/// Writes rooms into `options.out`, whole or not at all as [`make`] does. `progress` hears the number of finished pairs.
pub fn make_rooms(
    cpu: &Cpu,
    options: &MakeRoomsOptions,
    mut progress: impl FnMut(usize),
) -> Result<MakeSummary, WorldError> {
    let config = &options.config;
    if options.takes == 0 {
        return Err(WorldError::NoTakes);
    }
    let pairs = options.takes * config.frames_per_take;
    if pairs == 0 {
        return Err(WorldError::NoFrames);
    }
    write_whole(&options.out, options.force, |folder| {
        let rooms = EgoExo::new(*config);
        match options.layout {
            RoomLayout::Omama => {
                omama::write(cpu, &rooms, options.takes, folder, &mut progress)?;
            }
            RoomLayout::Pairs => {
                pair_folder::write(cpu, &rooms, pairs, folder, &mut progress)?;
            }
        }
        folder.write_json(
            MARKER,
            &Marker {
                kind: "egoexo".to_owned(),
                seed: config.seed,
                frames: pairs,
                sweeps: None,
                percept: env!("CARGO_PKG_VERSION"),
                passes: None,
                pictures: Some(format!("{} and {}", config.ego, config.exo)),
            },
        )
    })
}

/// Fills a hidden folder beside `out`, which takes its place when it is complete.
fn write_whole(
    out: &Path,
    force: bool,
    fill: impl FnOnce(&mut Folder) -> Result<(), WorldError>,
) -> Result<MakeSummary, WorldError> {
    check_target(out, force)?;
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(WorldError::io(parent))?;
    let hidden = |prefix: &str| {
        tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            .map_err(without_temporary_name)
            .map_err(WorldError::io(out))
    };
    let staged = hidden(".percept-world-new-")?;
    let mut folder = Folder {
        root: staged.path().join("world"),
        summary: MakeSummary::default(),
    };
    fill(&mut folder)?;
    // The old world steps aside for the moment of the change, and is deleted with its hidden folder.
    let aside = hidden(".percept-world-old-")?;
    if out.exists() {
        check_target(out, force)?;
        std::fs::rename(out, aside.path().join("world")).map_err(WorldError::io(out))?;
    }
    if let Err(source) = std::fs::rename(&folder.root, out) {
        let _ = std::fs::rename(aside.path().join("world"), out);
        return Err(WorldError::io(out)(source));
    }
    Ok(folder.summary)
}

fn check_target(path: &Path, force: bool) -> Result<(), WorldError> {
    if !path.exists() {
        return Ok(());
    }
    let is_empty = || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let path_buf = || path.to_path_buf();
    if !force {
        return Err(WorldError::Exists { path: path_buf() });
    }
    if path.join(MARKER).is_file() || is_empty() {
        return Ok(());
    }
    Err(WorldError::NotOurs { path: path_buf() })
}

/// A folder that is being filled.
struct Folder {
    root: PathBuf,
    summary: MakeSummary,
}

impl Folder {
    /// Writes a file at a path below the root.
    fn write(&mut self, relative: &str, bytes: &[u8]) -> Result<(), WorldError> {
        let path = self.path_for(relative)?;
        std::fs::write(&path, bytes).map_err(WorldError::io(&path))?;
        self.summary.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes a picture as JPEG.
    fn write_jpeg(&mut self, relative: &str, image: &RgbImage) -> Result<(), WorldError> {
        let path = self.root.join(relative);
        let jpeg = encode_jpeg(image, JPEG_QUALITY).map_err(WorldError::io(&path))?;
        self.summary.pictures += 1;
        self.write(relative, &jpeg)
    }

    /// A path below the root for a file that is written by others, its folder made.
    fn path_for(&self, relative: &str) -> Result<PathBuf, WorldError> {
        let path = self.root.join(relative);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(WorldError::io(folder))?;
        }
        Ok(path)
    }

    /// Counts a file that others wrote.
    fn count(&mut self, path: &Path) -> Result<(), WorldError> {
        let file = std::fs::metadata(path).map_err(WorldError::io(path))?;
        self.summary.bytes += file.len();
        Ok(())
    }

    fn write_json(&mut self, relative: &str, value: &impl Serialize) -> Result<(), WorldError> {
        let text = serde_json::to_vec_pretty(value)
            .map_err(|source| WorldError::io(&self.root.join(relative))(source.into()))?;
        self.write(relative, &text)
    }
}

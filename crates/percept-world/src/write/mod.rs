//! Worlds written in the public layouts, whole or not at all.

mod nuscenes;
mod semantic_kitti;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use percept_kernels::Cpu;
use serde::Serialize;

use super::camera::CameraRig;
use super::error::WorldError;
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
    /// Bytes of all files.
    pub bytes: u64,
}

/// The file that marks a folder as ours, and tells how to make it again.
const MARKER: &str = "percept-world.json";

#[derive(Serialize)]
struct Marker {
    kind: String,
    seed: u64,
    frames: usize,
    sweeps: usize,
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
    let frames = world.frames().unwrap_or(options.frames);
    if frames == 0 {
        return Err(WorldError::NoFrames);
    }
    let sweeps = options.config.sweeps;
    if !(1..=MAX_SWEEPS).contains(&sweeps) {
        return Err(WorldError::Sweeps { sweeps });
    }
    check_target(options)?;
    let parent = match options.out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(WorldError::io(parent))?;
    let hidden = |prefix: &str| {
        tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            .map_err(WorldError::io(parent))
    };
    let staged = hidden(".percept-world-new-")?;
    let mut folder = Folder {
        root: staged.path().join("world"),
        summary: MakeSummary::default(),
    };
    match options.config.kind {
        WorldKind::NuScenes | WorldKind::Places => {
            let cameras = options.cameras.as_ref();
            nuscenes::write(cpu, &mut world, frames, cameras, &mut folder, &mut progress)?;
        }
        WorldKind::SemanticKitti => {
            semantic_kitti::write(cpu, &mut world, frames, &mut folder, &mut progress)?;
        }
    }
    folder.write_json(
        MARKER,
        &Marker {
            kind: options.config.kind.to_string(),
            seed: options.config.seed,
            frames,
            sweeps,
            percept: env!("CARGO_PKG_VERSION"),
            passes: world.frames().map(|_| options.config.passes),
            pictures: options.cameras.as_ref().map(|rig| {
                let size = rig.size();
                format!(
                    "{}x{}, {} samples",
                    size.width(),
                    size.height(),
                    size.samples()
                )
            }),
        },
    )?;
    // The old world steps aside for the moment of the change, and is deleted with its hidden folder.
    let aside = hidden(".percept-world-old-")?;
    if options.out.exists() {
        check_target(options)?;
        std::fs::rename(&options.out, aside.path().join("world"))
            .map_err(WorldError::io(&options.out))?;
    }
    if let Err(source) = std::fs::rename(&folder.root, &options.out) {
        let _ = std::fs::rename(aside.path().join("world"), &options.out);
        return Err(WorldError::io(&options.out)(source));
    }
    Ok(folder.summary)
}

fn check_target(options: &MakeOptions) -> Result<(), WorldError> {
    let path = &options.out;
    if !path.exists() {
        return Ok(());
    }
    let is_empty = || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if !options.force {
        return Err(WorldError::Exists { path: path.clone() });
    }
    if path.join(MARKER).is_file() || is_empty() {
        return Ok(());
    }
    Err(WorldError::NotOurs { path: path.clone() })
}

/// A folder that is being filled.
struct Folder {
    root: PathBuf,
    summary: MakeSummary,
}

impl Folder {
    /// Writes a file at a path below the root.
    fn write(&mut self, relative: &str, bytes: &[u8]) -> Result<(), WorldError> {
        let path = self.root.join(relative);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(WorldError::io(folder))?;
        }
        std::fs::write(&path, bytes).map_err(WorldError::io(&path))?;
        self.summary.bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_json(&mut self, relative: &str, value: &impl Serialize) -> Result<(), WorldError> {
        let text = serde_json::to_vec_pretty(value)
            .map_err(|source| WorldError::io(&self.root.join(relative))(source.into()))?;
        self.write(relative, &text)
    }
}

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use percept_data::atomic::{remove_leftovers, sync_folder, write_atomically};

use super::{CheckpointError, Snapshot};

const PREFIX: &str = "step-";
const SUFFIX: &str = ".safetensors";
const BEST: &str = "best.safetensors";
const LOCK: &str = ".lock";
/// Put behind the name of a checkpoint that is not to be used any more.
const ASIDE: &str = ".aside";

/// The folder of a run's checkpoints, `step-NNNNNNNNN.safetensors`, and of the best of them, `best.safetensors`.
///
/// One run at a time may hold it; the lock ends with the process, however it ends.
#[derive(Debug)]
pub struct CheckpointFolder {
    path: PathBuf,
    keep_last: usize,
    _lock: File,
}

/// What a run goes on from.
#[derive(Debug)]
pub struct Resumed {
    /// The newest checkpoint that is whole, and its file; none at the beginning of a run.
    pub snapshot: Option<(PathBuf, Snapshot)>,
    /// Newer ones that are not, which deserve a warning.
    pub damaged: Vec<Damaged>,
}

/// A checkpoint that cannot be used.
#[derive(Debug)]
pub struct Damaged {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub error: CheckpointError,
}

impl CheckpointFolder {
    /// Opens or makes the folder, and removes what a killed process left half-written.
    ///
    /// The newest `keep_last` checkpoints stay (at least one), and the best.
    pub fn open(path: &Path, keep_last: usize) -> Result<Self, CheckpointError> {
        fs::create_dir_all(path).map_err(CheckpointError::io(path))?;
        let lock_path = path.join(LOCK);
        let lock = File::create(&lock_path).map_err(CheckpointError::io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.to_owned();
                return Err(CheckpointError::InUse { path });
            }
            Err(TryLockError::Error(error)) => return Err(CheckpointError::io(&lock_path)(error)),
        }
        remove_leftovers(path).map_err(CheckpointError::io(path))?;
        Ok(Self {
            path: path.to_owned(),
            keep_last: keep_last.max(1),
            _lock: lock,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the checkpoint of a step is.
    pub fn path_of(&self, step: u64) -> PathBuf {
        Self::path_in(&self.path, step)
    }

    /// Where the checkpoint of a step is in a folder.
    pub fn path_in(folder: &Path, step: u64) -> PathBuf {
        folder.join(format!("{PREFIX}{step:09}{SUFFIX}"))
    }

    /// The step of the newest checkpoint, whole or not; none before the first.
    pub fn newest_step(&self) -> Result<Option<u64>, CheckpointError> {
        Ok(checkpoints(&self.path)?.last().map(|(step, _)| *step))
    }

    /// Where the best checkpoint is, when there is one.
    pub fn best_path(&self) -> PathBuf {
        self.path.join(BEST)
    }

    /// Writes a checkpoint, names it the best if its state says so, and removes those that are too old.
    ///
    /// On any failure, a full disk included, all earlier checkpoints stay.
    pub fn save(&self, snapshot: &Snapshot) -> Result<PathBuf, CheckpointError> {
        let path = self.path_of(snapshot.state.step);
        snapshot.write(&path)?;
        self.name_best(snapshot, &path)?;
        self.remove_old(snapshot.state.step)?;
        Ok(path)
    }

    /// Finds the newest checkpoint that is whole and sets newer ones aside: the run will write them again.
    pub fn resume(&self) -> Result<Resumed, CheckpointError> {
        let resumed = latest(&self.path)?;
        for damaged in &resumed.damaged {
            set_aside(&damaged.path)?;
        }
        if let Some((path, snapshot)) = &resumed.snapshot {
            // The process may have died between writing it and naming it.
            self.name_best(snapshot, path)?;
        }
        Ok(resumed)
    }

    /// Goes back to the checkpoint of an earlier step, and sets those behind it aside.
    pub fn resume_at(&self, step: u64) -> Result<Snapshot, CheckpointError> {
        let snapshot = Snapshot::read(&self.path_of(step))?;
        for (other, path) in checkpoints(&self.path)? {
            if other > step {
                set_aside(&path)?;
            }
        }
        Ok(snapshot)
    }

    fn name_best(&self, snapshot: &Snapshot, path: &Path) -> Result<(), CheckpointError> {
        let state = &snapshot.state;
        if state.best.is_none_or(|best| best.step != state.step) {
            return Ok(());
        }
        let best = self.best_path();
        // A second name costs no space; where there is no such thing, the content is written again.
        let linked = self.path.join(format!("{BEST}.new"));
        let renamed = remove_if_there(&linked)
            .and_then(|()| fs::hard_link(path, &linked))
            .and_then(|()| fs::rename(&linked, &best))
            .and_then(|()| sync_folder(&self.path));
        if renamed.is_err() {
            let content = fs::read(path).map_err(CheckpointError::io(path))?;
            let written = write_atomically(&best, |file| file.write_all(&content));
            written.map_err(CheckpointError::io(&best))?;
        }
        // Renaming one name of a file over another of the same file leaves both.
        remove_if_there(&linked).map_err(CheckpointError::io(&linked))
    }

    fn remove_old(&self, newest: u64) -> Result<(), CheckpointError> {
        let mut files = checkpoints(&self.path)?;
        files.retain(|(step, _)| *step <= newest);
        let old = files.len().saturating_sub(self.keep_last);
        for (_, path) in &files[..old] {
            remove_if_there(path).map_err(CheckpointError::io(path))?;
        }
        Ok(())
    }
}

/// The newest checkpoint of a folder that is whole, and the newer ones that are not. Changes nothing.
pub fn latest(folder: &Path) -> Result<Resumed, CheckpointError> {
    let mut damaged = Vec::new();
    for (_, path) in checkpoints(folder)?.into_iter().rev() {
        match Snapshot::read(&path) {
            Ok(snapshot) => {
                let snapshot = Some((path, snapshot));
                return Ok(Resumed { snapshot, damaged });
            }
            Err(error) if error.is_in_content() => damaged.push(Damaged { path, error }),
            Err(error) => return Err(error),
        }
    }
    let snapshot = None;
    Ok(Resumed { snapshot, damaged })
}

/// The checkpoints in a folder, by ascending step.
fn checkpoints(folder: &Path) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(CheckpointError::io(folder))? {
        let entry = entry.map_err(CheckpointError::io(folder))?;
        if entry.path().is_dir() {
            continue;
        }
        let name = entry.file_name();
        let step = name.to_str().and_then(|name| {
            name.strip_prefix(PREFIX)?
                .strip_suffix(SUFFIX)?
                .parse()
                .ok()
        });
        found.extend(step.map(|step| (step, entry.path())));
    }
    found.sort();
    Ok(found)
}

fn set_aside(path: &Path) -> Result<(), CheckpointError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(ASIDE);
    fs::rename(path, aside).map_err(CheckpointError::io(path))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::{CheckpointError, CheckpointFolder, Snapshot};

/// Writes checkpoints on a thread of its own while the run goes on.
///
/// At most one is being written; who brings the next meanwhile waits, so that memory holds two at the most. Dropping the
/// writer finishes what it has begun.
pub struct CheckpointWriter {
    offers: Option<SyncSender<Snapshot>>,
    thread: Option<JoinHandle<()>>,
    outcome: Arc<Mutex<Outcome>>,
}

#[derive(Default)]
struct Outcome {
    written: Option<u64>,
    failure: Option<CheckpointError>,
}

impl CheckpointWriter {
    /// Starts the thread, which takes over the folder.
    pub fn start(folder: CheckpointFolder) -> Result<Self, CheckpointError> {
        // Without room in between, an offer is taken only when the one before is written.
        let (offers, taken) = sync_channel(0);
        let outcome = Arc::new(Mutex::new(Outcome::default()));
        let (path, shared) = (folder.path().to_owned(), Arc::clone(&outcome));
        let thread = thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || write_all(&folder, &taken, &shared))
            .map_err(CheckpointError::io(&path))?;
        Ok(Self {
            offers: Some(offers),
            thread: Some(thread),
            outcome,
        })
    }

    /// Hands a snapshot over and returns when the thread has taken it.
    ///
    /// Fails with what went wrong with an earlier one; the new one is then not written, and may be offered again.
    pub fn save(&self, snapshot: Snapshot) -> Result<(), CheckpointError> {
        if let Some(failure) = lock(&self.outcome).failure.take() {
            return Err(failure);
        }
        let offers = self.offers.as_ref();
        if offers.is_some_and(|offers| offers.send(snapshot).is_ok()) {
            Ok(())
        } else {
            Err(CheckpointError::WriterDied)
        }
    }

    /// The step of the last checkpoint that is safe on the disk.
    pub fn last_written(&self) -> Option<u64> {
        lock(&self.outcome).written
    }

    /// Waits until everything is written, and tells what went wrong or which step is safe on the disk.
    pub fn finish(mut self) -> Result<Option<u64>, CheckpointError> {
        self.join()?;
        let mut outcome = lock(&self.outcome);
        match outcome.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(outcome.written),
        }
    }

    fn join(&mut self) -> Result<(), CheckpointError> {
        drop(self.offers.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(CheckpointError::WriterDied),
            _ => Ok(()),
        }
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        // A panic of the thread has been printed, and dropping cannot tell it otherwise.
        let _ = self.join();
    }
}

fn write_all(folder: &CheckpointFolder, taken: &Receiver<Snapshot>, outcome: &Mutex<Outcome>) {
    for snapshot in taken {
        let saved = folder.save(&snapshot);
        let mut outcome = lock(outcome);
        match saved {
            Ok(_) => outcome.written = Some(snapshot.state.step),
            Err(error) => outcome.failure = Some(error),
        }
    }
}

fn lock(outcome: &Mutex<Outcome>) -> MutexGuard<'_, Outcome> {
    outcome.lock().unwrap_or_else(PoisonError::into_inner)
}

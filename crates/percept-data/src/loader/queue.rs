//! Where workers find pictures to make and the consumer finds batches.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use percept_graph::Tensor;
use percept_kernels::Cpu;

use super::plan::{Plan, PlannedBatch};
use super::{Batch, LoaderConfig, LoaderError, Skipped};
use crate::augment::{Transform, ViewKey};
use crate::classification::ImageDataset;

pub(super) struct Queue {
    dataset: Arc<dyn ImageDataset>,
    transform: Arc<dyn Transform>,
    config: LoaderConfig,
    state: Mutex<State>,
    /// There may be something to make, or it is time to stop.
    work: Condvar,
    /// The first batch may be ready.
    ready: Condvar,
}

struct State {
    plan: Plan,
    /// The batches on their way, in order.
    batches: VecDeque<InProgress>,
    /// The number of the first of them, counted from the start.
    first: u64,
    /// The plan has no more batches.
    is_planned: bool,
    must_stop: bool,
    has_panicked: bool,
}

struct InProgress {
    planned: PlannedBatch,
    /// Pictures that no worker has taken yet begin here.
    untaken: usize,
    /// What became of each picture so far.
    made: Vec<Option<Made>>,
    missing: usize,
    finished: Option<Batch>,
}

/// All views of a picture behind each other, or why there are none.
type Made = Result<Vec<f32>, Skipped>;

/// One picture to make.
struct Task {
    batch: u64,
    place: usize,
    epoch: u64,
    sample: usize,
}

impl Queue {
    pub(super) fn new(
        dataset: Arc<dyn ImageDataset>,
        transform: Arc<dyn Transform>,
        config: LoaderConfig,
        plan: Plan,
    ) -> Self {
        Self {
            dataset,
            transform,
            config,
            state: Mutex::new(State {
                plan,
                batches: VecDeque::new(),
                first: 0,
                is_planned: false,
                must_stop: false,
                has_panicked: false,
            }),
            work: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch and how long it took to come; none when there are no more.
    pub(super) fn take(&self) -> Result<(Option<Batch>, Duration), LoaderError> {
        let asked = Instant::now();
        let mut state = self.lock();
        loop {
            if state.has_panicked {
                return Err(LoaderError::WorkerDied);
            }
            let finished = state.batches.front_mut().and_then(|b| b.finished.take());
            if finished.is_some() {
                state.batches.pop_front();
                state.first += 1;
                self.work.notify_all();
                return Ok((finished, asked.elapsed()));
            }
            if state.is_planned && state.batches.is_empty() {
                return Ok((None, asked.elapsed()));
            }
            let woken = self.ready.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells the workers to end.
    pub(super) fn stop(&self) {
        self.lock().must_stop = true;
        self.work.notify_all();
    }

    /// What a worker does until there is nothing left.
    pub(super) fn work(&self, cpu: &Cpu) {
        let _told = TellPanic(self);
        while let Some(task) = self.next_task() {
            let made = self.make(cpu, &task);
            self.hand_in(&task, made);
        }
    }

    fn next_task(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.must_stop || state.has_panicked {
                return None;
            }
            if let Some(task) = state.untaken_task() {
                return Some(task);
            }
            if state.is_planned {
                return None;
            }
            if state.batches.len() < self.config.prefetch {
                match state.plan.next() {
                    Some(planned) => state.batches.push_back(InProgress::new(planned)),
                    None => {
                        state.is_planned = true;
                        self.ready.notify_all();
                    }
                }
                // There is work for the others too, or for nobody any more.
                self.work.notify_all();
                continue;
            }
            let woken = self.work.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn make(&self, cpu: &Cpu, task: &Task) -> Made {
        let sample = task.sample;
        let failed = |reason| Skipped { sample, reason };
        let image = self.dataset.image(sample);
        let image = image.map_err(|error| failed(error.to_string()))?;
        let [height, width] = self.transform.size();
        let view_len = 3 * height * width;
        let mut views = vec![0.0; self.config.views * view_len];
        for view in 0..self.config.views {
            let key = ViewKey {
                seed: self.config.seed,
                epoch: task.epoch,
                sample: sample as u64,
                view: view as u64,
            };
            let planes = &mut views[view * view_len..][..view_len];
            let applied = self.transform.apply(cpu, &image, &key, planes);
            applied.map_err(|error| failed(format!("{}: {error}", self.dataset.name(sample))))?;
        }
        Ok(views)
    }

    fn hand_in(&self, task: &Task, made: Made) {
        let mut state = self.lock();
        let Some(batch) = state.batch(task.batch) else {
            return;
        };
        batch.made[task.place] = Some(made);
        batch.missing -= 1;
        if batch.missing > 0 {
            return;
        }
        let (planned, made) = (batch.planned.clone(), std::mem::take(&mut batch.made));
        drop(state);
        // Copying a large batch takes a while, which the other workers need not wait for.
        let finished = self.assemble(&planned, made);
        let mut state = self.lock();
        if let Some(batch) = state.batch(task.batch) {
            batch.finished = Some(finished);
        }
        self.ready.notify_all();
    }

    fn assemble(&self, planned: &PlannedBatch, made: Vec<Option<Made>>) -> Batch {
        let [height, width] = self.transform.size();
        let view_len = 3 * height * width;
        let (mut samples, mut skipped) = (Vec::new(), Vec::new());
        let mut pictures: Vec<Vec<f32>> = Vec::new();
        for (made, &sample) in made.into_iter().flatten().zip(&planned.samples) {
            match made {
                Ok(views) => {
                    pictures.push(views);
                    samples.push(sample);
                }
                Err(failed) => skipped.push(failed),
            }
        }
        let views = (0..self.config.views).map(|view| {
            let mut data = Vec::with_capacity(pictures.len() * view_len);
            for picture in &pictures {
                data.extend_from_slice(&picture[view * view_len..][..view_len]);
            }
            let shape = vec![pictures.len(), 3, height, width];
            Tensor::from_values(shape, data).expect("as many pictures as the shape says")
        });
        Batch {
            views: views.collect(),
            labels: samples
                .iter()
                .map(|&sample| self.dataset.label(sample) as i32)
                .collect(),
            samples,
            epoch: planned.epoch,
            next: planned.next,
            skipped,
            waited: Duration::ZERO,
        }
    }
}

impl State {
    fn batch(&mut self, number: u64) -> Option<&mut InProgress> {
        let place = number.checked_sub(self.first)?;
        self.batches.get_mut(place as usize)
    }

    fn untaken_task(&mut self) -> Option<Task> {
        let first = self.first;
        for (batch, number) in self.batches.iter_mut().zip(first..) {
            if let Some(&sample) = batch.planned.samples.get(batch.untaken) {
                let place = batch.untaken;
                batch.untaken += 1;
                return Some(Task {
                    batch: number,
                    place,
                    epoch: batch.planned.epoch,
                    sample,
                });
            }
        }
        None
    }
}

impl InProgress {
    fn new(planned: PlannedBatch) -> Self {
        let count = planned.samples.len();
        Self {
            planned,
            untaken: 0,
            made: (0..count).map(|_| None).collect(),
            missing: count,
            finished: None,
        }
    }
}

/// Without it, the consumer would wait forever for what a dead worker had taken.
struct TellPanic<'a>(&'a Queue);

impl Drop for TellPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().has_panicked = true;
            self.0.ready.notify_all();
            self.0.work.notify_all();
        }
    }
}

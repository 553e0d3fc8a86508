//! Where workers find samples to prepare and the consumer finds batches.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use percept_graph::Tensor;
use percept_kernels::Cpu;

use super::plan::{Plan, Planned, PlannedBatch};
use super::{Batch, GROUPS, LoaderConfig, LoaderError, Skipped};
use crate::{BatchError, Example, Prepare, SampleKey, Samples};

pub(super) struct Queue {
    dataset: Arc<dyn Samples>,
    preparation: Arc<dyn Prepare>,
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
    /// Samples that no worker has taken yet begin here.
    untaken: usize,
    /// What became of each sample so far.
    made: Vec<Option<Made>>,
    missing: usize,
    finished: Option<Result<Batch, LoaderError>>,
}

/// The example of a sample, or why there is none.
type Made = Result<Example, Skipped>;

/// One sample to prepare.
struct Task {
    batch: u64,
    place: usize,
    epoch: u64,
    planned: Planned,
}

impl Queue {
    pub(super) fn new(
        dataset: Arc<dyn Samples>,
        preparation: Arc<dyn Prepare>,
        config: LoaderConfig,
        plan: Plan,
    ) -> Self {
        Self {
            dataset,
            preparation,
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
            if let Some(batch) = finished {
                state.batches.pop_front();
                state.first += 1;
                self.work.notify_all();
                return Ok((Some(batch?), asked.elapsed()));
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
        let Planned { sample, turn } = task.planned;
        let key = SampleKey {
            seed: self.config.seed,
            epoch: task.epoch,
            sample: sample as u64,
            turn,
        };
        let read = self.dataset.sample(sample);
        let made = read.and_then(|sample| self.preparation.prepare(cpu, &sample, &key));
        made.map_err(|error| Skipped {
            sample,
            reason: error.to_string(),
        })
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

    fn assemble(
        &self,
        planned: &PlannedBatch,
        made: Vec<Option<Made>>,
    ) -> Result<Batch, LoaderError> {
        let mut made = made.into_iter().flatten().zip(&planned.samples);
        let alone = || vec![1; planned.samples.len()];
        let (mut examples, mut samples) = (Vec::new(), Vec::new());
        let (mut sizes, mut skipped) = (Vec::new(), Vec::new());
        for size in planned.groups.clone().unwrap_or_else(alone) {
            let before = samples.len();
            for (made, planned) in made.by_ref().take(size) {
                match made {
                    Ok(example) => {
                        examples.push(example);
                        samples.push(planned.sample);
                    }
                    Err(failed) => skipped.push(failed),
                }
            }
            if samples.len() == before + size {
                sizes.push(size);
            } else {
                // What is left of a group means something else than the group.
                examples.truncate(before);
                samples.truncate(before);
            }
        }
        let groups_in_a_part = sizes.len().div_ceil(self.config.parts).max(1);
        let mut examples = examples.into_iter();
        let mut parts = Vec::new();
        for sizes in sizes.chunks(groups_in_a_part) {
            let own = examples.by_ref().take(sizes.iter().sum()).collect();
            let batched = self.preparation.batch(own);
            let mut part = batched.map_err(|error| self.blame(error, &samples))?;
            if planned.groups.is_some() {
                part.tensors.push((GROUPS.to_owned(), counts(sizes)));
            }
            parts.push(part);
        }
        Ok(Batch {
            parts,
            samples,
            epoch: planned.epoch,
            next: planned.next,
            skipped,
            waited: Duration::ZERO,
        })
    }

    fn blame(&self, error: BatchError, samples: &[usize]) -> LoaderError {
        let names: Vec<String> = samples.iter().map(|&at| self.dataset.name(at)).collect();
        let names = names.join(", ");
        LoaderError::Batch { error, names }
    }
}

fn counts(sizes: &[usize]) -> Tensor<'static> {
    let sizes: Vec<i32> = sizes.iter().map(|&size| size as i32).collect();
    Tensor::from_values([sizes.len()], sizes).expect("as many as there are")
}

impl State {
    fn batch(&mut self, number: u64) -> Option<&mut InProgress> {
        let place = number.checked_sub(self.first)?;
        self.batches.get_mut(place as usize)
    }

    fn untaken_task(&mut self) -> Option<Task> {
        let first = self.first;
        for (batch, number) in self.batches.iter_mut().zip(first..) {
            if let Some(&planned) = batch.planned.samples.get(batch.untaken) {
                let place = batch.untaken;
                batch.untaken += 1;
                return Some(Task {
                    batch: number,
                    place,
                    epoch: batch.planned.epoch,
                    planned,
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

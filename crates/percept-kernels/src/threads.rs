//! A small thread pool for parallel loops with low dispatch latency.
//!
//! One region runs at a time. Each thread has a share of its blocks, always the same part of all, because layers are mostly cut
//! alike: what a thread wrote in one layer it reads in the next, from its own cache. Blocks are claimed one by one, and who
//! is done with its share goes on with the others', so a slow thread never holds them up; nothing depends on who runs a
//! block. Workers spin for a moment after a region, because the next layer usually follows within microseconds, then sleep.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::placement::Placement;

/// Turns of the spin loop before a thread sleeps or yields: some tens of microseconds.
const SPIN_TURNS: usize = 4000;

/// Worker threads that help the calling thread; each owns a context `C` (its scratch memory).
#[derive(Debug)]
pub struct Pool<C: 'static> {
    shared: Arc<Shared<C>>,
    workers: Vec<JoinHandle<()>>,
    placement: Placement,
}

type Body<'a, C> = dyn Fn(usize, &mut C) + Sync + 'a;

/// One parallel loop. It lives on the caller's stack for as long as a worker is inside it.
struct Region<'a, C: 'static> {
    body: &'a Body<'a, C>,
    blocks: usize,
    shares: &'a [Share],
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// How many blocks of a thread's share were claimed. On a cache line of its own: its thread counts it up all the time.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Share {
    claimed: AtomicUsize,
}

impl<C: 'static> Region<'_, C> {
    /// Claims and runs blocks until none is left: first those of thread `me`'s share, then those of the others.
    fn work(&self, me: usize, context: &mut C) {
        let threads = self.shares.len();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for owner in (me..threads).chain(0..me) {
                let [start, end] = [owner, owner + 1].map(|at| at * self.blocks / threads);
                loop {
                    let block = start + self.shares[owner].claimed.fetch_add(1, Ordering::Relaxed);
                    if block >= end {
                        break;
                    }
                    (self.body)(block, context);
                }
            }
        }));
        if let Err(payload) = outcome {
            for share in self.shares {
                share.claimed.store(self.blocks, Ordering::Relaxed);
            }
            lock(&self.panic).get_or_insert(payload);
        }
    }
}

struct Shared<C: 'static> {
    /// Counts regions, so that a spinning worker sees a new one without taking the lock.
    epoch: AtomicUsize,
    stop: AtomicBool,
    state: Mutex<State<C>>,
    wake: Condvar,
    /// Workers inside the open region.
    inside: AtomicUsize,
    /// Of the open region: the caller's share, then those of the workers.
    shares: Vec<Share>,
}

struct State<C: 'static> {
    region: Option<RegionPointer<C>>,
    sleepers: usize,
}

/// A region with its lifetime erased. It is dereferenced only between entering and leaving (see `Pool::run`).
struct RegionPointer<C: 'static>(*const Region<'static, C>);

// SAFETY: a region is shared between threads by design: its body is Sync, the rest is atomics and a mutex.
unsafe impl<C: 'static> Send for RegionPointer<C> {}

impl<C: 'static> std::fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: Send + 'static> Pool<C> {
    /// Starts one worker for each context.
    pub fn new(contexts: Vec<C>) -> io::Result<Pool<C>> {
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            state: Mutex::new(State {
                region: None,
                sleepers: 0,
            }),
            wake: Condvar::new(),
            inside: AtomicUsize::new(0),
            shares: (0..=contexts.len()).map(|_| Share::default()).collect(),
        });
        // Built first and filled after, so that dropping it joins the started workers when a later one fails to start.
        let mut pool = Pool {
            shared: Arc::clone(&shared),
            workers: Vec::with_capacity(contexts.len()),
            placement: Placement::new(contexts.len() + 1),
        };
        for (index, mut context) in contexts.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let name = format!("percept-{}", index + 1);
            pool.workers.push(
                std::thread::Builder::new()
                    .name(name)
                    .spawn(move || shared.serve(index + 1, &mut context))?,
            );
        }
        Ok(pool)
    }

    /// Runs `body` for every block in `0..blocks` on the caller and the workers, and returns when all are done.
    ///
    /// Must not be called from within a body, nor from two threads at once; [`Cpu`](crate::Cpu) guards that.
    /// A panic in a body stops the loop and continues on the caller.
    pub fn run(&self, blocks: usize, body: &Body<'_, C>, context: &mut C) {
        // Nobody claims blocks between regions: no worker is inside of one.
        for share in &self.shared.shares {
            share.claimed.store(0, Ordering::Relaxed);
        }
        let region = Region {
            body,
            blocks,
            shares: &self.shared.shares,
            panic: Mutex::new(None),
        };
        let sleepers = {
            let mut state = lock(&self.shared.state);
            assert!(
                state.region.is_none(),
                "a pool runs one parallel region at a time"
            );
            state.region = Some(RegionPointer((&raw const region).cast()));
            self.shared.epoch.fetch_add(1, Ordering::Release);
            state.sleepers
        };
        if sleepers > 0 {
            self.placement.make_way(&self.workers);
        }
        // The caller is the last helper: no more wake-ups than other blocks.
        for _ in 0..sleepers.min(blocks.saturating_sub(1)) {
            self.shared.wake.notify_one();
        }
        region.work(0, context);
        // From here no worker enters; those inside leave before `region` goes out of scope.
        lock(&self.shared.state).region = None;
        let mut turns = 0;
        while self.shared.inside.load(Ordering::Acquire) > 0 {
            turns += 1;
            if turns < SPIN_TURNS {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
        }
        if let Some(payload) = lock(&region.panic).take() {
            resume_unwind(payload);
        }
    }
}

impl<C: 'static> Shared<C> {
    fn serve(&self, me: usize, context: &mut C) {
        let mut seen = 0;
        while self.wait_for_region(&mut seen) {
            let pointer = {
                let state = lock(&self.state);
                let Some(region) = &state.region else {
                    continue;
                };
                self.inside.fetch_add(1, Ordering::Relaxed);
                region.0
            };
            // SAFETY: `inside` was raised under the lock while the region was open, and `Pool::run` keeps the region
            // alive until `inside` is 0 again. The erased lifetime is not used beyond that.
            unsafe { &*pointer }.work(me, context);
            self.inside.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for a region not `seen` before; false when the pool stops.
    fn wait_for_region(&self, seen: &mut usize) -> bool {
        for _ in 0..SPIN_TURNS {
            if self.is_news(seen) {
                return !self.stop.load(Ordering::Acquire);
            }
            std::hint::spin_loop();
        }
        let mut state = lock(&self.state);
        state.sleepers += 1;
        while !self.is_news(seen) {
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.sleepers -= 1;
        !self.stop.load(Ordering::Acquire)
    }

    fn is_news(&self, seen: &mut usize) -> bool {
        let epoch = self.epoch.load(Ordering::Acquire);
        std::mem::replace(seen, epoch) != epoch
    }
}

impl<C: 'static> Drop for Pool<C> {
    fn drop(&mut self) {
        {
            let _state = lock(&self.shared.state);
            self.shared.stop.store(true, Ordering::Release);
            self.shared.epoch.fetch_add(1, Ordering::Release);
        }
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of bodies; one that still died has nothing left to clean up.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_runs_once() {
        for workers in 0..4 {
            let pool = Pool::new(vec![0usize; workers]).unwrap();
            for blocks in [1, 2, 3, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..blocks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(
                    blocks,
                    &|block, _| {
                        counts[block].fetch_add(1, Ordering::Relaxed);
                    },
                    &mut 0,
                );
                assert!(
                    counts
                        .iter()
                        .all(|count| count.load(Ordering::Relaxed) == 1)
                );
            }
        }
    }

    #[test]
    fn many_regions_in_a_row() {
        let pool = Pool::new(vec![(); 2]).unwrap();
        let total = AtomicUsize::new(0);
        for round in 0..2000 {
            pool.run(
                4,
                &|block, ()| {
                    total.fetch_add(block, Ordering::Relaxed);
                },
                &mut (),
            );
            if round % 500 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2)); // lets the workers fall asleep
            }
        }
        assert_eq!(total.load(Ordering::Relaxed), 2000 * 6);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(vec![(); 2]).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(8, &|block, ()| assert!(block != 5, "block five"), &mut ());
        }));
        assert!(outcome.is_err());
        let ran = AtomicUsize::new(0);
        pool.run(
            8,
            &|_, ()| {
                ran.fetch_add(1, Ordering::Relaxed);
            },
            &mut (),
        );
        assert_eq!(ran.load(Ordering::Relaxed), 8);
    }
}

//! `Cpu`: the instruction set, the threads and the scratch memory that kernels run with.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use crate::aligned::{AlignedBuf, FLOATS_PER_LINE};
use crate::isa::{Isa, IsaError};
use crate::threads::Pool;

/// More threads than any machine we know; above it is a typing error.
pub const MAX_THREADS: usize = 1024;

/// Why a [`Cpu`] could not be made.
#[derive(Debug, Error)]
pub enum CpuError {
    /// The thread count is 0 or absurd.
    #[error("{threads} threads: expected 1 to {MAX_THREADS}")]
    Threads {
        /// The count asked for.
        threads: usize,
    },
    /// The instruction set cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// The system refused a thread.
    #[error("cannot start a worker thread: {0}")]
    Spawn(#[from] io::Error),
}

/// What kernels run on: an instruction set, a number of threads, and scratch memory that is reused from call to call.
#[derive(Debug)]
pub struct Cpu {
    isa: Isa,
    pool: Pool<Scratch>,
    threads: usize,
    /// The calling thread's scratch; its lock also keeps parallel regions one at a time.
    caller: Mutex<Scratch>,
    shared: Mutex<Scratch>,
    staging: Mutex<Scratch>,
    /// Buffers that were given back.
    spares: Mutex<Vec<AlignedBuf>>,
    scratch_bytes: Arc<AtomicUsize>,
    /// Calls that were numbered.
    calls: AtomicU64,
}

impl Cpu {
    /// A CPU with this many threads and the detected instruction set.
    pub fn new(threads: usize) -> Result<Cpu, CpuError> {
        Cpu::with_isa(threads, Isa::detect()?)
    }

    /// A CPU with this many threads and the given instruction set.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Cpu, CpuError> {
        if threads == 0 || threads > MAX_THREADS {
            return Err(CpuError::Threads { threads });
        }
        let isa = isa.check()?;
        let scratch_bytes = Arc::new(AtomicUsize::new(0));
        let scratch = || Scratch {
            buffer: AlignedBuf::default(),
            total_bytes: Arc::clone(&scratch_bytes),
            holds: None,
        };
        let pool = Pool::new((1..threads).map(|_| scratch()).collect())?;
        Ok(Cpu {
            isa,
            pool,
            threads,
            caller: Mutex::new(scratch()),
            shared: Mutex::new(scratch()),
            staging: Mutex::new(scratch()),
            spares: Mutex::default(),
            scratch_bytes,
            calls: AtomicU64::new(0),
        })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The number of threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Bytes of scratch memory held by all threads, and of buffers that were given back.
    pub fn scratch_bytes(&self) -> usize {
        let spares: usize = self.spares().iter().map(AlignedBuf::len).sum();
        self.scratch_bytes.load(Ordering::Relaxed) + spares
    }

    fn spares(&self) -> MutexGuard<'_, Vec<AlignedBuf>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of at least `len` floats, whose contents are left from earlier use.
    ///
    /// Training packs every weight in every step. New memory is cleared by the system, which takes as long as the packing:
    /// what [`Cpu::give_back`] was given is taken first.
    pub(crate) fn buffer(&self, len: usize) -> AlignedBuf {
        let mut spares = self.spares();
        spares.sort_by_key(AlignedBuf::len);
        let enough = spares.partition_point(|spare| spare.floats().len() < len);
        if enough < spares.len() {
            return spares.remove(enough);
        }
        // The largest makes place for a larger one, so that there are never more than were in use at a time.
        spares.pop();
        AlignedBuf::zeroed_floats(len)
    }

    /// Keeps a buffer for later.
    pub(crate) fn give_back(&self, buffer: AlignedBuf) {
        self.spares().push(buffer);
    }

    /// Scratch memory that the blocks of a call fill and read together, over several parallel regions.
    pub fn shared_scratch(&self) -> MutexGuard<'_, Scratch> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for an operand in the form that a kernel wants it in, which then runs with its own [`Cpu::shared_scratch`].
    pub fn staging(&self) -> MutexGuard<'_, Scratch> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a call of a kernel, for [`Scratch::floats_of`].
    pub(crate) fn number_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `body(block, scratch)` for every block in `0..blocks`, on all threads, and returns when all are done.
    ///
    /// The number of blocks must follow from shapes only, never from the thread count. Must not be called from within a
    /// body (that deadlocks). A panic in a body reaches the caller.
    pub fn parallel(&self, blocks: usize, body: &(dyn Fn(usize, &mut Scratch) + Sync)) {
        let mut scratch = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        if self.threads == 1 || blocks <= 1 {
            for block in 0..blocks {
                body(block, &mut scratch);
            }
        } else {
            self.pool.run(blocks, body, &mut scratch);
        }
    }
}

/// A thread's working memory: grows to the largest request and stays, so that a steady stream of calls allocates nothing.
#[derive(Debug)]
pub struct Scratch {
    buffer: AlignedBuf,
    total_bytes: Arc<AtomicUsize>,
    /// The call, and its part, that the contents belong to.
    holds: Option<(u64, usize)>,
}

impl Scratch {
    /// Several slices of these lengths at once, each starting on a cache line. Their contents are left from earlier use.
    pub fn floats<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [f32]; N] {
        self.holds = None;
        self.slices(lengths)
    }

    /// As [`Scratch::floats`], for a part of a numbered call, and whether this thread had the same slices for that part just before:
    /// then their contents are left from it.
    ///
    /// Blocks that read the same operand prepare it once a thread in this way. If they shared it, threads would wait for each
    /// other, and read half of it out of each other's caches.
    pub(crate) fn floats_of<const N: usize>(
        &mut self,
        part: (u64, usize),
        lengths: [usize; N],
    ) -> (bool, [&mut [f32]; N]) {
        let is_left = self.holds.replace(part) == Some(part);
        (is_left, self.slices(lengths))
    }

    fn slices<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [f32]; N] {
        let total = lengths
            .iter()
            .map(|len| len.next_multiple_of(FLOATS_PER_LINE))
            .sum::<usize>();
        let bytes = total * size_of::<f32>();
        if self.buffer.len() < bytes {
            let before = self.buffer.len();
            self.buffer = AlignedBuf::default(); // freed first: never hold both
            self.buffer = AlignedBuf::zeroed(bytes);
            self.total_bytes
                .fetch_add(self.buffer.len() - before, Ordering::Relaxed);
        }
        let mut rest = self.buffer.floats_mut();
        lengths.map(|len| {
            let (part, tail) =
                std::mem::take(&mut rest).split_at_mut(len.next_multiple_of(FLOATS_PER_LINE));
            rest = tail;
            &mut part[..len]
        })
    }
}

impl Scratch {
    /// [`Scratch::floats`] for bytes.
    pub fn bytes<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [i8]; N] {
        let floats = self.floats(lengths.map(|len| len.div_ceil(size_of::<f32>())));
        let mut lengths = lengths.into_iter();
        floats.map(|part| {
            let len = lengths.next().unwrap_or(0);
            &mut bytemuck::cast_slice_mut(part)[..len]
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.total_bytes
            .fetch_sub(self.buffer.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a part of a call has put there is left for it, until anybody else asks for memory.
    #[test]
    fn scratch_is_kept_for_a_part_of_a_call() {
        let cpu = Cpu::new(1).unwrap();
        let (first, second) = (cpu.number_call(), cpu.number_call());
        let mut scratch = cpu.shared_scratch();
        let mut is_left = |part, value: f32| {
            let (is_left, [slice]) = scratch.floats_of(part, [100]);
            let same = slice[99] == value;
            slice[99] = value;
            assert!(!is_left || same);
            is_left
        };
        assert!(!is_left((first, 0), 1.0) && is_left((first, 0), 1.0));
        assert!(!is_left((first, 1), 2.0) && !is_left((first, 0), 3.0));
        assert!(!is_left((second, 0), 4.0) && is_left((second, 0), 4.0));
        let [] = scratch.floats([]);
        assert!(!scratch.floats_of((second, 0), [100]).0);
    }

    #[test]
    fn absurd_thread_counts_are_refused() {
        for threads in [0, MAX_THREADS + 1] {
            assert!(matches!(Cpu::new(threads), Err(CpuError::Threads { .. })));
        }
    }

    #[test]
    fn scratch_is_aligned_disjoint_reused_and_counted() {
        let cpu = Cpu::with_isa(1, Isa::Portable).unwrap();
        cpu.parallel(1, &|_, scratch| {
            let parts = scratch.floats([3, 0, 40]);
            assert_eq!(parts.each_ref().map(|part| part.len()), [3, 0, 40]);
            assert!(
                parts
                    .iter()
                    .all(|part| part.as_ptr().addr().is_multiple_of(64))
            );
        });
        let held = cpu.scratch_bytes();
        assert!(held >= 43 * 4);
        cpu.parallel(5, &|_, scratch| assert_eq!(scratch.floats([5])[0].len(), 5));
        assert_eq!(cpu.scratch_bytes(), held);
    }

    #[test]
    fn buffers_are_used_again() {
        let cpu = Cpu::with_isa(1, Isa::Portable).unwrap();
        let (small, large) = (cpu.buffer(100), cpu.buffer(1000));
        let addresses = [&small, &large].map(|buffer| buffer.floats().as_ptr());
        cpu.give_back(large);
        cpu.give_back(small);
        assert_eq!(cpu.scratch_bytes(), 112 * 4 + 1008 * 4);
        let again = [cpu.buffer(90), cpu.buffer(500)];
        assert_eq!(addresses, again.each_ref().map(|b| b.floats().as_ptr()));
        again.into_iter().for_each(|buffer| cpu.give_back(buffer));
        cpu.give_back(cpu.buffer(5000));
        // The small one and the new one.
        assert_eq!(cpu.scratch_bytes(), 112 * 4 + 5008 * 4);
    }

    #[test]
    fn all_blocks_run_at_any_thread_count() {
        for threads in 1..4 {
            let cpu = Cpu::with_isa(threads, Isa::Portable).unwrap();
            let sum = AtomicUsize::new(0);
            cpu.parallel(101, &|block, _| {
                sum.fetch_add(block, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 5050);
        }
    }
}

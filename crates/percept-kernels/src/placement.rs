//! Where workers may run: on any core but the caller's.
//!
//! A scheduler likes to wake a thread on the core that woke it, and may leave it there, behind the caller, for as long as a
//! whole network takes.

use std::thread::JoinHandle;

#[cfg(target_os = "linux")]
pub(crate) use linux::Placement;

/// Leaves workers where the scheduler puts them.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Placement;

#[cfg(not(target_os = "linux"))]
impl Placement {
    pub(crate) fn new(_threads: usize) -> Placement {
        Placement
    }

    pub(crate) fn make_way(&self, _workers: &[JoinHandle<()>]) {}
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::JoinHandle;

    /// The cores that workers may have, and the one that they were last kept from.
    pub(crate) struct Placement {
        /// Those of the thread that made the pool; `None` where there are not enough for all threads, or just one.
        allowed: Option<libc::cpu_set_t>,
        kept_free: AtomicUsize,
    }

    impl std::fmt::Debug for Placement {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Placement").finish_non_exhaustive()
        }
    }

    impl Placement {
        /// For a pool of this many threads, the caller included.
        pub(crate) fn new(threads: usize) -> Placement {
            Placement {
                allowed: allowed().filter(|set| threads > 1 && count(set) >= threads),
                kept_free: AtomicUsize::new(usize::MAX),
            }
        }

        /// Keeps workers off the caller's core.
        pub(crate) fn make_way(&self, workers: &[JoinHandle<()>]) {
            let Some(mut set) = self.allowed else { return };
            // SAFETY: asks for a number.
            let Ok(core) = usize::try_from(unsafe { libc::sched_getcpu() }) else {
                return;
            };
            if core >= libc::CPU_SETSIZE as usize
                || self.kept_free.swap(core, Ordering::Relaxed) == core
            {
                return;
            }
            // SAFETY: the core is within the set's size, and handles that were not joined name living threads. An error leaves
            // a worker where it was.
            unsafe {
                libc::CPU_CLR(core, &mut set);
                for worker in workers {
                    libc::pthread_setaffinity_np(worker.as_pthread_t(), size_of_val(&set), &set);
                }
            }
        }
    }

    /// The cores that this thread may run on.
    fn allowed() -> Option<libc::cpu_set_t> {
        // SAFETY: a set of cores is bits, and all zeros is an empty one; the call writes no more than its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of_val(&set), &mut set) == 0).then_some(set)
        }
    }

    fn count(set: &libc::cpu_set_t) -> usize {
        // SAFETY: reads the set.
        unsafe { libc::CPU_COUNT(set) as usize }
    }

    #[cfg(test)]
    mod tests {
        use std::sync::Barrier;

        use super::*;

        #[test]
        fn a_worker_may_run_anywhere_but_on_the_core_of_the_caller() {
            let before = allowed().unwrap();
            if count(&before) < 2 {
                return;
            }
            let (ready, placed) = (Barrier::new(2), Barrier::new(2));
            // A scope's threads have no such handles; the barriers outlive the worker, which is joined.
            let barriers: &'static [Barrier; 2] = Box::leak(Box::new([ready, placed]));
            let worker = std::thread::spawn(move || {
                barriers[0].wait();
                barriers[1].wait();
                let set = allowed().unwrap();
                // SAFETY: asks for a number, and reads the set.
                let here = unsafe { libc::CPU_ISSET(libc::sched_getcpu() as usize, &set) };
                assert!(here, "a worker runs where it may");
                assert_eq!(count(&set), count(&before) - 1);
            });
            barriers[0].wait();
            let worker = [worker];
            Placement::new(2).make_way(&worker);
            barriers[1].wait();
            for worker in worker {
                worker.join().unwrap();
            }
        }
    }
}

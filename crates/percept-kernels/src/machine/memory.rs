//! Memory of the process: now, at its largest, and around any piece of work.

use std::sync::Mutex;

/// Memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What the process holds.
    pub resident_bytes: u64,
    /// The most that it has held.
    pub peak_bytes: u64,
    /// What the machine could still give.
    pub available_bytes: u64,
    /// What the machine has.
    pub total_bytes: u64,
}

/// Memory now; `None` where the system does not tell.
pub fn memory_info() -> Option<MemoryInfo> {
    let (total_bytes, available_bytes) = machine_memory_bytes()?;
    Some(MemoryInfo {
        resident_bytes: resident_bytes()?,
        peak_bytes: peak_resident_bytes()?,
        available_bytes,
        total_bytes,
    })
}

/// What a piece of work did to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Held when it began.
    pub before_bytes: u64,
    /// Held when it ended.
    pub after_bytes: u64,
    /// The most that was held meanwhile.
    pub peak_bytes: u64,
}

impl MemoryUse {
    /// How far memory grew at most above where it began.
    pub fn growth_bytes(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.before_bytes)
    }
}

/// Does `work` and tells what it did to memory; `None` where the system does not tell.
///
/// It watches the whole process: what other threads do meanwhile counts too. Watched pieces of work may contain or overlap
/// each other.
///
/// ```
/// use percept_kernels::machine::watch_memory;
/// let (length, used) = watch_memory(|| vec![1u8; 64 << 20].len());
/// if let Some(used) = used {
///     assert!(used.growth_bytes() >= length as u64 / 2, "{used:?}");
/// }
/// ```
pub fn watch_memory<R>(work: impl FnOnce() -> R) -> (R, Option<MemoryUse>) {
    let watch = Watch::begin();
    let result = work();
    (result, watch.and_then(Watch::end))
}

/// The system counts one peak for a process, which a watch begins anew; what it was before belongs to the watches that are
/// under way, and to the process.
#[derive(Default)]
struct Peaks {
    process: u64,
    /// By watch; a slot is free when it is `None`.
    watched: Vec<Option<u64>>,
}

static PEAKS: Mutex<Peaks> = Mutex::new(Peaks {
    process: 0,
    watched: Vec::new(),
});

struct Watch {
    before_bytes: u64,
    slot: usize,
}

impl Watch {
    fn begin() -> Option<Self> {
        let mut peaks = PEAKS.lock().ok()?;
        let (peak, before_bytes) = (system_peak_bytes()?, resident_bytes()?);
        // Linux: 5 sets the peak to what is resident now.
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        peaks.process = peaks.process.max(peak);
        for watched in peaks.watched.iter_mut().flatten() {
            *watched = peak.max(*watched);
        }
        let free = peaks.watched.iter().position(Option::is_none);
        let slot = free.unwrap_or(peaks.watched.len());
        if slot == peaks.watched.len() {
            peaks.watched.push(None);
        }
        peaks.watched[slot] = Some(before_bytes);
        Some(Self { before_bytes, slot })
    }

    fn end(self) -> Option<MemoryUse> {
        let mut peaks = PEAKS.lock().ok()?;
        let watched = peaks.watched[self.slot].take()?;
        Some(MemoryUse {
            before_bytes: self.before_bytes,
            after_bytes: resident_bytes()?,
            peak_bytes: watched.max(system_peak_bytes()?),
        })
    }
}

/// What the process holds, in bytes; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    proc_bytes("/proc/self/status", "VmRSS:")
}

/// The largest resident size the process has had, in bytes; `None` where the system does not tell.
pub fn peak_resident_bytes() -> Option<u64> {
    let before = PEAKS.lock().map_or(0, |peaks| peaks.process);
    system_peak_bytes().map(|peak| peak.max(before))
}

/// Memory of the machine and what is available of it, in bytes; `None` where the system does not tell.
pub fn machine_memory_bytes() -> Option<(u64, u64)> {
    let read = |field| proc_bytes("/proc/meminfo", field);
    read("MemTotal:").zip(read("MemAvailable:"))
}

/// The largest resident size since the last watch began.
fn system_peak_bytes() -> Option<u64> {
    proc_bytes("/proc/self/status", "VmHWM:")
}

fn proc_bytes(path: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
/// Lets the C library keep what is freed, up to some dozens of megabytes, for what is allocated next.
///
/// By default it may give memory back to the system after every run and fault it in again, page by page, in the next one: whether
/// it does depends on the order of frees, so that the same work takes 22 or 30 ms.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const KEPT_BYTES: i32 = 64 << 20;
        const MAPPED_FROM_BYTES: i32 = 32 << 20;
        // SAFETY: sets two numbers of the allocator; a refusal changes nothing.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        }
    }
}

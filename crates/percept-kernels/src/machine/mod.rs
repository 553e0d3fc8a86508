//! What this machine gives: arithmetic peak, memory bandwidth, CPU time and memory of the process.

mod memory;

pub use memory::{
    MemoryInfo, MemoryUse, keep_freed_memory, machine_memory_bytes, memory_info,
    peak_resident_bytes, resident_bytes, watch_memory,
};

use std::hint::black_box;
use std::time::Instant;

use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Accumulators in flight: enough to hide the latency of two multiply-add units.
const CHAINS: usize = 12;

struct MultiplyAdds {
    rounds: usize,
}

impl Kernel for MultiplyAdds {
    /// A sum, so that nothing is left out, and how many multiply-adds a round has.
    type Output = (f32, usize);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, usize) {
        if let Some(wide) = s.wide() {
            return wide.multiply_adds(self.rounds);
        }
        let (a, b) = (s.splat(black_box(0.999)), s.splat(black_box(0.001)));
        let mut chains = [s.splat(black_box(1.0)); CHAINS];
        for _ in 0..self.rounds {
            for chain in &mut chains {
                *chain = s.mul_add(*chain, a, b);
            }
        }
        let sum = chains.into_iter().map(|chain| s.sum(chain)).sum();
        (sum, CHAINS * LANES)
    }
}

/// The multiply-add rate that all threads together reach, in GFLOP/s: the best of a few short trials.
pub fn peak_gflops(cpu: &Cpu) -> f64 {
    const ROUNDS: usize = 2_000_000;
    let isa = cpu.isa();
    let (_, in_a_round) = isa.run(MultiplyAdds { rounds: 1 });
    let flops = (cpu.threads() * ROUNDS * in_a_round * 2) as f64;
    let trial = || {
        let start = Instant::now();
        cpu.parallel(cpu.threads(), &|_, _| {
            black_box(isa.run(MultiplyAdds { rounds: ROUNDS }));
        });
        flops / start.elapsed().as_secs_f64() * 1e-9
    };
    (0..5).map(|_| trial()).fold(0.0, f64::max)
}

/// The rate at which all threads together read main memory, in GB/s: the best of a few trials on 256 MB.
pub fn read_bandwidth_gb_per_s(cpu: &Cpu) -> f64 {
    const BLOCKS: usize = 64;
    const FLOATS_PER_BLOCK: usize = 1 << 20;
    let data = vec![1.0f32; BLOCKS * FLOATS_PER_BLOCK];
    let isa = cpu.isa();
    let trial = || {
        let start = Instant::now();
        cpu.parallel(BLOCKS, &|block, _| {
            let part = &data[block * FLOATS_PER_BLOCK..][..FLOATS_PER_BLOCK];
            black_box(isa.run(Sum { data: part }));
        });
        (4 * data.len()) as f64 / start.elapsed().as_secs_f64() * 1e-9
    };
    (0..4).map(|_| trial()).fold(0.0, f64::max)
}

struct Sum<'a> {
    data: &'a [f32],
}

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); 8];
        for chunk in self.data.chunks_exact(8 * LANES) {
            for (sum, part) in sums.iter_mut().zip(chunk.chunks_exact(LANES)) {
                *sum = s.add(*sum, s.read(part));
            }
        }
        sums.into_iter().map(|sum| s.sum(sum)).sum()
    }
}

/// CPU time of the whole process so far, in seconds; `None` where the system does not tell.
pub fn process_cpu_seconds() -> Option<f64> {
    #[cfg(unix)]
    {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is a valid place for the result.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        (failed == 0).then_some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
    }
    #[cfg(not(unix))]
    None
}

/// The CPU's name; `None` where the system does not tell.
pub fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn rates_are_positive_on_every_instruction_set() {
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(1, isa).unwrap();
            assert!(peak_gflops(&cpu) > 0.1, "{isa}");
        }
        assert!(read_bandwidth_gb_per_s(&Cpu::new(1).unwrap()) > 0.1);
    }

    #[test]
    fn cpu_time_advances() {
        let Some(before) = process_cpu_seconds() else {
            return;
        };
        let cpu = Cpu::new(1).unwrap();
        peak_gflops(&cpu);
        assert!(process_cpu_seconds().unwrap() > before);
    }
}

//! Memory of the process. One test alone in its file: the numbers are the whole process's.

use std::hint::black_box;

use percept_kernels::machine::{memory_info, peak_resident_bytes, watch_memory};

const BIG: usize = 48 << 20;

fn hold(bytes: usize) -> Vec<u8> {
    black_box(vec![1; bytes])
}

#[test]
fn each_watch_sees_its_own_peak_and_the_process_keeps_its() {
    let Some(info) = memory_info() else {
        return percept_testing::skipped("this system does not tell a process its memory");
    };
    assert!(info.resident_bytes > 0 && info.resident_bytes <= info.peak_bytes);
    assert!(info.available_bytes <= info.total_bytes);
    drop(hold(2 * BIG));
    let large = peak_resident_bytes().unwrap();
    let ((inner, kept), outer) = watch_memory(|| {
        drop(hold(BIG));
        let (kept, inner) = watch_memory(|| hold(BIG / 2));
        (inner, kept)
    });
    let (Some(inner), Some(outer)) = (inner, outer) else {
        return percept_testing::skipped("this system does not begin a peak anew");
    };
    let near = |bytes: u64, expected: usize| bytes.abs_diff(expected as u64) < BIG as u64 / 4;
    assert!(near(outer.growth_bytes(), BIG), "{outer:?}");
    assert!(near(inner.growth_bytes(), BIG / 2), "{inner:?}");
    assert!(near(inner.after_bytes - inner.before_bytes, BIG / 2));
    assert!(peak_resident_bytes().unwrap() >= large);
    drop(kept);
}

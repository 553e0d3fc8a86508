//! What kernel tests share: numbers to feed, machines to run on, and comparison with references in f64.

use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::isa::Isa;

/// `len` numbers in -1..1 that depend on the seed only.
pub(crate) fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The same numbers, as f64.
pub(crate) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Puts the residual, if there is one, into the output, for kernels that take it from there.
pub(crate) fn residual_in_place<'a>(epilogue: Epilogue<'a>, y: &mut [f32]) -> Epilogue<'a> {
    let Some(residual) = epilogue.residual else {
        return epilogue;
    };
    y.copy_from_slice(residual);
    Epilogue {
        residual: None,
        residual_in_place: true,
        ..epilogue
    }
}

/// Runs a kernel on every instruction set with 1, 2 and 3 threads; thread counts must give the same bits, and every result
/// must be within `tolerance * max(1, |expected|)` of `expected`.
pub(crate) fn check(expected: &[f64], tolerance: f64, kernel: impl Fn(&Cpu, &mut [f32])) {
    for isa in Isa::available() {
        let run = |threads: usize| {
            let cpu = Cpu::with_isa(threads, isa).expect("an available instruction set");
            // Not zero: a number that the kernel forgets to write must not look right.
            let mut y = vec![f32::NAN; expected.len()];
            kernel(&cpu, &mut y);
            y
        };
        let got = run(1);
        for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
            let near = (f64::from(got) - expected).abs() <= tolerance * expected.abs().max(1.0);
            let same = f64::from(got) == expected || got.is_nan() && expected.is_nan();
            assert!(
                near || same,
                "{isa}: {got} instead of {expected} at {index}"
            );
        }
        let bits = |y: &[f32]| y.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for threads in [2, 3] {
            assert_eq!(
                bits(&run(threads)),
                bits(&got),
                "{isa} on {threads} threads"
            );
        }
    }
}

//! Floats on grids of integers, against the slow twin, on every instruction set.

use proptest::prelude::*;

use percept_kernels::grid::{
    Grid, largest_magnitude, reference, round_to_grid, round_to_grid_in_place,
};
use percept_kernels::{Cpu, Isa};

proptest! {
    #[test]
    fn rounds_as_the_reference_on_every_instruction_set(
        x in proptest::collection::vec(-3.0f32..3.0, 0..70),
        amax in 0.0f32..4.0,
        bits in 2u32..9,
    ) {
        let high = (1u32 << (bits - 1)) as f32 - 1.0;
        let scale = if amax > 1e-6 { high / amax } else { 0.0 };
        let grid = Grid { scale, low: -high - 1.0, high };
        let mut expected = vec![0.0f32; x.len()];
        reference::round_to_grid(grid, &x, &mut expected);
        // A product that f32 rounds onto a tie goes one step the other way.
        let step = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        for isa in Isa::available() {
            for threads in 1..3 {
                let cpu = Cpu::with_isa(threads, isa).unwrap();
                let mut y = vec![0.0; x.len()];
                round_to_grid(&cpu, grid, &x, &mut y);
                let mut in_place = x.clone();
                round_to_grid_in_place(&cpu, grid, &mut in_place);
                prop_assert_eq!(&in_place, &y);
                for ((y, e), x) in y.iter().zip(&expected).zip(&x) {
                    let is_tie = ((x * scale).fract().abs() - 0.5).abs() < 1e-3;
                    let bound = if is_tie { 1.01 * step } else { 1e-6 * e.abs() };
                    prop_assert!((y - e).abs() <= bound, "{} against {}", y, e);
                }
                prop_assert_eq!(largest_magnitude(&cpu, &x), reference::largest_magnitude(&x));
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_so_and_is_not_the_largest() {
    let cpu = Cpu::with_isa(1, Isa::Portable).unwrap();
    let mut y = [0.0; 3];
    let grid = Grid {
        scale: 1.0,
        low: -128.0,
        high: 127.0,
    };
    round_to_grid(&cpu, grid, &[f32::NAN, 1.4, -900.0], &mut y);
    assert!(y[0].is_nan());
    assert_eq!(y[1..], [1.0, -128.0]);
    assert_eq!(largest_magnitude(&cpu, &[1.0, f32::NAN, -2.0]), 2.0);
}

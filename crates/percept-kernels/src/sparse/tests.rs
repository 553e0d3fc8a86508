//! The fast kernels against their definition, and the gradients against finite differences.

use proptest::prelude::*;

use super::*;
use crate::reference;
use crate::testing::{check, numbers, widen};
use crate::{Activation, Cpu, Epilogue, Isa};

fn one_thread() -> Cpu {
    Cpu::with_isa(1, Isa::Portable).unwrap()
}

/// Active sites of up to three samples, ascending.
fn some_sites(cells: [usize; 3]) -> impl Strategy<Value = Vec<i32>> {
    let [depth, height, width] = cells.map(|side| side as i32);
    prop::collection::btree_set([0..3, 0..depth, 0..height, 0..width], 0..60)
        .prop_map(|sites| sites.into_iter().flatten().collect())
}

fn some_window() -> impl Strategy<Value = Window> {
    (
        [1usize..4, 1..4, 1..4],
        [1usize..3, 1..3, 1..3],
        [0usize..2, 0..2, 0..2],
    )
        .prop_map(|(kernel, stride, padding)| Window {
            kernel,
            stride,
            padding,
        })
}

/// Everything that one random convolution needs.
#[derive(Debug)]
struct Case {
    cells: [usize; 3],
    window: Window,
    sites: Vec<i32>,
    output_sites: Vec<i32>,
    shape: SparseConvShape,
    seed: u64,
}

fn some_case() -> impl Strategy<Value = Case> {
    ([3usize..6, 3..7, 3..9], some_window(), any::<bool>()).prop_flat_map(
        |(cells, window, submanifold)| {
            let channels = (1usize..37, 1usize..37, 1usize..20, any::<u64>());
            (some_sites(cells), channels).prop_map(
                move |(sites, (in_channels, out_channels, block_rows, seed))| {
                    let window = if submanifold {
                        Window {
                            stride: [1; 3],
                            padding: window.kernel.map(|taps| taps / 2),
                            ..window
                        }
                    } else {
                        window
                    };
                    let output_sites = if submanifold && window.kernel.iter().all(|k| k % 2 == 1) {
                        sites.clone()
                    } else {
                        output_sites(&one_thread(), &window, cells, &sites).unwrap()
                    };
                    let shape = SparseConvShape {
                        in_channels,
                        out_channels,
                        taps: window.taps(),
                        block_rows,
                    };
                    Case {
                        cells,
                        window,
                        sites,
                        output_sites,
                        shape,
                        seed,
                    }
                },
            )
        },
    )
}

impl Case {
    fn rulebook(&self, cpu: &Cpu) -> Rulebook {
        let Case {
            cells,
            window,
            sites,
            output_sites,
            shape,
            ..
        } = self;
        rulebook(cpu, window, *cells, sites, output_sites, shape.block_rows).unwrap()
    }

    /// Whether every site reads the sites around it.
    fn is_submanifold(&self) -> bool {
        let Window {
            kernel,
            stride,
            padding,
        } = self.window;
        let is_centred = (0..3).all(|axis| kernel[axis] == 2 * padding[axis] + 1);
        self.output_sites == self.sites && stride == [1; 3] && is_centred
    }

    fn x(&self) -> Vec<f32> {
        numbers(self.seed, self.sites.len() / 4 * self.shape.in_channels)
    }

    fn weight(&self) -> Vec<f32> {
        numbers(self.seed ^ 1, self.shape.weight_len())
    }

    fn dy(&self) -> Vec<f32> {
        numbers(self.seed ^ 2, self.output_len())
    }

    fn output_len(&self) -> usize {
        self.output_sites.len() / 4 * self.shape.out_channels
    }

    /// The forward pass in f64, for perturbed inputs and weights.
    fn forward(&self, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; self.output_len()];
        let channels = [self.shape.in_channels, self.shape.out_channels];
        reference::sparse_conv(
            &self.window,
            channels,
            &self.sites,
            &self.output_sites,
            x,
            weight,
            None,
            &mut y,
        );
        y
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn output_sites_are_those_with_an_active_window(
        sites in some_sites([4, 5, 6]), window in some_window()
    ) {
        let expected = reference::sparse_output_sites(&window, [4, 5, 6], &sites);
        let cpu = Cpu::with_isa(2, Isa::Portable).unwrap();
        prop_assert_eq!(output_sites(&cpu, &window, [4, 5, 6], &sites).unwrap(), expected);
    }

    #[test]
    fn equals_the_definition(case in some_case(), with_residual in any::<bool>()) {
        let (x, weight) = (case.x(), case.weight());
        let bias = numbers(case.seed ^ 3, case.shape.out_channels);
        let residual = numbers(case.seed ^ 4, case.output_len());
        let mut expected = case.forward(&widen(&x), &widen(&weight));
        for (at, value) in expected.iter_mut().enumerate() {
            *value += f64::from(bias[at % bias.len()]);
            if with_residual {
                *value += f64::from(residual[at]);
            }
            *value = value.max(0.0);
        }
        let packed = PackedSparseConv::pack(&case.shape, &weight);
        let epilogue = Epilogue {
            bias: Some(&bias),
            residual: with_residual.then_some(residual.as_slice()),
            residual_in_place: false,
            activation: Activation::Relu,
        };
        check(&expected, 1e-4, |cpu, y| {
            let Rulebook { pairs, starts } = case.rulebook(cpu);
            sparse_conv(cpu, &packed, &x, &pairs, &starts, epilogue, y);
        });
    }

    #[test]
    fn pairs_are_counted(case in some_case()) {
        let cpu = Cpu::with_isa(2, Isa::Portable).unwrap();
        let expected = reference::sparse_pairs(&case.window, &case.sites, &case.output_sites);
        prop_assert_eq!(case.rulebook(&cpu).pairs.len(), 2 * expected);
    }

    #[test]
    fn gradients_equal_finite_differences(case in some_case()) {
        let (x, weight, dy) = (case.x(), case.weight(), case.dy());
        let loss = |x: &[f64], weight: &[f64]| -> f64 {
            let y = case.forward(x, weight);
            y.iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum()
        };
        let (wide_x, wide_weight) = (widen(&x), widen(&weight));
        // The loss is linear in each: a central difference is exact but for rounding. A few positions tell.
        let slope = |values: &[f64], at: usize, loss: &dyn Fn(&[f64]) -> f64| {
            let moved = |by: f64| {
                let mut values = values.to_vec();
                values[at] += by;
                loss(&values)
            };
            (moved(0.5) - moved(-0.5)) / 1.0
        };
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let book = case.rulebook(&cpu);
            let rows = case.sites.len() / 4;
            let Rulebook { pairs, starts } = &book;
            let SparseConvShape { taps, block_rows, .. } = case.shape;
            let turned = transposed_rulebook(pairs, starts, taps, rows, block_rows);
            for group in turned.starts.windows(2) {
                let group = &turned.pairs[2 * group[0] as usize..2 * group[1] as usize];
                prop_assert!(group.as_chunks::<2>().0.is_sorted());
            }
            let turned = InputPairs::Transposed(&turned);
            let mut dx = vec![f32::NAN; x.len()];
            input_gradient(&cpu, &case.shape, &weight, &dy, &turned, &mut dx);
            if case.is_submanifold() {
                let mut opposite = vec![f32::NAN; x.len()];
                let pairs = InputPairs::Opposite(pairs, starts);
                input_gradient(&cpu, &case.shape, &weight, &dy, &pairs, &mut opposite);
                for (a, b) in dx.iter().zip(&opposite) {
                    prop_assert!((a - b).abs() < 1e-4, "{} instead of {}", b, a);
                }
            }
            let mut dweight = vec![f32::NAN; weight.len()];
            weight_gradient(&cpu, &case.shape, &x, &dy, pairs, starts, &mut dweight);
            for at in (0..x.len()).step_by(x.len() / 7 + 1) {
                let expected = slope(&wide_x, at, &|x| loss(x, &wide_weight));
                prop_assert!((f64::from(dx[at]) - expected).abs() < 1e-3, "dx[{}] = {} instead of {}", at, dx[at], expected);
            }
            for at in (0..weight.len()).step_by(weight.len() / 7 + 1) {
                let expected = slope(&wide_weight, at, &|weight| loss(&wide_x, weight));
                prop_assert!((f64::from(dweight[at]) - expected).abs() < 1e-3, "dweight[{}] = {} instead of {}", at, dweight[at], expected);
            }
        }
    }

    #[test]
    fn wide_vectors_have_the_bits_of_avx2(case in some_case()) {
        if !Isa::Avx512.is_supported() {
            return Ok(());
        }
        let (x, weight, dy) = (case.x(), case.weight(), case.dy());
        let packed = PackedSparseConv::pack(&case.shape, &weight);
        let [narrow, wide] = [Isa::Avx2, Isa::Avx512].map(|isa| {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let Rulebook { pairs, starts } = case.rulebook(&cpu);
            let mut y = vec![f32::NAN; case.output_len()];
            sparse_conv(&cpu, &packed, &x, &pairs, &starts, Epilogue::default(), &mut y);
            let mut dweight = vec![f32::NAN; weight.len()];
            weight_gradient(&cpu, &case.shape, &x, &dy, &pairs, &starts, &mut dweight);
            (y, dweight)
        });
        prop_assert_eq!(narrow, wide);
    }

    #[test]
    fn dense_maps_hold_every_site(sites in some_sites([2, 4, 5]), channels in 1usize..40, seed in any::<u64>()) {
        let shape = DenseShape { samples: 3, channels, cells: [2, 4, 5] };
        let x = numbers(seed, sites.len() / 4 * channels);
        let mut expected = vec![0.0; shape.len()];
        for (row, site) in sites.chunks_exact(4).enumerate() {
            let [b, z, y, x_at] = [site[0], site[1], site[2], site[3]].map(|v| v as usize);
            for c in 0..channels {
                expected[(((b * channels + c) * 2 + z) * 4 + y) * 5 + x_at] = f64::from(x[row * channels + c]);
            }
        }
        check(&expected, 0.0, |cpu, y| to_dense(cpu, &shape, &sites, &x, y));
    }
}

#[test]
fn sites_from_outside_are_checked() {
    let cpu = one_thread();
    let window = Window {
        kernel: [3; 3],
        stride: [1; 3],
        padding: [1; 3],
    };
    let book = |sites: &[i32]| rulebook(&cpu, &window, [4; 3], sites, sites, 8);
    assert!(matches!(
        book(&[0, 0, 0, 4]),
        Err(SparseError::Outside { row: 0, .. })
    ));
    assert!(matches!(
        book(&[0, -1, 0, 0]),
        Err(SparseError::Outside { row: 0, .. })
    ));
    assert!(matches!(
        book(&[0, 1, 0, 0, 0, 0, 0, 0]),
        Err(SparseError::Unsorted { row: 1, .. })
    ));
    assert!(matches!(
        book(&[0, 1, 0, 0, 0, 1, 0, 0]),
        Err(SparseError::Unsorted { row: 1, .. })
    ));
    let huge = [usize::MAX / 2; 3];
    assert!(matches!(
        output_sites(&cpu, &window, huge, &[0, 0, 0, 0]),
        Err(SparseError::TooLarge { .. })
    ));
}

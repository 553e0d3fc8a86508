//! Every op's gradient against finite differences in f64, on random, odd and small shapes.

mod finite_differences;
mod hashed;

use finite_differences::Case;
use hashed::tensor;
use percept_graph::{
    Activation, ActiveSites, AdaptiveAvgPool2d, Affine, Attention, AvgPool2d, BatchNorm, Binary,
    BinaryKind, Concat, Conv2d, ConvTranspose2d, CrossEntropy, Dropout, Expand, Gather, LayerNorm,
    LayerScale, Linear, LinearWeight, MatMul, MaxPool2d, Normalize, Op, Pad, Permute,
    RANDOM_COUNTER, Reduce, ReduceKind, Reshape, Resize, ResizeMode, ResizeScale, Rulebook,
    ScatterAdd, Slice, Softmax, SparseConv3d, SparseToDense, Tensor, Window3d,
};
use proptest::prelude::*;

/// One op on one random input.
fn unary(op: impl Into<Op>, shape: &[usize]) {
    let mut case = Case::new();
    let x = case.input("x", tensor("x", shape));
    case.check(op, &[x]);
}

fn conv() -> impl Strategy<Value = (Conv2d, [usize; 4])> {
    let channels = (1usize..3, 1usize..3, 1usize..3);
    let window = (
        [1usize..4, 1..4],
        [1usize..3, 1..3],
        [0usize..2, 0..2],
        [1usize..3, 1..3],
    );
    let size = (1usize..3, 3usize..7, 3usize..7);
    (channels, window, size, any::<bool>()).prop_map(
        |((group_in, group_out, groups), (kernel, stride, padding, dilation), (n, h, w), bias)| {
            let conv = Conv2d {
                in_channels: group_in * groups,
                out_channels: group_out * groups,
                kernel,
                stride,
                padding,
                // A kernel of 3 spread by 2 needs a map of 5.
                dilation: [
                    if h < 5 { 1 } else { dilation[0] },
                    if w < 5 { 1 } else { dilation[1] },
                ],
                groups,
                bias,
                dims: 2,
            };
            let shape = [n, conv.in_channels, h, w];
            (conv, shape)
        },
    )
}

/// Numbers that are all different and further apart than a difference step: maxima stay where they are.
fn distinct(shape: &[usize]) -> Tensor<'static> {
    let len: usize = shape.iter().product();
    let data = (0..len).map(|i| ((i * 7919 + 13) % 104_729 % 1009) as f32 * 0.01 + i as f32 * 1e-4);
    Tensor::from_values(shape, data.collect::<Vec<f32>>()).unwrap()
}

fn activations() -> impl Strategy<Value = Activation> {
    prop::sample::select(vec![
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::LeakyRelu { slope: -0.3 },
        Activation::Gelu,
        Activation::Silu,
        Activation::Sigmoid,
        Activation::Tanh,
    ])
}

fn resize_modes() -> impl Strategy<Value = ResizeMode> {
    prop::sample::select(vec![
        ResizeMode::Nearest,
        ResizeMode::Bilinear,
        ResizeMode::Bicubic,
        ResizeMode::BilinearAntialias,
        ResizeMode::BicubicAntialias,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn convolutions((conv, shape) in conv()) {
        unary(conv, &shape);
    }

    #[test]
    fn transposed_convolutions((conv, shape) in conv(), more in [0usize..2, 0..2]) {
        let output_padding = [0, 1].map(|axis| more[axis].min(conv.stride[axis] - 1));
        unary(ConvTranspose2d { conv, output_padding }, &shape);
    }

    #[test]
    fn activations_of_all_kinds(activation in activations(), len in 1usize..9) {
        // Away from zero, where a ReLU has two slopes.
        let mut x = tensor("x", &[len]);
        x.values_mut::<f32>().unwrap().iter_mut().for_each(|v| *v = *v * 3.0 + 0.01 * v.signum());
        let mut case = Case::new();
        let x = case.input("x", x);
        case.check(activation, &[x]);
    }

    #[test]
    fn arithmetic_with_broadcasting(
        kind in prop::sample::select(vec![
            BinaryKind::Add, BinaryKind::Sub, BinaryKind::Mul, BinaryKind::Div, BinaryKind::Max, BinaryKind::Min,
        ]),
        axes in prop::collection::vec((1usize..4, 0u8..3), 1..4),
        missing in 0usize..3,
    ) {
        let side = |repeated: u8| -> Vec<usize> {
            axes.iter().map(|&(n, which)| if which == repeated { 1 } else { n }).collect()
        };
        let (a, b) = (side(1), side(2));
        let b = &b[missing.min(b.len())..];
        let mut case = Case::new();
        let x = case.input("a", tensor("a", &a));
        // Never near zero, and never near the other operand.
        let mut divisor = tensor("b", b);
        divisor.values_mut::<f32>().unwrap().iter_mut().for_each(|v| *v = v.signum() * (v.abs() + 1.2));
        let y = case.input("b", divisor);
        case.check(Binary { kind }, &[x, y]);
    }

    #[test]
    fn products(batch in 1usize..3, m in 1usize..4, k in 1usize..4, n in 1usize..4, ta in any::<bool>(), tb in any::<bool>()) {
        let mut case = Case::new();
        let a = case.input("a", tensor("a", &if ta { [batch, k, m] } else { [batch, m, k] }));
        let b = case.input("b", tensor("b", &if tb { [batch, n, k] } else { [batch, k, n] }));
        case.check(MatMul { transpose_a: ta, transpose_b: tb }, &[a, b]);
    }

    #[test]
    fn linear_layers(rows in prop::collection::vec(1usize..4, 0..3), inputs in 1usize..5, outputs in 1usize..5, bias in any::<bool>()) {
        let shape: Vec<usize> = rows.into_iter().chain([inputs]).collect();
        for weight in [LinearWeight::Matrix, LinearWeight::Pointwise, LinearWeight::PointwiseTransposed] {
            unary(Linear { bias, weight, ..Linear::new(inputs, outputs) }, &shape);
        }
    }

    #[test]
    fn normalisations(n in 1usize..4, c in 1usize..4, h in 1usize..4, w in 2usize..5) {
        unary(BatchNorm::new(c), &[n, c, h, w]);
        unary(BatchNorm::rows(c), &[n + 1, c]);
        unary(LayerNorm { features: w, eps: 1e-2 }, &[n, h, w]);
        let mut frozen = Case::new();
        let x = frozen.input("x", tensor("x", &[n, c, h, w]));
        let y = frozen.build(|b| b.batch_norm("bn", x, BatchNorm::new(c)));
        frozen.check_value(y, false);
    }

    #[test]
    fn rows_of_tokens(n in 1usize..3, t in 1usize..5, heads in 1usize..3, each in 1usize..4) {
        let width = heads * each;
        unary(Attention { heads, width }, &[n, t, 3 * width]);
        unary(Softmax, &[n, t, width]);
        unary(Normalize::default(), &[n, t, width]);
        // Every row shorter than eps: a mere factor.
        unary(Normalize { eps: 10.0 }, &[n, t, width]);
        unary(LayerScale { features: width, initial: 0.1 }, &[n, t, width]);
    }

    #[test]
    fn pooling(n in 1usize..3, c in 1usize..3, h in 3usize..7, w in 3usize..7, kernel in 1usize..4, stride in 1usize..3, include in any::<bool>()) {
        let padding = kernel / 2;
        let mut case = Case::new();
        let x = case.input("x", distinct(&[n, c, h, w]));
        case.check(MaxPool2d { kernel, stride, padding }, &[x]);
        unary(AvgPool2d { kernel, stride, padding, count_include_pad: include }, &[n, c, h, w]);
        unary(AdaptiveAvgPool2d { output: [stride, kernel] }, &[n, c, h, w]);
    }

    #[test]
    fn resizing(mode in resize_modes(), from in [1usize..6, 1..6], to in [1usize..7, 1..7], offset in any::<bool>()) {
        let scale = if offset { ResizeScale::OutputOffset(0.1) } else { ResizeScale::Sizes };
        let size = to.map(Into::into);
        unary(Resize { mode, size, scale }, &[2, 1, from[0], from[1]]);
    }

    #[test]
    fn reductions(axes in prop::collection::vec((1usize..4, any::<bool>()), 1..4)) {
        let shape: Vec<usize> = axes.iter().map(|&(n, _)| n).collect();
        let axes: Vec<usize> = (0..shape.len()).filter(|&i| axes[i].1).collect();
        for kind in [ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Max, ReduceKind::Min] {
            let mut case = Case::new();
            let x = case.input("x", distinct(&shape));
            case.check(Reduce { kind, axes: axes.clone() }, &[x]);
        }
    }

    #[test]
    fn data_movement(a in 1usize..4, b in 1usize..4, c in 1usize..4) {
        let n = |sizes: &[usize]| sizes.iter().map(|&size| size.into()).collect();
        unary(Reshape { shape: n(&[a * b, c]) }, &[a, b, c]);
        unary(Permute { order: vec![2, 0, 1] }, &[a, b, c]);
        unary(Expand { shape: n(&[a, b, c]) }, &[1, b, 1]);
        unary(Slice { axis: 1, start: 1.into(), length: b.into() }, &[a, b + 2, c]);
        unary(Pad { axis: 1, before: a.into(), after: c.into() }, &[a, b, c]);
        unary(Affine { scale: 0.5, divisor: 3.into(), shift: 2.0 }, &[a, b]);
        let mut case = Case::new();
        let [x, y] = [("x", b), ("y", c)].map(|(name, size)| case.input(name, tensor(name, &[a, size, 2])));
        case.check(Concat { axis: 1 }, &[x, y, x]);
    }

    #[test]
    fn rows_by_number(rows in 1usize..5, picks in prop::collection::vec(0usize..100, 1..6), width in 1usize..4) {
        let indices: Vec<i32> = picks.iter().map(|pick| (pick % rows) as i32).collect();
        let mut case = Case::new();
        let x = case.input("x", tensor("x", &[rows, width]));
        let at = case.integers("indices", &[indices.len()], &indices);
        case.check(Gather, &[x, at]);
        let mut case = Case::new();
        let x = case.input("x", tensor("x", &[indices.len(), width]));
        let at = case.integers("indices", &[indices.len()], &indices);
        case.check(ScatterAdd { rows: rows.into() }, &[x, at]);
    }

    #[test]
    fn losses(n in 1usize..5, classes in 1usize..6, smoothing in prop::sample::select(vec![0.0f32, 0.1])) {
        let labels: Vec<i32> = (0..n).map(|i| (i * 3 % classes) as i32).collect();
        let mut case = Case::new();
        let logits = case.input("logits", tensor("logits", &[n, classes]));
        let labels = case.integers("labels", &[n], &labels);
        case.check(CrossEntropy { smoothing }, &[logits, labels]);
    }

    #[test]
    fn dropout_drops_the_same_twice(p in 0.1f32..0.9, len in 1usize..30) {
        let mut case = Case::new();
        let x = case.input("x", tensor("x", &[len]));
        let y = case.build(|b| b.leaf("drop", Dropout { p }, &[x]));
        case.late_input(RANDOM_COUNTER, Tensor::from_values([2], vec![7, 3]).unwrap());
        case.check_value(y, true);
    }
}

#[test]
fn a_parameter_as_a_value() {
    let mut case = Case::new();
    let x = case.input("x", tensor("x", &[3, 2]));
    let y = case.build(|b| {
        let token = b.parameter("token", &[1, 2]);
        let scaled = b.mul("mul", x, token);
        // Read twice, so that two gradients meet.
        b.add("add", scaled, token)
    });
    case.check_value(y, true);
}

#[test]
fn sparse_convolutions() {
    // Two samples on a grid of 3 x 3 x 4, in ascending order.
    let sites = [
        [0, 0, 0, 0],
        [0, 0, 1, 2],
        [0, 1, 1, 1],
        [0, 2, 2, 3],
        [1, 0, 0, 1],
        [1, 1, 1, 1],
        [1, 1, 1, 2],
    ];
    let cells = [3, 3, 4];
    let flat: Vec<i32> = sites.as_flattened().to_vec();
    for bias in [false, true] {
        let mut case = Case::new();
        let x = case.input("x", tensor("x", &[sites.len(), 2]));
        let sites = case.integers("sites", &[sites.len(), 4], &flat);
        let samples = case.fixed("samples", tensor("samples", &[2]));
        let y = case.build(|b| {
            let window = Window3d::centred(3);
            let rules = Rulebook {
                window,
                cells,
                symbol: "P".into(),
            };
            let rules = b.call_many("rules", rules, &[sites, sites]);
            let conv = SparseConv3d {
                in_channels: 2,
                out_channels: 3,
                window,
                bias,
                submanifold: true,
            };
            let y = b.leaf("same", conv, &[x, sites, rules[0], rules[1]]);
            let window = Window3d {
                stride: [2; 3],
                ..window
            };
            let to = b.call(
                "sites",
                ActiveSites {
                    window,
                    cells,
                    symbol: "O".into(),
                },
                &[sites],
            );
            let rules = Rulebook {
                window,
                cells,
                symbol: "Q".into(),
            };
            let rules = b.call_many("rules", rules, &[sites, to]);
            let conv = SparseConv3d {
                in_channels: 3,
                out_channels: 2,
                window,
                bias,
                submanifold: false,
            };
            let y = b.leaf("down", conv, &[y, to, rules[0], rules[1]]);
            b.call(
                "dense",
                SparseToDense {
                    cells: window.output_cells(cells),
                },
                &[y, to, samples],
            )
        });
        case.check_value(y, true);
    }
}

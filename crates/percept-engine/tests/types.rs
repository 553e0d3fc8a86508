//! Values of every type through plan, memory, kernels and outputs; and precisions by layer.

mod hashed;

use std::sync::Arc;

use half::{bf16, f16};
use hashed::{Weights, tensor};
use percept_engine::{
    EngineError, Memory, Options, Precision, PrecisionPlan, Program, run_reference,
};
use percept_graph::{
    Binary, BinaryKind, Builder, Concat, Conv2d, Cost, CustomOp, DType, Dim, Element, Expand,
    Gather, Graph, Knn, Op, OpContext, Operator, Pad, Tensor, TensorType,
};
use percept_kernels::Cpu;

/// Keeps every second row: how many there are, only a run tells.
#[derive(Debug)]
struct EverySecond(DType);

impl Operator for EverySecond {
    fn kind(&self) -> &'static str {
        "EverySecond"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let shape = [Dim::symbol("kept"), inputs[0].shape[1].clone()];
        Ok(vec![TensorType::new(self.0, shape)])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        "EverySecond()".to_owned()
    }
}

impl CustomOp for EverySecond {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let x = &inputs[0];
        let row = x.shape()[1] * x.dtype().size_bytes();
        let kept: Vec<&[u8]> = x.bytes().chunks_exact(row).step_by(2).collect();
        let shape = [kept.len(), x.shape()[1]];
        Ok(vec![Tensor::new(x.dtype(), shape, kept.concat())?])
    }
}

/// Moves rows about in every way there is: [R, 3] in, [2, 3, kept + 3] out.
fn moving(dtype: DType) -> Graph {
    let mut b = Builder::new("Moving");
    let x = b.input_of("x", TensorType::new(dtype, [Dim::symbol("R"), 3.into()]));
    let rows = b.integer_input("rows", [Dim::symbol("K")]);
    let picked = b.call("pick", Gather, &[x, rows]);
    let kept = b.call("keep", Op::Custom(Arc::new(EverySecond(dtype))), &[picked]);
    let top = b.slice("top", x, 0, 1, 2);
    let both = b.call("join", Concat { axis: 0 }, &[kept, top]);
    let turned = b.permute("turn", both, &[1, 0]);
    let pad = Pad {
        axis: 1,
        before: 1.into(),
        after: 0.into(),
    };
    let padded = b.call("pad", pad, &[turned]);
    let [three, width] = <[Dim; 2]>::try_from(b.shape(padded)).unwrap();
    let single = b.reshape("single", padded, [1.into(), three.clone(), width.clone()]);
    let shape = vec![2.into(), three, width];
    let out = b.call("twice", Expand { shape }, &[single]);
    b.output("out", out);
    b.finish().unwrap()
}

fn program(graph: Graph, options: Options) -> Program {
    let weights = Arc::new(Weights::default());
    Program::new(graph, weights, Cpu::new(2).unwrap(), options)
}

fn check<T: Element + PartialEq + std::fmt::Debug>(numbers: [T; 12]) {
    let zero: T = bytemuck::Zeroable::zeroed();
    let at = |row: usize, column: usize| numbers[3 * row + column];
    // Rows 3, 0, 2 are picked, 3 and 2 kept; 1 and 2 follow; turned, with zeros in front, twice.
    let once = |column: usize| {
        [
            zero,
            at(3, column),
            at(2, column),
            at(1, column),
            at(2, column),
        ]
    };
    let expected: Vec<T> = (0..6).flat_map(|row| once(row % 3)).collect();
    let x = Tensor::from_values([4, 3], numbers.to_vec()).unwrap();
    let rows = Tensor::from_values([3], vec![3i32, 0, 2]).unwrap();
    for memory in [Memory::Frugal, Memory::Keep] {
        let options = Options {
            memory,
            ..Options::default()
        };
        let mut program = program(moving(T::DTYPE), options);
        let outputs = program.run(&[("x", &x), ("rows", &rows)]).unwrap();
        let out = outputs.get("out").unwrap();
        assert_eq!(out.shape(), [2, 3, 5]);
        assert_eq!(out.values::<T>().unwrap(), expected, "{}", T::DTYPE);
    }
}

#[test]
fn values_of_every_type_flow_as_they_are() {
    check(std::array::from_fn(|i| i as i8 - 6));
    check(std::array::from_fn(|i| 250 - i as u8));
    check(std::array::from_fn(|i| -1000 * i as i16));
    check(std::array::from_fn(|i| i as i32 + (1 << 30)));
    check(std::array::from_fn(|i| i as i64 - (1 << 60)));
    check(std::array::from_fn(|i| f16::from_f32(i as f32 / 7.0)));
    check(std::array::from_fn(|i| bf16::from_f32(i as f32 * 7.0)));
    check(std::array::from_fn(|i| i as f32 / 3.0));
    check(std::array::from_fn(|i| i as f64 / 3.0));
}

#[test]
fn sizes_are_those_of_the_type() {
    let bytes = |dtype: DType| {
        let mut b = Builder::new("Turn");
        let x = b.input_of("x", TensorType::new(dtype, [64, 32].map(Dim::from)));
        let y = b.permute("turn", x, &[1, 0]);
        b.output("y", y);
        let mut program = program(b.finish().unwrap(), Options::default());
        let bindings = program.prepare(&[("x", vec![64, 32])]).unwrap();
        let infos = program.step_infos(&bindings).unwrap();
        assert_eq!(infos[0].live_bytes, infos[0].allocated_bytes);
        infos[0].allocated_bytes
    };
    assert_eq!(bytes(DType::U8), 2048);
    assert_eq!(bytes(DType::F16), 2 * 2048);
    assert_eq!(bytes(DType::F32), 4 * 2048);
    assert_eq!(bytes(DType::F64), 8 * 2048);
}

#[test]
fn arithmetic_without_a_kernel_is_refused_and_never_wrong() {
    let mut b = Builder::new("Sum");
    let x = b.integer_input("x", [Dim::from(3)]);
    let kind = BinaryKind::Add;
    let y = b.call("sum", Binary { kind }, &[x, x]);
    b.output("y", y);
    let mut program = program(b.finish().unwrap(), Options::default());
    let x = Tensor::from_values([3], vec![1i32, 2, 3]).unwrap();
    let error = program.run(&[("x", &x)]).err().unwrap().to_string();
    assert_eq!(error, "sum: has no kernel for i32, only for f32");
}

fn two_layers() -> Graph {
    let mut b = Builder::new("Layers");
    let x = b.input("x", [1, 4, 8, 8].map(Dim::from));
    let y = b.conv2d("first", x, Conv2d::new(4, 4, 3).padding(1));
    let y = b.conv2d("second", y, Conv2d::new(4, 4, 1));
    b.output("y", y);
    b.finish().unwrap()
}

#[test]
fn a_plan_of_precisions_reaches_the_layers_it_names() {
    let x = tensor("x", &[1, 4, 8, 8]);
    let run = |plan: PrecisionPlan| {
        let mut program = program(two_layers(), Options::default()).with_precision(plan)?;
        Ok::<_, EngineError>(program.run(&[("x", &x)])?.to_tensors())
    };
    let plain = run(PrecisionPlan::new()).unwrap();
    let floats = PrecisionPlan::new()
        .with("", Precision::I8)
        .with("first", Precision::F32)
        .with("second", Precision::F32);
    assert_eq!(run(floats).unwrap(), plain);
    let error = run(PrecisionPlan::new().with("second", Precision::I8)).unwrap_err();
    assert_eq!(error.to_string(), "second: Conv2d has no kernel in i8");
    let error = run(PrecisionPlan::new().with("third", Precision::F32)).unwrap_err();
    assert!(matches!(error, EngineError::UnknownScope { scope } if scope == "third"));
}

fn neighbours(k: usize) -> Graph {
    let mut b = Builder::new("Neighbours");
    let points = b.input("points", [Dim::symbol("P"), 3.into()]);
    let counts = b.integer_input("counts", [Dim::symbol("N")]);
    let y = b.call("knn", Knn { k }, &[points, counts]);
    b.output("y", y);
    b.finish().unwrap()
}

/// On a lattice most distances come several times, so the order of equals shows.
#[test]
fn neighbours_are_those_of_a_search_by_hand_cloud_by_cloud() {
    let counts = [40, 0, 3, 21];
    let points: usize = counts.iter().sum::<i32>() as usize;
    let at = |i: usize| ((i * 7919) % 31 % 4) as f32 * 0.5 - 1.0;
    let points = Tensor::from_values([points, 3], (0..3 * points).map(at).collect::<Vec<f32>>());
    let points = points.unwrap();
    let counts = Tensor::from_values([4], counts.to_vec()).unwrap();
    let inputs = [("points", &points), ("counts", &counts)];
    for k in [1, 5, 16] {
        let slow = run_reference::<f64>(&neighbours(k), &Weights::default(), &inputs).unwrap();
        let mut fast = program(neighbours(k), Options::default());
        let outputs = fast.run(&inputs).unwrap();
        let lists = outputs.get("y").unwrap().values::<i32>().unwrap();
        let expected: Vec<i32> = slow[0].1.data.iter().map(|&row| row as i32).collect();
        assert_eq!(lists, expected);
    }
    let short = Tensor::from_values([1], vec![63]).unwrap();
    let refused = |k: usize, counts: &Tensor<'_>| {
        let mut knn = program(neighbours(k), Options::default());
        let ran = knn.run(&[("points", &points), ("counts", counts)]);
        ran.map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(3, &short).contains("do not add up to 64 points"));
    assert!(refused(65, &counts).contains("at most 64 neighbours"));
}

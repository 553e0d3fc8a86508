//! Elementwise operations with broadcasting.

use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::BLOCK_LEN;
use crate::simd::{LANES, Simd};
use crate::strides::{Odometer, broadcast_dims, broadcast_strides, collapse};

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b
    Div,
    /// The larger of a and b; NaN when either is.
    Max,
    /// The smaller of a and b; NaN when either is.
    Min,
    /// 1 where a > b, else 0.
    Greater,
    /// 1 where a = b, else 0.
    Equal,
}

impl BinaryOp {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V {
        match self {
            BinaryOp::Add => s.add(a, b),
            BinaryOp::Sub => s.sub(a, b),
            BinaryOp::Mul => s.mul(a, b),
            BinaryOp::Div => s.div(a, b),
            // `max` and `min` let b's NaN through; a's needs help.
            BinaryOp::Max => s.select(s.equal(a, a), s.max(a, b), a),
            BinaryOp::Min => s.select(s.equal(a, a), s.min(a, b), a),
            BinaryOp::Greater => s.select(s.less(b, a), s.splat(1.0), s.splat(0.0)),
            BinaryOp::Equal => s.select(s.equal(a, b), s.splat(1.0), s.splat(0.0)),
        }
    }
}

/// y = activation(x).
pub fn unary(cpu: &Cpu, activation: Activation, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "x and y must be equally long");
    run_unary(cpu, activation, x.as_ptr(), y);
}

/// y = activation(y).
pub fn unary_in_place(cpu: &Cpu, activation: Activation, y: &mut [f32]) {
    run_unary(cpu, activation, y.as_ptr(), y);
}

/// `x` is y's own start, or that of a slice as long as y.
fn run_unary(cpu: &Cpu, activation: Activation, x: *const f32, y: &mut [f32]) {
    let (len, x, y) = (y.len(), Source(x), SharedMut::new(y));
    cpu.parallel(len.div_ceil(BLOCK_LEN), &|block, _| {
        let start = block * BLOCK_LEN;
        let len = BLOCK_LEN.min(len - start);
        // SAFETY: the block is inside x and y, and no other block touches it.
        let (x, y) = unsafe { (x.at(start), y.as_mut_ptr().add(start)) };
        cpu.isa().run(UnaryRun {
            activation,
            x,
            y,
            len,
        });
    });
}

/// y = a op b, with both operands broadcast to a common shape as NumPy does. Panics when they do not broadcast.
pub fn binary(
    cpu: &Cpu,
    op: BinaryOp,
    a: &[f32],
    a_dims: &[usize],
    b: &[f32],
    b_dims: &[usize],
    y: &mut [f32],
) {
    check_len("a", a.len(), a_dims);
    run_binary(cpu, op, a.as_ptr(), a_dims, b, b_dims, y);
}

/// y = y op b, with b broadcast to y's shape. Panics when it does not broadcast to that.
pub fn binary_in_place(
    cpu: &Cpu,
    op: BinaryOp,
    y: &mut [f32],
    y_dims: &[usize],
    b: &[f32],
    b_dims: &[usize],
) {
    let dims = broadcast_dims(y_dims, b_dims);
    assert_eq!(
        dims.as_deref(),
        Some(y_dims),
        "{b_dims:?} must broadcast to {y_dims:?}"
    );
    check_len("y", y.len(), y_dims);
    run_binary(cpu, op, y.as_ptr(), y_dims, b, b_dims, y);
}

fn check_len(name: &str, len: usize, dims: &[usize]) {
    assert_eq!(len, dims.iter().product(), "length of {name} {dims:?}");
}

/// `a` is valid for `a_dims`, and either apart from y or y itself with y's shape.
fn run_binary(
    cpu: &Cpu,
    op: BinaryOp,
    a: *const f32,
    a_dims: &[usize],
    b: &[f32],
    b_dims: &[usize],
    y: &mut [f32],
) {
    let dims = broadcast_dims(a_dims, b_dims)
        .unwrap_or_else(|| panic!("{a_dims:?} and {b_dims:?} do not broadcast"));
    check_len("b", b.len(), b_dims);
    check_len("y", y.len(), &dims);
    if y.is_empty() {
        return;
    }
    let strides = [
        broadcast_strides(a_dims, &dims),
        broadcast_strides(b_dims, &dims),
    ];
    // After collapsing, dense operands run with step 1 along the last axis and broadcast ones with step 0: equal shapes
    // and scalars are one long run, [C, 1, 1] a run a channel, [C] a run a row.
    let (mut dims, [mut a_strides, mut b_strides]) = collapse(&dims, strides);
    let run_len = dims.pop().unwrap_or(1);
    let a_step = a_strides.pop().unwrap_or(0);
    let b_step = b_strides.pop().unwrap_or(0);
    let runs = y.len() / run_len;

    let chunk_len = run_len.min(BLOCK_LEN);
    let chunks = run_len.div_ceil(chunk_len);
    let block_runs = (BLOCK_LEN / run_len).max(1);
    let (a, y) = (Source(a), SharedMut::new(y));
    cpu.parallel(runs.div_ceil(block_runs) * chunks, &|block, _| {
        let first = block / chunks * block_runs;
        let start = block % chunks * chunk_len;
        let len = chunk_len.min(run_len - start);
        let a_offsets = Odometer::starting_at(first, &dims, &a_strides);
        let b_offsets = Odometer::starting_at(first, &dims, &b_strides);
        let block = (first..runs.min(first + block_runs)).zip(a_offsets.zip(b_offsets));
        for (run, (a_offset, b_offset)) in block {
            // SAFETY: strides and lengths were derived from the checked shapes; each part of y is written by one block.
            let (a, b, y) = unsafe {
                (
                    a.at(a_offset + start * a_step),
                    b.as_ptr().add(b_offset + start * b_step),
                    y.as_mut_ptr().add(run * run_len + start),
                )
            };
            cpu.isa().run(BinaryRun {
                op,
                a,
                a_step,
                b,
                b_step,
                y,
                len,
            });
        }
    });
}

/// An operand that may be the output itself, shared with parallel blocks.
#[derive(Clone, Copy)]
struct Source(*const f32);

// SAFETY: blocks read it only where they alone write, or where nobody writes.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    /// # Safety
    /// `offset` must be inside the operand.
    unsafe fn at(&self, offset: usize) -> *const f32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(offset) }
    }
}

/// Numbers of x and y; x may be y.
struct UnaryRun {
    activation: Activation,
    x: *const f32,
    y: *mut f32,
    len: usize,
}

impl Kernel for UnaryRun {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // A constant in each arm: the choice is made here once and not for each vector.
        match self.activation {
            Activation::Identity => self.map(s, Activation::Identity),
            Activation::Relu => self.map(s, Activation::Relu),
            Activation::LeakyRelu(slope) => self.map(s, Activation::LeakyRelu(slope)),
            Activation::Gelu => self.map(s, Activation::Gelu),
            Activation::Silu => self.map(s, Activation::Silu),
            Activation::Sigmoid => self.map(s, Activation::Sigmoid),
            Activation::Tanh => self.map(s, Activation::Tanh),
        }
    }
}

impl UnaryRun {
    #[inline(always)]
    fn map<S: Simd>(&self, s: S, activation: Activation) {
        let whole = self.len / LANES * LANES;
        // SAFETY: x and y have `len` numbers; each vector is read before it is written.
        unsafe {
            for i in (0..whole).step_by(LANES) {
                s.store(self.y.add(i), activation.apply(s, s.load(self.x.add(i))));
            }
            let tail = s.load_first(self.x.add(whole), self.len - whole);
            s.store_first(
                self.y.add(whole),
                self.len - whole,
                activation.apply(s, tail),
            );
        }
    }
}

/// A run of y = a op b; an operand's step is 1 or 0; a may be y.
struct BinaryRun {
    op: BinaryOp,
    a: *const f32,
    a_step: usize,
    b: *const f32,
    b_step: usize,
    y: *mut f32,
    len: usize,
}

impl Kernel for BinaryRun {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.op {
            BinaryOp::Add => self.with_op(s, BinaryOp::Add),
            BinaryOp::Sub => self.with_op(s, BinaryOp::Sub),
            BinaryOp::Mul => self.with_op(s, BinaryOp::Mul),
            BinaryOp::Div => self.with_op(s, BinaryOp::Div),
            BinaryOp::Max => self.with_op(s, BinaryOp::Max),
            BinaryOp::Min => self.with_op(s, BinaryOp::Min),
            BinaryOp::Greater => self.with_op(s, BinaryOp::Greater),
            BinaryOp::Equal => self.with_op(s, BinaryOp::Equal),
        }
    }
}

impl BinaryRun {
    #[inline(always)]
    fn with_op<S: Simd>(&self, s: S, op: BinaryOp) {
        match (self.a_step, self.b_step) {
            (0, _) => self.combine::<S, false, true>(s, op),
            (_, 0) => self.combine::<S, true, false>(s, op),
            _ => self.combine::<S, true, true>(s, op),
        }
    }

    #[inline(always)]
    fn combine<S: Simd, const A_MOVES: bool, const B_MOVES: bool>(&self, s: S, op: BinaryOp) {
        let whole = self.len / LANES * LANES;
        let rest = self.len - whole;
        // SAFETY: moving operands and y have `len` numbers, others one; a is read before y is written.
        unsafe {
            let (a_fixed, b_fixed) = (s.splat(*self.a), s.splat(*self.b));
            for i in (0..whole).step_by(LANES) {
                let a = if A_MOVES {
                    s.load(self.a.add(i))
                } else {
                    a_fixed
                };
                let b = if B_MOVES {
                    s.load(self.b.add(i))
                } else {
                    b_fixed
                };
                s.store(self.y.add(i), op.apply(s, a, b));
            }
            let a = if A_MOVES {
                s.load_first(self.a.add(whole), rest)
            } else {
                a_fixed
            };
            let b = if B_MOVES {
                s.load_first(self.b.add(whole), rest)
            } else {
                b_fixed
            };
            s.store_first(self.y.add(whole), rest, op.apply(s, a, b));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;
    use crate::testing::{check, numbers, widen};

    const OPS: [BinaryOp; 8] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Max,
        BinaryOp::Min,
        BinaryOp::Greater,
        BinaryOp::Equal,
    ];
    const ACTIVATIONS: [Activation; 7] = [
        Activation::Identity,
        Activation::Relu,
        Activation::LeakyRelu(0.1),
        Activation::Gelu,
        Activation::Silu,
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    /// Shapes that broadcast: each axis is whole or 1, and leading axes may be missing.
    fn shapes() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
        let axes = prop::collection::vec((0usize..12, 0u8..4), 0..5);
        (axes, 0usize..3).prop_map(|(axes, missing)| {
            let a = axes
                .iter()
                .map(|&(n, kind)| if kind == 1 { 1 } else { n })
                .collect();
            let b: Vec<_> = axes
                .iter()
                .map(|&(n, kind)| if kind == 2 { 1 } else { n })
                .collect();
            (a, b[missing.min(b.len())..].to_vec())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn broadcasting((a_dims, b_dims) in shapes(), op in prop::sample::select(&OPS[..])) {
            let dims = broadcast_dims(&a_dims, &b_dims).unwrap();
            let a = numbers(1, a_dims.iter().product());
            let b: Vec<_> = numbers(2, b_dims.iter().product()).iter().map(|v| v + 2.0).collect();
            let mut expected = vec![0.0; dims.iter().product()];
            reference::binary(op, &widen(&a), &a_dims, &widen(&b), &b_dims, &mut expected);
            check(&expected, 1e-7, |cpu, y| binary(cpu, op, &a, &a_dims, &b, &b_dims, y));
            if dims == a_dims {
                check(&expected, 1e-7, |cpu, y| {
                    y.copy_from_slice(&a);
                    binary_in_place(cpu, op, y, &a_dims, &b, &b_dims);
                });
            }
        }

        #[test]
        fn activations(len in 0usize..300, activation in prop::sample::select(&ACTIVATIONS[..])) {
            let x: Vec<_> = numbers(1, len).iter().map(|v| v * 12.0).collect();
            let mut expected = vec![0.0; len];
            reference::unary(activation, &widen(&x), &mut expected);
            check(&expected, 1e-6, |cpu, y| unary(cpu, activation, &x, y));
            check(&expected, 1e-6, |cpu, y| {
                y.copy_from_slice(&x);
                unary_in_place(cpu, activation, y);
            });
        }
    }

    #[test]
    fn long_runs_are_cut_into_blocks() {
        let dims = [3, 2 * BLOCK_LEN + 5];
        let (a, b) = (numbers(1, dims[0] * dims[1]), numbers(2, 3));
        let mut expected = vec![0.0; a.len()];
        let b_dims = [3, 1];
        reference::binary(
            BinaryOp::Add,
            &widen(&a),
            &dims,
            &widen(&b),
            &b_dims,
            &mut expected,
        );
        check(&expected, 1e-7, |cpu, y| {
            binary(cpu, BinaryOp::Add, &a, &dims, &b, &b_dims, y)
        });
        reference::unary(Activation::Relu, &widen(&a), &mut expected);
        check(&expected, 0.0, |cpu, y| unary(cpu, Activation::Relu, &a, y));
    }

    #[test]
    fn nan_is_never_hidden() {
        let (nan, one) = (f32::NAN, 1.0);
        // Comparisons answer with a number, as in IEEE 754: nothing is greater than or equal to NaN.
        for op in &OPS[..6] {
            let expected = [f64::NAN; 2];
            check(&expected, 0.0, |cpu, y| {
                binary(cpu, *op, &[nan, one], &[2], &[one, nan], &[2], y)
            });
        }
        for activation in ACTIVATIONS {
            check(&[f64::NAN], 0.0, |cpu, y| unary(cpu, activation, &[nan], y));
        }
    }

    #[test]
    #[should_panic(expected = "must broadcast to")]
    fn an_output_in_place_cannot_grow() {
        let cpu = Cpu::new(1).unwrap();
        binary_in_place(&cpu, BinaryOp::Add, &mut [0.0], &[1], &[1.0, 2.0], &[2]);
    }
}

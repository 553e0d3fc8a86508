//! Ops of training graphs whose arguments need some arranging before the reference kernels take them.

use percept_graph::{
    AdamW, Affine, BatchNorm, BatchNormGradient, Bindings, ClipFactor, DenseToSparse, GraphError,
    Op, RandomDropout, Sgd,
};
use percept_kernels::norm::ChannelShape;
use percept_kernels::optimiser::{AdamWStep, SgdStep};
use percept_kernels::random::Stream;
use percept_kernels::reference::{self, Real, gradient};
use percept_kernels::sparse::SparseConvShape;

use super::{RealTensor, index};

type Arg<'a, T> = &'a RealTensor<T>;

/// x · scale / divisor + shift.
pub fn affine<T: Real>(
    op: &Affine,
    x: &[T],
    bindings: &Bindings,
    y: &mut [T],
) -> Result<(), GraphError> {
    let scale = T::from_f64(f64::from(op.scale)) / T::from_usize(op.divisor.eval(bindings)?);
    let shift = T::from_f64(f64::from(op.shift));
    for (&x, y) in x.iter().zip(y) {
        *y = x * scale + shift;
    }
    Ok(())
}

/// The indices of rows below `limit`.
fn rows_below<T: Real>(indices: Arg<'_, T>, limit: usize) -> Result<Vec<usize>, String> {
    let in_range = |&value: &T| {
        let row = value.to_f64();
        let fits = (0.0..limit as f64).contains(&row);
        fits.then_some(row as usize)
            .ok_or_else(|| format!("index {row} is outside 0..{limit}"))
    };
    indices.data.iter().map(in_range).collect()
}

/// y[k] = x[indices[k]].
pub fn gather<T: Real>(
    indices: Arg<'_, T>,
    x: &[T],
    shape: &[usize],
    y: &mut [T],
) -> Result<(), String> {
    let width: usize = shape[1..].iter().product();
    let rows = rows_below(indices, x.len() / width.max(1))?;
    for (row, y) in rows.into_iter().zip(y.chunks_exact_mut(width.max(1))) {
        y.copy_from_slice(&x[row * width..][..width]);
    }
    Ok(())
}

/// y[indices[k]] += x[k].
pub fn scatter_add<T: Real>(
    indices: Arg<'_, T>,
    x: &[T],
    shape: &[usize],
    y: &mut [T],
) -> Result<(), String> {
    let width: usize = shape[1..].iter().product();
    let rows = rows_below(indices, shape[0])?;
    for (row, x) in rows.into_iter().zip(x.chunks_exact(width.max(1))) {
        for (y, &x) in y[row * width..].iter_mut().zip(x) {
            *y += x;
        }
    }
    Ok(())
}

/// Batch norm with the batch's statistics; `others` gets them and the running ones.
pub fn batch_norm<T: Real>(
    op: &BatchNorm,
    shape: &ChannelShape,
    x: &[T],
    params: &[Vec<T>],
    y: &mut [T],
    others: &mut [Vec<T>],
) {
    let ([gamma, beta, running_mean, running_variance], [mean, variance, next_mean, next_variance]) =
        (params, others)
    else {
        unreachable!("declared by the op")
    };
    let eps = T::from_f64(f64::from(op.eps));
    reference::gradient::batch_norm_training(shape, eps, x, gamma, beta, y, mean, variance);
    let momentum = T::from_f64(f64::from(op.momentum));
    let count = T::from_usize(shape.batch * shape.area);
    let unbiased = count / (count - T::ONE);
    for c in 0..shape.channels {
        let moved = |from: T, to: T| (T::ONE - momentum) * from + momentum * to;
        next_mean[c] = moved(running_mean[c], mean[c]);
        next_variance[c] = moved(running_variance[c], variance[c] * unbiased);
    }
}

/// dx, dweight and dbias of a batch norm.
pub fn batch_norm_gradient<T: Real>(
    op: &BatchNormGradient,
    shape: &ChannelShape,
    args: &[Arg<'_, T>],
    dx: &mut [T],
    others: &mut [Vec<T>],
) {
    let ([x, dy, gamma, mean, variance], [dgamma, dbeta]) = (args, others) else {
        unreachable!("the shape rule has passed")
    };
    gradient::batch_norm_gradient(
        shape,
        T::from_f64(f64::from(op.norm.eps)),
        op.batch_statistics,
        &x.data,
        &dy.data,
        &gamma.data,
        &mean.data,
        &variance.data,
        dx,
        dgamma,
        dbeta,
    );
}

/// The pairs of a rulebook as (output row, input row, tap).
pub fn pairs<'a, T: Real>(
    shape: &SparseConvShape,
    pairs: Arg<'a, T>,
    starts: Arg<'a, T>,
) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
    let taps = shape.taps;
    let group_of = |pair: usize| starts.data.partition_point(|start| index(*start) <= pair) - 1;
    pairs
        .data
        .chunks_exact(2)
        .enumerate()
        .map(move |(pair, rows)| (index(rows[0]), index(rows[1]), group_of(pair) % taps))
}

/// The features of sites in a dense map.
pub fn dense_to_sparse<T: Real>(op: &DenseToSparse, x: &[T], sites: Arg<'_, T>, y: &mut [T]) {
    let [depth, height, width] = op.cells;
    let rows = sites.shape[0];
    let channels = y.len() / rows.max(1);
    for (row, site) in sites.data.chunks_exact(4).enumerate() {
        let [n, z, i, j] = [0, 1, 2, 3].map(|axis| index(site[axis]));
        for c in 0..channels {
            let plane = (n * channels + c) * depth + z;
            y[row * channels + c] = x[(plane * height + i) * width + j];
        }
    }
}

/// Drops elements by the counters' random numbers.
pub fn dropout<T: Real>(op: &RandomDropout, x: &[T], counters: Arg<'_, T>, y: &mut [T]) {
    let [seed, step] = [0, 1].map(|i| counters.data[i].to_f64() as i32);
    let stream = Stream::new(seed, step, op.stream);
    let scale = T::ONE / (T::ONE - T::from_f64(f64::from(op.p)));
    for (i, (&x, y)) in x.iter().zip(y).enumerate() {
        *y = match stream.uniform(i) >= op.p {
            true => x * scale,
            false => T::ZERO,
        };
    }
}

/// Cross-entropy, or its gradient.
pub fn cross_entropy<T: Real>(op: &Op, args: &[Arg<'_, T>], y: &mut [T]) -> Result<(), String> {
    let logits = args[0];
    let classes = logits.shape[1];
    let labels = rows_below(args[1], classes)?;
    match op {
        Op::CrossEntropyGradient(op) => {
            let smoothing = T::from_f64(f64::from(op.loss.smoothing));
            let dloss = args[2].data[0];
            let logits = &logits.data;
            reference::cross_entropy_gradient(smoothing, classes, logits, &labels, dloss, y);
        }
        Op::CrossEntropy(op) => {
            let smoothing = T::from_f64(f64::from(op.smoothing));
            y[0] = reference::cross_entropy(smoothing, classes, &logits.data, &labels);
        }
        _ => unreachable!("a loss or its gradient"),
    }
    Ok(())
}

/// A number among the arguments.
fn number<T: Real>(args: &[Arg<'_, T>], position: usize) -> Option<f64> {
    args.get(position).map(|arg| arg.data[0].to_f64())
}

/// Stochastic gradient descent: weight, gradient, velocity or not, rate, clip factor or not.
pub fn sgd<T: Real>(op: &Sgd, args: &[Arg<'_, T>], weight: &mut [T], others: &mut [Vec<T>]) {
    weight.copy_from_slice(&args[0].data);
    let velocity = others.first_mut().map(|velocity| {
        velocity.copy_from_slice(&args[2].data);
        velocity.as_mut_slice()
    });
    let rate = 2 + usize::from(velocity.is_some());
    let step = SgdStep {
        rate: number(args, rate).unwrap_or(0.0),
        momentum: f64::from(op.momentum),
        weight_decay: f64::from(op.weight_decay),
        nesterov: op.nesterov,
        clip: number(args, rate + 1).unwrap_or(1.0),
    };
    reference::sgd(&step, &args[1].data, weight, velocity);
}

/// AdamW: weight, gradient, both moments, rate, steps, clip factor or not.
pub fn adam_w<T: Real>(op: &AdamW, args: &[Arg<'_, T>], weight: &mut [T], others: &mut [Vec<T>]) {
    let [first, second] = others else {
        unreachable!("two moments")
    };
    weight.copy_from_slice(&args[0].data);
    first.copy_from_slice(&args[2].data);
    second.copy_from_slice(&args[3].data);
    let step = AdamWStep {
        rate: number(args, 4).unwrap_or(0.0),
        betas: op.betas.map(f64::from),
        eps: f64::from(op.eps),
        weight_decay: f64::from(op.weight_decay),
        count: number(args, 5).unwrap_or(1.0),
        clip: number(args, 6).unwrap_or(1.0),
    };
    reference::adam_w(&step, &args[1].data, weight, first, second);
}

/// min(1, max_norm / (‖gradients‖ + 1e-6)).
pub fn clip_factor<T: Real>(op: &ClipFactor, args: &[Arg<'_, T>], y: &mut [T]) {
    let squares = args.iter().flat_map(|arg| &arg.data).map(|&v| v * v);
    let norm = squares.sum::<T>().sqrt().to_f64();
    y[0] = T::from_f64((f64::from(op.max_norm) / (norm + 1e-6)).min(1.0));
}

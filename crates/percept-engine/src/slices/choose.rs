//! Which steps take a batch in slices, and how many samples a slice has: a pure function of graph and sizes.

use std::ops::Range;
use std::sync::Arc;

use percept_graph::{Dim, Graph, ValueId};

use super::{SliceRun, Slices};
use crate::EngineError;
use crate::kernel::Kernel;
use crate::lowering::LoweredNode;
use crate::schedule::{Context, last_uses};
use crate::weights::Weights;

/// Bytes of the maps that a step reads and writes which the caches are trusted to hold between steps, together with weights and what else
/// is alive.
///
/// Measured with 1 MB of second-level cache a core and about 6 MB of the third, ResNet-50 on bytes (0.6 to 1.2 MB a sample), a batch of 8:
/// slices of 4 take 0.88 to 0.94 of the time on one thread, as much of the third as others leave, and 0.94 to 0.99 on two. With 4 MB here,
/// slices of 2, it is 0.93 where it is 0.915, and 0.99 where it is 0.94.
const CACHED_BYTES: usize = 6 << 20;
/// Fewest samples of a slice. A single one does not pay: it reads all weights alone, and kernels that compute several together run
/// half empty.
const FEWEST: usize = 2;

impl Slices {
    /// The runs that save reading and writing memory. Kernels of their steps become kernels for one slice.
    ///
    /// Of each stretch of steps that take a batch apart, a slice has as many samples as the caches hold maps of, and the run is where
    /// maps that stay in the caches outweigh weights that every turn reads again. So maps are sliced, and the late layers of a network
    /// of images, which have small maps and large weights, see the whole batch.
    pub fn choose(
        context: &Context<'_>,
        kernels: &mut [(usize, Kernel)],
        weights: &mut Weights,
    ) -> Result<Slices, EngineError> {
        let mut slices = Slices::default();
        let Some(symbol) = batch_symbol(context.graph) else {
            return Ok(slices);
        };
        let samples = context.bindings[symbol];
        if samples < 2 * FEWEST {
            return Ok(slices);
        }
        let last_use = last_uses(context.lowered);
        let can_turn = |index: usize| {
            let step = &context.lowered.steps[index];
            is_on_bytes(context, step) && is_of_maps(context.graph, step, symbol)
        };
        let stretches = kernels.chunk_by_mut(|(a, _), (b, _)| can_turn(*a) == can_turn(*b));
        for stretch in stretches.filter(|stretch| can_turn(stretch[0].0)) {
            let traffic = stretch
                .iter()
                .map(|(index, _)| Traffic::of(context, *index, samples));
            let traffic: Vec<Traffic> = traffic.collect::<Result<_, _>>()?;
            let largest = traffic.iter().map(|step| step.maps).max().unwrap_or(0);
            let Some(slice) = slice_samples(samples, largest) else {
                continue;
            };
            let kernels = &mut stretch[worthwhile(&traffic, slice)];
            let [(first, _), .., (last, _)] = kernels else {
                continue;
            };
            let mut run = SliceRun {
                steps: *first..*last + 1,
                turns: samples / slice,
                sizes: context.bindings.clone(),
            };
            run.sizes.insert(Arc::clone(symbol), slice);
            for (index, kernel) in kernels {
                let step = &context.lowered.steps[*index];
                *kernel = run.slice(context).kernel(step, weights)?;
                let dies_here = |value: &ValueId| {
                    let last = last_use.get(value);
                    last.is_none_or(|&last| last < run.steps.end)
                };
                let made = step.outputs.iter().copied();
                slices.inside.extend(made.filter(dies_here));
            }
            slices.runs.push(run);
        }
        Ok(slices)
    }
}

/// The symbol that counts samples: the first axis of every input.
fn batch_symbol(graph: &Graph) -> Option<&Arc<str>> {
    let mut symbols = graph.inputs().iter().map(|input| {
        let first = graph.value(input.value).ty.shape.first();
        first.and_then(Dim::as_symbol)
    });
    let symbol = symbols.next()??;
    symbols.all(|other| other == Some(symbol)).then_some(symbol)
}

/// Whether a step computes on bytes. On maps, that is a convolution, or a pooling or concatenation of channels that passes bytes on: all
/// of them keep samples apart, and sums of integers have the same bits in every order.
///
/// Floats are summed in orders that depend on how many samples there are, and gain little: with maps of floats in slices too, ResNet-50
/// took 0.99 of the time, ResNet-18 1.00, EfficientNet-B0 1.05; with tokens, DINOv2 ViT-S/14 took 1.01.
fn is_on_bytes(context: &Context<'_>, step: &LoweredNode) -> bool {
    let mut made = step.outputs.iter();
    let makes_bytes = made.any(|value| context.lowered.forms.contains_key(value));
    step.fused.input_bytes.is_some() || makes_bytes
}

/// Whether all that a step reads and makes are maps of samples, one behind the other. A node may see a value under another shape than
/// the one that it was made with.
fn is_of_maps(graph: &Graph, step: &LoweredNode, symbol: &str) -> bool {
    let nodes = [step.node].into_iter().chain(step.absorbed.iter().copied());
    let values = nodes.flat_map(|node| {
        let node = graph.node(node);
        node.inputs.iter().chain(&node.outputs).copied()
    });
    let mut values = values
        .chain(step.reads())
        .chain(step.outputs.iter().copied());
    values.all(|value| match &graph.value(value).ty.shape[..] {
        [samples, map @ ..] if map.len() == 3 => {
            let is_same = !map.iter().any(|dim| dim.depends_on(symbol));
            is_same && samples.is_proportional_to(symbol)
        }
        _ => false,
    })
}

/// What one sample of a step moves.
#[derive(Clone, Copy)]
struct Traffic {
    /// Bytes of maps read and written. What is added to the sums is left out: mostly it is overwritten.
    maps: usize,
    /// Bytes of weights, which are read once for all samples of a call.
    weights: usize,
}

impl Traffic {
    fn of(context: &Context<'_>, index: usize, samples: usize) -> Result<Traffic, EngineError> {
        let step = &context.lowered.steps[index];
        let mut maps = 0;
        for &value in step.inputs.iter().chain(&step.outputs) {
            maps += context.bytes(value)? / samples;
        }
        let nodes = [&step.node].into_iter().chain(&step.absorbed);
        let params = nodes.flat_map(|&node| &context.graph.node(node).params);
        let weights = params.map(|&id| context.graph.param(id).bytes() as usize);
        Ok(Traffic {
            maps,
            weights: weights.sum(),
        })
    }
}

/// Samples of a slice when one has `maps` bytes in the largest step; `None` when the batch is computed at once. Slices are equal.
fn slice_samples(samples: usize, maps: usize) -> Option<usize> {
    let fits = |slice: usize| slice * maps <= CACHED_BYTES;
    if fits(samples) {
        return None;
    }
    let mut divisors = (FEWEST..samples).filter(|&slice| samples.is_multiple_of(slice));
    let smallest = divisors.clone().next();
    divisors.rfind(|&slice| fits(slice)).or(smallest)
}

/// The part of a stretch where slices save most: maps that stay in the caches, less the weights that each turn reads again.
fn worthwhile(stretch: &[Traffic], slice: usize) -> Range<usize> {
    let (mut best, mut most) = (0..0, 0);
    let (mut first, mut sum) = (0, 0);
    for (at, step) in stretch.iter().enumerate() {
        let maps = slice * step.maps;
        let saved = if maps <= CACHED_BYTES { maps } else { 0 };
        sum += saved as i64 - step.weights as i64;
        if sum <= 0 {
            (first, sum) = (at + 1, 0);
        } else if sum > most {
            (best, most) = (first..at + 1, sum);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_as_large_as_the_caches_hold() {
        assert_eq!(slice_samples(8, CACHED_BYTES / 8), None);
        assert_eq!(slice_samples(8, CACHED_BYTES / 8 + 1), Some(4));
        assert_eq!(slice_samples(8, CACHED_BYTES / 4 + 1), Some(2));
        assert_eq!(slice_samples(8, CACHED_BYTES), Some(2));
        assert_eq!(slice_samples(15, CACHED_BYTES / 4), Some(3));
        assert_eq!(slice_samples(12, CACHED_BYTES / 5), Some(4));
        for batch in [0, 1, 2, 3, 7] {
            assert_eq!(slice_samples(batch, CACHED_BYTES + 1), None);
        }
    }

    #[test]
    fn runs_are_where_maps_outweigh_weights() {
        let step = |maps, weights| Traffic { maps, weights };
        // By itself the third step loses, but the fourth makes up for it.
        let stretch = [
            step(0, 5),
            step(10, 0),
            step(5, 12),
            step(10, 8),
            step(1, 9),
        ];
        assert_eq!(worthwhile(&stretch, 2), 1..4);
        assert_eq!(worthwhile(&stretch, 1), 1..2);
        assert_eq!(worthwhile(&[step(1, 9)], 2), 0..0);
        // Maps that no slice of two fits stay in memory.
        assert_eq!(worthwhile(&[step(CACHED_BYTES, 9)], 2), 0..0);
    }
}

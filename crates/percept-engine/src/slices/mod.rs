//! Slices of a batch: consecutive steps that are called for some samples, then for the next ones, so that maps stay in the caches
//! between the steps.

mod choose;

use std::collections::BTreeSet;
use std::ops::Range;

use percept_graph::{Bindings, ValueId};

use crate::EngineError;
use crate::plan::Lifetime;
use crate::schedule::{Call, Context, Located};

/// Steps that take turns.
#[derive(Debug, PartialEq)]
struct SliceRun {
    steps: Range<usize>,
    /// Slices, all of as many samples.
    turns: usize,
    /// Every size, for one slice.
    sizes: Bindings,
}

impl SliceRun {
    /// What scheduling reads, for one slice.
    fn slice<'b, 'a: 'b>(&'b self, context: &Context<'a>) -> Context<'b> {
        Context {
            bindings: &self.sizes,
            turns: self.turns,
            ..*context
        }
    }
}

/// The runs of slices of a network.
#[derive(Debug, Default)]
pub struct Slices {
    runs: Vec<SliceRun>,
    /// Values that are made and read for the last time in one turn: they need memory for one slice.
    inside: BTreeSet<ValueId>,
}

impl Slices {
    fn of_step(&self, step: usize) -> Option<&SliceRun> {
        self.runs.iter().find(|run| run.steps.contains(&step))
    }

    /// Changes the lifetimes of a whole batch to those of its slices.
    pub fn fit(
        &self,
        context: &Context<'_>,
        lifetimes: &mut [Lifetime],
    ) -> Result<(), EngineError> {
        for life in lifetimes {
            let (made_in, read_in) = (self.of_step(life.born), self.of_step(life.last_use));
            // What is overwritten might hold the parts of other turns.
            life.may_replace = life.may_replace.filter(|_| made_in.is_none());
            match made_in {
                Some(run) if self.inside.contains(&life.value) => {
                    life.bytes = run.slice(context).bytes(life.value)?;
                }
                // Every turn writes or reads its part.
                _ => {
                    life.born = made_in.map_or(life.born, |run| run.steps.start);
                    life.last_use = read_in.map_or(life.last_use, |run| run.steps.end - 1);
                }
            }
        }
        Ok(())
    }

    /// The calls of a batch, each once for every slice.
    pub fn in_turns(
        &self,
        context: &Context<'_>,
        calls: Vec<Call>,
    ) -> Result<Vec<Call>, EngineError> {
        let mut in_turns = Vec::with_capacity(calls.len());
        for calls in calls.chunk_by(|a, b| self.of_step(a.step) == self.of_step(b.step)) {
            let Some(run) = self.of_step(calls[0].step) else {
                in_turns.extend_from_slice(calls);
                continue;
            };
            for turn in 0..run.turns {
                for call in calls {
                    in_turns.push(self.call(context, run, turn, call)?);
                }
            }
        }
        Ok(in_turns)
    }

    /// The call of a batch for one of its slices.
    fn call(
        &self,
        context: &Context<'_>,
        run: &SliceRun,
        turn: usize,
        whole: &Call,
    ) -> Result<Call, EngineError> {
        let (step, slice) = (&context.lowered.steps[whole.step], run.slice(context));
        let part = |located: &Located, value: ValueId| -> Result<Located, EngineError> {
            let bytes = slice.bytes(value)?;
            let is_inside = self.inside.contains(&value);
            let start = if is_inside { 0 } else { turn * bytes };
            Ok(Located {
                place: located.place.part(&(start..start + bytes)),
                dtype: located.dtype,
            })
        };
        let mut call = whole.clone();
        for (read, value) in call.reads.iter_mut().zip(step.reads()) {
            if let Some(located) = read {
                *located = part(located, value)?;
            }
        }
        for (written, &value) in call.writes.iter_mut().zip(&step.outputs) {
            *written = part(written, value)?;
        }
        Ok(call)
    }
}

#[cfg(test)]
mod tests;

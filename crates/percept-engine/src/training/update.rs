//! The optimiser's ops: state that moves in place.

use percept_graph::{AdamW, ClipFactor, Op, Sgd};
use percept_kernels::Cpu;
use percept_kernels::optimiser::{self, AdamWStep, SgdStep};

/// An update. Weights and moments are outputs that hold their old values; the reads are what is left: gradient, learning rate,
/// steps (AdamW), and a clip factor or not.
pub enum Update {
    Sgd(Sgd),
    AdamW(AdamW),
    ClipFactor(ClipFactor),
}

impl Update {
    /// The kernel of an op; `None` for others.
    pub fn prepare(op: &Op) -> Option<Self> {
        Some(match op {
            Op::Sgd(op) => Self::Sgd(*op),
            Op::AdamW(op) => Self::AdamW(*op),
            Op::ClipFactor(op) => Self::ClipFactor(*op),
            _ => return None,
        })
    }

    /// Runs.
    pub fn run(&self, cpu: &Cpu, reads: &[&[f32]], writes: &mut [&mut [f32]]) {
        let number = |position: usize| reads.get(position).map(|read| f64::from(read[0]));
        match self {
            Self::Sgd(op) => {
                let step = SgdStep {
                    rate: number(1).unwrap_or(0.0),
                    momentum: f64::from(op.momentum),
                    weight_decay: f64::from(op.weight_decay),
                    nesterov: op.nesterov,
                    clip: number(2).unwrap_or(1.0),
                };
                let (weight, velocity) = writes.split_first_mut().expect("a weight moves");
                let velocity = velocity.first_mut().map(|velocity| &mut **velocity);
                optimiser::sgd(cpu, &step, reads[0], weight, velocity);
            }
            Self::AdamW(op) => {
                let step = AdamWStep {
                    rate: number(1).unwrap_or(0.0),
                    betas: op.betas.map(f64::from),
                    eps: f64::from(op.eps),
                    weight_decay: f64::from(op.weight_decay),
                    count: number(2).unwrap_or(1.0),
                    clip: number(3).unwrap_or(1.0),
                };
                let [weight, first, second] = writes else {
                    unreachable!("a weight and two moments move")
                };
                optimiser::adam_w(cpu, &step, reads[0], weight, first, second);
            }
            Self::ClipFactor(op) => {
                let factor = optimiser::clip_factor(cpu, f64::from(op.max_norm), reads);
                writes[0][0] = factor as f32;
            }
        }
    }
}

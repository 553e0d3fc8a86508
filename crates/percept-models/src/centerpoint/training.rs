//! The training graph: points and true boxes in, the loss and its terms out.

use std::sync::Arc;

use percept_graph::{Builder, CustomOp, Dim, Graph, GraphError, Op, ValueId};
use percept_kernels::voxelize::VoxelGrid;

use super::head::{BRANCHES, HEADS};
use super::loss::{BoxLoss, FocalLoss};
use super::targets::{BOX_VALUES, MapGrid, targets};
use super::{CenterPoint, dense_part, sparse_part};

/// The input of the training graph that holds the true boxes of all samples, [B, [`BOX_VALUES`]].
pub const TRUE_BOXES: &str = "boxes";

/// The input of the training graph that says how many true boxes each sample has, i32 [N].
pub const TRUE_BOX_COUNTS: &str = "box_counts";

/// The terms of the loss: heat maps, and boxes with their weight.
pub const LOSS_TERMS: [&str; 2] = ["heat", "box"];

impl CenterPoint {
    /// The loss of a batch, before it is differentiated: `points`, `counts`, [`TRUE_BOXES`] and [`TRUE_BOX_COUNTS`] to `loss`, its
    /// [terms](LOSS_TERMS), and the maps of the heads.
    pub fn training_graph(&self, grid: &VoxelGrid) -> Result<Graph, GraphError> {
        let mut b = Builder::new("CenterPoint");
        let bev = sparse_part(&mut b, self, grid);
        let heads = dense_part(&mut b, self, bev);
        self.loss(&mut b, grid, &heads);
        b.finish()
    }

    /// The loss alone, from the maps `head0.center`, .. `head5.hm` and the true boxes.
    pub fn loss_graph(&self, grid: &VoxelGrid) -> Result<Graph, GraphError> {
        let mut b = Builder::new("CenterPoint");
        let [height, width] = MapGrid::new(self, grid.cells()).cells;
        let mut maps = Vec::new();
        for (head, classes) in HEADS.iter().enumerate() {
            for (name, channels) in BRANCHES.into_iter().chain([("hm", classes.len())]) {
                let sides = [channels, height, width].map(Dim::from);
                let shape = [Dim::symbol("N")].into_iter().chain(sides);
                maps.push(b.input(&format!("head{head}.{name}"), shape));
            }
        }
        self.loss(&mut b, grid, &maps);
        b.finish()
    }

    fn loss(&self, b: &mut Builder, grid: &VoxelGrid, maps: &[ValueId]) {
        let map_grid = MapGrid::new(self, grid.cells());
        let boxes = b.input(TRUE_BOXES, [Dim::symbol("B"), BOX_VALUES.into()]);
        let counts = b.integer_input(TRUE_BOX_COUNTS, [Dim::symbol("N")]);
        let targets = targets(b, map_grid, boxes, counts);
        let mut terms = [Vec::new(), Vec::new()];
        let total = b.module("loss", "CenterLoss", |b| {
            let per_head = maps.chunks_exact(BRANCHES.len() + 1);
            for (head, (maps, target)) in per_head.zip(&targets).enumerate() {
                let (hm, boxes) = maps.split_last().expect("a head has a heat map");
                let heat = b.call(
                    &format!("{head}.heat"),
                    custom(FocalLoss),
                    &[*hm, target.heat],
                );
                let operands = [boxes, &[target.cells, target.codes]].concat();
                let distance = b.call(&format!("{head}.box"), custom(BoxLoss), &operands);
                terms[0].push(heat);
                terms[1].push(distance);
            }
            let [heat, distance] = [0, 1].map(|term| {
                let name = LOSS_TERMS[term];
                let values = &terms[term];
                let rest = values[1..].iter();
                let sum = rest.fold(values[0], |sum, &value| b.add(name, sum, value));
                b.output(name, sum);
                sum
            });
            b.add("add", heat, distance)
        });
        b.output("loss", total);
    }
}

fn custom(op: impl CustomOp + 'static) -> Op {
    Op::Custom(Arc::new(op))
}

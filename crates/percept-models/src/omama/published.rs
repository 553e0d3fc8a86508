//! The published way to what the network computes otherwise, to be measured against: features enlarged before means are taken,
//! and cross-attention with keys, values and scores.

use percept_data::masks::{MaskFault, Rle};
use percept_graph::{Affine, Builder, Dim, Graph, GraphError, MatMul, Softmax, ValueId};

use super::Matcher;
use super::matcher::{HEADS, NORM_EPS};
use super::pooling::{BoxXywh, Pooling};

/// Descriptors of masks, [masks, 2, width]: features of patches are enlarged to a quarter of the picture, and means are taken of
/// what is under each mask and around its box.
pub(super) fn means_of_enlarged(
    pooling: &Pooling,
    features: &[f32],
    masks: &[(Rle, BoxXywh)],
    margin: i64,
) -> Result<Vec<f32>, MaskFault> {
    let width = features.len() / pooling.patches();
    let (rows, columns) = (&pooling.rows, &pooling.columns);
    let mut map = vec![0.0f32; rows.cells() * columns.cells() * width];
    for (cell, values) in map.chunks_exact_mut(width).enumerate() {
        let (y, x) = (cell / columns.cells(), cell % columns.cells());
        rows.for_each_tap(y, |row, of_row| {
            columns.for_each_tap(x, |column, of_column| {
                let share = (of_row * of_column) as f32;
                let patch = &features[(row * columns.patches + column) * width..][..width];
                add(values, patch, share);
            });
        });
    }
    let mut means = vec![0.0f32; 2 * masks.len() * width];
    for ((mask, around), means) in masks.iter().zip(means.chunks_exact_mut(2 * width)) {
        let small = mask.resized_nearest(rows.cells(), columns.cells())?;
        let under: Vec<u8> = small.decode();
        let inside = (0..under.len()).filter(|&cell| under[cell] == 1);
        let [x1, y1, x2, y2] = pooling.context(*around, margin);
        let boxed = (y1..y2).flat_map(|y| (x1..x2).map(move |x| y * columns.cells() + x));
        let (of_mask, of_box) = means.split_at_mut(width);
        mean_of(&map, inside, of_mask);
        mean_of(&map, boxed, of_box);
    }
    Ok(means)
}

fn mean_of(map: &[f32], cells: impl Iterator<Item = usize>, mean: &mut [f32]) {
    let width = mean.len();
    let mut count = 0;
    for cell in cells {
        add(mean, &map[cell * width..][..width], 1.0);
        count += 1;
    }
    let share = 1.0 / count.max(1) as f32;
    mean.iter_mut().for_each(|value| *value *= share);
}

fn add(sum: &mut [f32], values: &[f32], share: f32) {
    let both = sum.iter_mut().zip(values);
    both.for_each(|(sum, value)| *sum += share * value);
}

/// How a matcher lets queries look at patches.
pub(super) type Attend = fn(&Matcher, &mut Builder, ValueId, ValueId) -> ValueId;

impl Matcher {
    /// Both cross-attentions alone: `wanted` [N, 1, D] and `offered` [N, M, D], which look at `in_dest` and `in_source`.
    pub(super) fn attention_graph(&self, attend: Attend) -> Result<Graph, GraphError> {
        let mut b = Builder::new("CrossAttentions");
        let [n, m] = ["N", "M"].map(Dim::symbol);
        let patches = |[rows, columns]: [usize; 2]| Dim::from(rows * columns);
        let mut rows =
            |name: &str, count: Dim| b.input(name, [n.clone(), count, self.width.into()]);
        let wanted = rows("wanted", 1.into());
        let offered = rows("offered", m);
        let in_dest = rows("in_dest", patches(self.dest_grid));
        let in_source = rows("in_source", patches(self.source_grid));
        let wanted = b.module("attention", "CrossAttention", |b| {
            attend(self, b, wanted, in_dest)
        });
        let offered = b.module_again("attention", "CrossAttention", |b| {
            attend(self, b, offered, in_source)
        });
        b.output("wanted_context", wanted);
        b.output("offered_context", offered);
        b.finish()
    }

    /// [`Matcher::cross_attention`] with a key and a value for each patch.
    pub(super) fn published_attention(
        &self,
        b: &mut Builder,
        queries: ValueId,
        patches: ValueId,
    ) -> ValueId {
        let d = self.width;
        let queries = b.layer_norm("norm_input", queries, d, NORM_EPS);
        let x = b.layer_norm("norm_input", patches, d, NORM_EPS);
        let [q, k, v] = [("query", queries), ("key", x), ("value", x)].map(|(name, rows)| {
            let made = b.linear(name, rows, d, d);
            let [n, count, _] = b.shape(made).try_into().expect("rows of each sample");
            let by_head = [n, count, HEADS.into(), (d / HEADS).into()];
            let made = b.reshape(&format!("{name}_heads"), made, by_head);
            b.permute(&format!("{name}_by_head"), made, &[0, 2, 1, 3])
        });
        let across = MatMul {
            transpose_b: true,
            ..MatMul::default()
        };
        let scores = b.call("scores", across, &[q, k]);
        let scale = 1.0 / ((d / HEADS) as f32).sqrt();
        let scores = b.call("scale", Affine::scaled(scale), &[scores]);
        let shares = b.call("softmax", Softmax, &[scores]);
        let y = b.call("values", MatMul::default(), &[shares, v]);
        let y = b.permute("values_by_row", y, &[0, 2, 1, 3]);
        let [n, m, _, _] = b.shape(y).try_into().expect("four axes");
        let y = b.reshape("values_rows", y, [n, m, d.into()]);
        self.behind_attention(b, y)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use percept_data::ModelWeights;
    use percept_data::masks::PixelBox;
    use percept_data::seeded::{Family, seeded_values};
    use percept_engine::{Options, Program};
    use percept_graph::Tensor;
    use percept_kernels::Cpu;

    use super::*;

    const MATCHER: Matcher = Matcher {
        width: 16,
        source_grid: [3, 4],
        dest_grid: [2, 5],
        visibility: false,
    };

    /// A comparison of times is worth nothing where the two ways do not compute the same.
    #[test]
    fn both_ways_to_look_at_patches_agree() {
        let answers = |attend: Attend| {
            let graph = MATCHER.attention_graph(attend).unwrap();
            let weights = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
            let cpu = Cpu::new(1).unwrap();
            let mut program = Program::new(graph, weights, cpu, Options::default());
            let inputs = [
                ("wanted", 1),
                ("offered", 6),
                ("in_dest", 10),
                ("in_source", 12),
            ];
            let inputs = inputs.map(|(name, rows)| {
                let values =
                    seeded_values(Family::Vision, &format!("input.{name}"), &[2, rows, 16]);
                (name, Tensor::from_values([2, rows, 16], values).unwrap())
            });
            let inputs: Vec<_> = inputs
                .iter()
                .map(|(name, tensor)| (*name, tensor))
                .collect();
            let outputs = program.run(&inputs).unwrap().to_tensors();
            outputs
                .iter()
                .flat_map(|(_, t)| t.to_f32().to_vec())
                .collect::<Vec<f32>>()
        };
        let ours = answers(Matcher::cross_attention);
        let published = answers(Matcher::published_attention);
        assert_eq!(ours.len(), 2 * 7 * 16);
        for (a, b) in ours.iter().zip(&published) {
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    }

    #[test]
    fn both_ways_to_means_agree() {
        let pooling = Pooling::new([28, 70]);
        let features = seeded_values(Family::Vision, "input.features", &[10, 3]);
        let area = PixelBox {
            x: 9,
            y: 5,
            width: 31,
            height: 18,
        };
        let mask = Rle::filled_box(28, 70, area).unwrap();
        let around = [9.0, 5.0, 30.0, 17.0];
        let published =
            means_of_enlarged(&pooling, &features, &[(mask.clone(), around)], 4).unwrap();
        let weights = [
            pooling.mask(&mask).unwrap(),
            pooling.surroundings(around, 4),
        ];
        let ours = weights.iter().flat_map(|weights| {
            (0..3).map(|c| {
                let patches = weights.iter().zip(features.chunks_exact(3));
                patches
                    .map(|(weight, patch)| weight * patch[c])
                    .sum::<f32>()
            })
        });
        for (a, b) in ours.zip(published) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}

//! What O-MaMa learns: descriptors of masks that know the other view, and how alike they are.

use percept_graph::{
    Activation, Affine, Builder, Dim, MatMul, Normalize, Resize, ResizeMode, ResizeScale, Softmax,
    ValueId,
};

use super::VISIBLE_LOGITS;

/// Of the norms of the cross-attention.
pub(super) const NORM_EPS: f32 = 1e-5;
/// Heads of the cross-attention.
pub(super) const HEADS: usize = 4;

/// The trained part of O-MaMa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// Numbers in a feature, which four heads share.
    pub width: usize,
    /// Rows and columns of patches of the source view that the position embedding was trained for.
    pub source_grid: [usize; 2],
    /// The same of the destination view.
    pub dest_grid: [usize; 2],
    /// Whether the head for visibility is called, which the public model has and never calls.
    pub visibility: bool,
}

/// A view as the matcher takes it.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// A feature per patch, [N, T, D].
    pub(super) features: ValueId,
    /// Rows and columns of patches.
    pub(super) grid: [Dim; 2],
    /// How much of each patch goes into the descriptor of each mask, and into that of its surroundings: [N, M, 2, T].
    pub(super) pool: ValueId,
}

impl Matcher {
    /// The similarity [N, M] of each candidate in `dest` to the mask in `source`.
    pub(super) fn similarity(&self, b: &mut Builder, source: &View, dest: &View) -> ValueId {
        let d = self.width;
        let wanted = self.descriptors(b, "source", source);
        let offered = self.descriptors(b, "dest", dest);
        // The public names: T is the target view, where candidates are; Q is the query's.
        let in_dest = self.placed(b, "pos_embed_T", self.dest_grid, dest);
        let in_source = self.placed(b, "pos_embed_Q", self.source_grid, source);

        let [wanted_mask, offered_mask] = [("source_mask", wanted), ("dest_mask", offered)]
            .map(|(name, descriptor)| b.slice(name, descriptor, 2, 0, d));
        let cross = "CROSS_context_attn";
        let class = "CrossAttention";
        let wanted_context = b.module(cross, class, |b| {
            self.cross_attention(b, wanted_mask, in_dest)
        });
        let offered_context = b.module_again(cross, class, |b| {
            self.cross_attention(b, offered_mask, in_source)
        });
        b.name("Q_context_cross", wanted_context);
        b.name("T_context_cross", offered_context);

        let wanted = b.concat("source_all", &[wanted_context, wanted], 2);
        let offered = b.concat("dest_all", &[offered_context, offered], 2);
        let wanted = b.module("mlp", "MLP", |b| self.mlp(b, wanted));
        let offered = b.module_again("mlp", "MLP", |b| self.mlp(b, offered));
        b.name("Q_desc", wanted);
        b.name("T_desc", offered);
        if self.visibility {
            let both = b.concat("visible_all", &[wanted_context, wanted_mask], 2);
            self.visible(b, both);
        } else {
            self.unread_visibility(b);
        }

        // Cosines: products of rows of length one.
        let wanted = b.call("source_unit", Normalize::default(), &[wanted]);
        let offered = b.call("dest_unit", Normalize::default(), &[offered]);
        let product = MatMul {
            transpose_b: true,
            ..MatMul::default()
        };
        let cosines = b.call("cosine", product, &[wanted, offered]);
        let [n, _, m] = b.shape(cosines).try_into().expect("a product of rows");
        b.reshape("similarity", cosines, [n, m])
    }

    /// [mask, surroundings] of each mask, [N, M, 2 D]: means of features, taken in the space of patches.
    pub(super) fn descriptors(&self, b: &mut Builder, view: &str, of: &View) -> ValueId {
        let [n, m, two, t] = b.shape(of.pool).try_into().expect("four axes");
        let rows = b.reshape(
            &format!("{view}_pool_rows"),
            of.pool,
            [n.clone(), &m * &two, t],
        );
        let means = b.call(
            &format!("{view}_means"),
            MatMul::default(),
            &[rows, of.features],
        );
        let name = format!("{view}_desc");
        b.reshape(&name, means, [n, m, (2 * self.width).into()])
    }

    /// Features with the position embedding of their view, resized from the grid that it was trained for.
    fn placed(
        &self,
        b: &mut Builder,
        name: &'static str,
        trained: [usize; 2],
        view: &View,
    ) -> ValueId {
        let ([rows, columns], d) = (trained, self.width);
        let embedding = b.parameter(name, &[1, rows * columns, d]);
        let map = [1, rows, columns, d].map(Dim::from);
        let map = b.reshape(&format!("{name}_grid"), embedding, map);
        let map = b.permute(&format!("{name}_map"), map, &[0, 3, 1, 2]);
        let resize = Resize {
            mode: ResizeMode::Bicubic,
            size: view.grid.clone(),
            scale: ResizeScale::Sizes,
        };
        let map = b.call(&format!("{name}_resize"), resize, &[map]);
        let flat = b.flatten(&format!("{name}_flatten"), map, 2);
        let tokens = b.permute(&format!("{name}_tokens"), flat, &[0, 2, 1]);
        b.add(&format!("{name}_add"), view.features, tokens)
    }

    /// y = project(softmax(q kᵀ / sqrt(D / heads)) v), then y + mlp(norm(y)); q of rows [N, M, D], k and v of `patches` [N, T, D].
    ///
    /// Keys and values are never made: with W the rows of a head, (q W_qᵀ) (x W_kᵀ)ᵀ = (q W_qᵀ W_k) xᵀ, and the weighted mean
    /// of x W_vᵀ is the weighted mean of x, times W_vᵀ. There are few queries and many patches, so this saves nearly all of
    /// the work. The bias of the keys shifts all scores of a query alike, which the softmax takes out: nothing reads it.
    pub(super) fn cross_attention(
        &self,
        b: &mut Builder,
        queries: ValueId,
        patches: ValueId,
    ) -> ValueId {
        let d = self.width;
        let [n, m, _] = b.shape(queries).try_into().expect("rows of each sample");
        let (heads, part) = (Dim::from(HEADS), Dim::from(d / HEADS));
        let all_rows = &n * &m;
        let of_heads = [heads.clone(), part.clone(), d.into()];

        let queries = b.layer_norm("norm_input", queries, d, NORM_EPS);
        let x = b.layer_norm("norm_input", patches, d, NORM_EPS);
        let q = b.linear("query", queries, d, d);
        let q = b.reshape(
            "query_heads",
            q,
            [all_rows.clone(), heads.clone(), part.clone()],
        );
        let q = b.permute("query_by_head", q, &[1, 0, 2]);
        let key = b.module("key", "Linear", |b| {
            b.unread_parameter("bias", &[d]);
            b.parameter("weight", &[d, d])
        });
        let key = b.reshape("key_by_head", key, of_heads.clone());
        let q = b.call("absorbed", MatMul::default(), &[q, key]);
        let scale = 1.0 / ((d / HEADS) as f32).sqrt();
        let q = b.call("scale", Affine::scaled(scale), &[q]);

        let split = [heads.clone(), n.clone(), m.clone(), d.into()];
        let q = b.reshape("absorbed_split", q, split);
        let q = b.permute("absorbed_by_sample", q, &[1, 0, 2, 3]);
        let q = b.reshape("absorbed_rows", q, [n.clone(), &heads * &m, d.into()]);
        let across = MatMul {
            transpose_b: true,
            ..MatMul::default()
        };
        let scores = b.call("scores", across.clone(), &[q, x]);
        let shares = b.call("softmax", Softmax, &[scores]);
        let mean = b.call("mean", MatMul::default(), &[shares, x]);
        let mean = b.reshape(
            "mean_split",
            mean,
            [n.clone(), heads.clone(), m.clone(), d.into()],
        );
        let mean = b.permute("mean_by_head", mean, &[1, 0, 2, 3]);
        let mean = b.reshape("mean_rows", mean, [heads, all_rows, d.into()]);

        let mut bias = None;
        let value = b.module("value", "Linear", |b| {
            bias = Some(b.parameter("bias", &[d]));
            b.parameter("weight", &[d, d])
        });
        let value = b.reshape("value_by_head", value, of_heads);
        let y = b.call("values", across, &[mean, value]);
        let y = b.permute("values_by_row", y, &[1, 0, 2]);
        let y = b.reshape("values_rows", y, [n, m, d.into()]);
        let bias = bias.expect("declared above");
        let bias = b.reshape("value_bias", bias, [1, 1, d].map(Dim::from));
        let y = b.add("values_add", y, bias);
        self.behind_attention(b, y)
    }

    /// What follows the weighted mean of values.
    pub(super) fn behind_attention(&self, b: &mut Builder, y: ValueId) -> ValueId {
        let d = self.width;
        let y = b.module("project", "Sequential", |b| b.linear("0", y, d, d));
        let z = b.layer_norm("norm_output", y, d, NORM_EPS);
        let z = b.module("mlp", "Sequential", |b| {
            let z = b.linear("0", z, d, d);
            let z = b.leaf("1", Activation::Gelu, &[z]);
            b.linear("2", z, d, d)
        });
        b.add("add", y, z)
    }

    fn mlp(&self, b: &mut Builder, x: ValueId) -> ValueId {
        let d = self.width;
        b.module("mlp", "Sequential", |b| {
            let x = b.linear("0", x, 3 * d, d);
            let x = b.relu("1", x);
            let x = b.linear("2", x, d, d);
            let x = b.relu("3", x);
            b.linear("4", x, d, d)
        })
    }

    /// Whether the thing is in the other view at all, from its descriptor and from what that found there: logits [N, 2], of no and
    /// yes. The public state dict has these layers; what they would be given is not known.
    fn visible(&self, b: &mut Builder, x: ValueId) {
        let widths = self.visibility_widths();
        let x = b.module("mlp_visible", "Sequential", |b| {
            let layers = widths.windows(2).enumerate();
            layers.fold(x, |x, (layer, pair)| {
                let x = match layer {
                    0 => x,
                    _ => b.relu(&(2 * layer - 1).to_string(), x),
                };
                b.linear(&(2 * layer).to_string(), x, pair[0], pair[1])
            })
        });
        let n = b.shape(x)[0].clone();
        let logits = b.reshape("visible_rows", x, [n, 2.into()]);
        b.output(VISIBLE_LOGITS, logits);
    }

    fn visibility_widths(&self) -> [usize; 5] {
        let d = self.width;
        [2 * d, d, d / 3, d / 6, 2]
    }

    /// A head for visibility, which the public state dict has and which the public model never calls.
    fn unread_visibility(&self, b: &mut Builder) {
        let widths = self.visibility_widths();
        for (layer, pair) in widths.windows(2).enumerate() {
            let name = format!("mlp_visible.{}", 2 * layer);
            b.unread_parameter(&format!("{name}.weight"), &[pair[1], pair[0]]);
            b.unread_parameter(&format!("{name}.bias"), &[pair[1]]);
        }
    }
}

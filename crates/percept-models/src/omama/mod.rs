//! O-MaMa: an object that is masked in one view is found among the masks of another view ("O-MaMa: Learning Object Mask
//! Matching between Egocentric and Exocentric Views", Mur-Labadia et al., 2025).
//!
//! DINOv2, which stays as it is, gives a feature per patch of both views. A mask is described by the mean of the features under
//! it and by the mean around it; cross-attention lets each description look at the other view; the candidate whose
//! description has the largest cosine with the wanted one is the answer.
//!
//! The public code is AGPL-licensed. This is written from a specification of what it computes, and from no code.

mod entries;
mod intake;
mod lesson;
mod loss;
mod matcher;
mod matches;
mod pieces;
mod pooling;
mod published;
mod report;

use percept_graph::{Builder, Dim, Graph, GraphError, ValueId};

pub(crate) use entries::{ENTRIES, PARTS};
pub use intake::PairIntake;
pub use loss::visible_cross_entropy;
pub use matcher::Matcher;
use matcher::View;
pub use matches::MatchHead;
pub use pooling::{BoxXywh, Pooling};

use crate::dinov2::DinoV2;

/// The input with the picture that the object is shown in, and the one that it is looked for in.
pub(crate) const PICTURES: [&str; 2] = ["source", "dest"];
/// The inputs with the weights of patches for the masks of each.
pub(crate) const POOLS: [&str; 2] = ["source_pool", "dest_pool"];
/// The inputs with features of both, where no backbone makes them.
pub const FEATURES: [&str; 2] = ["source_features", "dest_features"];
/// The output.
pub const SIMILARITY: &str = "similarity";
/// The output of the head for visibility, where it is called: logits [N, 2] of no and yes.
pub const VISIBLE_LOGITS: &str = "visible_logits";

/// The whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OMama {
    /// What makes features; frozen.
    pub backbone: DinoV2,
    /// Height and width of source pictures that the position embedding was trained for.
    pub source: [usize; 2],
    /// The same of destination pictures.
    pub dest: [usize; 2],
    /// Whether the head for visibility is called.
    pub visibility: bool,
}

impl OMama {
    /// The trained part.
    pub fn matcher(&self) -> Matcher {
        let grid = |[height, width]: [usize; 2]| {
            [height / self.backbone.patch, width / self.backbone.patch]
        };
        Matcher {
            width: self.backbone.embed,
            source_grid: grid(self.source),
            dest_grid: grid(self.dest),
            visibility: self.visibility,
        }
    }

    /// The network: `source` and `dest` [N, 3, H, W], each of a size of its own, `source_pool` [N, 1, 2, patches] and `dest_pool`
    /// [N, M, 2, patches] (see [`Pooling`]) to `similarity` [N, M]. The backbone's parameters stand under `backbone`, those of
    /// the public head under `head`.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut b = Builder::new("OMama");
        let symbols = [["HS", "WS"], ["HD", "WD"]];
        let pictures = [0, 1].map(|view| self.picture(&mut b, PICTURES[view], symbols[view]));
        let mut grids: [[Dim; 2]; 2] = Default::default();
        let [source_grid, dest_grid] = &mut grids;
        let class = "DinoVisionTransformer";
        let source = b.module("backbone", class, |b| {
            let (features, grid) = self.backbone.patch_features(b, pictures[0]);
            *source_grid = grid;
            features
        });
        let dest = b.module_again("backbone", class, |b| {
            let (features, grid) = self.backbone.patch_features(b, pictures[1]);
            *dest_grid = grid;
            features
        });
        let similarity = similarity(&mut b, Some("head"), self.matcher(), [source, dest], grids);
        b.output(SIMILARITY, similarity);
        b.finish()
    }

    fn picture(&self, b: &mut Builder, name: &str, sides: [&str; 2]) -> ValueId {
        let [n, h, w] = ["N", sides[0], sides[1]].map(Dim::symbol);
        let picture = b.input(name, [n, 3.into(), h, w]);
        for (axis, side) in [(2, "height"), (3, "width")] {
            b.require(name, axis, side, self.backbone.patch, self.backbone.patch);
        }
        picture
    }
}

impl Matcher {
    /// The descriptors of candidates alone: `dest_features` [N, T, D] and `dest_pool` to `descriptors` [N, M, 2 D].
    pub fn descriptor_graph(&self) -> Result<Graph, GraphError> {
        let mut b = Builder::new("Descriptors");
        let grid = self.dest_grid.map(Dim::from);
        let patches = &grid[0] * &grid[1];
        let [n, m] = ["N", "M"].map(Dim::symbol);
        let features = [n.clone(), patches.clone(), self.width.into()];
        let features = b.input(FEATURES[1], features);
        let pool = b.input(POOLS[1], [n, m, 2.into(), patches]);
        let view = View {
            features,
            grid,
            pool,
        };
        let descriptors = self.descriptors(&mut b, "dest", &view);
        b.output("descriptors", descriptors);
        b.finish()
    }

    /// The trained part alone, on features of pictures of the trained size: `source_features` [N, T, D] and `dest_features`, and
    /// the pools, to `similarity`. Names are those of the public head.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut b = Builder::new("Attention_projector");
        let grids = [self.source_grid, self.dest_grid].map(|grid| grid.map(Dim::from));
        let features = [0, 1].map(|view| {
            let patches = &grids[view][0] * &grids[view][1];
            b.input(
                FEATURES[view],
                [Dim::symbol("N"), patches, self.width.into()],
            )
        });
        let similarity = similarity(&mut b, None, *self, features, grids);
        b.output(SIMILARITY, similarity);
        b.finish()
    }
}

/// Declares the pools, and compares what is under them; in a scope of its own where one is named.
fn similarity(
    b: &mut Builder,
    scope: Option<&str>,
    matcher: Matcher,
    features: [ValueId; 2],
    grids: [[Dim; 2]; 2],
) -> ValueId {
    let masks = [Dim::from(1), Dim::symbol("M")];
    let views: Vec<View> = (0..2)
        .map(|view| {
            let grid = grids[view].clone();
            let patches = &grid[0] * &grid[1];
            let shape = [Dim::symbol("N"), masks[view].clone(), 2.into(), patches];
            View {
                features: features[view],
                pool: b.input(POOLS[view], shape),
                grid,
            }
        })
        .collect();
    match scope {
        Some(scope) => b.module(scope, "Attention_projector", |b| {
            matcher.similarity(b, &views[0], &views[1])
        }),
        None => matcher.similarity(b, &views[0], &views[1]),
    }
}

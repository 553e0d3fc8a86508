//! DINOv2: "DINOv2: Learning Robust Visual Features without Supervision" (Oquab et al., 2023), a vision
//! transformer (ViT), and "Vision Transformers Need Registers" (Darcet et al., 2023).
//!
//! The image is cut into patches, each a token; a class token stands in front, registers behind it. Every block is
//! x + ls1 · attention(norm1 x), then x + ls2 · mlp(norm2 x).

use percept_graph::{
    Activation, Attention, Builder, Conv2d, Dim, Expand, Graph, GraphError, LayerScale, Resize,
    ResizeMode, ResizeScale, ValueId,
};

use crate::image_input;

const NORM_EPS: f32 = 1e-6;
const MLP_RATIO: usize = 4;
/// Nobody trains from these graphs' initial values yet; this is what the authors start layer scales with.
const LAYER_SCALE_INIT: f32 = 1e-5;

/// A DINOv2 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DinoV2 {
    /// Width of a token.
    pub embed: usize,
    /// Blocks.
    pub depth: usize,
    /// Attention heads, which must divide `embed`.
    pub heads: usize,
    /// Side of the images it was trained on: the size of the stored position embedding.
    pub image_size: usize,
    /// Register tokens, 0 in the first release and 4 in the second.
    pub registers: usize,
    /// Side of a patch.
    pub patch: usize,
}

impl DinoV2 {
    /// ViT-S/14.
    pub const SMALL: Self = Self::size(384, 12, 6);
    /// ViT-B/14.
    pub const BASE: Self = Self::size(768, 12, 12);
    /// ViT-L/14.
    pub const LARGE: Self = Self::size(1024, 24, 16);

    const fn size(embed: usize, depth: usize, heads: usize) -> Self {
        Self {
            embed,
            depth,
            heads,
            image_size: 518,
            registers: 0,
            patch: 14,
        }
    }

    /// Patches along a side of the training images.
    fn trained_grid(&self) -> usize {
        self.image_size / self.patch
    }

    /// The network: `image` [N, 3, H, W], sides multiples of the patch, to `x_norm_clstoken` [N, D],
    /// `x_norm_regtokens` [N, registers, D] (when there are) and `x_norm_patchtokens` [N, H W / patch², D].
    ///
    /// `pos`, `tokens_in` and `x_prenorm` name values on the way.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut b = Builder::new("DinoVisionTransformer");
        let image = image_input(&mut b, self.patch);
        let (x, _) = self.normed_tokens(&mut b, image);
        let n = b.shape(x)[0].clone();
        let cls = b.slice("cls", x, 1, 0, 1);
        let cls = b.reshape("cls_rows", cls, [n, self.embed.into()]);
        b.output("x_norm_clstoken", cls);
        if self.registers > 0 {
            let registers = b.slice("registers", x, 1, 1, self.registers);
            b.output("x_norm_regtokens", registers);
        }
        let patches = self.patches_of(&mut b, x);
        b.output("x_norm_patchtokens", patches);
        b.finish()
    }

    /// The tokens of an image's patches, x_norm_patchtokens [N, rows · columns, D], and how many rows and columns they are.
    pub(crate) fn patch_features(&self, b: &mut Builder, image: ValueId) -> (ValueId, [Dim; 2]) {
        let (x, grid) = self.normed_tokens(b, image);
        (self.patches_of(b, x), grid)
    }

    /// What stands behind the class token and the registers.
    fn patches_of(&self, b: &mut Builder, x: ValueId) -> ValueId {
        let first = 1 + self.registers;
        let tokens = b.shape(x)[1].clone();
        b.slice("patches", x, 1, first, tokens - first)
    }

    /// All tokens behind the last norm, and the rows and columns of patches.
    fn normed_tokens(&self, b: &mut Builder, image: ValueId) -> (ValueId, [Dim; 2]) {
        let d = self.embed;
        let cls_token = b.parameter("cls_token", &[1, 1, d]);
        let pos_embed = b.parameter("pos_embed", &[1, 1 + self.trained_grid().pow(2), d]);
        let registers =
            (self.registers > 0).then(|| b.parameter("register_tokens", &[1, self.registers, d]));
        // Training replaces masked patches by it.
        b.unread_parameter("mask_token", &[1, d]);

        let (patches, grid) = self.patch_tokens(b, image);
        let pos = self.positions(b, pos_embed, &grid);
        let x = self.tokens(b, patches, cls_token, pos, registers);
        let x = b.module("blocks", "ModuleList", |b| {
            (0..self.depth).fold(x, |x, index| self.block(b, index, x))
        });
        b.name("x_prenorm", x);
        (b.layer_norm("norm", x, d, NORM_EPS), grid)
    }

    /// One token a patch, row by row, and the rows and columns of patches.
    fn patch_tokens(&self, b: &mut Builder, image: ValueId) -> (ValueId, [Dim; 2]) {
        let mut grid = [Dim::default(), Dim::default()];
        let tokens = b.module("patch_embed", "PatchEmbed", |b| {
            let project = Conv2d::new(3, self.embed, self.patch).stride(self.patch);
            let map = b.conv2d("proj", image, project);
            let [_, _, rows, columns] = b.shape(map).try_into().expect("a map has four axes");
            grid = [rows, columns];
            let flat = b.flatten("flatten", map, 2);
            b.permute("transpose", flat, &[0, 2, 1])
        });
        (tokens, grid)
    }

    /// The position embedding of the class token and of a grid of patches, resized from the training grid.
    fn positions(&self, b: &mut Builder, pos_embed: ValueId, grid: &[Dim; 2]) -> ValueId {
        let (side, d) = (self.trained_grid(), self.embed);
        // The first release asks for a scale factor with 0.1 added to the grid against rounding, and by
        // that shifts the coordinates; the release with registers resizes to the exact size, antialiased.
        let (mode, scale) = if self.registers == 0 {
            (ResizeMode::Bicubic, ResizeScale::OutputOffset(0.1))
        } else {
            (ResizeMode::BicubicAntialias, ResizeScale::Sizes)
        };
        let resize = Resize {
            mode,
            size: grid.clone(),
            scale,
        };
        let of_class = b.slice("pos_class", pos_embed, 1, 0, 1);
        let of_patches = b.slice("pos_patches", pos_embed, 1, 1, side * side);
        let map = [1, side, side, d].map(Dim::from);
        let map = b.reshape("pos_grid", of_patches, map);
        let map = b.permute("pos_map", map, &[0, 3, 1, 2]);
        let map = b.call("pos_resize", resize, &[map]);
        let flat = b.flatten("pos_flatten", map, 2);
        let of_patches = b.permute("pos_tokens", flat, &[0, 2, 1]);
        b.concat("pos", &[of_class, of_patches], 1)
    }

    /// [class; patches] + positions, with the registers, which have no position, behind the class token.
    fn tokens(
        &self,
        b: &mut Builder,
        patches: ValueId,
        cls_token: ValueId,
        pos: ValueId,
        registers: Option<ValueId>,
    ) -> ValueId {
        let [n, count, d] = b.shape(patches).try_into().expect("tokens have three axes");
        let each = |b: &mut Builder, name: &str, token, tokens: Dim| {
            let shape = vec![n.clone(), tokens, d.clone()];
            b.call(name, Expand { shape }, &[token])
        };
        let cls = each(b, "cls_expand", cls_token, 1.into());
        let x = b.concat("cat", &[cls, patches], 1);
        let mut x = b.add("add", x, pos);
        if let Some(registers) = registers {
            let registers = each(b, "registers_expand", registers, self.registers.into());
            let cls = b.slice("head", x, 1, 0, 1);
            let patches = b.slice("tail", x, 1, 1, count);
            x = b.concat("cat", &[cls, registers, patches], 1);
        }
        b.name("tokens_in", x)
    }

    fn block(&self, b: &mut Builder, index: usize, x: ValueId) -> ValueId {
        let d = self.embed;
        let scale = LayerScale {
            features: d,
            initial: LAYER_SCALE_INIT,
        };
        b.module(&index.to_string(), "Block", |b| {
            let y = b.layer_norm("norm1", x, d, NORM_EPS);
            let y = self.attention(b, y);
            let y = b.leaf("ls1", scale.clone(), &[y]);
            let x = b.add("add", x, y);
            let y = b.layer_norm("norm2", x, d, NORM_EPS);
            let y = b.module("mlp", "Mlp", |b| {
                let y = b.linear("fc1", y, d, MLP_RATIO * d);
                let y = b.leaf("act", Activation::Gelu, &[y]);
                b.linear("fc2", y, MLP_RATIO * d, d)
            });
            let y = b.leaf("ls2", scale, &[y]);
            b.add("add", x, y)
        })
    }

    fn attention(&self, b: &mut Builder, x: ValueId) -> ValueId {
        let (width, heads) = (self.embed, self.heads);
        b.module("attn", "Attention", |b| {
            let qkv = b.linear("qkv", x, width, 3 * width);
            let y = b.call("attention", Attention { heads, width }, &[qkv]);
            b.linear("proj", y, width, width)
        })
    }
}

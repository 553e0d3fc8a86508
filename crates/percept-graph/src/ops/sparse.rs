//! Sparse convolution on active sites.
//!
//! A sparse tensor is features [S, C] and sites [S, 4], the rows (sample, z, y, x) in ascending order.
//!
//! `ActiveSites`: the output sites of a strided convolution: o is active if some active i = o · stride - padding + tap.
//!
//! `Rulebook`: the pairs (output row, input row), grouped by blocks of output rows and by tap. A submanifold convolution
//! pairs the sites with themselves. It depends on the sites only, so the layers of one resolution share it.
//!
//! `SparseConv3d`: y[o] = bias + Σ over taps and pairs (o, i) of weight[:, tap, :] · x[i]. Weight [K, taps z, y, x, C].
//!
//! `SparseToDense`: y[n, c · D + z, h, w] = x[row of site (n, z, h, w), c], zero elsewhere: height compression.

use super::{
    DenseToSparse, Operator, SparseConv3dInputGradient, SparseConv3dWeightGradient, selections,
};
use crate::training::{Backward, Differentiable};
use crate::{Amount, Cost, DType, Dim, Initializer, ParamSpec, TensorType};

/// Kernel, stride and padding along z, y, x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Window3d {
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub padding: [usize; 3],
}

impl Window3d {
    /// A cube that keeps the sites: stride 1, centred.
    pub fn centred(kernel: usize) -> Self {
        Self {
            kernel: [kernel; 3],
            stride: [1; 3],
            padding: [kernel / 2; 3],
        }
    }

    /// Number of taps.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// The grid that comes out of a grid of `cells`.
    pub fn output_cells(&self, cells: [usize; 3]) -> [usize; 3] {
        std::array::from_fn(|axis| {
            let free = (cells[axis] + 2 * self.padding[axis]).checked_sub(self.kernel[axis]);
            free.map_or(0, |free| free / self.stride[axis] + 1)
        })
    }

    fn check(&self) -> Result<(), String> {
        match [self.kernel, self.stride].as_flattened().contains(&0) {
            true => Err("kernel and stride of at least 1".to_owned()),
            false => Ok(()),
        }
    }
}

/// The output sites of a strided sparse convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveSites {
    /// The convolution's geometry.
    pub window: Window3d,
    /// The grid that the input sites lie in, z y x.
    pub cells: [usize; 3],
    /// The symbol that the number of output sites gets.
    pub symbol: String,
}

impl Operator for ActiveSites {
    fn kind(&self) -> &'static str {
        "ActiveSites"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.window.check()?;
        let [sites] = inputs else {
            return Err("sites [S, 4]".to_owned());
        };
        check_sites(sites)?;
        Ok(vec![TensorType::i32([Dim::symbol(&self.symbol), 4.into()])])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // A division and a comparison an axis, for each tap of each site.
        let candidates = inputs[0].shape[0].clone() * self.window.taps();
        Cost::elementwise(candidates, 6)
    }

    fn describe(&self) -> String {
        format!("ActiveSites({})", self.window.describe())
    }
}

/// Which input row meets which output row, at which tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rulebook {
    /// The convolution's geometry.
    pub window: Window3d,
    /// The grid that the input sites lie in, z y x.
    pub cells: [usize; 3],
    /// The symbol that the number of pairs gets.
    pub symbol: String,
}

impl Rulebook {
    /// Output rows of a block: their features stay in the second-level cache while all taps are added.
    pub const BLOCK_ROWS: usize = 256;
}

/// Inputs: input sites [S, 4], output sites [O, 4]. Outputs: pairs [P, 2], starts [blocks · taps + 1].
impl Operator for Rulebook {
    fn kind(&self) -> &'static str {
        "Rulebook"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.window.check()?;
        let [sites, output_sites] = inputs else {
            return Err("input sites and output sites".to_owned());
        };
        check_sites(sites)?;
        check_sites(output_sites)?;
        let blocks = (output_sites.shape[0].clone() + (Self::BLOCK_ROWS - 1))
            .floor_div(Self::BLOCK_ROWS as i64);
        Ok(vec![
            TensorType::i32([Dim::symbol(&self.symbol), 2.into()]),
            TensorType::i32([blocks * self.window.taps() + 1]),
        ])
    }

    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        // One step of the walk for each pair; the steps that find nothing depend on how sites cluster.
        Cost {
            macs: Amount::zero(),
            other_ops: outputs[0].shape[0].clone().into(),
        }
    }

    fn describe(&self) -> String {
        format!("Rulebook({})", self.window.describe())
    }
}

/// A convolution over a rulebook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SparseConv3d {
    pub in_channels: usize,
    pub out_channels: usize,
    pub window: Window3d,
    pub bias: bool,
    /// Whether the output sites are the input sites.
    pub submanifold: bool,
}

/// Inputs: features [S, C], output sites [O, 4], pairs, starts. Output: features [O, K].
impl Operator for SparseConv3d {
    fn kind(&self) -> &'static str {
        match self.submanifold {
            true => "SubMConv3d",
            false => "SparseConv3d",
        }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.window.check()?;
        let [x, sites, pairs, starts] = inputs else {
            return Err("features, output sites, pairs and starts".to_owned());
        };
        if x.shape.len() != 2 || x.shape[1] != Dim::from(self.in_channels) {
            return Err(format!("features [S, {}]", self.in_channels));
        }
        check_sites(sites)?;
        if pairs.shape.len() != 2 || pairs.shape[1] != Dim::from(2) || starts.shape.len() != 1 {
            return Err("a rulebook: pairs [P, 2] and starts".to_owned());
        }
        let shape = [sites.shape[0].clone(), self.out_channels.into()];
        Ok(vec![TensorType::f32(shape)])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::macs(inputs[2].shape[0].clone() * (self.in_channels * self.out_channels))
    }

    fn describe(&self) -> String {
        let bias = if self.bias { "" } else { ", bias=False" };
        format!(
            "{}({}, {}, {}{bias})",
            self.kind(),
            self.in_channels,
            self.out_channels,
            self.window.describe()
        )
    }

    fn params(&self) -> Vec<ParamSpec> {
        let [z, y, x] = self.window.kernel;
        let init = Initializer::FanIn(self.in_channels * self.window.taps());
        let shape = [self.out_channels, z, y, x, self.in_channels];
        let mut params = vec![ParamSpec::new("weight", shape, init)];
        if self.bias {
            params.push(ParamSpec::new("bias", [self.out_channels], init));
        }
        params
    }
}

/// Writes features to a dense map whose channels hold the heights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseToDense {
    /// The grid that the sites lie in, z y x.
    pub cells: [usize; 3],
}

/// Inputs: features [S, C], sites [S, 4], and any value [N] with one element a sample. Output: map [N, C · D, H, W].
impl Operator for SparseToDense {
    fn kind(&self) -> &'static str {
        "SparseToDense"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [x, sites, samples] = inputs else {
            return Err("features, sites and samples".to_owned());
        };
        check_sites(sites)?;
        if x.shape.len() != 2 || x.shape[0] != sites.shape[0] || samples.shape.len() != 1 {
            return Err("features [S, C], sites [S, 4] and samples [N]".to_owned());
        }
        let [depth, height, width] = self.cells;
        let channels = x.shape[1].clone() * depth;
        let samples = samples.shape[0].clone();
        Ok(vec![TensorType::f32([
            samples,
            channels,
            height.into(),
            width.into(),
        ])])
    }

    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }

    fn describe(&self) -> String {
        let [depth, height, width] = self.cells;
        format!("SparseToDense({depth}, {height}, {width})")
    }
}

impl Window3d {
    pub(super) fn describe(&self) -> String {
        let triple = |values: [usize; 3]| format!("[{}, {}, {}]", values[0], values[1], values[2]);
        format!(
            "kernel_size={}, stride={}, padding={}",
            triple(self.kernel),
            triple(self.stride),
            triple(self.padding)
        )
    }
}

pub(super) fn check_sites(sites: &TensorType) -> Result<(), String> {
    let fits =
        sites.dtype == DType::I32 && sites.shape.len() == 2 && sites.shape[1] == Dim::from(4);
    fits.then_some(())
        .ok_or_else(|| "sites i32 [S, 4]".to_owned())
}

// Sites and pairs are choices.
selections!(ActiveSites, Rulebook);

impl Differentiable for SparseConv3d {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, pairs, starts, weight) =
            (back.input(0), back.input(2), back.input(3), back.input(4));
        let dy = back.dy()?;
        if back.wants(0) {
            let gradient = SparseConv3dInputGradient {
                conv: self.clone(),
                rows: back.shape(x)[0].clone(),
            };
            let dx = back.call("grad_input", gradient, &[dy, pairs, starts, weight]);
            back.give(0, dx);
        }
        if back.wants(4) {
            let gradient = SparseConv3dWeightGradient { conv: self.clone() };
            let dw = back.call("grad_weight", gradient, &[x, dy, pairs, starts]);
            back.give(4, dw);
        }
        if self.bias && back.wants(5) {
            let db = back.sum_away("grad_bias", dy, vec![0]);
            back.give(5, db);
        }
        Ok(())
    }
}

impl Differentiable for SparseToDense {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (sites, dy) = (back.input(1), back.dy()?);
        let dx = back.call("grad", DenseToSparse { cells: self.cells }, &[dy, sites]);
        back.give(0, dx);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(symbol: &str) -> TensorType {
        TensorType::i32([Dim::symbol(symbol), 4.into()])
    }

    fn strided() -> Window3d {
        Window3d {
            stride: [2; 3],
            ..Window3d::centred(3)
        }
    }

    #[test]
    fn sizes_and_macs_follow_the_pairs() {
        let book = Rulebook {
            window: strided(),
            cells: [41, 64, 64],
            symbol: "pairs".into(),
        };
        let (from, to) = (sites("S"), sites("O"));
        let book = book.infer(&[&from, &to]).unwrap();
        let conv = SparseConv3d {
            in_channels: 16,
            out_channels: 32,
            window: strided(),
            bias: false,
            submanifold: false,
        };
        let x = TensorType::f32([Dim::symbol("S"), 16.into()]);
        let inputs = [&x, &to, &book[0], &book[1]];
        let y = conv.infer(&inputs).unwrap();
        assert_eq!(y[0].to_string(), "f32 [O, 32]");
        let macs = Dim::symbol("pairs") * (16 * 32);
        assert_eq!(conv.cost(&inputs, &[]), Cost::macs(macs));
        assert_eq!(conv.params()[0].shape, [32, 3, 3, 3, 16]);
        assert_eq!(strided().output_cells([41, 1440, 1440]), [21, 720, 720]);
    }

    #[test]
    fn wrong_inputs_are_refused() {
        let op = ActiveSites {
            window: strided(),
            cells: [4; 3],
            symbol: "O".into(),
        };
        let floats = TensorType::f32([Dim::symbol("S"), 4.into()]);
        assert!(op.infer(&[&floats]).is_err());
        let no_stride = Window3d {
            stride: [0; 3],
            ..strided()
        };
        let op = ActiveSites {
            window: no_stride,
            ..op
        };
        assert!(op.infer(&[&sites("S")]).is_err());
    }
}

//! Convolutions on maps.
//!
//! `Conv2d`: y[n, k, i, j] = bias[k] + Σ over c, u, v of weight[k, c, u, v] · x[n, c, i·s + u·d - p, j·s + v·d - p],
//! zero outside the map. Weight [K, C / groups, kernel, kernel], or [K, C / groups, kernel] where the public network has a
//! `Conv1d`: that is a convolution of maps of height 1.
//!
//! `ConvTranspose2d`: the adjoint of `Conv2d`; each input value adds its weighted kernel to the output.
//! Weight [C, K / groups, kernel, kernel].

use super::{Conv2dInputGradient, Conv2dWeightGradient, Operator, one_map, pair, window_output};
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, Initializer, ParamSpec, TensorType};

/// Convolution of a map [N, C, H, W] to [N, K, H', W'].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Conv2d {
    pub in_channels: usize,
    pub out_channels: usize,
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    pub groups: usize,
    pub bias: bool,
    /// Axes of the public module's kernel, as in PyTorch's names: 2 for maps, 1 for rows, which are maps of height 1.
    pub dims: usize,
}

impl Conv2d {
    /// A square kernel with stride 1, no padding and a bias.
    pub fn new(in_channels: usize, out_channels: usize, kernel: usize) -> Self {
        Self {
            in_channels,
            out_channels,
            kernel: [kernel; 2],
            stride: [1; 2],
            padding: [0; 2],
            dilation: [1; 2],
            groups: 1,
            bias: true,
            dims: 2,
        }
    }
    /// Along rows [N, C, 1, W], with as much padding as keeps their length: PyTorch's Conv1d.
    pub fn rows(in_channels: usize, out_channels: usize, kernel: usize) -> Self {
        Self {
            kernel: [1, kernel],
            padding: [0, kernel / 2],
            dims: 1,
            ..Self::new(in_channels, out_channels, kernel)
        }
    }
    /// Sets both strides.
    pub fn stride(self, stride: usize) -> Self {
        Self {
            stride: [stride; 2],
            ..self
        }
    }
    /// Sets both paddings.
    pub fn padding(self, padding: usize) -> Self {
        Self {
            padding: [padding; 2],
            ..self
        }
    }
    /// Splits the channels into groups.
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }
    /// Drops the bias, as in front of a normalisation.
    pub fn no_bias(self) -> Self {
        Self {
            bias: false,
            ..self
        }
    }

    /// The shape of the weight for a map.
    pub fn kernel_shape(&self) -> [usize; 4] {
        let group_in = self.in_channels / self.groups.max(1);
        [self.out_channels, group_in, self.kernel[0], self.kernel[1]]
    }

    /// The shape that the weight is stored in.
    pub(super) fn weight_shape(&self) -> Vec<usize> {
        let [k, c, height, width] = self.kernel_shape();
        match self.dims {
            1 => vec![k, c, width],
            _ => vec![k, c, height, width],
        }
    }

    /// Multiply-adds behind one output value.
    pub(super) fn macs_per_output(&self) -> usize {
        self.in_channels / self.groups * self.kernel[0] * self.kernel[1]
    }

    fn describe_options(&self) -> String {
        let sides = |sides: [usize; 2]| match self.dims {
            1 => format!("({},)", sides[1]),
            _ => pair(sides),
        };
        let mut text = format!(
            ", kernel_size={}, stride={}",
            sides(self.kernel),
            sides(self.stride)
        );
        if self.padding != [0; 2] {
            text += &format!(", padding={}", sides(self.padding));
        }
        if self.dilation != [1; 2] {
            text += &format!(", dilation={}", sides(self.dilation));
        }
        if self.groups != 1 {
            text += &format!(", groups={}", self.groups);
        }
        if !self.bias {
            text += ", bias=False";
        }
        text
    }
}

fn weight_and_bias(shape: Vec<usize>, outputs: usize, bias: bool) -> Vec<ParamSpec> {
    let init = Initializer::FanIn(shape[1..].iter().product());
    let mut params = vec![ParamSpec::new("weight", shape, init)];
    if bias {
        params.push(ParamSpec::new("bias", [outputs], init));
    }
    params
}

fn check_config(conv: &Conv2d) -> Result<(), String> {
    let (c, k, groups) = (conv.in_channels, conv.out_channels, conv.groups);
    let windows = [conv.kernel, conv.stride, conv.dilation];
    if [c, k, groups].contains(&0) || windows.as_flattened().contains(&0) {
        return Err("channels, groups, kernel, stride and dilation of at least 1".to_owned());
    }
    if conv.dims == 1 && (conv.kernel[0], conv.padding[0]) != (1, 0) {
        return Err("a kernel along rows, without height".to_owned());
    }
    if c % groups != 0 || k % groups != 0 {
        return Err(format!("channels ({c} -> {k}) that {groups} groups divide"));
    }
    Ok(())
}

impl Operator for Conv2d {
    fn kind(&self) -> &'static str {
        "Conv2d"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        check_config(self)?;
        let x = one_map(inputs, Some(self.in_channels))?;
        let side = |axis: usize| {
            let (k, s, p, d) = (
                self.kernel[axis],
                self.stride[axis],
                self.padding[axis],
                self.dilation[axis],
            );
            window_output(&x.shape[2 + axis], k, s, p, d)
        };
        let shape = vec![
            x.shape[0].clone(),
            self.out_channels.into(),
            side(0),
            side(1),
        ];
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape,
        }])
    }

    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        Cost::macs(outputs[0].elements() * self.macs_per_output())
    }

    fn describe(&self) -> String {
        format!(
            "Conv{}d({}, {}{})",
            self.dims,
            self.in_channels,
            self.out_channels,
            self.describe_options()
        )
    }

    fn params(&self) -> Vec<ParamSpec> {
        weight_and_bias(self.weight_shape(), self.out_channels, self.bias)
    }
}

/// Transposed convolution of a map [N, C, H, W] to [N, K, (H - 1) s - 2 p + d (kernel - 1) + 1 + output_padding, ...].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvTranspose2d {
    /// The convolution whose adjoint this is, read with `in_channels` as the channels that come in here.
    pub conv: Conv2d,
    /// Rows and columns added at the far side.
    pub output_padding: [usize; 2],
}

impl ConvTranspose2d {
    /// The transposed form of these options.
    pub fn new(conv: Conv2d) -> Self {
        Self {
            conv,
            output_padding: [0; 2],
        }
    }
}

impl Operator for ConvTranspose2d {
    fn kind(&self) -> &'static str {
        "ConvTranspose2d"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        check_config(&self.conv)?;
        let x = one_map(inputs, Some(self.conv.in_channels))?;
        let side = |axis: usize| -> Dim {
            let span = self.conv.dilation[axis] * (self.conv.kernel[axis] - 1) + 1;
            let grown = (x.shape[2 + axis].clone() - 1) * self.conv.stride[axis];
            grown - 2 * self.conv.padding[axis] + span + self.output_padding[axis]
        };
        let shape = vec![
            x.shape[0].clone(),
            self.conv.out_channels.into(),
            side(0),
            side(1),
        ];
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape,
        }])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let per_input =
            self.conv.out_channels / self.conv.groups * self.conv.kernel[0] * self.conv.kernel[1];
        Cost::macs(inputs[0].elements() * per_input)
    }

    fn describe(&self) -> String {
        let conv = &self.conv;
        format!(
            "ConvTranspose2d({}, {}{})",
            conv.in_channels,
            conv.out_channels,
            conv.describe_options()
        )
    }

    fn params(&self) -> Vec<ParamSpec> {
        let conv = &self.conv;
        let shape = vec![
            conv.in_channels,
            conv.out_channels / conv.groups.max(1),
            conv.kernel[0],
            conv.kernel[1],
        ];
        weight_and_bias(shape, conv.out_channels, conv.bias)
    }
}

/// dx is the adjoint applied to dy, dw the product of dy with the windows it was computed from, db the sum of dy.
impl Differentiable for Conv2d {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, weight, dy) = (back.input(0), back.input(1), back.dy()?);
        let conv = self.clone().no_bias();
        if back.wants(0) {
            let shape = back.shape(x);
            let size = [shape[2].clone(), shape[3].clone()];
            let conv = conv.clone();
            let dx = back.call(
                "grad_input",
                Conv2dInputGradient { conv, size },
                &[dy, weight],
            );
            back.give(0, dx);
        }
        if back.wants(1) {
            let dw = back.call("grad_weight", Conv2dWeightGradient { conv }, &[x, dy]);
            back.give(1, dw);
        }
        bias_gradient(self.bias, back)
    }
}

/// The same with the roles of input and output exchanged.
impl Differentiable for ConvTranspose2d {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, weight, dy) = (back.input(0), back.input(1), back.dy()?);
        let conv = Conv2d {
            in_channels: self.conv.out_channels,
            out_channels: self.conv.in_channels,
            ..self.conv.clone().no_bias()
        };
        if back.wants(0) {
            let dx = back.call_with("grad_input", conv.clone(), &[dy], &[weight])[0];
            back.give(0, dx);
        }
        if back.wants(1) {
            let dw = back.call("grad_weight", Conv2dWeightGradient { conv }, &[dy, x]);
            back.give(1, dw);
        }
        bias_gradient(self.conv.bias, back)
    }
}

fn bias_gradient(has_bias: bool, back: &mut Backward<'_>) -> Result<(), String> {
    if has_bias && back.wants(2) {
        let dy = back.dy()?;
        let db = back.sum_away("grad_bias", dy, vec![0, 2, 3]);
        back.give(2, db);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Amount;

    fn map(channels: usize, h: usize, w: usize) -> TensorType {
        TensorType::f32([2, channels, h, w].map(Dim::from))
    }

    #[test]
    fn shapes_follow_the_window_rule() {
        let rows = [
            (
                Conv2d::new(3, 64, 7).stride(2).padding(3),
                [224, 224],
                [112, 112],
            ),
            (Conv2d::new(3, 64, 3).padding(1), [97, 131], [97, 131]),
            (Conv2d::new(3, 64, 14).stride(14), [98, 126], [7, 9]),
            (
                Conv2d {
                    dilation: [2, 1],
                    ..Conv2d::new(3, 8, 3)
                },
                [9, 9],
                [5, 7],
            ),
        ];
        for (conv, [h, w], [oh, ow]) in rows {
            let out = conv.infer(&[&map(3, h, w)]).unwrap();
            assert_eq!(
                out[0],
                map(conv.out_channels, oh, ow),
                "{}",
                conv.describe()
            );
        }
    }

    #[test]
    fn transposed_undoes_the_size_of_its_convolution() {
        let up = ConvTranspose2d::new(Conv2d::new(8, 4, 2).stride(2));
        assert_eq!(up.infer(&[&map(8, 5, 7)]).unwrap()[0], map(4, 10, 14));
        assert_eq!(
            up.cost(&[&map(8, 5, 7)], &[]).macs,
            Amount::Known(Dim::from(2 * 8 * 35 * 4 * 4))
        );
    }

    #[test]
    fn wrong_channels_and_groups_are_refused() {
        assert!(
            Conv2d::new(4, 8, 3)
                .infer(&[&map(3, 8, 8)])
                .unwrap_err()
                .contains("[N, 4, H, W]")
        );
        assert!(
            Conv2d::new(3, 8, 3)
                .groups(2)
                .infer(&[&map(3, 8, 8)])
                .is_err()
        );
        assert!(
            Conv2d::new(3, 8, 3)
                .stride(0)
                .infer(&[&map(3, 8, 8)])
                .is_err()
        );
    }

    #[test]
    fn prints_like_pytorch() {
        let conv = Conv2d::new(3, 64, 7).stride(2).padding(3).no_bias();
        let expected =
            "Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)";
        assert_eq!(conv.describe(), expected);
    }
}

//! Ops on maps: pooling and resizing.

use percept_graph::{
    AdaptiveAvgPool2d, AvgPool2d, MaxPool2d, Node, Resize, ResizeMode, ResizeScale,
};

use super::{Done, Names, ToOnnx, ints, pads};
use crate::lowering::{Lowering, unsupported};
use crate::schema::Attribute::{self, Float, Int, Text};

fn window(kernel: usize, stride: usize, padding: usize) -> Vec<(&'static str, Attribute)> {
    vec![
        ("kernel_shape", ints([kernel; 2])),
        ("strides", ints([stride; 2])),
        ("pads", pads([padding; 2])),
    ]
}

impl ToOnnx for MaxPool2d {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let attributes = window(self.kernel, self.stride, self.padding);
        l.define(node, "MaxPool", inputs, attributes);
        Ok(())
    }
}

impl ToOnnx for AvgPool2d {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let mut attributes = window(self.kernel, self.stride, self.padding);
        attributes.push(("count_include_pad", Int(self.count_include_pad.into())));
        l.define(node, "AveragePool", inputs, attributes);
        Ok(())
    }
}

impl ToOnnx for AdaptiveAvgPool2d {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        if self.output == [1, 1] {
            l.define(node, "GlobalAveragePool", inputs, vec![]);
            return Ok(());
        }
        let shape = l.shape(node.inputs[0])?;
        let input = [shape[2], shape[3]];
        if [0, 1]
            .iter()
            .any(|&i| self.output[i] == 0 || !input[i].is_multiple_of(self.output[i]))
        {
            let reason = format!("a map of {input:?} has no equal bins of {:?}", self.output);
            return Err(unsupported(node, reason));
        }
        let bin = [input[0] / self.output[0], input[1] / self.output[1]];
        let attributes = vec![("kernel_shape", ints(bin)), ("strides", ints(bin))];
        l.define(node, "AveragePool", inputs, attributes);
        Ok(())
    }
}

impl ToOnnx for Resize {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let (from, to) = (l.shape(node.inputs[0])?, l.shape(node.outputs[0])?);
        if from == to {
            l.define(node, "Identity", inputs, vec![]);
            return Ok(());
        }
        if let ResizeScale::OutputOffset(_) = self.scale {
            return Err(unsupported(node, "ONNX derives the scale from the sizes"));
        }
        let half_pixel = ("coordinate_transformation_mode", Text("half_pixel"));
        let cubic = |a| ("cubic_coeff_a", Float(a));
        let attributes = match self.mode {
            ResizeMode::Nearest => vec![
                ("mode", Text("nearest")),
                ("coordinate_transformation_mode", Text("asymmetric")),
                ("nearest_mode", Text("floor")),
            ],
            ResizeMode::Bilinear => vec![("mode", Text("linear")), half_pixel],
            ResizeMode::Bicubic => vec![("mode", Text("cubic")), cubic(-0.75), half_pixel],
            // Antialiased filters are cut at the edge and normalised, which ONNX calls exclude_outside.
            ResizeMode::BilinearAntialias => vec![
                ("mode", Text("linear")),
                ("antialias", Int(1)),
                ("exclude_outside", Int(1)),
                half_pixel,
            ],
            ResizeMode::BicubicAntialias => vec![
                ("mode", Text("cubic")),
                cubic(-0.5),
                ("antialias", Int(1)),
                ("exclude_outside", Int(1)),
                half_pixel,
            ],
        };
        let sizes = l.integers(node, "sizes", to);
        let absent = String::new();
        let inputs = vec![inputs[0].clone(), absent.clone(), absent, sizes];
        l.define(node, "Resize", inputs, attributes);
        Ok(())
    }
}

//! Files read back by an independent reader of the wire format.

use std::borrow::Cow;
use std::collections::BTreeMap;

use percept_graph::{
    Activation, Affine, Amax, Attention, BatchNorm, Binary, BinaryKind, Builder, Constant, Conv2d,
    Dim, Dropout, Gather, Graph, InputGrid, Normalize, Pad, Resize, ResizeMode, ResizeScale,
    ScatterAdd, Sign, WeightError, WeightGrid, WeightSource,
};
use percept_models::{Settings, zoo};

use super::*;
use crate::protobuf::reading::{Field, blobs, fields, varints};

/// Weights 0, 1, 2, ... in every tensor.
struct Counting;

impl WeightSource for Counting {
    fn read(&self, _: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let elements: usize = shape.iter().product();
        Ok((0..elements).map(|i| i as f32).collect::<Vec<_>>().into())
    }
    fn describe(&self) -> String {
        "counting".to_owned()
    }
}

struct Missing;

impl WeightSource for Missing {
    fn read(&self, name: &str, _: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let name = name.to_owned();
        let weights = self.describe();
        Err(WeightError::Missing { name, weights })
    }
    fn describe(&self) -> String {
        "missing".to_owned()
    }
}

/// What a file says: node types, and initializers by name with their sizes and numbers.
#[derive(Debug)]
struct File {
    nodes: Vec<String>,
    wires: Vec<(Vec<String>, Vec<String>)>,
    initializers: BTreeMap<String, (Vec<u64>, Vec<u8>)>,
    inputs: Vec<String>,
    /// ONNX's numbers of the inputs' element types.
    input_types: Vec<u64>,
    outputs: Vec<String>,
}

fn texts(blobs: Vec<&[u8]>) -> Vec<String> {
    let text = |blob: &[u8]| String::from_utf8(blob.to_vec()).unwrap();
    blobs.into_iter().map(text).collect()
}

/// The element type inside a ValueInfoProto: type, tensor_type, elem_type.
fn element_type(value: &[(u64, Field)]) -> u64 {
    let ty = fields(blobs(value, 2)[0]).unwrap();
    let tensor = fields(blobs(&ty, 1)[0]).unwrap();
    varints(&tensor, 1)[0]
}

fn read(bytes: &[u8]) -> File {
    let model = fields(bytes).unwrap();
    assert_eq!(varints(&model, 1), [8]);
    let [graph] = blobs(&model, 7)[..] else {
        panic!("one graph")
    };
    let graph = fields(graph).unwrap();
    let messages = |field| -> Vec<_> {
        let blobs = blobs(&graph, field).into_iter();
        blobs.map(|blob| fields(blob).unwrap()).collect()
    };
    let nodes = messages(1);
    let initializers = messages(5).into_iter().map(|tensor| {
        let name = texts(blobs(&tensor, 8)).remove(0);
        (name, (varints(&tensor, 1), blobs(&tensor, 9)[0].to_vec()))
    });
    let names = |field| {
        messages(field)
            .iter()
            .map(|v| texts(blobs(v, 1)).remove(0))
            .collect()
    };
    File {
        nodes: nodes
            .iter()
            .map(|node| texts(blobs(node, 4)).remove(0))
            .collect(),
        wires: nodes
            .iter()
            .map(|node| (texts(blobs(node, 1)), texts(blobs(node, 2))))
            .collect(),
        initializers: initializers.collect(),
        inputs: names(11),
        input_types: messages(11).iter().map(|v| element_type(v)).collect(),
        outputs: names(12),
    }
}

fn export_shapes(graph: &Graph, shapes: &[(&str, Vec<usize>)]) -> Result<File, ExportError> {
    let mut bytes = Vec::new();
    let exported = export(graph, &graph.bind(shapes)?, &Counting, &mut bytes)?;
    assert_eq!(exported.bytes, bytes.len() as u64);
    let file = read(&bytes);
    assert_eq!(exported.nodes, file.nodes.len());
    assert_wires_are_sound(&file);
    Ok(file)
}

/// Every value is defined once, before it is read.
fn assert_wires_are_sound(file: &File) {
    let mut defined: Vec<&String> = file.inputs.iter().chain(file.initializers.keys()).collect();
    for (inputs, outputs) in &file.wires {
        for input in inputs.iter().filter(|name| !name.is_empty()) {
            assert!(
                defined.contains(&input),
                "{input} is read before it is defined"
            );
        }
        for output in outputs {
            assert!(!defined.contains(&output), "{output} is defined twice");
            defined.push(output);
        }
    }
    for output in &file.outputs {
        assert!(defined.contains(&output), "output {output} is not defined");
    }
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    let number = |chunk: &[u8]| f32::from_le_bytes(chunk.try_into().unwrap());
    bytes.chunks_exact(4).map(number).collect()
}

#[test]
fn a_small_network_reads_back() {
    let mut b = Builder::new("Tiny");
    let x = b.input(
        "image",
        [
            Dim::symbol("N"),
            2.into(),
            Dim::symbol("H"),
            Dim::symbol("W"),
        ],
    );
    let y = b.conv2d("conv", x, Conv2d::new(2, 3, 3).padding(1));
    let y = b.relu("relu", y);
    let y = b.leaf("drop", Dropout { p: 0.5 }, &[y]);
    b.output("map", y);
    let y = b.permute("rows", y, &[0, 2, 3, 1]);
    let y = b.linear("fc", y, 3, 5);
    b.output("y", y);
    b.output("again", y);
    let graph = b.finish().unwrap();
    let file = export_shapes(&graph, &[("image", vec![1, 2, 4, 6])]).unwrap();
    let expected = [
        "Conv",
        "Relu",
        "Transpose",
        "MatMul",
        "Add",
        "Identity",
        "Identity",
    ];
    assert_eq!(file.nodes, expected);
    assert_eq!(file.inputs, ["image"]);
    assert_eq!(file.outputs, ["map", "y", "again"]);
    let (shape, data) = &file.initializers["conv.weight"];
    assert_eq!(*shape, [3, 2, 3, 3]);
    assert_eq!(f32s(data), (0..54).map(|i| i as f32).collect::<Vec<_>>());
    let (shape, data) = &file.initializers["fc.weight.transposed"];
    assert_eq!(*shape, [3, 5]);
    assert_eq!(f32s(data)[..6], [0.0, 3.0, 6.0, 9.0, 12.0, 1.0]);
}

/// Layers behind quantisers sum integers; what those stand for, and a batch norm, are multiplied onto the sums.
#[test]
fn quantised_layers_sum_integers() {
    let mut b = Builder::new("Tiny");
    let x = b.input("x", [1, 2, 4, 4].map(Dim::from));
    let y = b.conv2d("conv", x, Conv2d::new(2, 3, 1).no_bias());
    let y = b.batch_norm("bn", y, BatchNorm::new(3));
    let y = b.relu("relu", y);
    let y = b.conv2d("head", y, Conv2d::new(3, 4, 1));
    b.output("y", y);
    let graph = b.finish().unwrap();
    let grid = |amax, sign| InputGrid {
        bits: 8,
        amax: Amax::Static(amax),
        sign,
    };
    let graph = graph.quantized(|node| match node.name.as_str() {
        "conv" => Some((WeightGrid::BYTES, grid(254.0, Sign::Signed))),
        "head" => Some((WeightGrid::BYTES, grid(0.0, Sign::NonNegative))),
        _ => None,
    });
    let file = export_shapes(&graph, &[("x", vec![1, 2, 4, 4])]).unwrap();
    let quantizer = ["Clip", "Mul", "Round", "QuantizeLinear", "DequantizeLinear"];
    let layer = ["DequantizeLinear", "Conv", "Mul", "Add"];
    let mut expected = [quantizer.as_slice(), &layer].concat();
    expected.push("Relu");
    expected.extend([quantizer.as_slice(), &layer].concat());
    assert_eq!(file.nodes, expected);
    let numbers = |name: &str| f32s(&file.initializers[name].1);
    assert_eq!(numbers("conv.input_quantizer/low"), [-254.0]);
    assert_eq!(numbers("conv.input_quantizer/per_unit"), [0.5]);
    // A range of nothing gives zeros.
    assert_eq!(numbers("head.input_quantizer/per_unit"), [0.0]);
    // Rows [0, 1], [2, 3], [4, 5]; weight, bias, mean and variance of the norm are 0, 1, 2 each.
    let (shape, integers) = &file.initializers["conv.weight.integers"];
    assert_eq!(*shape, [3, 2, 1, 1]);
    assert_eq!(integers, &[0, 127, 85, 127, 102, 127]);
    let (shape, factors) = &file.initializers["conv/factors"];
    assert_eq!(*shape, [3, 1, 1]);
    let step = [1.0 / 127.0, 3.0 / 127.0, 5.0 / 127.0f32];
    for (channel, (factor, step)) in f32s(factors).into_iter().zip(step).enumerate() {
        let norm = channel as f32 / (channel as f32 + 1e-5).sqrt();
        let expected = 2.0 * step * norm;
        assert!((factor - expected).abs() <= 1e-6 * expected, "{channel}");
    }
    assert_eq!(numbers("head/shifts"), [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn every_model_of_the_zoo_exports() {
    let tiny: [&[&str]; 2] = [&["registers=0"], &["registers=4"]];
    let small = ["embed=48", "depth=2", "heads=4", "image_size=70"];
    for registers in tiny {
        let settings = Settings::parse(small.iter().chain(registers)).unwrap();
        let model = zoo::build("dinov2-vits14", &settings).unwrap();
        let model = model.sized(None, [42, 56]).unwrap();
        let shapes = model.input_shapes(1);
        let file = export_shapes(&model.graph, &shapes).unwrap();
        assert_eq!(file.initializers["pos_resize"].0, [1, 48, 3, 4]);
        assert!(!file.nodes.contains(&"Resize".to_owned()));
        // Nobody reads the mask token, and the resize was the only reader of the stored positions' map.
        assert!(!file.initializers.contains_key("mask_token"));
        assert!(
            !file
                .wires
                .iter()
                .any(|(_, outputs)| outputs.contains(&"pos_map".to_owned()))
        );
    }
    for entry in zoo::entries().filter(|entry| !entry.name.starts_with("dinov2")) {
        let model = entry.build(&Settings::none()).unwrap();
        let shapes = model.input_shapes(2);
        // Sparse networks, networks of points and losses have no ONNX form.
        let inexpressible = [
            "centerpoint",
            "centerpoint-voxel01",
            "centerpoint-small",
            "centerpoint-sparse",
            "paco-contrast",
            "randlanet",
            "randlanet-seed",
            "randlanet-levels",
            "knn",
        ];
        let is_expressible = !inexpressible.contains(&entry.name);
        match export_shapes(&model.graph, &shapes) {
            Ok(_) => assert!(is_expressible, "{}", entry.name),
            Err(error) => assert!(!is_expressible, "{}: {error}", entry.name),
        }
    }
}

#[test]
fn what_onnx_cannot_say_is_refused() {
    let mut b = Builder::new("Net");
    let x = b.input("x", [1, 2, 4, 4].map(Dim::from));
    let resize = Resize {
        mode: ResizeMode::Bicubic,
        size: [7.into(), 7.into()],
        scale: ResizeScale::OutputOffset(0.1),
    };
    let y = b.call("grow", resize, &[x]);
    b.output("y", y);
    let error = export_shapes(&b.finish().unwrap(), &[("x", vec![1, 2, 4, 4])]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("grow: Resize has no ONNX form here"),
        "{error}"
    );
}

#[test]
fn a_file_beyond_two_gigabytes_is_refused_before_anything_is_written() {
    let mut b = Builder::new("Huge");
    let x = b.input("x", [1, 30_000].map(Dim::from));
    let y = b.linear("fc", x, 30_000, 30_000);
    b.output("y", y);
    let graph = b.finish().unwrap();
    let bindings = graph.bind(&[("x", vec![1, 30_000])]).unwrap();
    let mut bytes = Vec::new();
    let error = export(&graph, &bindings, &Missing, &mut bytes).unwrap_err();
    assert!(matches!(error, ExportError::TooLarge { bytes, .. } if bytes > 3_600_000_000));
    assert!(bytes.is_empty());
}

#[test]
fn a_missing_weight_is_named() {
    let mut b = Builder::new("Net");
    let x = b.input("x", [1, 6].map(Dim::from));
    let y = b.linear("fc", x, 6, 6);
    b.output("y", y);
    let graph = b.finish().unwrap();
    let bindings = graph.bind(&[("x", vec![1, 6])]).unwrap();
    let error = export(&graph, &bindings, &Missing, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("`fc.weight`"), "{error}");
}

#[test]
fn attention_and_gelu_become_primitive_operators() {
    let mut b = Builder::new("Net");
    let x = b.input("x", [1, 5, 24].map(Dim::from));
    let y = b.call("attn", Attention { heads: 2, width: 8 }, &[x]);
    let y = b.leaf("act", Activation::Gelu, &[y]);
    b.output("y", y);
    let file = export_shapes(&b.finish().unwrap(), &[("x", vec![1, 5, 24])]).unwrap();
    for op in ["Split", "Softmax", "Erf"] {
        assert!(file.nodes.contains(&op.to_owned()), "{op}");
    }
    assert_eq!(f32s(&file.initializers["attn/scale"].1), [0.5]);
}

#[test]
fn rows_lines_and_constants_have_forms() {
    let mut b = Builder::new("Rows");
    let x = b.input("x", [4, 3].map(Dim::from));
    let rows = b.integer_input("rows", [Dim::from(5)]);
    let picked = b.call("pick", Gather, &[x, rows]);
    let summed = b.call("sum", ScatterAdd { rows: 6.into() }, &[picked, rows]);
    let pad = Pad {
        axis: 1,
        before: 2.into(),
        after: 1.into(),
    };
    let padded = b.call("pad", pad, &[summed]);
    let line = Affine {
        shift: 0.5,
        ..Affine::divided(4.into())
    };
    let line = b.call("line", line, &[padded]);
    let shape = vec![6.into(), 6.into()];
    let line = b.call("unit", Normalize { eps: 1e-3 }, &[line]);
    let half = b.call("half", Constant { value: 0.5, shape }, &[]);
    let kind = BinaryKind::Greater;
    let above = b.call("above", Binary { kind }, &[line, half]);
    b.output("y", above);
    let shapes = [("x", vec![4, 3]), ("rows", vec![5])];
    let file = export_shapes(&b.finish().unwrap(), &shapes).unwrap();
    assert_eq!(file.input_types, [1, 6], "float and int32");
    let expected = [
        "Gather",
        "Expand",
        "Cast",
        "Reshape",
        "ScatterND",
        "Pad",
        "Mul",
        "Add",
        "ReduceL2",
        "Max",
        "Div",
        "Expand",
        "Greater",
        "Cast",
    ];
    assert_eq!(file.nodes, expected);
    assert_eq!(f32s(&file.initializers["line/scale"].1), [0.25]);
    assert_eq!(f32s(&file.initializers["line/shift"].1), [0.5]);
    assert_eq!(file.initializers["pad/pads"].0, [2]);
}

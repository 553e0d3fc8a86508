//! ONNX's messages, with the field numbers of onnx.proto.

use percept_graph::DType;

use crate::protobuf::Message;

/// The version of the file format, and of the operators that are used.
const IR_VERSION: i64 = 8;
const OPSET: i64 = 18;

/// ONNX's number of an element type.
pub(crate) fn type_code(dtype: DType) -> i64 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::BF16 => 16,
    }
}

/// An attribute of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attribute {
    Int(i64),
    Float(f32),
    Text(&'static str),
    Ints(Vec<i64>),
}

impl Attribute {
    fn message(&self, name: &str) -> Message {
        let message = Message::new().text(1, name);
        match self {
            Attribute::Float(value) => message.float(2, *value).int(20, 1),
            Attribute::Int(value) => message.int(3, *value).int(20, 2),
            Attribute::Text(value) => message.text(4, value).int(20, 3),
            Attribute::Ints(values) => message.ints(8, values.iter().copied()).int(20, 7),
        }
    }
}

/// A node: an operator on named values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) op: &'static str,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) attributes: Vec<(&'static str, Attribute)>,
}

impl Node {
    pub(crate) fn message(&self) -> Message {
        let message = Message::new();
        let message = self
            .inputs
            .iter()
            .fold(message, |m, input| m.text(1, input));
        let message = self
            .outputs
            .iter()
            .fold(message, |m, output| m.text(2, output));
        let message = message.text(3, &self.name).text(4, self.op);
        let attributes = self.attributes.iter();
        attributes.fold(message, |m, (name, value)| {
            m.message(5, &value.message(name))
        })
    }
}

/// A TensorProto up to its data, which follows as the raw bytes that this announces.
pub(crate) fn tensor_header(name: &str, dtype: DType, shape: &[usize], bytes: u64) -> Message {
    Message::new()
        .ints(1, shape.iter().map(|&size| size as i64))
        .int(2, type_code(dtype))
        .text(8, name)
        .announce(9, bytes)
}

/// The name, element type and shape of an input or output.
pub(crate) fn value_info(name: &str, dtype: DType, shape: &[usize]) -> Message {
    let sizes = shape.iter().map(|&size| Message::new().int(1, size as i64));
    let shape = sizes.fold(Message::new(), |shape, size| shape.message(1, &size));
    let tensor = Message::new().int(1, type_code(dtype)).message(2, &shape);
    Message::new()
        .text(1, name)
        .message(2, &Message::new().message(1, &tensor))
}

/// The fields of a ModelProto in front of its graph.
pub(crate) fn model_header() -> Message {
    let opset = Message::new().text(1, "").int(2, OPSET);
    Message::new()
        .int(1, IR_VERSION)
        .text(2, "percept")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(8, &opset)
}

/// Field numbers of a ModelProto and a GraphProto.
pub(crate) mod field {
    pub(crate) const MODEL_GRAPH: u64 = 7;
    pub(crate) const GRAPH_NODE: u64 = 1;
    pub(crate) const GRAPH_NAME: u64 = 2;
    pub(crate) const GRAPH_INITIALIZER: u64 = 5;
    pub(crate) const GRAPH_INPUT: u64 = 11;
    pub(crate) const GRAPH_OUTPUT: u64 = 12;
}

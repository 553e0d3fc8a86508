//! The end of the network as ops of the graph: head maps to candidates, candidates to detections, and those to an answer.

use std::sync::Arc;

use percept_graph::{
    Amount, Builder, Cost, CustomOp, Dim, Op, OpContext, Operator, Tensor, TensorError, TensorType,
    ValueId,
};

use super::decode::{DecodeConfig, HeadMaps, candidates, suppress};
use super::head::{BRANCHES, HEADS};
use crate::answer::{Answer, AnswerError, AnswerKind, Boxes, FoundBox, Head, Ran};

/// The output with the boxes of all samples.
pub(super) const DETECTIONS: &str = "detections";
/// Values of a candidate in front of its box: sample and head.
const ORIGIN: usize = 2;
/// Values of a box: class, score, centre, size, yaw, velocity.
const BOX: usize = 11;

/// Adds the outputs `candidates` [K, 13] and `detections` [D, 12], whose first value is the sample.
pub(super) fn detections(b: &mut Builder, config: DecodeConfig, heads: &[ValueId]) {
    let decode: Arc<dyn CustomOp> = Arc::new(Decode { config });
    let candidates = b.call("decode", Op::Custom(decode), heads);
    let suppress: Arc<dyn CustomOp> = Arc::new(Suppress { config });
    let detections = b.call("nms", Op::Custom(suppress), &[candidates]);
    b.output(DETECTIONS, detections);
}

/// Reads the boxes of each sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct DetectionHead {
    pub(super) reach_m: f32,
}

impl Head for DetectionHead {
    fn kind(&self) -> AnswerKind {
        AnswerKind::Boxes
    }

    fn read(&self, ran: &Ran<'_>) -> Result<Vec<Answer>, AnswerError> {
        let found = found_boxes(ran.output(DETECTIONS)?, ran.samples.len());
        let boxes = |found| Boxes::new(found, Arc::clone(ran.classes), self.reach_m);
        Ok(found
            .into_iter()
            .map(|found| Answer::Boxes(boxes(found)))
            .collect())
    }
}

/// The boxes of each of so many samples, in the network's order.
pub(super) fn found_boxes(detections: &Tensor<'_>, samples: usize) -> Vec<Vec<FoundBox>> {
    let mut found = vec![Vec::new(); samples];
    for row in detections.to_f32().chunks_exact(1 + BOX) {
        if let Some(found) = found.get_mut(row[0] as usize) {
            found.push(detection(&row[1..]));
        }
    }
    found
}

fn detection(values: &[f32]) -> FoundBox {
    FoundBox {
        class: values[0] as usize,
        score: values[1],
        center: [values[2], values[3], values[4]],
        size: [values[5], values[6], values[7]],
        yaw: values[8],
        velocity: [values[9], values[10]],
    }
}

fn values(detection: &FoundBox) -> [f32; BOX] {
    let FoundBox {
        class,
        score,
        center: [x, y, z],
        size: [length, width, height],
        yaw,
        velocity: [vx, vy],
    } = *detection;
    [
        class as f32,
        score,
        x,
        y,
        z,
        length,
        width,
        height,
        yaw,
        vx,
        vy,
    ]
}

#[derive(Debug)]
struct Decode {
    config: DecodeConfig,
}

impl Operator for Decode {
    fn kind(&self) -> &'static str {
        "Decode"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if inputs.len() != HEADS.len() * (BRANCHES.len() + 1) {
            return Err("six maps of each head".to_owned());
        }
        let shape = [Dim::symbol("candidates"), (ORIGIN + BOX).into()];
        Ok(vec![TensorType::f32(shape)])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // One comparison for each place of the heat maps, which are every head's last; what else depends on how many pass.
        let maps = inputs
            .chunks(BRANCHES.len() + 1)
            .filter_map(|maps| maps.last());
        Cost {
            macs: Amount::zero(),
            other_ops: maps.map(|map| map.elements()).sum::<Dim>().into(),
        }
    }

    fn describe(&self) -> String {
        "Decode()".to_owned()
    }
}

impl CustomOp for Decode {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let maps: Vec<(&[usize], &[f32])> =
            inputs.iter().map(Tensor::read).collect::<Result<_, _>>()?;
        let [samples, _, height, width] = *maps[0].0 else {
            return Err("takes maps [N, C, H, W]".to_owned());
        };
        let mut rows = Vec::new();
        for sample in 0..samples {
            let plane = |input: usize| {
                let (shape, data) = maps[input];
                let len = shape[1] * height * width;
                &data[sample * len..(sample + 1) * len]
            };
            for (head, classes) in HEADS.iter().enumerate() {
                let first = head * (BRANCHES.len() + 1);
                let maps = HeadMaps {
                    classes,
                    center: plane(first),
                    center_z: plane(first + 1),
                    dim: plane(first + 2),
                    rot: plane(first + 3),
                    vel: plane(first + 4),
                    hm: plane(first + 5),
                };
                for candidate in candidates(&maps, [height, width], &self.config) {
                    rows.extend([sample as f32, head as f32]);
                    rows.extend(values(&candidate));
                }
            }
        }
        Ok(vec![table(rows, ORIGIN + BOX)?])
    }
}

#[derive(Debug)]
struct Suppress {
    config: DecodeConfig,
}

impl Operator for Suppress {
    fn kind(&self) -> &'static str {
        "RotatedNms"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [candidates] if candidates.shape.len() == 2 => {
                let shape = [Dim::symbol("detections"), (1 + BOX).into()];
                Ok(vec![TensorType::f32(shape)])
            }
            _ => Err("candidates [K, 13]".to_owned()),
        }
    }

    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        // How many pairs are compared depends on which boxes stay.
        Cost {
            macs: Amount::zero(),
            other_ops: Amount::Unknown,
        }
    }

    fn describe(&self) -> String {
        format!("RotatedNms(iou={})", self.config.suppression.iou)
    }
}

impl CustomOp for Suppress {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let candidates = inputs[0].values::<f32>()?;
        let mut rows = Vec::new();
        let all: Vec<&[f32]> = candidates.chunks_exact(ORIGIN + BOX).collect();
        for group in all.chunk_by(|a, b| a[..ORIGIN] == b[..ORIGIN]) {
            let boxes: Vec<FoundBox> = group.iter().map(|row| detection(&row[ORIGIN..])).collect();
            for kept in suppress(&boxes, &self.config) {
                rows.push(group[kept][0]);
                rows.extend(&group[kept][ORIGIN..]);
            }
        }
        Ok(vec![table(rows, 1 + BOX)?])
    }
}

fn table(rows: Vec<f32>, width: usize) -> Result<Tensor<'static>, TensorError> {
    Tensor::from_values([rows.len() / width, width], rows)
}

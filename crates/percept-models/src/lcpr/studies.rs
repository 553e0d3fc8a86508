//! What LCPR's report compares: "LCPR Architecture Analysis for Matformer Integration", a text that plans elastic fusion blocks
//! by a profile which it misreads, measured again.

use crate::study::{
    Component, Finding, InferenceStudy, Measure, Measured, PublishedOperator, Study,
};

pub(crate) static STUDIES: &[Study] = &[PROFILE];

const fn part(name: &'static str, scopes: &'static [&'static str]) -> Component {
    Component {
        name,
        scopes,
        is_own: false,
    }
}

const fn published(
    name: &'static str,
    kinds: &'static [&'static str],
    mebibytes: f64,
    calls: u32,
) -> PublishedOperator {
    PublishedOperator {
        name,
        kinds,
        mebibytes,
        calls,
    }
}

const FUSION: [usize; 4] = [3, 4, 5, 6];
const NETVLAD: usize = 8;

const PROFILE: Study = Study {
    name: "profile",
    about: "where time and memory of a frame are, by module and by operator, and what elastic axes reach",
    shared: &[],
    rows: &[],
    measured: Measured::Inference(InferenceStudy {
        components: &[
            part("camera stem", &["conv1_i", "bn1_i", "relu_i", "maxpool"]),
            part(
                "camera stages",
                &["layer1_i", "layer2_i", "layer3_i", "layer4_i"],
            ),
            part(
                "LiDAR stages",
                &["conv_l", "layer2_l", "layer3_l", "layer4_l"],
            ),
            part("fusion1", &["fusion1", "sum1"]),
            part("fusion2", &["fusion2", "sum2"]),
            part("fusion3", &["fusion3", "sum3"]),
            part("fusion4", &["fusion4", "sum4"]),
            part("final VertConv", &["v_conv_i", "v_conv_l"]),
            part("NetVLAD", &["netvlad_i", "netvlad_l", "eca"]),
        ],
        published: &[
            published("aten::empty", &[], 1730.56, 640),
            published("aten::resize_", &[], 326.65, 97),
            published("aten::bmm", &["Attention", "MatMul"], 92.52, 10),
            published("aten::div", &[], 90.52, 9),
            published("aten::_softmax", &["Softmax"], 90.43, 6),
            published("aten::add", &["Add"], 49.76, 22),
            published("aten::sigmoid", &["Sigmoid"], 49.50, 13),
            published("aten::max_pool2d_with_indices", &["MaxPool2d"], 49.50, 1),
            published("aten::max", &["ReduceMax"], 7.73, 10),
            published("aten::mm", &["Linear"], 6.22, 18),
            published("aten::cat", &["Concat"], 2.06, 5),
            published("aten::native_batch_norm", &["BatchNorm"], 246.50, 79),
        ],
        findings: &[
            Finding {
                says: "empty is the largest memory allocator (1.69 GB)",
                here: "that is the sum of all workspaces of a frame, one behind the other; held at once are",
                evidence: Measure::Peak,
            },
            Finding {
                says: "fusion blocks are the primary bottleneck",
                here: "all four take",
                evidence: Measure::Share(&FUSION),
            },
            Finding {
                says: "NetVLAD contributes significantly",
                here: "it takes",
                evidence: Measure::Share(&[NETVLAD]),
            },
            Finding {
                says: "VertConv and heads have the most significant impact",
                here: "at their first levels, these two axes save",
                evidence: Measure::Reach(&["fusion"]),
            },
            Finding {
                says: "the backbone remains computationally intensive",
                here: "widths inside of its stages save",
                evidence: Measure::Reach(&["stage"]),
            },
            Finding {
                says: "(not in the text)",
                here: "the height of the pictures saves",
                evidence: Measure::Reach(&["camera.height"]),
            },
            Finding {
                says: "(not in the text)",
                here: "all axes together save",
                evidence: Measure::Reach(&[""]),
            },
        ],
    }),
};

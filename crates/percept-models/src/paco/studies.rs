//! What reports of PaCo-2 compare.

use crate::study::{Change, Component, Measured, PublishedSteps, StepStudy, Study, StudyRow};

pub(crate) static STUDIES: &[Study] = &[COST, ABLATION, ADVICE];

const fn row(title: &'static str, set: &'static [(&'static str, &'static str)]) -> StudyRow {
    StudyRow {
        title,
        set,
        run: &[],
    }
}

/// A row of the costs, with all that the published report recommends to change.
macro_rules! cost {
    ($title:literal: $backbone:literal, $loss:literal, d $d:literal, r $r:literal, $hardest:literal hardest, $side:literal, $kept:literal) => {
        StudyRow {
            title: $title,
            set: &[
                ("backbone", $backbone),
                ("loss", $loss),
                ("d", $d),
                ("r", $r),
                ("hardest", $hardest),
                ("image_size", $side),
            ],
            run: &[("activations", $kept)],
        }
    };
}

/// From what was published to everything that the published report recommends, one change at a time.
const COST: Study = Study {
    name: "cost",
    about: "what the form of the loss, the backbone, the size of the parts and of pictures, and 16-bit activations cost in training",
    // The published report is about the published objective.
    shared: &[("objective", "published"), ("matching", "cosine")],
    rows: &[
        cost!("ResNet-50, naive": "resnet50", "naive", d "64", r "5", "0" hardest, "224", "f32"),
        cost!("ResNet-50, exact": "resnet50", "exact", d "64", r "5", "0" hardest, "224", "f32"),
        cost!("EfficientNet-B0, naive": "efficientnet-b0", "naive", d "64", r "5", "0" hardest, "224", "f32"),
        cost!("EfficientNet-B0, exact": "efficientnet-b0", "exact", d "64", r "5", "0" hardest, "224", "f32"),
        cost!("EfficientNet-B0, exact, d 32, r 3": "efficientnet-b0", "exact", d "32", r "3", "0" hardest, "224", "f32"),
        cost!("ResNet-50, naive, 16 hardest": "resnet50", "naive", d "64", r "5", "16" hardest, "224", "f32"),
        cost!("ResNet-50, exact, 16 hardest": "resnet50", "exact", d "64", r "5", "16" hardest, "224", "f32"),
        cost!("ResNet-50, exact, d 32": "resnet50", "exact", d "32", r "5", "0" hardest, "224", "f32"),
        cost!("ResNet-50, exact, r 3": "resnet50", "exact", d "64", r "3", "0" hardest, "224", "f32"),
        cost!("ResNet-50, exact, 192x192": "resnet50", "exact", d "64", r "5", "0" hardest, "192", "f32"),
        cost!("ResNet-50, exact, f16": "resnet50", "exact", d "64", r "5", "0" hardest, "224", "f16"),
    ],
    measured: Measured::Steps(StepStudy {
        batches: &[8, 32],
        components: &COMPONENTS,
        own: "loss+parts",
        slow: &[0, 2, 5],
        detailed: &[0, 1],
        changes: &[
            change("the exact loss (ResNet-50)", 0, 1),
            change("EfficientNet-B0 (exact loss)", 1, 3),
            change("d 32, r 3 (EfficientNet-B0, exact loss)", 3, 4),
            change("all three", 0, 4),
            change("the 16 hardest alone (naive loss)", 0, 5),
            change("the 16 hardest alone (exact loss)", 1, 6),
            change("d 32 alone", 1, 7),
            change("r 3 alone", 1, 8),
            change("192x192 instead of 224x224", 1, 9),
            change("mixed precision: activations kept in f16", 1, 10),
        ],
        training: [1000, 100],
        published: Some(PublishedSteps {
            row: 0,
            batch: 8,
            inference_ms: 22.59,
            step_ms: 13_266.0,
            says: ["220x", "89.7 min", "149.5 h"],
        }),
    }),
};

const fn change(title: &'static str, from: usize, to: usize) -> Change {
    Change { title, from, to }
}

const fn own(name: &'static str, scopes: &'static [&'static str]) -> Component {
    Component {
        name,
        scopes,
        is_own: true,
    }
}

const fn usual(name: &'static str, scopes: &'static [&'static str]) -> Component {
    Component {
        name,
        scopes,
        is_own: false,
    }
}

/// The components of the published report's table, with the modules that make them.
const COMPONENTS: [Component; 8] = [
    own(
        "loss: contrast, consistency, classes",
        &[
            "pac.negatives",
            "pac.contrast",
            "soc",
            "cross_entropy",
            "loss",
        ],
    ),
    own("negatives pool: its distances", &["pac.negatives_pool"]),
    usual("backbone, both views", &["backbone", "views"]),
    own("part sampling", &["part_sampler", "parts"]),
    own("matching", &["pac.matching"]),
    own("covariance", &["covariance"]),
    own("dimension reduction", &["dim_reduction"]),
    usual("classifier", &["pool", "mean", "classifier"]),
];

/// With and without each term of the loss.
const ABLATION: Study = Study {
    name: "ablation",
    about: "what each term of the loss brings, over several seeds, and whether that is shown",
    shared: &[],
    rows: &[
        row("CE", &[("lambda_pac", "0"), ("eta_soc", "0")]),
        row("CE + PaC", &[("eta_soc", "0")]),
        row("CE + SoC", &[("lambda_pac", "0")]),
        row("CE + PaC + SoC", &[]),
    ],
    measured: Measured::Trainings,
};

/// What the published report recommends, one change at a time, as far as it can change what is learned. The built-in pictures are
/// small: windows and pictures shrink by about as much as the report's.
const ADVICE: Study = Study {
    name: "advice",
    about: "what the published report recommends does to top-1, time and memory, one change at a time",
    shared: &[],
    rows: &[
        advice(
            "as it is",
            &[("d", "64"), ("r", "3"), ("hardest", "0")],
            AS_IT_IS,
        ),
        advice(
            "activations kept in f16",
            &[("d", "64"), ("r", "3"), ("hardest", "0")],
            &[("activations", "f16"), ("size", "64")],
        ),
        advice(
            "activations kept in bf16",
            &[("d", "64"), ("r", "3"), ("hardest", "0")],
            &[("activations", "bf16"), ("size", "64")],
        ),
        advice(
            "the 16 hardest alone",
            &[("d", "64"), ("r", "3"), ("hardest", "16")],
            AS_IT_IS,
        ),
        advice(
            "d 32 alone",
            &[("d", "32"), ("r", "3"), ("hardest", "0")],
            AS_IT_IS,
        ),
        advice(
            "r 1 alone",
            &[("d", "64"), ("r", "1"), ("hardest", "0")],
            AS_IT_IS,
        ),
        advice(
            "56x56, as 192 is to 224",
            &[("d", "64"), ("r", "3"), ("hardest", "0")],
            &[("activations", "f32"), ("size", "56")],
        ),
    ],
    measured: Measured::Trainings,
};

const AS_IT_IS: &[(&str, &str)] = &[("activations", "f32"), ("size", "64")];

const fn advice(
    title: &'static str,
    set: &'static [(&'static str, &'static str)],
    run: &'static [(&'static str, &'static str)],
) -> StudyRow {
    StudyRow { title, set, run }
}

//! What reports of PaCo-2 compare.

use crate::study::{Change, Component, Measured, PublishedSteps, StepStudy, Study, StudyRow};

pub(crate) static STUDIES: &[Study] = &[COST, ABLATION];

const fn row(title: &'static str, set: &'static [(&'static str, &'static str)]) -> StudyRow {
    StudyRow { title, set }
}

/// From what was published to everything that the published report recommends, one change at a time.
const COST: Study = Study {
    name: "cost",
    about: "what the form of the loss, the backbone, and the size of the parts cost in training",
    // The published report is about the published objective.
    shared: &[
        ("objective", "published"),
        ("matching", "cosine"),
        ("hardest", "0"),
    ],
    rows: &[
        row(
            "ResNet-50, naive",
            &[
                ("backbone", "resnet50"),
                ("loss", "naive"),
                ("d", "64"),
                ("r", "5"),
            ],
        ),
        row(
            "ResNet-50, exact",
            &[
                ("backbone", "resnet50"),
                ("loss", "exact"),
                ("d", "64"),
                ("r", "5"),
            ],
        ),
        row(
            "EfficientNet-B0, naive",
            &[
                ("backbone", "efficientnet-b0"),
                ("loss", "naive"),
                ("d", "64"),
                ("r", "5"),
            ],
        ),
        row(
            "EfficientNet-B0, exact",
            &[
                ("backbone", "efficientnet-b0"),
                ("loss", "exact"),
                ("d", "64"),
                ("r", "5"),
            ],
        ),
        row(
            "EfficientNet-B0, exact, d 32, r 3",
            &[
                ("backbone", "efficientnet-b0"),
                ("loss", "exact"),
                ("d", "32"),
                ("r", "3"),
            ],
        ),
    ],
    measured: Measured::Steps(StepStudy {
        batches: &[8, 32],
        components: &COMPONENTS,
        own: "loss+parts",
        slow: &[0, 2],
        detailed: &[0, 1],
        changes: &[
            change("the exact loss (ResNet-50)", 0, 1),
            change("EfficientNet-B0 (exact loss)", 1, 3),
            change("d 32, r 3 (EfficientNet-B0, exact loss)", 3, 4),
            change("all three", 0, 4),
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

//! What reports about CenterPoint compare.

use crate::study::{Measured, QuantizeStudy, Ranges, Study, Way};

const FLOAT: Way = Way {
    title: "original",
    ranges: Ranges::Float,
    sparse: false,
    weight_bits: 8,
    wide: &[],
    float: &[],
};

const fn way(title: &'static str, ranges: Ranges, sparse: bool) -> Way {
    Way {
        title,
        ranges,
        sparse,
        ..FLOAT
    }
}

/// The report quantises the maps in three ways and stops before the sparse convolutions; the rows behind them go on.
pub(super) const STUDIES: &[Study] = &[Study {
    name: "quantize",
    about: "what 8 bits cost, of maps alone and of sparse convolutions too",
    shared: &[],
    rows: &[],
    measured: Measured::Quantized(QuantizeStudy {
        ways: &[
            FLOAT,
            way("maps, dynamic", Ranges::Dynamic, false),
            way("maps, static max", Ranges::Static, false),
            way("maps, weight-only", Ranges::WeightOnly, false),
            way("all, dynamic", Ranges::Dynamic, true),
            way("all, static max", Ranges::Static, true),
            way("all, weight-only", Ranges::WeightOnly, true),
            // Raw intensity sets the scale of the first layers.
            Way {
                title: "mixed: first sparse layers in 16 bit",
                wide: &["backbone_3d.conv_input", "backbone_3d.conv1.0"],
                ..way("", Ranges::Static, true)
            },
        ],
        samples: 300,
        calibrated: 32,
        figures: &["map", "nds"],
        by_class: ["classes", "ap"],
        says: &[
            "results are only affected a little when Conv2d alone is quantised; sparse convolutions are the next target",
        ],
    }),
}];

//! What a published text on O-MaMa's bottlenecks says, section by section, and what is measured of it: "O-MaMa Training &
//! Inference Bottleneck Analysis".

use super::pieces::pieces;
use crate::study::pipeline::{
    Cost, Feed, Figure, Form, Kept, Line, PipelineStudy, PublishedShare, Section, Stage, Writing,
};
use crate::study::{Component, Measured, Study};

pub(super) static REPORT: &[Study] = &[report(Some(("backbone", "vits14")))];
/// The small network has the smaller backbone as it is.
pub(super) static SMALL_REPORT: &[Study] = &[report(None)];

const fn report(quick: Option<(&'static str, &'static str)>) -> Study {
    Study {
        name: "report",
        about: "where the time of a pair goes, and what each section of the published bottleneck analysis is worth here",
        // Two rooms have enough pairs for a step, and few pictures.
        shared: &[("data.pairs.rooms", "2"), ("data.pairs.testing_rooms", "1")],
        rows: &[],
        measured: Measured::Pipeline(PipelineStudy {
            batch: 12,
            pieces,
            components: COMPONENTS,
            stages: STAGES,
            share: PublishedShare {
                stages: &[4, 5, 6],
                name: "features and pooling",
                says: "50-70 %",
                by_its_figures: "44 %",
            },
            quick,
            fewer: ("augment.masks", "16"),
            sections: SECTIONS,
        }),
    }
}

const fn component(name: &'static str, scopes: &'static [&'static str]) -> Component {
    Component {
        name,
        scopes,
        is_own: false,
    }
}

const COMPONENTS: &[Component] = &[
    component("pooling", &["head.source_means", "head.dest_means"]),
    component(
        "cross-attention",
        &["head.CROSS_context_attn", "head.CROSS_context_attn_2"],
    ),
    component("projection", &["head.mlp", "head.mlp_2"]),
    component(
        "similarity",
        &["head.source_unit", "head.dest_unit", "head.cosine"],
    ),
    component("loss", &["loss"]),
];

const fn stage(name: &'static str, cost: Cost) -> Stage {
    Stage {
        name,
        cost,
        is_training: false,
    }
}

const fn training(name: &'static str, cost: Cost) -> Stage {
    Stage {
        name,
        cost,
        is_training: true,
    }
}

const STAGES: &[Stage] = &[
    stage("decoding of pictures", Cost::Piece("pictures decoded")),
    stage("decoding of masks", Cost::Piece("masks from RLE")),
    stage("resize", Cost::Piece("pictures resized")),
    training("adjacency, negatives", Cost::Piece("negatives")),
    stage("features", Cost::Features),
    stage(
        "pooling: weights of patches",
        Cost::Piece("weights of patches"),
    ),
    stage("pooling: the product", Cost::Component(0)),
    stage("cross-attention", Cost::Component(1)),
    stage("projection", Cost::Component(2)),
    stage("similarity", Cost::Component(3)),
    training("loss", Cost::Component(4)),
    training("backward", Cost::Backward),
    training("update", Cost::Update),
    training("checkpointing", Cost::Checkpoint),
];

const fn line(what: &'static str, before: Figure, after: Figure) -> Line {
    Line {
        what,
        before,
        after,
    }
}

const fn pieces_of(what: &'static str, before: &'static str, after: &'static str) -> Line {
    line(what, Figure::Piece(before), Figure::Piece(after))
}

const SECTIONS: &[Section] = &[
    Section {
        title: "1. features",
        says: "they are recomputed in every epoch; keep them, halve them, take a smaller backbone, batch them",
        lines: &[
            line(
                "made in every epoch, or kept as f32 and read",
                Figure::FeaturesMade,
                Figure::FeaturesRead(Kept::F32),
            ),
            line(
                "the same, kept as halves",
                Figure::FeaturesMade,
                Figure::FeaturesRead(Kept::F16),
            ),
            line(
                "on disk: f32, halves",
                Figure::FeaturesBytes(Kept::F32),
                Figure::FeaturesBytes(Kept::F16),
            ),
            line(
                "what halves change: the largest move of a similarity",
                Figure::Nothing,
                Figure::AnswersMoved,
            ),
            line(
                "FP16: weights in f32, or halves that are widened at every use (no arithmetic in halves here)",
                Figure::FeaturesMade,
                Figure::FeaturesOfHalves,
            ),
            line(
                "a smaller backbone",
                Figure::FeaturesMade,
                Figure::FeaturesQuick,
            ),
            line(
                "pairs one by one, or 2 at once",
                Figure::FeaturesMade,
                Figure::FeaturesTogether,
            ),
        ],
    },
    Section {
        title: "2. data",
        says: "one worker, images decoded and resized, masks decoded, for every sample; more workers, resized images kept",
        lines: &[
            line(
                "waiting for data: features made, or kept",
                Figure::Waiting(Feed::Made),
                Figure::Waiting(Feed::AllWorkers),
            ),
            line(
                "pairs in a second: features made, or kept",
                Figure::Pace(Feed::Made),
                Figure::Pace(Feed::AllWorkers),
            ),
            line(
                "waiting for data, features kept: one worker, or one for each core",
                Figure::Waiting(Feed::OneWorker),
                Figure::Waiting(Feed::AllWorkers),
            ),
            pieces_of(
                "32 masks: planes of an npz, or COCO's RLE",
                "masks from npz",
                "masks from RLE",
            ),
            pieces_of(
                "32 masks made smaller: through floats, or as runs",
                "masks resized as floats",
                "masks resized as runs",
            ),
            pieces_of(
                "two pictures: a JPEG decoded, or the resized numbers read",
                "pictures decoded",
                "resized pictures read",
            ),
        ],
    },
    Section {
        title: "3. memory",
        says: "images of 1.49 MB, masks as planes, dense features; gradient checkpointing, fewer masks, FP16",
        lines: &[
            line(
                "the source picture as bytes: the text's 704x704x3, and this one",
                Figure::Published("1.49 MB"),
                Figure::Piece("picture as bytes"),
            ),
            pieces_of(
                "but a network reads f32: bytes, f32 (704x704x3 are 5.95 MB)",
                "picture as bytes",
                "picture as f32",
            ),
            pieces_of(
                "32 masks: planes, or runs",
                "masks as planes",
                "masks as runs",
            ),
            pieces_of(
                "for descriptors: the enlarged map, or weights of patches",
                "enlarged map",
                "weights of patches in memory",
            ),
            line(
                "values of the cross-attention: with keys and values, or without",
                Figure::PieceMemory("attention with keys and values"),
                Figure::PieceMemory("attention with absorbed weights"),
            ),
            line(
                "checkpointing, memory: a step's peak, values kept or computed again",
                Figure::StepMemory(Form::Whole),
                Figure::StepMemory(Form::Recomputed),
            ),
            line(
                "checkpointing, time: values kept or computed again",
                Figure::Step(Form::Whole),
                Figure::Step(Form::Recomputed),
            ),
            line(
                "a step's peak: whole, or a quarter of the batch at a time",
                Figure::StepMemory(Form::Whole),
                Figure::StepMemory(Form::Parts),
            ),
            line(
                "its time: whole, or a quarter of the batch at a time",
                Figure::Step(Form::Whole),
                Figure::Step(Form::Parts),
            ),
            line(
                "a step's peak: all masks, or 16",
                Figure::StepMemory(Form::Whole),
                Figure::StepMemory(Form::Fewer),
            ),
            line(
                "its time: all masks, or 16",
                Figure::Step(Form::Whole),
                Figure::Step(Form::Fewer),
            ),
        ],
    },
    Section {
        title: "4. the network",
        says: "two cross-attentions over large maps, a similarity of 32x32, position embeddings that force a size",
        lines: &[
            pieces_of(
                "cross-attention: with keys and values, or absorbed",
                "attention with keys and values",
                "attention with absorbed weights",
            ),
            line(
                "descriptors of 32 masks: of the enlarged map, or weights of patches and one product",
                Figure::Piece("means of the enlarged map"),
                Figure::Pieces(&["weights of patches", "means of patches"]),
            ),
            line(
                "the similarity of a sample: the text's, and this one (1x32)",
                Figure::Published("32x32"),
                Figure::Piece("similarity"),
            ),
        ],
    },
    Section {
        title: "5. files",
        says: "checkpoints block training; write them aside, compress them; binary answers instead of JSON",
        lines: &[
            line(
                "training waits for a checkpoint: written at once, or aside",
                Figure::Checkpoint(Writing::Waiting),
                Figure::Checkpoint(Writing::Aside),
            ),
            line(
                "the same, as it is or compressed",
                Figure::Checkpoint(Writing::Waiting),
                Figure::Checkpoint(Writing::Compressed),
            ),
            line(
                "its size: as it is, or compressed",
                Figure::CheckpointBytes(Writing::Waiting),
                Figure::CheckpointBytes(Writing::Compressed),
            ),
            pieces_of(
                "2,000 answers: JSON, or safetensors",
                "answers as JSON",
                "answers as safetensors",
            ),
        ],
    },
    Section {
        title: "6. adjacency",
        says: "computed for every sample; keep it in files",
        lines: &[
            pieces_of(
                "centroids of 64 masks: of all pixels, or of runs",
                "centroids of pixels",
                "centroids of runs",
            ),
            pieces_of(
                "second order: a product of matrices, or lists",
                "second order as a product",
                "second order of lists",
            ),
            pieces_of(
                "everything from 64 runs, or a kept matrix read",
                "adjacency",
                "adjacency read",
            ),
        ],
    },
];

#[cfg(test)]
mod tests {
    use percept_data::egoexo::{DEST, DEST_MASKS, SOURCE, SOURCE_MASK, TRUTH};
    use percept_data::images::RgbImage;
    use percept_data::masks::{PixelBox, Rle};
    use percept_data::{Datum, Sample};

    use super::*;
    use crate::study::pipeline::Work;
    use crate::{Settings, zoo};

    /// Names of pieces are all that ties the report to them.
    #[test]
    fn every_piece_that_the_report_names_is_there_and_works() {
        let of = |width, height| Datum::Image(RgbImage::filled(width, height, [9, 0, 255]));
        let thing = |x, y| {
            let area = PixelBox {
                x,
                y,
                width: 24,
                height: 24,
            };
            Rle::filled_box(84, 84, area).unwrap()
        };
        let candidates: Vec<Rle> = (0..16).map(|i| thing(20 * (i % 4), 20 * (i / 4))).collect();
        let sample = Sample::of("pair", SOURCE, of(112, 84))
            .with(SOURCE_MASK, Datum::Masks(vec![thing(1, 1)]))
            .with(DEST, of(84, 84))
            .with(TRUTH, Datum::Masks(vec![thing(20, 20)]))
            .with(DEST_MASKS, Datum::Masks(candidates));
        let model = zoo::build("omama-small", &Settings::none()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let Measured::Pipeline(study) = REPORT[0].measured else {
            panic!("a study of a pipeline");
        };
        let mut pieces = (study.pieces)(&model, &sample, folder.path()).unwrap();
        for name in study.named_pieces() {
            assert!(pieces.iter().any(|piece| piece.name == name), "{name}");
        }
        for piece in &mut pieces {
            match &mut piece.work {
                Work::Time(work) => work().unwrap(),
                Work::Bytes(bytes) => assert!(*bytes > 0, "{}", piece.name),
                Work::Graph(graph, inputs) => {
                    let given = |name: &str| inputs.iter().any(|(known, _)| *known == name);
                    assert!(graph.inputs().iter().all(|input| given(&input.name)));
                }
            }
        }
    }
}

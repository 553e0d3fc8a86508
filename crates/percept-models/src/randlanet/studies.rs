//! What RandLA-Net's report compares: "RandLANet Memory and Speed Optimizations", a text about the seed repository that promises
//! more than its code has, measured again.

use crate::study::{Claim, CloudStudy, Component, Evidence, Measured, Study};

pub(crate) static STUDIES: &[Study] = &[MEMORY];

const fn part(name: &'static str, scopes: &'static [&'static str]) -> Component {
    Component {
        name,
        scopes,
        is_own: false,
    }
}

const SEARCH: usize = 0;
const UPSAMPLING: usize = 1;
const CONCATENATION: usize = 2;

const MEMORY: Study = Study {
    name: "memory",
    about: "how time and memory grow with the points of a cloud, frugal against keep",
    // Every point counts: a grid would thin clouds to fewer.
    shared: &[("grid", "0")],
    rows: &[],
    measured: Measured::Clouds(CloudStudy {
        points: &[4_096, 8_192, 16_384, 45_056, 65_536, 131_072, 1_000_000],
        batches: &[1, 2, 4],
        components: &[
            part("search", &["levels"]),
            part(
                "up",
                &["decoder.up0", "decoder.up1", "decoder.up2", "decoder.up3"],
            ),
            part(
                "concat",
                &[
                    "decoder.concat0",
                    "decoder.concat1",
                    "decoder.concat2",
                    "decoder.concat3",
                ],
            ),
        ],
        tolerance: 1e-5,
        claims: &[
            Claim {
                says: "20-40 % less peak memory",
                here: "a round of aggregation never holds a value for each neighbour",
                evidence: Evidence::LessPeak,
            },
            Claim {
                says: "5-15 % faster forward pass",
                here: "the same rounds read and write much less memory",
                evidence: Evidence::LessTime,
            },
            Claim {
                says: "in-place softmax, activations, normalisation",
                here: "in registers: norms are folded, activations belong to the layer before, the softmax to its round",
                evidence: Evidence::Answers,
            },
            Claim {
                says: "del, gc.collect() and empty_cache() in the forward pass",
                here: "a plan of all lifetimes, made once for a size; memory grew between runs by",
                evidence: Evidence::Steady,
            },
            Claim {
                says: "pre-allocated spatial encodings",
                here: "encodings of three points at a time, in 60 KB per thread; memory grew between runs by",
                evidence: Evidence::Steady,
            },
            Claim {
                says: "a KNN cache in chunks of 30 % of the free memory",
                here: "lists of 16, never distances of all pairs (17 GB at 65,536 points); the search takes",
                evidence: Evidence::Share(SEARCH),
            },
            Claim {
                says: "memory-efficient upsampling",
                here: "nearest points are read from the lists of neighbours; upsampling takes",
                evidence: Evidence::Share(UPSAMPLING),
            },
            Claim {
                says: "efficient concatenation with cleanup",
                here: "skip and upsampled features are joined once, and given back after the next layer; joining takes",
                evidence: Evidence::Share(CONCATENATION),
            },
            Claim {
                says: "handles larger point clouds with the same hardware",
                here: "everything is linear in the points",
                evidence: Evidence::Growth,
            },
            Claim {
                says: "output correctness is verified",
                here: "each row in both forms, in processes of their own",
                evidence: Evidence::Answers,
            },
        ],
    }),
};

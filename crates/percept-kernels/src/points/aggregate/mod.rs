//! RandLA-Net's local feature aggregation without its `[N, K, C]` tensors.
//!
//! For each point p and each neighbour n of its list: the geometry (distance, p - n, p, n: 10 numbers) is *encoded*, once or
//! twice, by a linear layer and a leaky ReLU, and *joined* to features: 2C channels. A linear map of them gives a *score* for
//! each neighbour and channel; the softmax of the scores over the neighbours weights the *sum* of the joined channels:
//!
//! ```text
//! r[n] = leaky(encode · geometry(p, n))            then, where asked for,  r[n] = leaky(encode_again · r[n])
//! x[n] = [features[n] | r[n]]                      or [r[n] | features[p]]: see Join
//! y[p] = Σ over n of softmax over n(score · x[n]) * x[n]
//! ```
//!
//! The layer that RandLA-Net applies to `y` is an ordinary linear one and not part of this.
//!
//! [`aggregate`] takes, in this order: `points` (N x 3 coordinates), `neighbours` `[N, K]` (rows of the cloud; of a batch, all
//! samples are one cloud), `features` `[N, C]`, and writes `y` `[N, 2C]`. [`aggregate_gradient`] takes the same, then `dy`
//! `[N, 2C]`, writes `dfeatures` `[N, C]` and gives the gradients of the weights; coordinates are data and get none. Store
//! rows in the tree's order ([`levels`](super::levels) gives them so): gathered rows then lie in the nearest cache.
//!
//! Nothing of size `[N, K, C]` is kept: a few points at a time are encoded, scored and summed, and the gradient does so
//! again. What makes it fast: `score · x` is `(score_f · features)[n] + score_r · r[n]`, and the first part is one product
//! over N rows, whose gathered row starts the sums; the encoding takes 4 products instead of 10 (encode.rs).
//!
//! Training normalises encodings by the statistics of all N · K of them. A linear layer's follow from the moments of its
//! inputs: [`geometry_moments`] before the first encoding, [`encoding_moments`] (with its gradient) before the second.

mod backward;
mod encode;
mod forward;
mod moments;
mod precise;
mod scatter;
mod shape;
#[cfg(test)]
mod tests;
mod tile;

pub use backward::aggregate_gradient;
pub use forward::{PackedAggregation, aggregate};
pub use moments::{Moments, encoding_moments, encoding_moments_gradient, geometry_moments};
pub use shape::{AggregationGradient, AggregationShape, AggregationWeights, GEOMETRY, Join};

//! Clouds of points: nearest neighbours, levels, grids, and what networks make of a point's neighbours.
//!
//! Everything about the points of a cloud starts from a [`PointTree`]: an order in which near points have near places, with
//! boxes above it. Searches walk the boxes; networks store their features in that order, because then what is gathered
//! lies in the nearest cache (a third of the time of the same work on shuffled rows).

mod aggregate;
mod gather;
mod levels;
mod lists;
mod order;
mod search;
mod tree;
mod voxel_means;

pub use aggregate::{
    AggregationGradient, AggregationShape, AggregationWeights, GEOMETRY, Join, Moments,
    PackedAggregation, aggregate, aggregate_gradient, encoding_moments, encoding_moments_gradient,
    geometry_moments,
};
pub use gather::{
    KeptLists, gather_rows, gather_rows_gradient, interpolate, interpolate_gradient, neighbour_max,
    neighbour_max_gradient,
};
pub use levels::{Level, LevelPlan, levels};
pub use lists::InverseLists;
pub use search::MAX_NEIGHBOURS;
pub use tree::{MAX_COORDINATE, MAX_POINTS, Numbering, PointTree, PointsError};
pub use voxel_means::{VoxelMeans, VoxelMeansError};

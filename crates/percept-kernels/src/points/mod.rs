//! Clouds of points: nearest neighbours, levels, grids.
//!
//! Everything about the points of a cloud starts from a [`PointTree`]: an order in which near points have near places, with
//! boxes above it. Searches walk the boxes; networks store their features in that order, because then what is gathered
//! lies in the nearest cache (a third of the time of the same work on shuffled rows).

mod levels;
mod order;
mod search;
mod tree;
mod voxel_means;

pub use levels::{Level, LevelPlan, levels};
pub use search::MAX_NEIGHBOURS;
pub use tree::{MAX_COORDINATE, MAX_POINTS, Numbering, PointTree, PointsError};
pub use voxel_means::{VoxelMeans, VoxelMeansError};

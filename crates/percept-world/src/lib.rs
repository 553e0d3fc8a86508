//! The synthetic world: one deterministic town that feeds every network.
//!
//! A [`Scene`] is a description and nothing else: ground, things that stand, things that move, and where the ego
//! vehicle is at any time. Sensors look at it; the [`Lidar`] is the first, cameras can follow without touching the
//! scene. A [`World`] puts the two together and gives [`LidarFrame`](percept_data::points::LidarFrame)s with their truth,
//! in memory or, by [`make`], as folders in the public layouts that the readers of real data read back.
//!
//! From the seed to a point: `streets` draws the plan, `districts` furnish it with `scenery` and `objects`, `motion`
//! moves what moves, `ground`, `shape` and `bvh` answer rays, `cast` finds the first hit, `lidar` turns it into a
//! measurement, `stream` adds the boxes, `write` the files.
//!
//! Same bits everywhere: random numbers are a hash of counters, transcendental functions come from `libm`, and
//! threads share blocks of columns that depend on the sensor only.

mod body;
mod bvh;
mod camera;
#[cfg(test)]
mod camera_tests;
mod cast;
mod districts;
mod error;
mod ground;
mod lens;
mod lidar;
mod look;
mod material;
mod motion;
mod objects;
mod room;
mod scene;
mod scenery;
mod shade;
mod shape;
mod solid;
mod statistics;
mod stream;
mod streets;
#[cfg(test)]
mod tests;
mod view;
mod visits;
mod weather;
mod write;

pub use camera::{CameraMount, CameraRig, CameraView};
pub use error::WorldError;
pub use lidar::Lidar;
pub use room::{
    Candidate, CandidateKind, EgoExo, EgoExoConfig, EgoExoPair, RoomKind, SeenObject, Sight,
};
pub use scene::Scene;
pub use statistics::{CloudStatistics, StatisticsRow, compare_statistics};
pub use stream::{KEYFRAMES_PER_SCENE, MAX_SWEEPS, World, WorldConfig, WorldKind, WorldStream};
pub use view::{PictureSize, View};
pub use visits::{Heading, Lane, Pass, REVISIT_M, Revisit};
pub use weather::Weather;
pub use write::{MakeOptions, MakeRoomsOptions, MakeSummary, RoomLayout, make, make_rooms};

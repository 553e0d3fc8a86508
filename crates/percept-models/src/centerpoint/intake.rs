//! Sweeps as CenterPoint takes them: the points of all samples in one list, and how many each has.

use percept_data::points::{LidarConvention, PointCloud};
use percept_data::{Example, Sample, SampleError};
use percept_graph::Tensor;
use percept_kernels::Cpu;

use super::CenterPoint;
use crate::intake::{InputShapes, Intake, Part, PartKind, Sizes};

/// The part, and the input that takes the points of all samples.
pub(super) const POINTS: &str = "points";
/// The input that says how many points each sample has.
pub(super) const COUNTS: &str = "counts";

/// Points of one turn of nuScenes' LiDAR.
const SWEEP_POINTS: usize = 34_688;

/// Points around the sensor, with intensities of 0 to 255 and the seconds by which a point is older than the sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepIntake;

impl Intake for SweepIntake {
    fn parts(&self) -> &[Part] {
        &[Part {
            name: POINTS,
            kind: PartKind::Points(LidarConvention::NuScenes),
            size: None,
            what: "a LiDAR sweep, or several merged",
        }]
    }

    fn shapes(&self, _: &Sizes) -> InputShapes {
        let points = vec![SWEEP_POINTS, CenterPoint::POINT_CHANNELS];
        vec![(POINTS, points), (COUNTS, vec![1])]
    }

    fn example(&self, _: &Cpu, sample: &Sample, _: &Sizes) -> Result<Example, SampleError> {
        let cloud = PointCloud::from_frame(sample.frame(POINTS)?);
        let unusable = |reason: String| SampleError::Unusable {
            sample: sample.name.clone(),
            reason,
        };
        let points = cloud.len();
        let count = i32::try_from(points).map_err(|_| unusable(format!("{points} points")))?;
        let shape = [points, CenterPoint::POINT_CHANNELS];
        let tensor = |made: Result<Tensor<'static>, _>| {
            made.map_err(|error: percept_graph::TensorError| unusable(error.to_string()))
        };
        Ok(Example::of_one([
            (POINTS, tensor(Tensor::from_values(shape, cloud.values))?),
            (COUNTS, tensor(Tensor::from_values([1], vec![count]))?),
        ]))
    }
}

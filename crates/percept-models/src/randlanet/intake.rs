//! Scans as RandLA-Net takes them: thinned to the means of a grid, with a shuffle that says which points stay.

use percept_data::points::{LidarConvention, LidarFrame};
use percept_data::random::{hash, permutation};
use percept_data::{Example, Sample, SampleError};
use percept_graph::{Tensor, TensorError};
use percept_kernels::Cpu;
use percept_kernels::points::VoxelMeans;

use crate::intake::{InputShapes, Intake, Part, PartKind, Sizes};

/// The part, and the input that takes the points of all clouds.
pub(super) const POINTS: &str = "points";
/// The input that says which points stay.
pub(super) const PRIORITY: &str = "priority";
/// The input that says how many points each cloud has.
pub(super) const COUNTS: &str = "counts";
/// Beside the inputs: for each row of a scan the point of its cloud that answers for it, or -1.
pub(super) const NEAREST: &str = "nearest";
/// Beside the inputs: how many rows each scan has.
pub(super) const ROWS: &str = "rows";

static PARTS: [Part; 1] = [Part {
    name: POINTS,
    kind: PartKind::Points(LidarConvention::Kitti),
    size: None,
    what: "a LiDAR scan",
}];

/// What remains of a scan of SemanticKITTI in cells of 6 cm.
const USUAL_POINTS: usize = 90_000;

/// A scan, made a cloud: x, y, z, and the intensity (0 to 1) where the network takes a fourth value.
#[derive(Clone, Copy, Debug)]
pub struct ScanIntake {
    /// Values of a point: 3 or 4.
    pub channels: usize,
    /// Side of the cells that become one point each, metres; 0 leaves the scan as it is.
    pub grid_m: f32,
    /// How often the network looks at a scan, each time with another shuffle.
    pub votes: usize,
    /// What the shuffles follow from.
    pub seed: u64,
}

impl ScanIntake {
    /// The rows that can be looked at: position and intensity.
    pub(super) fn rows(frame: &LidarFrame) -> (Vec<[f32; 3]>, Vec<f32>) {
        let unit = match frame.convention {
            LidarConvention::NuScenes => 255.0,
            LidarConvention::Kitti => 1.0,
        };
        frame
            .points
            .iter()
            .map(|point| (point.position, point.intensity / unit))
            .unzip()
    }

    /// The points that the network looks at: means of cells, or every usable row where there are no cells.
    pub(super) fn thinned(
        &self,
        points: &[[f32; 3]],
        intensity: &[f32],
    ) -> Result<VoxelMeans, String> {
        if self.grid_m > 0.0 {
            let means = VoxelMeans::new(points, intensity, self.grid_m);
            return means.map_err(|error| error.to_string());
        }
        let usable: Vec<usize> = (0..points.len())
            .filter(|&row| points[row].iter().all(|v| v.is_finite()))
            .collect();
        let mut cell_of_row = vec![-1; points.len()];
        usable
            .iter()
            .enumerate()
            .for_each(|(cell, &row)| cell_of_row[row] = cell as i32);
        Ok(VoxelMeans {
            points: usable.iter().map(|&row| points[row]).collect(),
            features: usable.iter().map(|&row| intensity[row]).collect(),
            cell_of_row,
        })
    }

    /// One cloud for each vote.
    pub fn clouds(
        &self,
        cpu: &Cpu,
        points: &[[f32; 3]],
        intensity: &[f32],
    ) -> Result<ScanClouds, String> {
        let thinned = self.thinned(points, intensity)?;
        let nearest = match self.grid_m > 0.0 {
            true => thinned
                .nearest(cpu, points)
                .map_err(|error| error.to_string())?,
            false => thinned.cell_of_row.clone(),
        };
        let mut rows = Vec::with_capacity(thinned.points.len() * self.channels);
        for (point, intensity) in thinned.points.iter().zip(&thinned.features) {
            rows.extend(point.iter().chain([intensity]).take(self.channels));
        }
        Ok(ScanClouds {
            rows,
            points: thinned.points.len(),
            nearest,
        })
    }

    /// A permutation of a cloud's points for each vote: which ones stay.
    pub fn priority(&self, points: usize, vote: usize) -> Vec<i32> {
        let ranks = permutation(points, |row| hash(self.seed, vote as u64, row));
        ranks.into_iter().map(|rank| rank as i32).collect()
    }
}

/// A scan as the network sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanClouds {
    /// Values of the points.
    pub rows: Vec<f32>,
    /// How many there are.
    pub points: usize,
    /// For each row of the scan the point that answers for it; -1 where none does.
    pub nearest: Vec<i32>,
}

impl Intake for ScanIntake {
    fn parts(&self) -> &[Part] {
        &PARTS
    }

    fn shapes(&self, _: &Sizes) -> InputShapes {
        let points = USUAL_POINTS * self.votes;
        vec![
            (POINTS, vec![points, self.channels]),
            (PRIORITY, vec![points]),
            (COUNTS, vec![self.votes]),
        ]
    }

    fn example(&self, cpu: &Cpu, sample: &Sample, _: &Sizes) -> Result<Example, SampleError> {
        let unusable = |reason: String| SampleError::Unusable {
            sample: sample.name.clone(),
            reason,
        };
        let (points, intensity) = Self::rows(sample.frame(POINTS)?);
        let scan = self.clouds(cpu, &points, &intensity).map_err(unusable)?;
        if scan.points == 0 {
            return Err(unusable("no point of it can be looked at".to_owned()));
        }
        let priority: Vec<i32> = (0..self.votes)
            .flat_map(|vote| self.priority(scan.points, vote))
            .collect();
        let all = scan.points * self.votes;
        let tensors = || -> Result<_, TensorError> {
            Ok([
                (
                    POINTS,
                    Tensor::from_values([all, self.channels], scan.rows.repeat(self.votes))?,
                ),
                (PRIORITY, Tensor::from_values([all], priority)?),
                (
                    COUNTS,
                    Tensor::from_values([self.votes], vec![scan.points as i32; self.votes])?,
                ),
                (
                    ROWS,
                    Tensor::from_values([1], vec![scan.nearest.len() as i32])?,
                ),
                (
                    NEAREST,
                    Tensor::from_values([scan.nearest.len()], scan.nearest)?,
                ),
            ])
        };
        Ok(Example::of_one(
            tensors().map_err(|error| unusable(error.to_string()))?,
        ))
    }
}

/// A scan, made a cloud of all its points: without the shuffle that a network needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CloudIntake;

impl CloudIntake {
    const WHOLE: ScanIntake = ScanIntake {
        channels: 3,
        grid_m: 0.0,
        votes: 1,
        seed: 0,
    };
}

impl Intake for CloudIntake {
    fn parts(&self) -> &[Part] {
        &PARTS
    }

    fn shapes(&self, sizes: &Sizes) -> InputShapes {
        let mut shapes = Self::WHOLE.shapes(sizes);
        shapes.retain(|(name, _)| *name != PRIORITY);
        shapes
    }

    fn example(&self, cpu: &Cpu, sample: &Sample, sizes: &Sizes) -> Result<Example, SampleError> {
        Self::WHOLE.example(cpu, sample, sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use percept_data::Datum;
    use percept_data::points::Point;

    fn scan(points: &[[f32; 3]]) -> Sample {
        let point = |&position: &[f32; 3]| Point {
            position,
            intensity: 0.5,
            age_s: 0.0,
            ring: None,
        };
        let frame =
            LidarFrame::from_points(LidarConvention::Kitti, points.iter().map(point).collect());
        Sample::of("a scan", POINTS, Datum::Frame(Box::new(frame)))
    }

    #[test]
    fn a_scan_is_thinned_and_every_row_knows_who_answers_for_it() {
        let intake = ScanIntake {
            channels: 4,
            grid_m: 0.06,
            votes: 2,
            seed: 1,
        };
        let cpu = Cpu::new(1).unwrap();
        let sample = scan(&[
            [0.0; 3],
            [0.01, 0.0, 0.0],
            [f32::NAN, 0.0, 0.0],
            [5.0, 0.0, 0.0],
        ]);
        let example = intake.example(&cpu, &sample, &Sizes::new()).unwrap();
        assert_eq!(example.get(POINTS).unwrap().shape(), [4, 4]);
        let numbers = |name: &str| example.get(name).unwrap().values::<i32>().unwrap().to_vec();
        assert_eq!(
            (numbers(COUNTS), numbers(NEAREST), numbers(ROWS)),
            (vec![2, 2], vec![0, 0, -1, 1], vec![4])
        );
        for ranks in numbers(PRIORITY).chunks(2) {
            assert!(ranks == [0, 1] || ranks == [1, 0]);
        }
        let whole = ScanIntake {
            grid_m: 0.0,
            votes: 1,
            ..intake
        };
        let example = whole.example(&cpu, &sample, &Sizes::new()).unwrap();
        assert_eq!(
            example.get(NEAREST).unwrap().values::<i32>().unwrap(),
            [0, 1, -1, 2]
        );
    }

    #[test]
    fn votes_shuffle_differently_and_always_alike() {
        let intake = ScanIntake {
            channels: 3,
            grid_m: 0.06,
            votes: 3,
            seed: 7,
        };
        assert_eq!(intake.priority(100, 0), intake.priority(100, 0));
        assert_ne!(intake.priority(100, 0), intake.priority(100, 1));
        assert_ne!(
            intake.priority(100, 0),
            ScanIntake { seed: 8, ..intake }.priority(100, 0)
        );
        let mut ranks = intake.priority(100, 2);
        ranks.sort_unstable();
        assert!(ranks.into_iter().eq(0..100));
    }

    #[test]
    fn a_scan_without_points_is_refused() {
        let intake = ScanIntake {
            channels: 3,
            grid_m: 0.06,
            votes: 1,
            seed: 0,
        };
        for sample in [scan(&[]), scan(&[[f32::NAN; 3]])] {
            let error = intake
                .example(&Cpu::new(1).unwrap(), &sample, &Sizes::new())
                .unwrap_err();
            assert_eq!(error.to_string(), "a scan: no point of it can be looked at");
        }
    }
}

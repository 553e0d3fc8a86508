//! Numbers that say whether synthetic clouds are like real ones.

use std::collections::HashSet;

use serde::Serialize;

use percept_data::points::{EGO_HALF_EXTENT_M, LidarFrame, ObjectClass, Point};

/// One number for each source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatisticsRow {
    /// What is counted, with its unit.
    pub name: String,
    /// One value a source, in the order that the sources were given; none where the source cannot tell.
    pub values: Vec<Option<f64>>,
}

/// The sums over the frames of one source.
#[derive(Clone, Debug)]
pub struct CloudStatistics {
    frames: usize,
    points: usize,
    returns: usize,
    band_returns: [usize; BANDS],
    range_returns: [usize; RANGE_EDGES_M.len() + 1],
    empty_cells: f64,
    intensities: Vec<f32>,
    frames_with_boxes: usize,
    boxes_by_class: [usize; 10],
    points_in_boxes: Vec<usize>,
}

/// Beams are counted in bands of equal height: four beams each in nuScenes, about eight in KITTI.
const BANDS: usize = 8;
const RANGE_EDGES_M: [f64; 7] = [5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 70.0];
/// The bird's-eye view of CenterPoint: 180 cells of 0.6 m each way.
const BEV_CELLS: i64 = 180;
const BEV_CELL_M: f64 = 0.6;

impl CloudStatistics {
    /// Counts `frames`; only each frame's own sweep matters.
    pub fn of(frames: impl IntoIterator<Item = LidarFrame>) -> Self {
        let mut sums = Self {
            frames: 0,
            points: 0,
            returns: 0,
            band_returns: [0; BANDS],
            range_returns: [0; RANGE_EDGES_M.len() + 1],
            empty_cells: 0.0,
            intensities: Vec::new(),
            frames_with_boxes: 0,
            boxes_by_class: [0; 10],
            points_in_boxes: Vec::new(),
        };
        for frame in frames {
            sums.add(&frame);
        }
        sums.intensities.sort_by(f32::total_cmp);
        sums.points_in_boxes.sort_unstable();
        sums
    }

    fn add(&mut self, frame: &LidarFrame) {
        let own = frame.own_sweep();
        self.frames += 1;
        self.points += own.len();
        let mut filled = HashSet::new();
        for point in own {
            let [x, y, _] = point.position;
            if x.abs() < EGO_HALF_EXTENT_M && y.abs() < EGO_HALF_EXTENT_M {
                continue;
            }
            self.returns += 1;
            self.band_returns[band(frame, point)] += 1;
            let range_m = point.ground_range_m();
            self.range_returns[RANGE_EDGES_M
                .iter()
                .filter(|edge| range_m >= **edge)
                .count()] += 1;
            self.intensities.push(point.intensity);
            let cell = |v: f32| (f64::from(v) / BEV_CELL_M).floor() as i64 + BEV_CELLS / 2;
            let (column, row) = (cell(x), cell(y));
            if (0..BEV_CELLS).contains(&column) && (0..BEV_CELLS).contains(&row) {
                filled.insert((column, row));
            }
        }
        self.empty_cells += 1.0 - filled.len() as f64 / (BEV_CELLS * BEV_CELLS) as f64;
        if let Some(boxes) = &frame.boxes {
            self.frames_with_boxes += 1;
            for object in boxes {
                self.boxes_by_class[object.class.id()] += 1;
                self.points_in_boxes.push(object.lidar_points);
            }
        }
    }

    /// The rows of a table, without the sources that they came from.
    fn named_values(&self) -> Vec<(String, Option<f64>)> {
        let share =
            |part: usize, whole: usize| (whole > 0).then(|| 100.0 * part as f64 / whole as f64);
        let a_frame = |sum: usize, frames: usize| (frames > 0).then(|| sum as f64 / frames as f64);
        let mut rows = vec![
            ("frames".to_owned(), Some(self.frames as f64)),
            (
                "points a frame".to_owned(),
                a_frame(self.points, self.frames),
            ),
            (
                "returns beyond 1 m a frame".to_owned(),
                a_frame(self.returns, self.frames),
            ),
        ];
        for (band, returns) in self.band_returns.iter().enumerate() {
            let place = match band {
                0 => " (lowest)",
                b if b + 1 == BANDS => " (highest)",
                _ => "",
            };
            rows.push((
                format!("returns in beam band {}{place}, %", band + 1),
                share(*returns, self.returns),
            ));
        }
        for (bin, returns) in self.range_returns.iter().enumerate() {
            let from = if bin == 0 {
                0.0
            } else {
                RANGE_EDGES_M[bin - 1]
            };
            let name = match RANGE_EDGES_M.get(bin) {
                Some(to) => format!("returns at {from:.0}-{to:.0} m, %"),
                None => format!("returns at {from:.0} m and beyond, %"),
            };
            rows.push((name, share(*returns, self.returns)));
        }
        let empty = (self.frames > 0).then(|| 100.0 * self.empty_cells / self.frames as f64);
        rows.push(("empty BEV cells of 0.6 m, %".to_owned(), empty));
        for (name, at) in [("median", 0.5), ("90th percentile", 0.9)] {
            let place = (self.intensities.len() as f64 * at) as usize;
            rows.push((
                format!("intensity, {name}"),
                self.intensities.get(place).map(|v| f64::from(*v)),
            ));
        }
        let boxes: usize = self.boxes_by_class.iter().sum();
        rows.push((
            "boxes a frame".to_owned(),
            a_frame(boxes, self.frames_with_boxes),
        ));
        for class in ObjectClass::ALL {
            let sum = self.boxes_by_class[class.id()];
            rows.push((
                format!("boxes a frame: {}", class.name()),
                a_frame(sum, self.frames_with_boxes),
            ));
        }
        let middle = self.points_in_boxes.get(self.points_in_boxes.len() / 2);
        rows.push((
            "points in a box, median".to_owned(),
            middle.map(|count| *count as f64),
        ));
        rows
    }
}

/// The sources side by side.
pub fn compare_statistics(sources: &[CloudStatistics]) -> Vec<StatisticsRow> {
    let mut table: Vec<StatisticsRow> = Vec::new();
    for source in sources {
        for (row, (name, value)) in source.named_values().into_iter().enumerate() {
            if row == table.len() {
                table.push(StatisticsRow {
                    name,
                    values: Vec::new(),
                });
            }
            table[row].values.push(value);
        }
    }
    table
}

fn band(frame: &LidarFrame, point: &Point) -> usize {
    let [lowest, highest] = frame.convention.elevations_rad();
    let elevation = libm::asin(f64::from(point.position[2]) / point.range_m());
    let share = (elevation - lowest) / (highest - lowest);
    ((share * BANDS as f64).max(0.0) as usize).min(BANDS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use percept_data::points::LidarConvention;

    #[test]
    fn rows_say_what_was_put_in() {
        let point = |x: f32, z: f32| Point {
            position: [x, 0.0, z],
            intensity: x,
            age_s: 0.0,
            ring: None,
        };
        let older = Point {
            age_s: 0.1,
            ..point(30.0, 0.0)
        };
        let points = vec![
            point(0.2, 0.0),
            point(4.0, -2.3),
            point(12.0, 0.0),
            point(80.0, 15.0),
            older,
        ];
        let statistics =
            CloudStatistics::of([LidarFrame::from_points(LidarConvention::NuScenes, points)]);
        let table = compare_statistics(&[statistics.clone(), CloudStatistics::of([]), statistics]);
        let row = |name: &str| {
            table
                .iter()
                .find(|row| row.name.starts_with(name))
                .expect(name)
        };
        assert_eq!(row("points a frame").values, [Some(4.0), None, Some(4.0)]);
        assert_eq!(row("returns beyond 1 m").values[0], Some(3.0));
        assert_eq!(row("returns at 0-5 m").values[0], Some(100.0 / 3.0));
        assert_eq!(
            row("returns at 70 m and beyond").values[0],
            Some(100.0 / 3.0)
        );
        assert_eq!(row("returns in beam band 1").values[0], Some(100.0 / 3.0));
        assert_eq!(row("intensity, median").values[0], Some(12.0));
        let empty = row("empty BEV cells").values[0].unwrap();
        assert!((empty - 100.0 * (1.0 - 2.0 / 32_400.0)).abs() < 1e-9);
        assert_eq!(row("boxes a frame").values, [None, None, None]);
    }
}

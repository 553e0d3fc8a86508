//! The part of a scan that a step learns from, and how it is changed.

use percept_data::SettingError;
use percept_data::points::Point;
use percept_data::points::augment::CloudMotion;
use percept_data::random::Draws;
use serde::{Deserialize, Serialize};

/// What is done to scans that are learned from. Crops are the public pipeline's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScanAugment {
    /// Points of a crop: those nearest to a random one, after the scan was thinned out.
    pub points: usize,
    /// How often the point in the middle of a crop is of a class drawn among those of the scan, each as likely as the others;
    /// otherwise any point of the scan is.
    pub even_classes: f64,
    /// How often left and right change places, and ahead and behind.
    pub flip: f64,
    /// Turned by at most this about the vertical, either way.
    pub turn_degrees: f64,
    /// Scaled by a factor between these.
    pub scale: [f64; 2],
    /// Shifted by this standard deviation.
    pub shift_m: f64,
}

impl Default for ScanAugment {
    fn default() -> Self {
        Self {
            points: 45_056,
            even_classes: 0.0,
            flip: 0.5,
            turn_degrees: 10.0,
            scale: [0.95, 1.05],
            shift_m: 0.1,
        }
    }
}

/// A crop with more points than any scan has is a whole scan.
const MOST_POINTS: usize = 1 << 24;

impl ScanAugment {
    /// Refuses what makes no sense.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let Self {
            points,
            even_classes,
            flip,
            turn_degrees,
            scale: [least, most],
            shift_m,
        } = *self;
        let some = (1..=MOST_POINTS).contains(&points);
        SettingError::unless(some, "augment.points", points, "1 to 16777216")?;
        for (name, chance) in [
            ("augment.even_classes", even_classes),
            ("augment.flip", flip),
        ] {
            SettingError::unless((0.0..=1.0).contains(&chance), name, chance, "0 to 1")?;
        }
        let turns = (0.0..=180.0).contains(&turn_degrees);
        SettingError::unless(turns, "augment.turn_degrees", turn_degrees, "0 to 180")?;
        let scales = least > 0.0 && least <= most && most.is_finite();
        let expected = "two factors above 0, ascending";
        SettingError::unless(scales, "augment.scale", least, expected)?;
        let shifts = (0.0..=10.0).contains(&shift_m);
        SettingError::unless(shifts, "augment.shift_m", shift_m, "0 to 10")
    }

    /// Flips, turns, scales and shifts points.
    pub(super) fn moved(&self, points: &mut [Point], draws: &mut Draws) {
        let motion = CloudMotion {
            flip_chance: self.flip,
            max_turn_rad: self.turn_degrees.to_radians(),
            scale: self.scale,
            shift_m: self.shift_m,
        };
        motion.apply(points, &mut [], draws);
    }

    /// The rows of a crop, ascending: all where the scan has no more than a crop takes.
    pub(super) fn crop(&self, points: &[Point], labels: &[i32], draws: &mut Draws) -> Vec<usize> {
        let middle = self.middle(labels, draws);
        if points.len() <= self.points {
            return (0..points.len()).collect();
        }
        let centre = points[middle].position;
        let squared = |point: &Point| -> f32 {
            let away = |axis: usize| point.position[axis] - centre[axis];
            (0..3).map(|axis| away(axis) * away(axis)).sum()
        };
        let mut near: Vec<(f32, usize)> = points.iter().map(squared).zip(0..).collect();
        let by_distance =
            |a: &(f32, usize), b: &(f32, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        near.select_nth_unstable_by(self.points - 1, by_distance);
        let mut rows: Vec<usize> = near[..self.points].iter().map(|&(_, row)| row).collect();
        rows.sort_unstable();
        rows
    }

    fn middle(&self, labels: &[i32], draws: &mut Draws) -> usize {
        let (even, class, row) = (draws.chance(self.even_classes), draws.word(), draws.word());
        if even {
            let mut present: Vec<i32> = labels.iter().copied().filter(|label| *label > 0).collect();
            present.sort_unstable();
            present.dedup();
            if !present.is_empty() {
                let wanted = present[(class % present.len() as u64) as usize];
                let rows = || (0..labels.len()).filter(|&row| labels[row] == wanted);
                let chosen = (row % rows().count() as u64) as usize;
                return rows().nth(chosen).unwrap_or(0);
            }
        }
        (row % labels.len().max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(count: usize) -> Vec<Point> {
        let point = |x: usize| Point {
            position: [x as f32, 0.0, 0.0],
            intensity: 0.5,
            age_s: 0.0,
            ring: None,
        };
        (0..count).map(point).collect()
    }

    #[test]
    fn a_crop_is_what_is_nearest_to_its_middle() {
        let augment = ScanAugment {
            points: 10,
            ..ScanAugment::default()
        };
        let (points, labels) = (line(100), vec![1; 100]);
        let mut firsts = Vec::new();
        for seed in 0..20 {
            let rows = augment.crop(&points, &labels, &mut Draws::new(seed, 0));
            assert_eq!(rows.len(), 10);
            assert!(
                rows.windows(2).all(|pair| pair[1] == pair[0] + 1),
                "{rows:?}"
            );
            firsts.push(rows[0]);
        }
        firsts.sort_unstable();
        firsts.dedup();
        assert!(firsts.len() > 10, "crops are all over the scan: {firsts:?}");
        let all = augment.crop(&points[..10], &labels[..10], &mut Draws::new(0, 0));
        assert!(all.into_iter().eq(0..10));
    }

    #[test]
    fn rare_classes_can_be_in_the_middle_as_often_as_common_ones() {
        let augment = ScanAugment {
            points: 1,
            even_classes: 1.0,
            ..ScanAugment::default()
        };
        let (points, mut labels) = (line(1000), vec![1; 1000]);
        labels[500] = 2;
        labels[501] = 0;
        let crops = (0..200).map(|seed| augment.crop(&points, &labels, &mut Draws::new(seed, 0)));
        let rare = crops.filter(|rows| rows[..] == [500]).count();
        assert!((70..130).contains(&rare), "{rare} of 200");
        let none = augment.crop(&points, &[0; 1000], &mut Draws::new(0, 0));
        assert_eq!(none.len(), 1);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let fine = ScanAugment::default();
        assert!(fine.check().is_ok());
        let wrong = [
            ScanAugment { points: 0, ..fine },
            ScanAugment { flip: 1.5, ..fine },
            ScanAugment {
                even_classes: f64::NAN,
                ..fine
            },
            ScanAugment {
                turn_degrees: -1.0,
                ..fine
            },
            ScanAugment {
                scale: [1.1, 0.9],
                ..fine
            },
            ScanAugment {
                shift_m: f64::NAN,
                ..fine
            },
        ];
        assert!(wrong.iter().all(|augment| augment.check().is_err()));
    }
}

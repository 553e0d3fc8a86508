//! Clouds of as many points as one likes, of a cloud that there is: for looking at how a network grows.

use percept_data::points::{LidarFrame, Point};
use percept_data::random::{hash, permutation};
use percept_data::{Datum, Sample};

/// Distance between copies of a cloud, metres: as between neighbours of a sparse one.
const GAP_M: f32 = 1.0;

/// The sample with clouds of exactly this many points. Fewer are drawn from a cloud; where it has fewer, copies of it stand
/// around it, so that it is as dense everywhere as it was. What belongs to single points (labels, boxes) is left behind.
pub fn with_points(mut sample: Sample, count: usize, seed: u64) -> Sample {
    for (_, datum) in &mut sample.parts {
        if let Datum::Frame(frame) = datum
            && !frame.points.is_empty()
        {
            let points = resized(&frame.points, count, seed);
            **frame = LidarFrame::from_points(frame.convention, points);
        }
    }
    sample
}

fn resized(points: &[Point], count: usize, seed: u64) -> Vec<Point> {
    let step = [0, 1].map(|axis| {
        let along = points.iter().map(|point| point.position[axis]);
        let (low, high) = along.fold((f32::MAX, f32::MIN), |(low, high), at| {
            (low.min(at), high.max(at))
        });
        high - low + GAP_M
    });
    let copies = count.div_ceil(points.len());
    let all = places(copies).into_iter().flat_map(|place| {
        points.iter().map(move |point| {
            let mut moved = *point;
            for axis in 0..2 {
                moved.position[axis] += place[axis] as f32 * step[axis];
            }
            moved
        })
    });
    // The last copy alone is cut, so the others keep their density.
    let whole = (copies - 1) * points.len();
    let mut all: Vec<Point> = all.collect();
    let mut drawn = permutation(points.len(), |row| hash(seed, 0, row));
    drawn.truncate(count - whole);
    drawn.sort_unstable();
    let last: Vec<Point> = drawn.iter().map(|&row| all[whole + row]).collect();
    all.truncate(whole);
    all.extend(last);
    all
}

/// The nearest places of a grid around its middle, which comes first.
fn places(count: usize) -> Vec<[i32; 2]> {
    let reach = (0..).find(|reach: &i32| ((2 * reach + 1) as usize).pow(2) >= count);
    let reach = reach.unwrap_or(0);
    let mut places: Vec<[i32; 2]> = (-reach..=reach)
        .flat_map(|x| (-reach..=reach).map(move |y| [x, y]))
        .collect();
    places.sort_by_key(|[x, y]| x * x + y * y);
    places.truncate(count);
    places
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use percept_data::points::LidarConvention;

    use super::*;

    fn cloud(points: usize) -> Sample {
        let point = |i: usize| Point {
            position: [i as f32, -(i as f32), 0.5],
            intensity: 0.0,
            age_s: 0.0,
            ring: None,
        };
        let points = (0..points).map(point).collect();
        let frame = LidarFrame::from_points(LidarConvention::Kitti, points);
        Sample::of("a cloud", "points", Datum::Frame(Box::new(frame)))
    }

    fn positions(sample: &Sample) -> BTreeSet<[i32; 3]> {
        let points = &sample.frame("points").unwrap().points;
        points
            .iter()
            .map(|point| point.position.map(|value| (value * 2.0) as i32))
            .collect()
    }

    #[test]
    fn clouds_have_as_many_points_as_asked_for_and_none_twice() {
        for count in [1, 7, 10, 11, 20, 33] {
            let sample = with_points(cloud(10), count, 3);
            assert_eq!(sample.frame("points").unwrap().points.len(), count);
            assert_eq!(positions(&sample).len(), count);
        }
        let few = positions(&with_points(cloud(10), 4, 3));
        assert!(few.is_subset(&positions(&cloud(10))));
        let more = positions(&with_points(cloud(10), 23, 3));
        assert!(more.is_superset(&positions(&cloud(10))));
        assert_eq!(positions(&with_points(cloud(0), 5, 3)).len(), 0);
    }
}

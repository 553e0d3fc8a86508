//! The points of the smallest coordinates to the front: partitions around pivots, and counting where few are left.

use super::Point;
#[cfg(target_arch = "x86_64")]
use super::wide;
use crate::simd::Simd;

/// Below this many points a set is sorted instead of partitioned: by counting, without a branch.
const COUNTED: usize = 64;
/// Above this many points, more samples make a better pivot than they take.
const MANY: usize = 2000;

/// Moves the `first` smallest points along an axis to the front (0 < first < len).
#[inline(always)]
pub(super) fn select<S: Simd>(
    s: S,
    points: &mut [Point],
    aside: &mut [Point],
    first: usize,
    axis: usize,
) {
    /// So many bad pivots mean that somebody chose the points against us.
    const MAX_ROUNDS: usize = 40;
    let (mut start, mut end) = (0, points.len());
    for _ in 0..MAX_ROUNDS {
        let len = end - start;
        if len <= COUNTED {
            return sort_by_counting(&mut points[start..end], axis);
        }
        let (some, rank) = (&points[start..end], first - start);
        let Pivot { value, is_frequent } = match len > MANY {
            true => Pivot::near::<32>(some, axis, rank),
            false => Pivot::near::<16>(some, axis, rank),
        };
        let less = partition::<S, false>(s, &mut points[start..end], aside, axis, value);
        if first == start + less {
            return;
        }
        if first < start + less {
            end = start + less;
            continue;
        }
        start += less;
        if less == 0 || is_frequent {
            let equal = partition::<S, true>(s, &mut points[start..end], aside, axis, value);
            if first <= start + equal {
                return;
            }
            start += equal;
        }
    }
    points[start..end].sort_unstable_by(|a, b| a.along(axis).total_cmp(&b.along(axis)));
}

/// A value to part a set by, in search of the point of some rank.
struct Pivot {
    value: f32,
    /// Whether many points are at the pivot itself.
    is_frequent: bool,
}

impl Pivot {
    /// The sample that has about this rank in the set. Samples are ranked by counting, without a branch.
    #[inline(always)]
    fn near<const SAMPLES: usize>(points: &[Point], axis: usize, rank: usize) -> Pivot {
        let step = points.len() / SAMPLES;
        let mut samples = [0.0; SAMPLES];
        let some = points[step / 2..].iter().step_by(step);
        for (sample, point) in samples.iter_mut().zip(some) {
            *sample = point.along(axis);
        }
        let mut at_most = [0; SAMPLES];
        for other in samples {
            for lane in 0..SAMPLES {
                at_most[lane] += u32::from(other <= samples[lane]);
            }
        }
        let rank = rank_among_samples(rank, points.len(), SAMPLES);
        let mut value = f32::INFINITY;
        for lane in 0..SAMPLES {
            let reaches = at_most[lane] > rank;
            let sample = if reaches {
                samples[lane]
            } else {
                f32::INFINITY
            };
            value = if sample < value { sample } else { value };
        }
        let mut equal = 0;
        for sample in samples {
            equal += usize::from(sample == value);
        }
        Pivot {
            value,
            is_frequent: equal * 8 > SAMPLES,
        }
    }
}

/// Which of the sorted samples parts a set best, to find the point of a rank: the one expected there, and as much farther from
/// the nearer end as samples deviate. The point then lies in the small part, and most of the set is done with.
#[inline(always)]
fn rank_among_samples(rank: usize, len: usize, samples: usize) -> u32 {
    const DEVIATIONS: f32 = 1.5;
    let share = rank as f32 / len as f32;
    let deviation = (share * (1.0 - share) * samples as f32).sqrt();
    let farther = DEVIATIONS * deviation * (1.0 - 2.0 * share);
    (share * samples as f32 + farther).min(samples as f32 - 1.0) as u32
}

/// Moves the points below the pivot (or at it) to the front, without a branch on it; returns their number. All stay in order.
#[inline(always)]
pub(super) fn partition<S: Simd, const OR_AT: bool>(
    s: S,
    points: &mut [Point],
    aside: &mut [Point],
    axis: usize,
    pivot: f32,
) -> usize {
    let len = points.len();
    let aside = &mut aside[..len];
    let (mut front, mut behind) = (0, 0);
    let mut next = 0;
    #[cfg(target_arch = "x86_64")]
    if let Some(wide) = s.wide() {
        (front, behind) = wide::partition::<OR_AT>(wide, points, aside, axis, pivot);
        next = front + behind;
    }
    for i in next..len {
        // To both places: what the other one gets is written over, or not counted.
        let point = points[i];
        let value = point.along(axis);
        let goes_first = if OR_AT { value <= pivot } else { value < pivot };
        points[front] = point;
        aside[behind] = point;
        front += usize::from(goes_first);
        behind += usize::from(!goes_first);
    }
    points[front..].copy_from_slice(&aside[..behind]);
    front
}

/// Sorts up to [`COUNTED`] points along an axis: a point's place is the number of points below it.
///
/// The low bits of a key hold the position, so that places are unique. Points that differ only there come in any order,
/// which a cut may do: boxes are made from the points.
#[inline(always)]
fn sort_by_counting(points: &mut [Point], axis: usize) {
    const WIDTH: usize = 16;
    let len = points.len();
    let mut copy = [Point::default(); COUNTED];
    copy[..len].copy_from_slice(points);
    let mut keys = [i32::MAX; COUNTED];
    for i in 0..len {
        let bits = copy[i].along(axis).to_bits().cast_signed();
        let sortable = bits ^ ((bits >> 31) & i32::MAX);
        keys[i] = sortable & !(COUNTED as i32 - 1) | i as i32;
    }
    let (some, _) = keys.as_chunks::<WIDTH>();
    for (some, copy) in some.iter().zip(copy[..len].chunks(WIDTH)) {
        let mut places = [0; WIDTH];
        for &key in &keys[..len] {
            for lane in 0..WIDTH {
                places[lane] += i32::from(some[lane] > key);
            }
        }
        for (point, place) in copy.iter().zip(places) {
            points[place as usize] = *point;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};
    use crate::testing::numbers;

    struct Select<'a> {
        points: &'a mut [Point],
        first: usize,
        axis: usize,
    }

    impl Kernel for Select<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let mut aside = vec![Point::default(); self.points.len()];
            select(s, self.points, &mut aside, self.first, self.axis);
        }
    }

    #[test]
    fn selects_like_a_sort() {
        for (len, distinct) in [
            (65, 1000.0),
            (300, 3.0),
            (5000, 1e6),
            (5003, 1.0),
            (3001, 40.0),
        ] {
            let values = numbers(len as u64, 3 * len);
            let mut points: Vec<Point> = (0..len)
                .map(|i| {
                    let at = std::array::from_fn(|axis| (values[3 * i + axis] * distinct).round());
                    Point::new(at, i as u32)
                })
                .collect();
            for first in [1, len / 3, len - 1] {
                for axis in 0..3 {
                    let rows = |points: &[Point]| points.iter().map(Point::row).collect::<Vec<_>>();
                    let before = points.clone();
                    let mut orders = Vec::new();
                    for isa in Isa::available() {
                        points.clone_from(&before);
                        isa.run_widened(Select {
                            points: &mut points,
                            first,
                            axis,
                        });
                        orders.push(rows(&points));
                    }
                    assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
                    let (front, back) = points.split_at(first);
                    let largest = front.iter().map(|p| p.along(axis)).fold(f32::MIN, f32::max);
                    let smallest = back.iter().map(|p| p.along(axis)).fold(f32::MAX, f32::min);
                    // Counted keys drop the lowest bits.
                    assert!(
                        largest <= smallest + smallest.abs() * 1e-5,
                        "{len} {distinct} {first}"
                    );
                    let mut rows = rows(&points);
                    rows.sort_unstable();
                    assert!(rows.into_iter().eq(0..len as u32));
                }
            }
        }
    }
}

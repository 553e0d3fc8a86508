//! The k-d order of points: near points get near places.
//!
//! The widest side of a set's box is cut so that whole leaves lie on both sides, again and again, down to leaves. Cuts fall
//! so that leaves come in groups of 8, 64, 512 and so on that are sets of the same kind: the boxes above them are tight.

use std::ops::Range;

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::Simd;

/// Points of a leaf.
pub(super) const LEAF: usize = 16;
/// Children of a node above the leaves.
pub(super) const FAN: usize = 8;

/// Below this many points a set is sorted instead of partitioned: by counting, without a branch.
const COUNTED: usize = 64;
/// Rounds in which all parts are cut at once, before threads take a part each.
const ROUNDS: usize = 4;
/// Sets smaller than this are not worth the threads.
const PARALLEL: usize = 4096;

/// A point with its number; 16 bytes, so that it moves as one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
pub(super) struct Point {
    /// x, y, z, and the bits of the row that it came from.
    lanes: [f32; 4],
}

// SAFETY: four floats without padding; any bits are floats.
unsafe impl bytemuck::Zeroable for Point {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Point {}

impl Point {
    pub(super) fn new([x, y, z]: [f32; 3], row: u32) -> Point {
        Point {
            lanes: [x, y, z, f32::from_bits(row)],
        }
    }

    pub(super) fn at(&self) -> [f32; 3] {
        let [x, y, z, _] = self.lanes;
        [x, y, z]
    }

    pub(super) fn row(&self) -> u32 {
        self.lanes[3].to_bits()
    }

    #[inline(always)]
    fn along(&self, axis: usize) -> f32 {
        // Axes are 0..3; the mask tells the compiler so.
        self.lanes[axis & 3]
    }
}

/// Puts points into k-d order. The order depends on the points alone. `aside` is room for as many.
pub(super) fn sort(cpu: &Cpu, points: &mut [Point], aside: &mut [Point]) {
    let len = points.len();
    let mut parts: Vec<Range<usize>> = std::iter::once(0..len).collect();
    let (shared, aside) = (SharedMut::new(points), SharedMut::new(aside));
    let rounds = if len < PARALLEL { 0 } else { ROUNDS };
    for round in 0..=rounds {
        let whole = round == rounds;
        let mut cuts = vec![0; parts.len()];
        let found = SharedMut::new(&mut cuts);
        cpu.parallel(parts.len(), &|part, _| {
            // SAFETY: parts are disjoint, and so are their cuts.
            let (points, aside, cut) = unsafe {
                let points = shared.slice(parts[part].clone());
                let aside = aside.slice(parts[part].clone());
                (points, aside, &mut found.slice(part..part + 1)[0])
            };
            *cut = cpu.isa().run_widened(Sort {
                points,
                aside,
                whole,
            });
        });
        let halves = parts.iter().zip(cuts);
        parts = halves
            .flat_map(|(part, cut)| [part.start..part.start + cut, part.start + cut..part.end])
            .collect();
    }
}

/// Cuts a set once, or all the way down to leaves; returns where the first cut is.
struct Sort<'a> {
    points: &'a mut [Point],
    /// As long as the points.
    aside: &'a mut [Point],
    whole: bool,
}

impl Kernel for Sort<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let Sort {
            points,
            aside,
            whole,
        } = self;
        let mut first = 0;
        let mut todo: Vec<Range<usize>> = std::iter::once(0..points.len()).collect();
        while let Some(range) = todo.pop() {
            let cut = cut(s, &mut points[range.clone()], aside);
            if range.len() == points.len() {
                first = cut;
            }
            if whole && cut > 0 {
                todo.push(range.start + cut..range.end);
                todo.push(range.start..range.start + cut);
            }
        }
        first
    }
}

/// Cuts a set in two along its widest side; returns how many points come first, 0 where there is nothing to cut.
#[inline(always)]
fn cut<S: Simd>(s: S, points: &mut [Point], aside: &mut [Point]) -> usize {
    let leaves = points.len().div_ceil(LEAF);
    if leaves <= 1 {
        return 0;
    }
    let [low, high] = bounds(points);
    let side = |axis: usize| high[axis] - low[axis];
    let wider = |a: usize, b: usize| if side(b) > side(a) { b } else { a };
    let axis = wider(wider(0, 1), 2);
    // All points coincide: any order is as good.
    if side(axis) == 0.0 {
        return 0;
    }
    let first = leaves_before_cut(leaves) * LEAF;
    select(s, points, aside, first, axis);
    first
}

/// Where to cut a set of leaves: near the middle, at a multiple of the largest power of 8 below their number.
fn leaves_before_cut(leaves: usize) -> usize {
    let mut unit = 1;
    while unit * FAN < leaves {
        unit *= FAN;
    }
    ((leaves + unit) / 2 / unit * unit).clamp(unit, (leaves - 1) / unit * unit)
}

/// The smallest and the largest coordinates (the fourth number is without meaning).
#[inline(always)]
pub(super) fn bounds(points: &[Point]) -> [[f32; 4]; 2] {
    /// Minima side by side hide the latency of a comparison.
    const SIDE_BY_SIDE: usize = 4;
    let mut low = [[f32::INFINITY; 4]; SIDE_BY_SIDE];
    let mut high = [[f32::NEG_INFINITY; 4]; SIDE_BY_SIDE];
    let (fours, rest) = points.as_chunks::<SIDE_BY_SIDE>();
    for four in fours {
        for i in 0..SIDE_BY_SIDE {
            widen(&mut low[i], &mut high[i], four[i].lanes);
        }
    }
    let [mut low, others @ ..] = low;
    let [mut high, other_highs @ ..] = high;
    for i in 0..SIDE_BY_SIDE - 1 {
        for lane in 0..4 {
            low[lane] = low[lane].min(others[i][lane]);
            high[lane] = high[lane].max(other_highs[i][lane]);
        }
    }
    for point in rest {
        widen(&mut low, &mut high, point.lanes);
    }
    [low, high]
}

#[inline(always)]
fn widen(low: &mut [f32; 4], high: &mut [f32; 4], lanes: [f32; 4]) {
    for lane in 0..4 {
        let value = lanes[lane];
        low[lane] = if value < low[lane] { value } else { low[lane] };
        high[lane] = if value > high[lane] {
            value
        } else {
            high[lane]
        };
    }
}

/// Moves the `first` smallest points along an axis to the front (0 < first < len).
#[inline(always)]
fn select<S: Simd>(s: S, points: &mut [Point], aside: &mut [Point], first: usize, axis: usize) {
    const SAMPLES: usize = 31;
    /// So many bad pivots mean that somebody chose the points against us.
    const MAX_ROUNDS: usize = 40;
    let (mut start, mut end) = (0, points.len());
    for _ in 0..MAX_ROUNDS {
        let len = end - start;
        if len <= COUNTED {
            return sort_by_counting(&mut points[start..end], axis);
        }
        // The pivot has the rank among samples that the cut has among the points.
        let count = if len > 2000 { SAMPLES } else { 9 };
        let step = len / count;
        let mut samples = [0.0; SAMPLES];
        let samples = &mut samples[..count];
        for (sample, point) in samples
            .iter_mut()
            .zip(points[start + step / 2..].iter().step_by(step))
        {
            *sample = point.along(axis);
        }
        insertion_sort(samples);
        let rank = (first - start) * count / len;
        let pivot = samples[rank.min(count - 1)];
        let less = partition::<S, false>(s, &mut points[start..end], aside, axis, pivot);
        if first == start + less {
            return;
        }
        if first < start + less {
            end = start + less;
            continue;
        }
        start += less;
        // A small part in front may mean many points at the pivot itself.
        if less * 8 < len {
            let equal = partition::<S, true>(s, &mut points[start..end], aside, axis, pivot);
            if first <= start + equal {
                return;
            }
            start += equal;
        }
    }
    points[start..end].sort_unstable_by(|a, b| a.along(axis).total_cmp(&b.along(axis)));
}

#[inline(always)]
fn insertion_sort(values: &mut [f32]) {
    for i in 1..values.len() {
        let value = values[i];
        let mut j = i;
        while j > 0 && values[j - 1] > value {
            values[j] = values[j - 1];
            j -= 1;
        }
        values[j] = value;
    }
}

/// Moves the points below the pivot (or at it) to the front, without a branch on it; returns their number. All stay in order.
#[inline(always)]
fn partition<S: Simd, const OR_AT: bool>(
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

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::Point;
    use crate::gemm::wide::Wide;

    /// Points of a vector.
    const POINTS: usize = 4;

    /// [`partition`](super::partition) of all whole vectors, before what is aside comes back: the points that went first, and
    /// those aside.
    #[inline(always)]
    pub(super) fn partition<const OR_AT: bool>(
        _: Wide,
        points: &mut [Point],
        aside: &mut [Point],
        axis: usize,
        pivot: f32,
    ) -> (usize, usize) {
        assert!(points.len() == aside.len());
        let (mut front, mut behind) = (0, 0);
        let (from, aside) = (points.as_mut_ptr(), aside.as_mut_ptr());
        // SAFETY: `Wide` proves AVX-512. Vectors lie in both slices: as many points as were read so far have been written at
        // most, and nothing is written over that was not read.
        unsafe {
            let pivot = _mm512_set1_ps(pivot);
            let spread = _mm512_set1_epi32(axis as i32);
            for next in (0..points.len() / POINTS * POINTS).step_by(POINTS) {
                let four = _mm512_loadu_ps(from.add(next).cast());
                let along = _mm512_permutevar_ps(four, spread);
                let first = match OR_AT {
                    true => _mm512_cmp_ps_mask::<_CMP_LE_OQ>(along, pivot),
                    false => _mm512_cmp_ps_mask::<_CMP_LT_OQ>(along, pivot),
                };
                // A bit of each point, added up in the fourth digit.
                let count = ((u32::from(first) & 0x1111) * 0x1111) >> 12 & 0xF;
                let count = count as usize;
                let chosen = _mm512_maskz_compress_ps(first, four);
                let others = _mm512_maskz_compress_ps(!first, four);
                _mm512_storeu_ps(from.add(front).cast(), chosen);
                _mm512_storeu_ps(aside.add(behind).cast(), others);
                front += count;
                behind += POINTS - count;
            }
        }
        (front, behind)
    }
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
    use crate::isa::Isa;
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

    #[test]
    fn cuts_keep_groups_of_eight_whole() {
        for leaves in 2..2000usize {
            let before = leaves_before_cut(leaves);
            assert!(before > 0 && before < leaves);
            let unit = FAN.pow((leaves - 1).ilog(FAN));
            assert_eq!(before % unit, 0, "{leaves} leaves");
        }
    }
}

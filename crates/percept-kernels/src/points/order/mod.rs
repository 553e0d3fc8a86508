//! The k-d order of points: near points get near places.
//!
//! The widest side of a set's box is cut so that whole leaves lie on both sides, again and again, down to leaves. Cuts fall
//! so that leaves come in groups of 8, 64, 512 and so on that are sets of the same kind: the boxes above them are tight.

mod select;
#[cfg(target_arch = "x86_64")]
mod wide;

use std::ops::Range;

use self::select::select;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::Simd;

/// Points of a leaf.
pub(super) const LEAF: usize = 16;
/// Children of a node above the leaves.
pub(super) const FAN: usize = 8;

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
    let [low, high] = bounds(s, points);
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
pub(super) fn bounds<S: Simd>(s: S, points: &[Point]) -> [[f32; 4]; 2] {
    let (mut low, mut high) = ([f32::INFINITY; 4], [f32::NEG_INFINITY; 4]);
    let mut rest = points;
    #[cfg(target_arch = "x86_64")]
    if let Some(wide) = s.wide() {
        ([low, high], rest) = wide::bounds(wide, points);
    }
    for point in rest {
        for lane in 0..4 {
            let value = point.lanes[lane];
            low[lane] = if value < low[lane] { value } else { low[lane] };
            high[lane] = if value > high[lane] {
                value
            } else {
                high[lane]
            };
        }
    }
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;

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

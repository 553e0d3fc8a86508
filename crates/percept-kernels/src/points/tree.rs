//! Points in k-d order, cut into leaves of 16, with a tree of boxes above them, eight to a node.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use super::order::{self, FAN, LEAF, Point, bounds};
use crate::aligned::{AlignedBuf, SharedMut};
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Coordinates may be as large as this: squares of their differences are finite.
pub const MAX_COORDINATE: f32 = 1e18;
/// Numbers of points stay below it: as floats, their bits are then ordered and none is a NaN.
pub const MAX_POINTS: usize = 0x7F00_0000;

/// Where the empty seats of the last leaf are: farther from every point than any other point.
const NOWHERE: f32 = 6e18;
/// The number of an empty seat: above all others.
pub(super) const NOBODY: u32 = f32::MAX.to_bits();
/// Nodes that a thread fills at a time.
const NODES_PER_BLOCK: usize = 64;
/// Points that a thread copies at a time.
const POINTS_PER_BLOCK: usize = 1 << 14;

/// Why points cannot be searched.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PointsError {
    /// A coordinate is no number, infinite, or so large that squares overflow.
    #[error("point {row}: {axis} is {value}: expected a number of at most {MAX_COORDINATE:e}")]
    Coordinate {
        /// The first row that has one.
        row: usize,
        /// x, y or z.
        axis: char,
        /// The coordinate.
        value: f32,
    },
    /// More points than numbers for them.
    #[error("{points} points: at most {MAX_POINTS} are supported")]
    TooMany {
        /// Points given.
        points: usize,
    },
}

/// What neighbours are called, and in which order their lists come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// By rows of the points as they were given. Points that were left out have a list of -1.
    Rows,
    /// By places in the tree's order: for data that is stored in this order, where it is read and written in sequence.
    Places,
}

/// Sixteen points, axis by axis. Numbers are kept as the bits of floats, to travel in the same vectors.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Leaf {
    pub(super) at: [[[f32; LANES]; 2]; 3],
    pub(super) number: [[f32; LANES]; 2],
}

// SAFETY: 64 floats without padding; any bits are floats.
unsafe impl bytemuck::Zeroable for Leaf {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Leaf {}

/// Leaves on huge pages, where there are many.
pub(super) struct Leaves {
    buffer: AlignedBuf,
    count: usize,
}

impl Leaves {
    /// So many leaves, which hold what was left in their memory.
    fn new(cpu: &Cpu, count: usize) -> Leaves {
        Leaves {
            buffer: cpu.buffer(count * size_of::<Leaf>() / size_of::<f32>()),
            count,
        }
    }
}

impl Deref for Leaves {
    type Target = [Leaf];

    #[inline(always)]
    fn deref(&self) -> &[Leaf] {
        bytemuck::cast_slice(&self.buffer.bytes()[..self.count * size_of::<Leaf>()])
    }
}

impl DerefMut for Leaves {
    fn deref_mut(&mut self) -> &mut [Leaf] {
        bytemuck::cast_slice_mut(&mut self.buffer.bytes_mut()[..self.count * size_of::<Leaf>()])
    }
}

impl Leaf {
    const EMPTY: Leaf = Leaf {
        at: [[[NOWHERE; LANES]; 2]; 3],
        number: [[f32::from_bits(NOBODY); LANES]; 2],
    };

    /// The coordinates in a seat (0 to 15).
    #[inline(always)]
    pub(super) fn point(&self, seat: usize) -> [f32; 3] {
        let at = |axis: usize| self.at[axis][seat / LANES % 2][seat % LANES];
        [at(0), at(1), at(2)]
    }

    /// The number in a seat (0 to 15).
    #[inline(always)]
    pub(super) fn number(&self, seat: usize) -> u32 {
        self.number[seat / LANES % 2][seat % LANES].to_bits()
    }
}

/// The boxes of a node's eight children, side by side, and the smallest number in each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Boxes {
    pub(super) low: [[f32; LANES]; 3],
    pub(super) high: [[f32; LANES]; 3],
    pub(super) first: [f32; LANES],
}

impl Boxes {
    const EMPTY: Boxes = Boxes {
        low: [[f32::INFINITY; LANES]; 3],
        high: [[f32::NEG_INFINITY; LANES]; 3],
        first: [f32::from_bits(NOBODY); LANES],
    };

    fn set(&mut self, child: usize, low: [f32; 3], high: [f32; 3], first: f32) {
        for axis in 0..3 {
            self.low[axis][child] = low[axis];
            self.high[axis][child] = high[axis];
        }
        self.first[child] = first;
    }

    /// One box around all, and the smallest number of all.
    fn around(&self) -> ([f32; 3], [f32; 3], f32) {
        let smallest = |values: &[f32; LANES]| values.iter().copied().fold(f32::MAX, f32::min);
        let largest = |values: &[f32; LANES]| values.iter().copied().fold(f32::MIN, f32::max);
        (
            self.low.each_ref().map(smallest),
            self.high.each_ref().map(largest),
            smallest(&self.first),
        )
    }
}

/// Points in an order in which near points are near, ready to be searched.
pub struct PointTree {
    numbering: Numbering,
    /// Rows given, with those that were left out.
    given: usize,
    /// The row at each place.
    rows: Vec<u32>,
    pub(super) leaves: Leaves,
    /// The boxes of the leaves by eight, the boxes of those by eight, and so on up to one node.
    pub(super) boxes: Vec<Vec<Boxes>>,
}

impl PointTree {
    /// A tree of all points. A coordinate that is no number (or beyond [`MAX_COORDINATE`]) is an error.
    pub fn build(
        cpu: &Cpu,
        points: &[[f32; 3]],
        numbering: Numbering,
    ) -> Result<PointTree, PointsError> {
        PointTree::new(cpu, points, numbering, |usable| {
            match usable == points.len() {
                true => Ok(()),
                false => Err(first_unusable(points)),
            }
        })
    }

    /// A tree of the points whose coordinates are numbers. The others are left out: [`PointTree::left_out`] counts them.
    pub fn of_usable(
        cpu: &Cpu,
        points: &[[f32; 3]],
        numbering: Numbering,
    ) -> Result<PointTree, PointsError> {
        PointTree::new(cpu, points, numbering, |_| Ok(()))
    }

    /// A tree of the usable points; `accept` is asked whether it is enough of them.
    fn new(
        cpu: &Cpu,
        points: &[[f32; 3]],
        numbering: Numbering,
        accept: impl FnOnce(usize) -> Result<(), PointsError>,
    ) -> Result<PointTree, PointsError> {
        if points.len() > MAX_POINTS {
            return Err(PointsError::TooMany {
                points: points.len(),
            });
        }
        let mut buffer = cpu.buffer(points.len() * size_of::<Point>() / size_of::<f32>());
        let bytes = &mut buffer.bytes_mut()[..points.len() * size_of::<Point>()];
        let sorted = bytemuck::cast_slice_mut(bytes);
        let count = copy_usable(cpu, points, sorted);
        accept(count)?;
        let sorted = &mut sorted[..count];
        // Leaves are as large as the points in them, and not needed yet.
        let mut leaves = Leaves::new(cpu, count.div_ceil(LEAF));
        let aside = &mut bytemuck::cast_slice_mut(&mut leaves)[..count];
        order::sort(cpu, sorted, aside);
        let mut tree = PointTree {
            numbering,
            given: points.len(),
            rows: sorted.iter().map(Point::row).collect(),
            leaves,
            boxes: Vec::new(),
        };
        tree.fill(cpu, sorted);
        cpu.give_back(buffer);
        Ok(tree)
    }

    /// Gives the tree's memory back for the next one: new memory is cleared by the system, which takes a fifth of the time that
    /// a large tree does.
    pub fn give_back(self, cpu: &Cpu) {
        cpu.give_back(self.leaves.buffer);
    }

    /// Points in the tree.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the tree holds no point.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Points that were left out.
    pub fn left_out(&self) -> usize {
        self.given - self.rows.len()
    }

    /// The row at each place of the tree's order.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The coordinates at each place of the tree's order.
    pub fn points(&self) -> impl Iterator<Item = [f32; 3]> {
        (0..self.len()).map(|place| self.leaves[place / LEAF].point(place % LEAF))
    }

    /// How neighbours are called.
    pub fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Lists that a search by this tree's points makes: one for each number that a point can have.
    pub fn lists(&self) -> usize {
        match self.numbering {
            Numbering::Rows => self.given,
            Numbering::Places => self.rows.len(),
        }
    }

    /// Points in a leaf.
    pub(super) fn seats(&self, leaf: usize) -> usize {
        (self.rows.len() - leaf * LEAF).min(LEAF)
    }

    fn fill(&mut self, cpu: &Cpu, points: &[Point]) {
        let mut nodes = self.leaves.len().div_ceil(FAN);
        self.boxes = vec![vec![Boxes::EMPTY; nodes]];
        let leaves = SharedMut::new(&mut self.leaves);
        let boxes = SharedMut::new(&mut self.boxes[0]);
        let numbering = self.numbering;
        cpu.parallel(nodes.div_ceil(NODES_PER_BLOCK), &|block, _| {
            let start = block * NODES_PER_BLOCK;
            let end = boxes.len().min(start + NODES_PER_BLOCK);
            let leaf_range = start * FAN..leaves.len().min(end * FAN);
            // SAFETY: each block has its own nodes and the leaves below them.
            let (boxes, leaves) = unsafe { (boxes.slice(start..end), leaves.slice(leaf_range)) };
            cpu.isa().run_widened(Fill {
                points,
                numbering,
                place: start * FAN * LEAF,
                leaves,
                boxes,
            });
        });
        while nodes > 1 {
            let below = &self.boxes[self.boxes.len() - 1];
            nodes = nodes.div_ceil(FAN);
            let mut above = vec![Boxes::EMPTY; nodes];
            for (node, boxes) in below.iter().enumerate() {
                let (low, high, first) = boxes.around();
                above[node / FAN].set(node % FAN, low, high, first);
            }
            self.boxes.push(above);
        }
    }
}

/// Fills leaves and the boxes above them.
struct Fill<'a> {
    /// All points, in order.
    points: &'a [Point],
    numbering: Numbering,
    /// The place of the first leaf's first point.
    place: usize,
    leaves: &'a mut [Leaf],
    boxes: &'a mut [Boxes],
}

impl Kernel for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let places = (self.place..).step_by(LEAF);
        for (index, (leaf, place)) in self.leaves.iter_mut().zip(places).enumerate() {
            let points = &self.points[place..self.points.len().min(place + LEAF)];
            let mut first = f32::from_bits(NOBODY);
            if points.len() < LEAF {
                *leaf = Leaf::EMPTY;
            }
            for (seat, point) in points.iter().enumerate() {
                let number = match self.numbering {
                    Numbering::Rows => point.row(),
                    Numbering::Places => (place + seat) as u32,
                };
                let number = f32::from_bits(number);
                let at = point.at();
                for axis in 0..3 {
                    leaf.at[axis][seat / LANES][seat % LANES] = at[axis];
                }
                leaf.number[seat / LANES][seat % LANES] = number;
                first = first.min(number);
            }
            let [low, high] = bounds(s, points).map(|[x, y, z, _]| [x, y, z]);
            self.boxes[index / FAN].set(index % FAN, low, high, first);
        }
    }
}

impl fmt::Debug for PointTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PointTree")
            .field("points", &self.len())
            .field("numbering", &self.numbering)
            .finish_non_exhaustive()
    }
}

/// Copies the usable points, one after the other; returns how many they are.
fn copy_usable(cpu: &Cpu, points: &[[f32; 3]], into: &mut [Point]) -> usize {
    let all_usable = AtomicBool::new(true);
    let shared = SharedMut::new(into);
    cpu.parallel(points.len().div_ceil(POINTS_PER_BLOCK), &|block, _| {
        let start = block * POINTS_PER_BLOCK;
        let end = points.len().min(start + POINTS_PER_BLOCK);
        // SAFETY: blocks are disjoint.
        let into = unsafe { shared.slice(start..end) };
        let mut usable = true;
        for ((into, at), row) in into.iter_mut().zip(&points[start..end]).zip(start as u32..) {
            *into = Point::new(*at, row);
            usable &= is_usable(at);
        }
        if !usable {
            all_usable.store(false, Ordering::Relaxed);
        }
    });
    if all_usable.into_inner() {
        return points.len();
    }
    let mut count = 0;
    for row in 0..into.len() {
        into[count] = into[row];
        count += usize::from(is_usable(&points[row]));
    }
    count
}

/// Names the first coordinate that cannot be searched.
fn first_unusable(points: &[[f32; 3]]) -> PointsError {
    let rows = points.iter().enumerate();
    let mut coordinates =
        rows.flat_map(|(row, point)| (0..3).map(move |axis| (row, axis, point[axis])));
    let (row, axis, value) = coordinates
        .find(|(_, _, value)| !is_number(*value))
        .unwrap_or_default();
    PointsError::Coordinate {
        row,
        axis: ['x', 'y', 'z'][axis],
        value,
    }
}

/// Whether a point can be searched.
pub(super) fn is_usable(point: &[f32; 3]) -> bool {
    point.iter().all(|&value| is_number(value))
}

/// Whether a coordinate can be searched: NaN fails the comparison too.
fn is_number(value: f32) -> bool {
    value.abs() <= MAX_COORDINATE
}

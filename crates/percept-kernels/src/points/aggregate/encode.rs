//! Encoding where the neighbours of a few points are.
//!
//! `[d, p-n, p, n] W` is `p (W_p + W_n) + (p-n) (W_pn - W_n) + d w_d`: four products per neighbour and channel instead of
//! ten, which is cheap enough to do again wherever an encoding is needed instead of keeping it.
//!
//! Far from the origin the first part is large beside the others, which are what neighbours differ in. It is summed in f64, and what
//! an f32 cannot hold of it is added to the others before it is added itself: encodings are as exact as f32 can be.

use std::ops::Range;

use super::shape::{AggregationShape, GEOMETRY};
use super::tile::{ROW_UNIT, RowProduct, leaky, pack_panels, read_at};
use crate::points::MAX_NEIGHBOURS;
use crate::simd::{LANES, Simd};

/// Points whose neighbours are encoded together: with 16 neighbours, 48 rows are whole tiles.
pub(super) const PATCH: usize = 3;
/// Most rows of a patch.
const MAX_ROWS: usize = (PATCH * MAX_NEIGHBOURS).next_multiple_of(ROW_UNIT);

/// Weights of the encoding, ready to use. Channels are padded to whole vectors.
#[derive(Debug)]
pub(super) struct Encoder {
    pub(super) k: usize,
    pub(super) padded: usize,
    pub(super) slope: f32,
    /// Of x, y and z of the point, and the bias: `[4][padded]`.
    point: Vec<f64>,
    /// Of the distance and of x, y and z of p - n: `[4][padded]`.
    relative: Vec<f32>,
    /// Packed, and its bias.
    again: Option<(Vec<f32>, Vec<f32>)>,
}

impl Encoder {
    pub(super) fn new(
        shape: &AggregationShape,
        (weight, bias): (&[f32], &[f32]),
        again: Option<(&[f32], &[f32])>,
    ) -> Encoder {
        let (width, padded) = (shape.width, shape.width.next_multiple_of(LANES));
        let column = |number: usize, channel: usize| {
            weight[channel * GEOMETRY + shape.join.geometry_column(number)]
        };
        let mut point = vec![0.0; 4 * padded];
        let mut relative = vec![0.0; 4 * padded];
        for channel in 0..width {
            for axis in 0..3 {
                let (of_n, to) = (column(7 + axis, channel), axis * padded + channel);
                point[to] = f64::from(column(4 + axis, channel)) + f64::from(of_n);
                relative[padded + to] = column(1 + axis, channel) - of_n;
            }
            relative[channel] = column(0, channel);
            point[3 * padded + channel] = f64::from(bias[channel]);
        }
        let again = again.map(|(weight, bias)| {
            let panels = pack_panels(padded, padded, |input, output| {
                padded_at(weight, width, output, input)
            });
            (panels, padded_row(bias, padded))
        });
        Encoder {
            k: shape.k,
            padded,
            slope: shape.slope,
            point,
            relative,
            again,
        }
    }

    /// What a point adds to the encodings of all its neighbours, from a channel on, and what that lacks.
    #[inline(always)]
    fn start<S: Simd>(&self, s: S, point: [f32; 3], channel: usize) -> [S::V; 2] {
        let (mut sums, mut rest) = ([0.0; LANES], [0.0; LANES]);
        for lane in 0..LANES {
            let weight = |number: usize| self.point[number * self.padded + channel + lane];
            let mut sum = weight(3);
            for axis in 0..3 {
                sum += f64::from(point[axis]) * weight(axis);
            }
            sums[lane] = sum as f32;
            rest[lane] = (sum - f64::from(sums[lane])) as f32;
        }
        [s.vector(sums), s.vector(rest)]
    }

    /// Floats that [`Patch::split`] takes.
    pub(super) fn scratch_len(&self) -> usize {
        let rows = (PATCH * self.k).next_multiple_of(ROW_UNIT);
        4 * (rows + LANES) + 2 * rows * self.padded
    }
}

/// An element of `[width, width]`, or 0 outside.
pub(super) fn padded_at(weight: &[f32], width: usize, row: usize, column: usize) -> f32 {
    if row < width && column < width {
        weight[row * width + column]
    } else {
        0.0
    }
}

/// A row with zeros behind it.
pub(super) fn padded_row(row: &[f32], len: usize) -> Vec<f32> {
    let mut padded = row.to_vec();
    padded.resize(len, 0.0);
    padded
}

/// A few points and their neighbours, one row each.
pub(super) struct Patch<'a> {
    pub(super) points: Range<usize>,
    /// Neighbours, and then the first one again until rows are whole tiles.
    lists: [u32; MAX_ROWS],
    /// Neighbours of all points.
    pub(super) rows: usize,
    pub(super) padded_rows: usize,
    /// Distance and x, y, z of p - n, each for all rows.
    pub(super) geometry: &'a mut [f32],
    /// `[padded_rows][padded]`: encoded once.
    pub(super) once: &'a mut [f32],
    /// `[padded_rows][padded]`: encoded twice. Empty where that is not asked for.
    pub(super) twice: &'a mut [f32],
}

impl<'a> Patch<'a> {
    /// The patch of `points`, at most [`PATCH`], with memory of [`Encoder::scratch_len`].
    pub(super) fn split(
        encoder: &Encoder,
        points: Range<usize>,
        neighbours: &[i32],
        memory: &'a mut [f32],
    ) -> Patch<'a> {
        let k = encoder.k;
        let listed = &neighbours[points.start * k..points.end * k];
        let rows = listed.len();
        let padded_rows = rows.next_multiple_of(ROW_UNIT);
        let mut lists = [0; MAX_ROWS];
        lists[..padded_rows].fill(listed[0].cast_unsigned());
        for (to, from) in lists.iter_mut().zip(listed) {
            *to = from.cast_unsigned();
        }
        let (geometry, rest) = memory.split_at_mut(4 * (padded_rows + LANES));
        let encoded = padded_rows * encoder.padded;
        let (once, rest) = rest.split_at_mut(encoded);
        let twice = encoder.again.as_ref().map_or(0, |_| encoded);
        Patch {
            points,
            lists,
            rows,
            padded_rows,
            geometry,
            once,
            twice: &mut rest[..twice],
        }
    }

    /// The neighbour that a row is about.
    #[inline(always)]
    pub(super) fn neighbour(&self, row: usize) -> usize {
        self.lists[row] as usize
    }

    /// The neighbours of all rows.
    pub(super) fn lists(&self) -> &[u32] {
        &self.lists[..self.rows]
    }

    /// Distance between the numbers of a row in `geometry`.
    pub(super) fn stride(&self) -> usize {
        self.padded_rows + LANES
    }

    /// What is joined to the features.
    pub(super) fn encoding(&self) -> &[f32] {
        if self.twice.is_empty() {
            self.once
        } else {
            self.twice
        }
    }

    /// Fills geometry and encodings.
    #[inline(always)]
    pub(super) fn encode<S: Simd>(&mut self, s: S, encoder: &Encoder, points: &[[f32; 3]]) {
        let (k, padded, stride) = (encoder.k, encoder.padded, self.stride());
        let slope = s.splat(encoder.slope);
        self.once[self.rows * padded..].fill(0.0);
        for (turn, point) in self.points.clone().enumerate() {
            let p = points[point];
            for first in (0..k).step_by(LANES) {
                let mut away = [[0.0f32; LANES]; 3];
                for lane in 0..LANES.min(k - first) {
                    let n = points[self.neighbour(turn * k + first + lane)];
                    for axis in 0..3 {
                        away[axis][lane] = p[axis] - n[axis];
                    }
                }
                let [x, y, z] = away;
                let (x, y, z) = (s.vector(x), s.vector(y), s.vector(z));
                let square = s.mul_add(z, z, s.mul_add(y, y, s.mul(x, x)));
                // Lanes past the last neighbour fall into the next point's place, which is filled later, or behind it.
                for (number, value) in [s.sqrt(square), x, y, z].into_iter().enumerate() {
                    s.write(
                        &mut self.geometry[number * stride + turn * k + first..],
                        value,
                    );
                }
            }
            for channel in (0..padded).step_by(LANES) {
                let [start, rest] = encoder.start(s, p, channel);
                let mut weights = [start; 4];
                for number in 0..4 {
                    weights[number] = read_at(s, &encoder.relative, number * padded + channel);
                }
                let rows = turn * k..(turn + 1) * k;
                assert!(
                    rows.end * padded <= self.once.len()
                        && 3 * stride + rows.end <= self.geometry.len()
                );
                for row in rows {
                    let mut value = rest;
                    // SAFETY: the last row was checked above, and vectors are whole.
                    unsafe {
                        for number in 0..4 {
                            let geometry =
                                s.splat(*self.geometry.get_unchecked(number * stride + row));
                            value = s.mul_add(geometry, weights[number], value);
                        }
                        value = s.add(start, value);
                        let to = self.once.as_mut_ptr().add(row * padded + channel);
                        s.store(to, leaky(s, slope, value));
                    }
                }
            }
        }
        if let Some((panels, bias)) = &encoder.again {
            s.call(RowProduct {
                a: self.once,
                depth: padded,
                panels,
                columns: padded,
                bias: Some(bias),
                slope: encoder.slope,
                y: self.twice,
            });
        }
    }
}

//! Rows that lists name: their copies, their maximum, their weighted sum; and the gradients of these.
//!
//! Rows are `[rows, width]`. A list names rows of x by number; a number without a row is a caller's bug and panics. A gradient
//! is summed row by row over an [`InverseLists`], in the order of the list: no atomics, and the same bits at any thread count.

use super::InverseLists;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::for_each_block;
use crate::simd::{LANES, Simd};

/// The row of x that a list names.
#[inline(always)]
fn row_of<T>(x: &[T], width: usize, named: i32) -> &[T] {
    &x[named.cast_unsigned() as usize * width..][..width]
}

/// y `[len, width]`: the rows of x `[rows, width]` that `list` names.
pub fn gather_rows(cpu: &Cpu, width: usize, x: &[f32], list: &[i32], y: &mut [f32]) {
    for_each_block(cpu, list.len(), width, width, y, |places, y| {
        for (&named, y) in list[places].iter().zip(y.chunks_exact_mut(width.max(1))) {
            y.copy_from_slice(row_of(x, width, named));
        }
    });
}

/// dx `[rows, width]` of [`gather_rows`], from dy `[len, width]` and the list turned around.
pub fn gather_rows_gradient(
    cpu: &Cpu,
    width: usize,
    turned: &InverseLists,
    dy: &[f32],
    dx: &mut [f32],
) {
    for_each_block(cpu, turned.rows(), 2 * width, width, dx, |rows, dx| {
        for (row, dx) in rows.zip(dx.chunks_exact_mut(width.max(1))) {
            dx.fill(0.0);
            for &place in turned.places(row) {
                let dy = &dy[place as usize * width..][..width];
                dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy);
            }
        }
    });
}

/// Points and their neighbours, of which some points are kept.
#[derive(Clone, Copy, Debug)]
pub struct KeptLists<'a> {
    /// Neighbours of each point, K: 1 to 255.
    pub k: usize,
    /// `[N, K]`: rows of x.
    pub neighbours: &'a [i32],
    /// The points that are kept: rows of `neighbours`.
    pub kept: &'a [i32],
}

impl KeptLists<'_> {
    fn check(&self) {
        assert!((1..=255).contains(&self.k), "lists of 1 to 255 neighbours");
        assert!(self.neighbours.len().is_multiple_of(self.k), "whole lists");
    }
}

/// y `[kept, width]`: for each kept point the maximum over its neighbours' rows of x. NaN wins, as in PyTorch.
///
/// `winners`, if given, takes the place in the list that each number comes from, the first of equal ones.
pub fn neighbour_max(
    cpu: &Cpu,
    width: usize,
    x: &[f32],
    lists: KeptLists<'_>,
    y: &mut [f32],
    winners: Option<&mut [u8]>,
) {
    lists.check();
    for_each_block(
        cpu,
        lists.kept.len(),
        lists.k * width,
        width,
        y,
        |places, y| {
            let kept = &lists.kept[places];
            let k = lists.k;
            for (&point, y) in kept.iter().zip(y.chunks_exact_mut(width.max(1))) {
                let list = row_of(lists.neighbours, k, point);
                cpu.isa().run(MaxRow { width, x, list, y });
            }
        },
    );
    if let Some(winners) = winners {
        find_winners(cpu, width, x, lists, y, winners);
    }
}

struct MaxRow<'a> {
    width: usize,
    x: &'a [f32],
    list: &'a [i32],
    y: &'a mut [f32],
}

impl Kernel for MaxRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (&first, others) = self.list.split_first().expect("lists are not empty");
        for (at, y) in self.y.chunks_mut(LANES).enumerate() {
            let lanes = at * LANES..at * LANES + y.len();
            let mut most = s.read(&row_of(self.x, self.width, first)[lanes.clone()]);
            for &named in others {
                let value = s.read(&row_of(self.x, self.width, named)[lanes.clone()]);
                // `max` gives its second operand for NaN, so a NaN that was found is kept.
                let larger = s.select(s.equal(value, value), s.max(value, most), value);
                most = s.select(s.equal(most, most), larger, most);
            }
            s.write(y, most);
        }
    }
}

fn find_winners(
    cpu: &Cpu,
    width: usize,
    x: &[f32],
    lists: KeptLists<'_>,
    y: &[f32],
    winners: &mut [u8],
) {
    let work = lists.k * width;
    for_each_block(
        cpu,
        lists.kept.len(),
        work,
        width,
        winners,
        |places, winners| {
            cpu.isa().run(FindWinners {
                width,
                x,
                lists,
                y: &y[places.start * width..places.end * width],
                kept: &lists.kept[places],
                winners,
            });
        },
    );
}

/// For each place the number in its list whose row has the maximum: the first one, or the first that is no number.
struct FindWinners<'a> {
    width: usize,
    x: &'a [f32],
    lists: KeptLists<'a>,
    y: &'a [f32],
    kept: &'a [i32],
    winners: &'a mut [u8],
}

impl Kernel for FindWinners<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.width.max(1);
        let rows = self
            .winners
            .chunks_exact_mut(width)
            .zip(self.y.chunks_exact(width));
        for ((winners, y), &point) in rows.zip(self.kept) {
            let list = row_of(self.lists.neighbours, self.lists.k, point);
            let lanes = winners.chunks_mut(LANES).zip(y.chunks(LANES));
            for (at, (winners, y)) in lanes.enumerate() {
                let lanes = at * LANES..at * LANES + y.len();
                let y = s.read(y);
                let mut first = s.splat(f32::from(u8::MAX));
                // Backwards: the first one is set last.
                for (number, &named) in list.iter().enumerate().rev() {
                    let value = s.read(&row_of(self.x, width, named)[lanes.clone()]);
                    let number = s.splat(number as f32);
                    first = s.select(s.equal(value, y), number, first);
                    first = s.select(s.equal(value, value), first, number);
                }
                for (winner, first) in winners.iter_mut().zip(s.to_array(first)) {
                    *winner = first as u8;
                }
            }
        }
    }
}

/// dx `[rows, width]` of [`neighbour_max`], from dy `[kept, width]` and the winners. `rows` is the number of rows of x.
pub fn neighbour_max_gradient(
    cpu: &Cpu,
    width: usize,
    rows: usize,
    lists: KeptLists<'_>,
    winners: &[u8],
    dy: &[f32],
    dx: &mut [f32],
) {
    lists.check();
    assert_eq!(dy.len(), lists.kept.len() * width, "length of dy");
    assert_eq!(winners.len(), dy.len(), "length of the winners");
    let k = lists.k;
    let kept = lists.kept.iter();
    let named: Vec<i32> = kept
        .flat_map(|&point| row_of(lists.neighbours, k, point))
        .copied()
        .collect();
    let turned = InverseLists::new(rows, &named);
    for_each_block(cpu, rows, 2 * width, width, dx, |rows, dx| {
        cpu.isa().run_widened(SumWinners {
            width,
            k,
            first: rows.start,
            turned: &turned,
            winners,
            dy,
            dx,
        });
    });
}

/// For each row the gradient of the places where it won.
struct SumWinners<'a> {
    width: usize,
    k: usize,
    first: usize,
    turned: &'a InverseLists,
    winners: &'a [u8],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl Kernel for SumWinners<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.width.max(1);
        for (row, dx) in self.dx.chunks_exact_mut(width).enumerate() {
            dx.fill(0.0);
            for &place in self.turned.places(self.first + row) {
                let (point, at) = (place as usize / self.k, (place as usize % self.k) as u8);
                let winners = &self.winners[point * width..][..width];
                let dy = &self.dy[point * width..][..width];
                for i in 0..width {
                    dx[i] += if winners[i] == at { dy[i] } else { 0.0 };
                }
            }
        }
    }
}

/// y `[N, width]`: the weighted sum of the `k` rows of x that each list `[N, k]` names, with weights `[N, k]`.
pub fn interpolate(
    cpu: &Cpu,
    width: usize,
    k: usize,
    x: &[f32],
    nearest: &[i32],
    weights: &[f32],
    y: &mut [f32],
) {
    assert!(k > 0 && nearest.len().is_multiple_of(k), "whole lists");
    assert_eq!(weights.len(), nearest.len(), "a weight for each row named");
    let count = nearest.len() / k;
    for_each_block(cpu, count, k * width, width, y, |places, y| {
        for (place, y) in places.zip(y.chunks_exact_mut(width.max(1))) {
            y.fill(0.0);
            let span = place * k..(place + 1) * k;
            for (&named, &weight) in nearest[span.clone()].iter().zip(&weights[span]) {
                let row = row_of(x, width, named);
                y.iter_mut().zip(row).for_each(|(y, x)| *y += weight * x);
            }
        }
    });
}

/// dx `[rows, width]` of [`interpolate`], from dy `[N, width]` and the lists turned around.
pub fn interpolate_gradient(
    cpu: &Cpu,
    width: usize,
    k: usize,
    turned: &InverseLists,
    weights: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) {
    for_each_block(cpu, turned.rows(), 2 * width, width, dx, |rows, dx| {
        for (row, dx) in rows.zip(dx.chunks_exact_mut(width.max(1))) {
            dx.fill(0.0);
            for &place in turned.places(row) {
                let weight = weights[place as usize];
                let dy = &dy[place as usize / k * width..][..width];
                dx.iter_mut()
                    .zip(dy)
                    .for_each(|(dx, dy)| *dx += weight * dy);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, numbers, widen};
    use proptest::prelude::*;

    /// `len` numbers of rows.
    fn list(seed: u64, rows: usize, len: usize) -> Vec<i32> {
        let numbers = numbers(seed, len).into_iter();
        numbers
            .map(|value| ((value.abs() * rows as f32) as usize % rows) as i32)
            .collect()
    }

    /// Sums `weight * dy` of each place into the row that it names.
    fn scattered(
        width: usize,
        rows: usize,
        named: &[i32],
        part: impl Fn(usize, usize) -> f64,
    ) -> Vec<f64> {
        let mut dx = vec![0.0; rows * width];
        for (place, &row) in named.iter().enumerate() {
            for channel in 0..width {
                dx[row as usize * width + channel] += part(place, channel);
            }
        }
        dx
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn rows_and_their_gradients(
            rows in 1usize..30, len in 0usize..70, width in 0usize..20, k in 1usize..5, seed in any::<u64>(),
        ) {
            let x = numbers(seed, rows * width);
            let (named, weights) = (list(seed + 1, rows, len * k), numbers(seed + 2, len * k));
            let dy = widen(&numbers(seed + 3, len * k * width));
            let narrow = |values: &[f64]| values.iter().map(|&v| v as f32).collect::<Vec<f32>>();
            let copied: Vec<f32> = named.iter().flat_map(|&row| row_of(&x, width, row)).copied().collect();
            check(&widen(&copied), 0.0, |cpu, y| gather_rows(cpu, width, &x, &named, y));
            let expected = scattered(width, rows, &named, |place, channel| dy[place * width + channel]);
            let turned = InverseLists::new(rows, &named);
            check(&expected, 1e-5, |cpu, dx| gather_rows_gradient(cpu, width, &turned, &narrow(&dy), dx));

            let mut summed = vec![0.0; len * width];
            for place in 0..len * k {
                for channel in 0..width {
                    summed[place / k * width + channel] +=
                        f64::from(weights[place]) * f64::from(copied[place * width + channel]);
                }
            }
            check(&summed, 1e-5, |cpu, y| interpolate(cpu, width, k, &x, &named, &weights, y));
            let dy = &dy[..len * width];
            let expected = scattered(width, rows, &named, |place, channel| {
                f64::from(weights[place]) * dy[place / k * width + channel]
            });
            check(&expected, 1e-5, |cpu, dx| {
                interpolate_gradient(cpu, width, k, &turned, &weights, &narrow(dy), dx);
            });
        }

        #[test]
        fn maxima_and_their_gradients(
            rows in 1usize..30, kept in 0usize..30, width in 0usize..20, k in 1usize..7, seed in any::<u64>(),
        ) {
            // Few values, so that many are equal.
            let x: Vec<f32> = numbers(seed, rows * width).iter().map(|v| (v * 3.0).round()).collect();
            let neighbours = list(seed + 1, rows, rows * k);
            let kept = list(seed + 2, rows, kept);
            let lists = KeptLists { k, neighbours: &neighbours, kept: &kept };
            let dy = numbers(seed + 3, kept.len() * width);
            let (mut y, mut winners) = (Vec::new(), Vec::new());
            let mut dx = vec![0.0; rows * width];
            for (&point, dy) in kept.iter().zip(dy.chunks(width.max(1))) {
                for channel in 0..width {
                    let value = |at: usize| row_of(&x, width, neighbours[point as usize * k + at])[channel];
                    let best = (1..k).fold(0, |best, at| if value(at) > value(best) { at } else { best });
                    y.push(f64::from(value(best)));
                    winners.push(best as u8);
                    let row = neighbours[point as usize * k + best] as usize;
                    dx[row * width + channel] += f64::from(dy[channel]);
                }
            }
            check(&y, 0.0, |cpu, y| {
                let mut found = vec![0; winners.len()];
                neighbour_max(cpu, width, &x, lists, y, Some(&mut found));
                assert_eq!(found, winners);
            });
            check(&dx, 1e-5, |cpu, dx| neighbour_max_gradient(cpu, width, rows, lists, &winners, &dy, dx));
        }
    }

    #[test]
    fn a_nan_is_the_maximum() {
        let x = [1.0, f32::NAN, 2.0, 5.0];
        let lists = KeptLists {
            k: 3,
            neighbours: &[0, 1, 2, 3, 0, 2],
            kept: &[0, 1],
        };
        check(&[f64::NAN, 5.0], 0.0, |cpu, y| {
            let mut winners = [0; 2];
            neighbour_max(cpu, 1, &x, lists, y, Some(&mut winners));
            assert_eq!(winners, [1, 0]);
        });
    }
}

//! Symmetric positive definite matrices in f64: factors and solutions for many right-hand sides at once.
//!
//! A = UᵀU with U upper triangular. Every inner loop adds a multiple of one row to another, so that it vectorises without
//! reordering a sum: all instruction sets give the same bits.

use thiserror::Error;

use crate::Isa;
use crate::isa::Kernel;
use crate::simd::Simd;

/// Rows that are subtracted from the others at once.
const BLOCK: usize = 4;

/// A matrix that has no such factor.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[error("the matrix is not positive definite: pivot {pivot} of row {row}")]
#[allow(missing_docs)]
pub struct NotPositive {
    pub row: usize,
    pub pivot: f64,
}

/// Replaces the upper triangle of `a` [n, n] by that of U; what is below the diagonal is neither read nor written.
pub fn factor(isa: Isa, n: usize, a: &mut [f64]) -> Result<(), NotPositive> {
    assert_eq!(a.len(), n * n, "a square matrix");
    isa.run(Factor { n, a })
}

struct Factor<'a> {
    n: usize,
    a: &'a mut [f64],
}

impl Kernel for Factor<'_> {
    type Output = Result<(), NotPositive>;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Self::Output {
        let Self { n, a } = self;
        for begin in (0..n).step_by(BLOCK) {
            let end = (begin + BLOCK).min(n);
            let (above, below) = a.split_at_mut(end * n);
            let block = &mut above[begin * n..];
            for k in begin..end {
                let (row, others) = block[(k - begin) * n..].split_at_mut(n);
                let pivot = row[k];
                // A NaN is no positive number either.
                if pivot.is_nan() || pivot <= 0.0 {
                    return Err(NotPositive { row: k, pivot });
                }
                divide(&mut row[k..], pivot.sqrt());
                for (i, other) in (k + 1..end).zip(others.chunks_exact_mut(n)) {
                    add_multiple(&mut other[i..], -row[i], &row[i..]);
                }
            }
            for (i, other) in (end..n).zip(below.chunks_exact_mut(n)) {
                let rows = block.chunks_exact(n).map(|row| (-row[i], &row[i..]));
                add_multiples(&mut other[i..], rows);
            }
        }
        Ok(())
    }
}

/// Which triangular system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Uᵀ y = b: whitens, since |y|² = bᵀ A⁻¹ b.
    Transposed,
    /// U x = b.
    Upper,
}

/// Solves for every column of `b` [n, columns], in place.
pub fn solve(isa: Isa, side: Side, n: usize, factor: &[f64], columns: usize, b: &mut [f64]) {
    assert_eq!(factor.len(), n * n, "a square factor");
    assert_eq!(b.len(), n * columns, "n rows of right-hand sides");
    isa.run(Solve {
        side,
        n,
        factor,
        columns,
        b,
    });
}

struct Solve<'a> {
    side: Side,
    n: usize,
    factor: &'a [f64],
    columns: usize,
    b: &'a mut [f64],
}

impl Kernel for Solve<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            side,
            n,
            factor,
            columns,
            b,
        } = self;
        if columns == 0 {
            return;
        }
        for step in (0..n).step_by(BLOCK) {
            let len = BLOCK.min(n - step);
            match side {
                Side::Transposed => {
                    let (begin, end) = (step, step + len);
                    let (above, below) = b.split_at_mut(end * columns);
                    let block = &mut above[begin * columns..];
                    for k in begin..end {
                        let (solved, others) = block[(k - begin) * columns..].split_at_mut(columns);
                        divide(solved, factor[k * n + k]);
                        for (i, row) in (k + 1..end).zip(others.chunks_exact_mut(columns)) {
                            add_multiple(row, -factor[k * n + i], solved);
                        }
                    }
                    for (i, row) in (end..n).zip(below.chunks_exact_mut(columns)) {
                        let solved = (begin..end).zip(block.chunks_exact(columns));
                        add_multiples(row, solved.map(|(k, solved)| (-factor[k * n + i], solved)));
                    }
                }
                Side::Upper => {
                    let (begin, end) = (n - step - len, n - step);
                    let (above, below) = b.split_at_mut(begin * columns);
                    let block = &mut below[..len * columns];
                    for k in (begin..end).rev() {
                        let (others, solved) = block.split_at_mut((k - begin) * columns);
                        let solved = &mut solved[..columns];
                        divide(solved, factor[k * n + k]);
                        for (i, row) in (begin..k).zip(others.chunks_exact_mut(columns)) {
                            add_multiple(row, -factor[i * n + k], solved);
                        }
                    }
                    for (i, row) in above.chunks_exact_mut(columns).enumerate() {
                        let solved = (begin..end).zip(block.chunks_exact(columns)).rev();
                        add_multiples(row, solved.map(|(k, solved)| (-factor[i * n + k], solved)));
                    }
                }
            }
        }
    }
}

/// y [rows, columns] += aᵀ b, where a is [inner, rows] and b [inner, columns].
pub fn add_product(isa: Isa, rows: usize, columns: usize, a: &[f64], b: &[f64], y: &mut [f64]) {
    assert_eq!(
        a.len() * columns,
        b.len() * rows,
        "as many rows in a as in b"
    );
    assert_eq!(y.len(), rows * columns, "the product's size");
    isa.run(AddProduct {
        rows,
        columns,
        a,
        b,
        y,
    });
}

struct AddProduct<'a> {
    rows: usize,
    columns: usize,
    a: &'a [f64],
    b: &'a [f64],
    y: &'a mut [f64],
}

impl Kernel for AddProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        let rows_of_a = self.a.chunks_exact(self.rows);
        for (a, b) in rows_of_a.zip(self.b.chunks_exact(self.columns)) {
            for (&factor, y) in a.iter().zip(self.y.chunks_exact_mut(self.columns)) {
                add_multiple(y, factor, b);
            }
        }
    }
}

/// Adds `scale` times the squared distance of every column of x [n, columns] from column `origin` to `sums`.
pub fn add_squared_distances(
    isa: Isa,
    columns: usize,
    x: &[f64],
    origin: usize,
    scale: f64,
    sums: &mut [f64],
) {
    assert_eq!(sums.len(), columns, "one sum a column");
    assert!(origin < columns, "the origin is one of the columns");
    isa.run(SquaredDistances {
        x,
        origin,
        scale,
        sums,
    });
}

struct SquaredDistances<'a> {
    x: &'a [f64],
    origin: usize,
    scale: f64,
    sums: &'a mut [f64],
}

impl Kernel for SquaredDistances<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for row in self.x.chunks_exact(self.sums.len()) {
            let origin = row[self.origin];
            for (sum, &x) in self.sums.iter_mut().zip(row) {
                let difference = x - origin;
                *sum += self.scale * (difference * difference);
            }
        }
    }
}

#[inline(always)]
fn add_multiple(y: &mut [f64], factor: f64, x: &[f64]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

/// Adds several multiples in their order; a whole block of them reads and writes `y` once.
#[inline(always)]
fn add_multiples<'a>(y: &mut [f64], rows: impl ExactSizeIterator<Item = (f64, &'a [f64])>) {
    if rows.len() < BLOCK {
        rows.for_each(|(factor, x)| add_multiple(y, factor, x));
        return;
    }
    let mut block = [(0.0, &[][..]); BLOCK];
    for (target, (factor, x)) in block.iter_mut().zip(rows) {
        *target = (factor, &x[..y.len()]);
    }
    for (at, y) in y.iter_mut().enumerate() {
        *y = block
            .iter()
            .fold(*y, |sum, (factor, x)| sum + factor * x[at]);
    }
}

#[inline(always)]
fn divide(row: &mut [f64], divisor: f64) {
    for value in row {
        *value /= divisor;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A = MᵀM + I, which is positive definite.
    fn matrix(n: usize, numbers: &[f64]) -> Vec<f64> {
        let m = |i: usize, j: usize| numbers[(i * n + j) % numbers.len()];
        let entry = |i, j| (0..n).map(|k| m(k, i) * m(k, j)).sum::<f64>() + f64::from(i == j);
        (0..n * n).map(|at| entry(at / n, at % n)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_solution_solves(
            n in 0usize..20,
            columns in 0usize..9,
            numbers in prop::collection::vec(-1.0f64..1.0, 97),
        ) {
            let a = matrix(n, &numbers);
            let b: Vec<f64> = (0..n * columns).map(|i| numbers[(i * 7 + 3) % 97]).collect();
            let mut bits: Option<Vec<f64>> = None;
            for isa in Isa::available() {
                let mut u = a.clone();
                factor(isa, n, &mut u).expect("positive definite");
                let mut x = b.clone();
                solve(isa, Side::Transposed, n, &u, columns, &mut x);
                solve(isa, Side::Upper, n, &u, columns, &mut x);
                let mut product = vec![0.0; n * columns];
                add_product(isa, n, columns, &a, &x, &mut product);
                for (got, want) in product.iter().zip(&b) {
                    prop_assert!((got - want).abs() < 1e-9, "{got} {want}");
                }
                prop_assert_eq!(bits.get_or_insert_with(|| x.clone()), &x);
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_is_named() {
        for (pivot, a) in [(-3.0, [1.0, 2.0, 2.0, 1.0]), (f64::NAN, [f64::NAN; 4])] {
            let refused = factor(Isa::Portable, 2, &mut a.to_vec()).unwrap_err();
            assert!(refused.pivot == pivot || refused.pivot.is_nan() && pivot.is_nan());
        }
    }
}

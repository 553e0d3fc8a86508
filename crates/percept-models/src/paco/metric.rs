//! Mahalanobis distances of an image: x ↦ xᵀ Σ+⁻¹ x in f64, in three forms.

use std::ops::Range;

use percept_kernels::Isa;
use percept_kernels::spd::{self, NotPositive, Side, add_product, add_squared_distances};

use super::LossForm;
use super::spread::{Shrinkage, Spread};

/// The metric of one image. What costs to make is `matrix`, which nodes hand on:
/// Σ+ itself (naive), its factor (exact), or the factor of rho I + R Rᵀ (gram).
pub(super) struct Metric {
    isa: Isa,
    form: LossForm,
    d: usize,
    size: usize,
    matrix: Vec<f64>,
    low_rank: Option<LowRank>,
}

/// Σ+ = rho I + RᵀR: few samples in many dimensions.
struct LowRank {
    rho: f64,
    /// R [rows, d], the samples of both views.
    roots: Vec<f64>,
    /// Rᵀ [d, rows].
    transposed: Vec<f64>,
}

impl LowRank {
    fn new(shrinkage: Shrinkage, d: usize, views: &[Spread; 2]) -> Self {
        let rho = (views[0].ridge + views[1].ridge) / 2.0 + shrinkage.shared_ridge();
        let roots = views
            .each_ref()
            .map(|v| v.roots(shrinkage.scale() / 2.0))
            .concat();
        let transposed = transpose(roots.len() / d, d, &roots);
        Self {
            rho,
            roots,
            transposed,
        }
    }
}

impl Metric {
    /// The side of `matrix` for views of so many samples.
    pub(super) fn size(form: LossForm, d: usize, samples: usize) -> usize {
        match form {
            LossForm::Naive | LossForm::Exact => d,
            LossForm::Gram => 2 * samples,
        }
    }

    /// From the samples of both views.
    pub(super) fn new(
        isa: Isa,
        form: LossForm,
        shrinkage: Shrinkage,
        d: usize,
        views: &[Spread; 2],
        sigmas: [&[f64]; 2],
    ) -> Result<Self, NotPositive> {
        let (size, matrix, low_rank) = match form {
            LossForm::Naive | LossForm::Exact => {
                let pairs = sigmas[0].iter().zip(sigmas[1]);
                let mut sum: Vec<f64> = pairs.map(|(a, b)| (a + b) / 2.0).collect();
                (0..d).for_each(|i| sum[i * d + i] += shrinkage.shared_ridge());
                if form == LossForm::Exact {
                    spd::factor(isa, d, &mut sum)?;
                }
                (d, sum, None)
            }
            LossForm::Gram => {
                let low_rank = LowRank::new(shrinkage, d, views);
                let rows = low_rank.roots.len() / d;
                let mut gram = vec![0.0; rows * rows];
                let roots = &low_rank.transposed;
                add_product(isa, rows, rows, roots, roots, &mut gram);
                (0..rows).for_each(|i| gram[i * rows + i] += low_rank.rho);
                spd::factor(isa, rows, &mut gram)?;
                (rows, gram, Some(low_rank))
            }
        };
        Ok(Self {
            isa,
            form,
            d,
            size,
            matrix,
            low_rank,
        })
    }

    /// Again, from the matrix that [`Metric::matrix`] gave.
    pub(super) fn cached(
        isa: Isa,
        form: LossForm,
        shrinkage: Shrinkage,
        d: usize,
        views: impl FnOnce() -> [Spread; 2],
        matrix: Vec<f64>,
    ) -> Self {
        let low_rank = (form == LossForm::Gram).then(|| LowRank::new(shrinkage, d, &views()));
        let size = low_rank.as_ref().map_or(d, |low| low.roots.len() / d);
        Self {
            isa,
            form,
            d,
            size,
            matrix,
            low_rank,
        }
    }

    /// What other nodes need to make the metric again.
    pub(super) fn matrix(&self) -> &[f64] {
        &self.matrix
    }

    /// Σ+⁻¹ x for every column of x [d, columns].
    pub(super) fn solve(&self, columns: usize, x: &[f64]) -> Result<Vec<f64>, NotPositive> {
        let (isa, size) = (self.isa, self.size);
        let both_sides = |factor: &[f64], columns: usize, b: &mut [f64]| {
            spd::solve(isa, Side::Transposed, size, factor, columns, b);
            spd::solve(isa, Side::Upper, size, factor, columns, b);
        };
        if let Some(low) = &self.low_rank {
            let mut inner = vec![0.0; size * columns];
            add_product(isa, size, columns, &low.transposed, x, &mut inner);
            both_sides(&self.matrix, columns, &mut inner);
            let mut seen = vec![0.0; self.d * columns];
            add_product(isa, self.d, columns, &low.roots, &inner, &mut seen);
            return Ok(x
                .iter()
                .zip(seen)
                .map(|(x, seen)| (x - seen) / low.rho)
                .collect());
        }
        let mut solved = x.to_vec();
        if self.form == LossForm::Exact {
            both_sides(&self.matrix, columns, &mut solved);
            return Ok(solved);
        }
        for column in 0..columns {
            let mut x: Vec<f64> = (0..self.d).map(|i| x[i * columns + column]).collect();
            let mut factor = self.matrix.clone();
            spd::factor(isa, size, &mut factor)?;
            both_sides(&factor, 1, &mut x);
            (0..self.d).for_each(|i| solved[i * columns + column] = x[i]);
        }
        Ok(solved)
    }

    /// The squared distances [anchors, columns] of some columns of the pool [d, columns] from all of them. The naive form
    /// takes every entry `repeats` times, as often as it stands in the published pool.
    pub(super) fn squared_distances(
        &self,
        columns: usize,
        pool: &[f64],
        anchors: Range<usize>,
        repeats: usize,
    ) -> Result<Vec<f64>, NotPositive> {
        let isa = self.isa;
        let mut distances = vec![0.0; anchors.len() * columns];
        let rows = anchors.zip(distances.chunks_exact_mut(columns.max(1)));
        match (self.form, &self.low_rank) {
            (LossForm::Naive, _) => {
                for (anchor, row) in rows {
                    for (column, distance) in row.iter_mut().enumerate() {
                        let entry =
                            |i: usize| pool[i * columns + anchor] - pool[i * columns + column];
                        let x: Vec<f64> = (0..self.d).map(entry).collect();
                        for _ in 0..repeats {
                            let solved = self.solve(1, &x)?;
                            *distance = x.iter().zip(solved).map(|(x, s)| x * s).sum::<f64>();
                        }
                    }
                }
            }
            (_, Some(low)) => {
                let mut white = vec![0.0; self.size * columns];
                add_product(isa, self.size, columns, &low.transposed, pool, &mut white);
                spd::solve(
                    isa,
                    Side::Transposed,
                    self.size,
                    &self.matrix,
                    columns,
                    &mut white,
                );
                for (anchor, row) in rows {
                    add_squared_distances(isa, columns, pool, anchor, 1.0 / low.rho, row);
                    add_squared_distances(isa, columns, &white, anchor, -1.0 / low.rho, row);
                    row.iter_mut()
                        .for_each(|distance| *distance = distance.max(0.0));
                }
            }
            (_, None) => {
                let mut white = pool.to_vec();
                spd::solve(
                    isa,
                    Side::Transposed,
                    self.size,
                    &self.matrix,
                    columns,
                    &mut white,
                );
                for (anchor, row) in rows {
                    add_squared_distances(isa, columns, &white, anchor, 1.0, row);
                }
            }
        }
        Ok(distances)
    }
}

/// [rows, columns] as [columns, rows].
pub(super) fn transpose<T: Copy + Into<f64>>(rows: usize, columns: usize, x: &[T]) -> Vec<f64> {
    let mut y = Vec::with_capacity(rows * columns);
    for column in 0..columns {
        y.extend((0..rows).map(|row| x[row * columns + column].into()));
    }
    y
}

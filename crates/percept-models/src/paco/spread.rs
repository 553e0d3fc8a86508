//! How the samples of a view spread: their covariance, made invertible, and how gradients go back to the samples.

use percept_kernels::Isa;
use percept_kernels::spd::add_product;

/// What is added to a covariance of low rank so that it can be inverted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shrinkage {
    /// Σ = S + eps I, and Σ+ = (Σ₁ + Σ₂) / 2 + tau I.
    Ridge { eps: f64, tau: f64 },
    /// Σ = (1 - rho) S + (rho tr(S) / d + 1e-6) I, and Σ+ = (Σ₁ + Σ₂) / 2.
    Trace { rho: f64 },
}

/// Keeps a view without any spread invertible.
const FLOOR: f64 = 1e-6;

impl Shrinkage {
    /// What S is scaled by.
    pub(super) fn scale(self) -> f64 {
        match self {
            Shrinkage::Ridge { .. } => 1.0,
            Shrinkage::Trace { rho } => 1.0 - rho,
        }
    }

    /// What is added to the diagonal of a view's covariance.
    fn ridge(self, trace: f64, d: usize) -> f64 {
        match self {
            Shrinkage::Ridge { eps, .. } => eps,
            Shrinkage::Trace { rho } => rho * trace / d as f64 + FLOOR,
        }
    }

    /// What is added to the diagonal of the mean of both views.
    pub(super) fn shared_ridge(self) -> f64 {
        match self {
            Shrinkage::Ridge { tau, .. } => tau,
            Shrinkage::Trace { .. } => 0.0,
        }
    }

    /// dS from dΣ: what dΣ is scaled by, and what its diagonal then gets.
    fn pull_back(self, trace: f64, d: usize) -> (f64, f64) {
        match self {
            Shrinkage::Ridge { .. } => (1.0, 0.0),
            Shrinkage::Trace { rho } => (1.0 - rho, rho * trace / d as f64),
        }
    }
}

/// The samples of one view, centred: row `i` counts `weights[i]` times.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    /// Samples minus their mean [samples, d]; only those that count.
    centred: Vec<f64>,
    weights: Vec<f64>,
    /// Positions of the rows among all samples.
    positions: Vec<usize>,
    /// One less than how many there are.
    freedom: f64,
    /// What the diagonal gets.
    pub ridge: f64,
    /// All samples, also those that do not count.
    samples: usize,
    d: usize,
}

impl Spread {
    /// From samples [samples, d] and how often each counts.
    pub(super) fn new(
        shrinkage: Shrinkage,
        d: usize,
        samples: &[f32],
        multiplicity: &[i32],
    ) -> Self {
        let positions: Vec<usize> = (0..multiplicity.len())
            .filter(|&i| multiplicity[i] > 0)
            .collect();
        let weights: Vec<f64> = positions
            .iter()
            .map(|&i| f64::from(multiplicity[i]))
            .collect();
        let count: f64 = weights.iter().sum();
        let rows = positions.iter().flat_map(|&i| &samples[i * d..][..d]);
        let mut centred: Vec<f64> = rows.map(|&value| f64::from(value)).collect();
        let mut mean = vec![0.0; d];
        for (row, weight) in centred.chunks_exact(d).zip(&weights) {
            for (mean, value) in mean.iter_mut().zip(row) {
                *mean += weight * value / count;
            }
        }
        for row in centred.chunks_exact_mut(d) {
            row.iter_mut().zip(&mean).for_each(|(v, mean)| *v -= mean);
        }
        // A single sample has no spread: dividing by one gives its zero.
        let freedom = (count - 1.0).max(1.0);
        let squares = centred.chunks_exact(d).zip(&weights);
        let squares = squares.map(|(row, weight)| weight * row.iter().map(|v| v * v).sum::<f64>());
        let trace = squares.sum::<f64>() / freedom;
        let ridge = shrinkage.ridge(trace, d);
        Self {
            centred,
            weights,
            positions,
            freedom,
            ridge,
            samples: multiplicity.len(),
            d,
        }
    }

    /// R [samples, d] with RᵀR = `scale` S; zero where a sample does not count.
    pub(super) fn roots(&self, scale: f64) -> Vec<f64> {
        let mut roots = vec![0.0; self.samples * self.d];
        let rows = self.centred.chunks_exact(self.d).zip(&self.weights);
        for ((row, weight), &position) in rows.zip(&self.positions) {
            let factor = (scale * weight / self.freedom).sqrt();
            let target = &mut roots[position * self.d..][..self.d];
            target
                .iter_mut()
                .zip(row)
                .for_each(|(t, v)| *t = v * factor);
        }
        roots
    }

    /// Σ [d, d].
    pub(super) fn sigma(&self, isa: Isa, shrinkage: Shrinkage) -> Vec<f64> {
        let d = self.d;
        let mut weighted = self.centred.clone();
        for (row, weight) in weighted.chunks_exact_mut(d).zip(&self.weights) {
            let factor = shrinkage.scale() * weight / self.freedom;
            row.iter_mut().for_each(|v| *v *= factor);
        }
        let mut sigma = vec![0.0; d * d];
        add_product(isa, d, d, &weighted, &self.centred, &mut sigma);
        (0..d).for_each(|i| sigma[i * d + i] += self.ridge);
        sigma
    }

    /// Adds what dΣ [d, d] gives to the gradient of the samples [samples, d].
    pub(super) fn pull_back(
        &self,
        isa: Isa,
        shrinkage: Shrinkage,
        dsigma: &[f32],
        dsamples: &mut [f64],
    ) {
        let d = self.d;
        let entry = |i: usize, j: usize| f64::from(dsigma[i * d + j]);
        let trace = (0..d).map(|i| entry(i, i)).sum();
        let (scale, diagonal) = shrinkage.pull_back(trace, d);
        let mut symmetric = Vec::with_capacity(d * d);
        for i in 0..d {
            symmetric.extend((0..d).map(|j| scale * (entry(i, j) + entry(j, i))));
            symmetric[i * d + i] += 2.0 * diagonal;
        }
        for (factor, row, target) in self.rows_of(dsamples) {
            let scaled: Vec<f64> = row.iter().map(|v| v * factor).collect();
            add_product(isa, 1, d, &scaled, &symmetric, target);
        }
    }

    /// The same for dΣ = Σ factor · a aᵀ over some (factor, a), which need not be multiplied out.
    pub(super) fn pull_back_outer(
        &self,
        shrinkage: Shrinkage,
        terms: &[(f64, &[f64])],
        dsamples: &mut [f64],
    ) {
        let trace = terms.iter().map(|(factor, a)| factor * dot(a, a)).sum();
        let (scale, diagonal) = shrinkage.pull_back(trace, self.d);
        for (weight, row, target) in self.rows_of(dsamples) {
            for &(factor, a) in terms {
                add_multiple(target, 2.0 * weight * scale * factor * dot(a, row), a);
            }
            if diagonal != 0.0 {
                add_multiple(target, 2.0 * weight * diagonal, row);
            }
        }
    }

    /// Of each sample that counts: its weight in the covariance, its centred values, and its row of `dsamples`.
    fn rows_of<'a>(
        &'a self,
        dsamples: &'a mut [f64],
    ) -> impl Iterator<Item = (f64, &'a [f64], &'a mut [f64])> {
        let all = dsamples.chunks_exact_mut(self.d).enumerate();
        let mut own = self.positions.iter().peekable();
        // Positions ascend, so that one pass over the rows meets them all.
        let counted =
            all.filter(move |(at, _)| own.next_if(|&&position| position == *at).is_some());
        let rows = self.centred.chunks_exact(self.d).zip(&self.weights);
        counted
            .zip(rows)
            .map(|((_, target), (row, weight))| (weight / self.freedom, row, target))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_multiple(y: &mut [f64], factor: f64, x: &[f64]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

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

    /// dS from dΣ [d, d].
    fn pull_back(self, d: usize, gradient: &mut [f64]) {
        if let Shrinkage::Trace { rho } = self {
            let trace: f64 = (0..d).map(|i| gradient[i * d + i]).sum();
            gradient.iter_mut().for_each(|g| *g *= 1.0 - rho);
            for i in 0..d {
                gradient[i * d + i] += rho * trace / d as f64;
            }
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
        multiplicity: &[f32],
    ) -> Self {
        let positions: Vec<usize> = (0..multiplicity.len())
            .filter(|&i| multiplicity[i] > 0.0)
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
        mut dsigma: Vec<f64>,
        dsamples: &mut [f64],
    ) {
        let d = self.d;
        shrinkage.pull_back(d, &mut dsigma);
        let symmetric: Vec<f64> = (0..d * d)
            .map(|at| dsigma[at] + dsigma[at % d * d + at / d])
            .collect();
        for ((row, weight), &position) in self
            .centred
            .chunks_exact(d)
            .zip(&self.weights)
            .zip(&self.positions)
        {
            let factor = weight / self.freedom;
            let scaled: Vec<f64> = row.iter().map(|v| v * factor).collect();
            let target = &mut dsamples[position * d..][..d];
            add_product(isa, 1, d, &scaled, &symmetric, target);
        }
    }
}

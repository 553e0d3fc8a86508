//! What the ops of the loss share: parts, samples and metrics of a batch, read from their values.

use percept_graph::{OpContext, Tensor};
use percept_kernels::{Cpu, Isa};

use super::LossForm;
use super::metric::{Metric, transpose};
use super::spread::{Shrinkage, Spread};
use super::wide;

/// How distances are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measure {
    pub form: LossForm,
    pub shrinkage: Shrinkage,
    /// Squared distances are divided by the number of dimensions, and a little is added under the root.
    pub normalised: bool,
}

impl Measure {
    /// The distance for a squared Mahalanobis length, and its derivative.
    pub(super) fn distance(&self, squared: f64, d: usize) -> (f64, f64) {
        let (scale, floor) = match self.normalised {
            true => (1.0 / d as f64, 1e-12),
            false => (1.0, 0.0),
        };
        let distance = (squared.max(0.0) * scale + floor).sqrt();
        // At a point itself the root has no slope.
        let slope = if distance > 0.0 {
            scale / (2.0 * distance)
        } else {
            0.0
        };
        (distance, slope)
    }
}

/// The samples of all views: rows [V, samples, d] and how often each counts [V, samples].
#[derive(Clone, Copy)]
pub(super) struct Samples<'a> {
    /// What their products are computed with. Every instruction set gives the same bits.
    pub isa: Isa,
    pub rows: &'a [f32],
    pub multiplicity: &'a [i32],
    pub views: usize,
    pub count: usize,
    pub d: usize,
}

impl<'a> Samples<'a> {
    /// From the values of an op.
    pub(super) fn new(
        context: &OpContext<'_>,
        samples: &'a Tensor<'_>,
        multiplicity: &'a Tensor<'_>,
    ) -> Result<Self, String> {
        let isa = context.machine::<Cpu>()?.isa();
        let (shape, rows) = samples.read()?;
        let multiplicity = multiplicity.values()?;
        match *shape {
            [views, count, d] if multiplicity.len() == views * count && d > 0 => Ok(Self {
                isa,
                rows,
                multiplicity,
                views,
                count,
                d,
            }),
            _ => Err(format!(
                "samples {shape:?} for {} counts",
                multiplicity.len()
            )),
        }
    }

    /// How many images there are: each has two views.
    pub(super) fn images(&self) -> usize {
        self.views / 2
    }

    /// How the samples of a view spread.
    pub(super) fn spread(&self, shrinkage: Shrinkage, view: usize) -> Spread {
        let rows = &self.rows[view * self.count * self.d..][..self.count * self.d];
        let multiplicity = &self.multiplicity[view * self.count..][..self.count];
        Spread::new(shrinkage, self.d, rows, multiplicity)
    }

    /// How both views of an image spread.
    pub(super) fn spreads(&self, shrinkage: Shrinkage, image: usize) -> [Spread; 2] {
        [image, self.images() + image].map(|view| self.spread(shrinkage, view))
    }

    /// The metric of an image, from what the covariance node cached of all.
    pub(super) fn metric(&self, measure: &Measure, cached: &[f32], image: usize) -> Metric {
        let size = Metric::size(measure.form, self.d, self.count);
        let matrix = wide::join(cached, image * size * size..(image + 1) * size * size);
        let Measure {
            form, shrinkage, ..
        } = *measure;
        let spreads = || self.spreads(shrinkage, image);
        Metric::cached(self.isa, form, shrinkage, self.d, spreads, matrix)
    }
}

/// All parts as columns [d, parts of all views].
pub(super) fn pool(parts: &[f32], d: usize) -> Vec<f64> {
    transpose(parts.len() / d, d, parts)
}

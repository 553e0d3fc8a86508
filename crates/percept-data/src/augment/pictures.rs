use std::sync::Arc;

use percept_graph::Tensor;
use percept_kernels::Cpu;

use super::Transform;
use crate::classification::{CLASS, IMAGE};
use crate::{Example, Prepare, Sample, SampleError, SampleKey};

/// The tensor that holds the class of each picture, i32 [N].
pub const LABELS: &str = "labels";

/// Views of a sample's picture, each transformed on its own, and its class as [`LABELS`].
pub struct PictureViews {
    transform: Arc<dyn Transform>,
    views: Vec<String>,
}

impl PictureViews {
    /// Views of these names.
    pub fn new(
        transform: Arc<dyn Transform>,
        views: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            transform,
            views: views.into_iter().map(Into::into).collect(),
        }
    }
}

impl Prepare for PictureViews {
    fn prepare(&self, cpu: &Cpu, sample: &Sample, key: &SampleKey) -> Result<Example, SampleError> {
        let unusable = |reason: String| SampleError::Unusable {
            sample: sample.name.clone(),
            reason,
        };
        let image = sample.image(IMAGE)?;
        let [height, width] = self.transform.size();
        let mut tensors = Vec::with_capacity(self.views.len() + 1);
        for (number, view) in (0..).zip(&self.views) {
            let mut planes = vec![0.0; 3 * height * width];
            let applied = self
                .transform
                .apply(cpu, image, &key.view(number), &mut planes);
            applied.map_err(|error| unusable(error.to_string()))?;
            let planes = Tensor::from_values([1, 3, height, width], planes);
            let planes = planes.map_err(|error| unusable(error.to_string()))?;
            tensors.push((view.clone(), planes));
        }
        let class = sample.class(CLASS)?;
        let label = i32::try_from(class).map_err(|_| unusable(format!("no class {class}")))?;
        let label = Tensor::from_values([1], vec![label]).expect("one number");
        tensors.push((LABELS.to_owned(), label));
        Ok(Example::of_one(tensors))
    }
}

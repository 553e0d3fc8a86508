//! Places as tensors, and the triplets of a batch.

use percept_data::{BatchError, Example, POSITION, Prepare, Sample, SampleError, SampleKey};
use percept_graph::Tensor;
use percept_kernels::Cpu;

use super::super::triplet::TRIPLET;
use crate::Model;

/// The tensor with the position of each sample, f32 [N, 2].
pub(super) const PLACE: &str = "place";
/// The tensor with the drive of each sample, i32 [N].
pub(super) const DRIVE: &str = "drive";

/// Frames this near show one place.
pub(super) const NEAR_M: f64 = 9.0;
/// Frames this far apart show different ones.
pub(super) const FAR_M: f64 = 18.0;

/// The part of a sample that says in which drive it was taken.
const DRIVE_PART: &str = "drive";

/// Makes examples of places.
#[derive(Clone, Debug)]
pub(super) struct PreparePlaces {
    model: Model,
    /// Whether batches are to be learned from.
    triplets: bool,
}

impl PreparePlaces {
    pub(super) fn new(model: &Model) -> Self {
        Self {
            model: model.clone(),
            triplets: false,
        }
    }

    pub(super) fn with_triplets(self) -> Self {
        Self {
            triplets: true,
            ..self
        }
    }
}

/// How far two places are apart.
pub(super) fn metres(a: [f32; 2], b: [f32; 2]) -> f64 {
    (f64::from(a[0]) - f64::from(b[0])).hypot(f64::from(a[1]) - f64::from(b[1]))
}

/// All triplets of these places: each with each other that is near, and each that is far.
fn triplets(places: &[[f32; 2]]) -> [Vec<i32>; 3] {
    let mut found: [Vec<i32>; 3] = Default::default();
    let apart = |a: usize, b: usize| metres(places[a], places[b]);
    for anchor in 0..places.len() {
        let others = (0..places.len()).filter(|&other| other != anchor);
        for positive in others.clone().filter(|&p| apart(anchor, p) <= NEAR_M) {
            for negative in others.clone().filter(|&n| apart(anchor, n) >= FAR_M) {
                for (rows, row) in found.iter_mut().zip([anchor, positive, negative]) {
                    rows.push(row as i32);
                }
            }
        }
    }
    found
}

impl Prepare for PreparePlaces {
    fn prepare(&self, cpu: &Cpu, sample: &Sample, _: &SampleKey) -> Result<Example, SampleError> {
        let mut example = self.model.example(cpu, sample)?;
        let unusable = |reason: String| SampleError::Unusable {
            sample: sample.name.clone(),
            reason,
        };
        let position = sample.tensor(POSITION)?.to_f64();
        let place = match *position {
            [x, y, ..] => vec![x as f32, y as f32],
            _ => return Err(unusable("a position without two numbers".to_owned())),
        };
        let drive = vec![sample.class(DRIVE_PART)? as i32];
        let place = Tensor::from_values([1, 2], place).map_err(|e| unusable(e.to_string()))?;
        let drive = Tensor::from_values([1], drive).map_err(|e| unusable(e.to_string()))?;
        example.tensors.push((PLACE.to_owned(), place));
        example.tensors.push((DRIVE.to_owned(), drive));
        Ok(example)
    }

    fn batch(&self, examples: Vec<Example>) -> Result<Example, BatchError> {
        let mut batch = self.model.batch(examples)?;
        if self.triplets {
            let places = batch.get(PLACE).map(|places| places.to_f32().into_owned());
            let places = places.unwrap_or_default();
            let rows = triplets(places.as_chunks::<2>().0);
            for (name, rows) in TRIPLET.into_iter().zip(rows) {
                let rows = Tensor::from_values([rows.len()], rows).expect("a list");
                batch.tensors.push((name.to_owned(), rows));
            }
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triplets_have_a_near_and_a_far_place() {
        let places = [[0.0, 0.0], [5.0, 0.0], [100.0, 0.0], [12.0, 0.0]];
        let [anchors, positives, negatives] = triplets(&places);
        let found: Vec<[i32; 3]> = anchors
            .iter()
            .zip(&positives)
            .zip(&negatives)
            .map(|((a, p), n)| [*a, *p, *n])
            .collect();
        // 12 m is neither near nor far of the first, and near to the second.
        assert_eq!(found, [[0, 1, 2], [1, 0, 2], [1, 3, 2], [3, 1, 2]]);
    }
}

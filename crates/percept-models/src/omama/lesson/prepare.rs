//! Pairs as examples: to learn from, with hard negatives; to be judged by, with what each candidate would be worth.

use percept_data::egoexo::{DEST, DEST_BOXES, DEST_MASKS, TRUTH, fit_mask};
use percept_data::masks::Rle;
use percept_data::{BatchError, Datum, Example, Prepare, Sample, SampleError, SampleKey};
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_metrics::matching::MaskScore;

use super::{PairOptions, negatives};
use crate::Model;
use crate::omama::BoxXywh;
use crate::omama::intake::{box_of, fill_up};

/// The tensor with the place of the right candidate, i32 [N].
pub(super) const POSITION: &str = "position";
/// The tensor that says whether the thing is in view, f32 [N].
pub(super) const VISIBLE: &str = "visible";
/// The same as a class for the head that tells it, i32 [N].
pub(super) const IN_VIEW: &str = "in_view";
/// The tensor with how good each candidate would be, f32 [N, M, 3]: IoU, contour F, location.
pub(super) const SCORES: &str = "scores";

/// What draws are for.
const NEGATIVES: u64 = 0x6e65_6761;

/// Makes examples of pairs.
#[derive(Clone, Debug)]
pub(super) struct PreparePairs {
    model: Model,
    /// How to learn from them; none where they are to be judged by.
    training: Option<PairOptions>,
}

impl PreparePairs {
    pub(super) fn training(model: &Model, options: PairOptions) -> Self {
        Self {
            model: model.clone(),
            training: Some(options),
        }
    }

    pub(super) fn evaluation(model: &Model) -> Self {
        Self {
            model: model.clone(),
            training: None,
        }
    }

    /// The true mask of a pair, at the size of its picture.
    fn truth(sample: &Sample) -> Result<Rle, SampleError> {
        let image = sample.image(DEST)?;
        let masks = sample.masks(TRUTH)?;
        let [mask] = masks else {
            let found = masks.len();
            return Err(unusable(
                sample,
                format!("`{TRUTH}` has {found} masks, expected one"),
            ));
        };
        fit_mask(mask, image).map_err(|error| unusable(sample, format!("`{TRUTH}`: {error}")))
    }

    /// A sample to learn from: the true mask among negatives.
    fn lesson(
        &self,
        cpu: &Cpu,
        sample: &Sample,
        key: &SampleKey,
        options: &PairOptions,
    ) -> Result<Example, SampleError> {
        let truth = Self::truth(sample)?;
        let image = sample.image(DEST)?;
        let fitted = |mask: &Rle| {
            fit_mask(mask, image)
                .map_err(|error| unusable(sample, format!("`{DEST_MASKS}`: {error}")))
        };
        let masks = sample.masks(DEST_MASKS)?.iter().map(fitted);
        let masks: Vec<Rle> = masks.collect::<Result<_, _>>()?;
        let boxes = match sample.get(DEST_BOXES) {
            Some(Datum::Tensor(boxes)) if boxes.shape() == [masks.len(), 4] => {
                Some(boxes.to_f32().as_chunks::<4>().0.to_vec())
            }
            _ => None,
        };
        let mut draws = key.draws(NEGATIVES);
        let chosen = negatives::choose(&masks, boxes.as_deref(), &truth, options, &mut draws);
        if chosen.len() < options.masks {
            let found = masks.len();
            let reason =
                format!("`{DEST_MASKS}` has {found} masks, none of which can be a negative");
            return Err(unusable(sample, reason));
        }
        let offered = chosen
            .iter()
            .map(|c| c.map_or_else(|| truth.clone(), |c| masks[c].clone()));
        let mut offered = replaced(sample, DEST_MASKS, Datum::Masks(offered.collect()));
        if let Some(boxes) = boxes {
            let chosen = chosen
                .iter()
                .map(|c| c.map_or_else(|| box_of(&truth), |c| boxes[c]));
            let chosen: Vec<BoxXywh> = chosen.collect();
            let values = chosen.as_flattened().to_vec();
            let boxes = Tensor::from_values([chosen.len(), 4], values).expect("four sides each");
            offered = replaced(&offered, DEST_BOXES, Datum::Tensor(boxes));
        }
        let mut example = self.model.example(cpu, &offered)?;
        let place = chosen.iter().position(Option::is_none);
        let visible = if place.is_some() { 1.0f32 } else { 0.0 };
        example
            .tensors
            .push((POSITION.to_owned(), one(place.unwrap_or(0) as i32)));
        example.tensors.push((VISIBLE.to_owned(), one(visible)));
        let in_view = i32::from(place.is_some());
        example.tensors.push((IN_VIEW.to_owned(), one(in_view)));
        Ok(example)
    }

    /// A sample to be judged by.
    fn judged(&self, cpu: &Cpu, sample: &Sample) -> Result<Example, SampleError> {
        let truth = Self::truth(sample)?;
        let image = sample.image(DEST)?;
        let masks = sample.masks(DEST_MASKS)?;
        let mut scores = Vec::with_capacity(3 * masks.len());
        for mask in masks {
            let score = fit_mask(mask, image).and_then(|mask| MaskScore::of(&truth, &mask));
            let score =
                score.map_err(|error| unusable(sample, format!("`{DEST_MASKS}`: {error}")))?;
            scores.extend([score.iou, score.contour_f, score.location].map(|value| value as f32));
        }
        let mut example = self.model.example(cpu, sample)?;
        let scores = Tensor::from_values([1, masks.len(), 3], scores).expect("three of each");
        let visible = if truth.is_empty() { 0.0f32 } else { 1.0 };
        example.tensors.push((SCORES.to_owned(), scores));
        example.tensors.push((VISIBLE.to_owned(), one(visible)));
        Ok(example)
    }
}

/// A sample with another datum for a part.
fn replaced(sample: &Sample, part: &str, datum: Datum) -> Sample {
    let others = sample.parts.iter().filter(|(name, _)| name != part);
    let others = others.cloned().chain([(part.to_owned(), datum)]);
    Sample {
        name: sample.name.clone(),
        parts: others.collect(),
    }
}

fn unusable(sample: &Sample, reason: String) -> SampleError {
    SampleError::Unusable {
        sample: sample.name.clone(),
        reason,
    }
}

fn one<T: percept_graph::Element>(value: T) -> Tensor<'static> {
    Tensor::from_values([1], vec![value]).expect("one number")
}

impl Prepare for PreparePairs {
    fn prepare(&self, cpu: &Cpu, sample: &Sample, key: &SampleKey) -> Result<Example, SampleError> {
        match &self.training {
            Some(options) => self.lesson(cpu, sample, key, options),
            None => self.judged(cpu, sample),
        }
    }

    fn batch(&self, mut examples: Vec<Example>) -> Result<Example, BatchError> {
        fill_up(&mut examples, SCORES)?;
        self.model.batch(examples)
    }
}

#[cfg(test)]
mod tests {
    use percept_data::egoexo::{SOURCE, SOURCE_MASK};
    use percept_data::images::RgbImage;
    use percept_data::masks::PixelBox;

    use super::*;
    use crate::omama::{POOLS, Pooling};
    use crate::{Settings, zoo};

    fn mask(x: u32, y: u32, side: u32) -> Rle {
        let area = PixelBox {
            x,
            y,
            width: side,
            height: side,
        };
        Rle::filled_box(56, 70, area).unwrap()
    }

    #[test]
    fn the_position_is_that_of_the_true_mask() {
        let model = zoo::build("omama-small", &Settings::none()).unwrap();
        let options = PairOptions { masks: 6, order: 2 };
        let preparation = PreparePairs::training(&model, options);
        let picture = || Datum::Image(RgbImage::filled(70, 56, [9, 99, 199]));
        let truth = mask(30, 20, 17);
        let candidates = (0..12).map(|i| mask(5 * i, 3 * i, 9)).collect();
        let sample = Sample::of("pair", SOURCE, picture())
            .with(SOURCE_MASK, Datum::Masks(vec![mask(2, 2, 20)]))
            .with(DEST, picture())
            .with(DEST_MASKS, Datum::Masks(candidates))
            .with(TRUTH, Datum::Masks(vec![truth.clone()]));
        let expected = Pooling::new([56, 70]).mask(&truth).unwrap();
        let cpu = Cpu::new(1).unwrap();
        for epoch in 0..5 {
            let key = SampleKey {
                epoch,
                ..SampleKey::default()
            };
            let example = preparation.prepare(&cpu, &sample, &key).unwrap();
            let pool = example.get(POOLS[1]).unwrap();
            assert_eq!(pool.shape(), [1, 6, 2, 20]);
            let place = example.get(POSITION).unwrap().values::<i32>().unwrap()[0] as usize;
            assert_eq!(
                pool.values::<f32>().unwrap()[2 * place * 20..][..20],
                expected
            );
        }
    }
}

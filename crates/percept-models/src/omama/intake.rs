//! What O-MaMa looks at: two pictures, a mask in one, candidates in the other.

use percept_data::egoexo::{DEST, DEST_BOXES, DEST_MASKS, SOURCE, SOURCE_MASK, fit_mask};
use percept_data::images::RgbImage;
use percept_data::masks::Rle;
use percept_data::{BatchError, Datum, Example, Sample, SampleError};
use percept_graph::{Tensor, TensorError};
use percept_kernels::Cpu;

use super::pooling::{BoxXywh, PATCH, Pooling};
use super::{PICTURES, POOLS};
use crate::intake::{InputShapes, Intake, Part, PartKind, Sizes};
use crate::preprocess::{IMAGENET_MEAN, IMAGENET_STD};

/// The tensor with how many candidates each sample has, i32 [N], which the graph does not take.
pub(super) const CANDIDATES: &str = "candidates";

/// Candidates of a usual sample, for whoever asks for shapes before there is one.
const USUAL_CANDIDATES: usize = 32;

/// Pairs of pictures with their masks. A picture keeps its size, cut down to whole patches by the nearest pixel, where no other
/// is asked for.
#[derive(Clone, Debug)]
pub struct PairIntake {
    /// How far the surroundings of a box reach, in pixels.
    margin_px: i64,
    parts: [Part; 4],
}

impl PairIntake {
    /// Pictures of usually these heights and widths.
    pub fn new(source: [usize; 2], dest: [usize; 2], margin_px: i64) -> Self {
        let picture = |name, size, what| Part {
            name,
            kind: PartKind::Image,
            size: Some(size),
            what,
        };
        let masks = |name, what| Part {
            name,
            kind: PartKind::Masks,
            size: None,
            what,
        };
        Self {
            margin_px,
            parts: [
                picture(SOURCE, source, "the picture that the object is shown in"),
                masks(SOURCE_MASK, "the object's mask in it"),
                picture(DEST, dest, "the picture that it is looked for in"),
                masks(DEST_MASKS, "the candidates in it"),
            ],
        }
    }

    /// Height and width that the network sees of a picture.
    fn seen(&self, image: &RgbImage, part: &str, sizes: &Sizes) -> [usize; 2] {
        let whole_patches = |side: usize| side / PATCH * PATCH;
        let own = [image.height, image.width].map(whole_patches);
        sizes.get(part).copied().unwrap_or(own)
    }

    /// A view: its picture, and the weights of its patches for these masks.
    fn view(
        &self,
        sample: &Sample,
        [picture, masks, boxes]: [&str; 3],
        sizes: &Sizes,
    ) -> Result<[Tensor<'static>; 2], SampleError> {
        let unusable = |reason: String| SampleError::Unusable {
            sample: sample.name.clone(),
            reason,
        };
        let image = sample.image(picture)?;
        let [height, width] = self.seen(image, picture, sizes);
        if height < PATCH || width < PATCH {
            let (own_width, own_height) = (image.width, image.height);
            return Err(unusable(format!(
                "`{picture}` of {own_width}x{own_height} is smaller than a patch of {PATCH}x{PATCH}"
            )));
        }
        let masks_of = sample.masks(masks)?;
        if masks_of.is_empty() {
            return Err(unusable(format!("`{masks}` has no mask")));
        }
        let scale = [
            width as f32 / image.width as f32,
            height as f32 / image.height as f32,
        ];
        let boxes = given_boxes(sample, boxes, masks_of.len(), scale)?;
        let pooling = Pooling::new([height, width]);
        let mut pool = Vec::with_capacity(2 * masks_of.len() * pooling.patches());
        for (number, mask) in masks_of.iter().enumerate() {
            let fault = |error| unusable(format!("`{masks}`, mask {number}: {error}"));
            let own = fit_mask(mask, image).map_err(fault)?;
            if own.is_empty() {
                pool.resize(pool.len() + 2 * pooling.patches(), 0.0);
                continue;
            }
            let seen = own.resized_nearest(height, width).map_err(fault)?;
            let around = boxes.as_ref().map_or_else(|| box_of(&seen), |b| b[number]);
            pool.extend(pooling.mask(&seen).map_err(fault)?);
            pool.extend(pooling.surroundings(around, self.margin_px));
        }
        let shape = [1, masks_of.len(), 2, pooling.patches()];
        let pool = Tensor::from_values(shape, pool).map_err(|error| unusable(error.to_string()))?;
        Ok([normalised(image, [height, width]), pool])
    }
}

/// Boxes that a segmenter gave, at the size that the network sees.
fn given_boxes(
    sample: &Sample,
    part: &str,
    masks: usize,
    [across, down]: [f32; 2],
) -> Result<Option<Vec<BoxXywh>>, SampleError> {
    let Some(Datum::Tensor(tensor)) = sample.get(part) else {
        return Ok(None);
    };
    let values = tensor.to_f32();
    let rows = values.as_chunks::<4>().0;
    if tensor.shape() != [masks, 4] {
        let shape = tensor.shape();
        return Err(SampleError::Unusable {
            sample: sample.name.clone(),
            reason: format!("`{part}` has the shape {shape:?}, expected [{masks}, 4]"),
        });
    }
    let scaled = rows
        .iter()
        .map(|[x, y, width, height]| [x * across, y * down, width * across, height * down]);
    Ok(Some(scaled.collect()))
}

/// Which candidates of all samples are masks of something: others, empty masks and what fills up a batch, have no weights.
pub(super) fn are_offered(pool: &Tensor<'_>) -> Vec<bool> {
    let weights = match pool.shape() {
        [_, _, two, patches] => two * patches,
        _ => 1,
    };
    let values = pool.to_f32();
    let rows = values.chunks_exact(weights.max(1));
    rows.map(|row| row.iter().any(|weight| *weight != 0.0))
        .collect()
}

/// Fills up a tensor of examples that have fewer candidates than others with zeros: masks of nothing.
pub(super) fn fill_up(examples: &mut [Example], name: &str) -> Result<(), BatchError> {
    let rows = |example: &Example| example.get(name).map_or(0, |tensor| tensor.shape()[1]);
    let most = examples.iter().map(rows).max().unwrap_or(0);
    for example in examples.iter_mut().filter(|example| rows(example) < most) {
        let found = example.tensors.iter_mut().find(|(known, _)| known == name);
        if let Some((_, tensor)) = found {
            let filled = filled_up(tensor, most);
            *tensor = filled.map_err(|error| BatchError::Tensor {
                input: name.to_owned(),
                error,
            })?;
        }
    }
    Ok(())
}

/// Lengthens the second axis of a batch of one.
fn filled_up(tensor: &Tensor<'static>, rows: usize) -> Result<Tensor<'static>, TensorError> {
    let mut shape = tensor.shape().to_vec();
    shape[1] = rows;
    let mut values = tensor.values::<f32>()?.to_vec();
    values.resize(shape.iter().product(), 0.0);
    Tensor::from_values(shape, values)
}

/// The box around a mask as the public system takes it: from the first to the last pixel.
pub(super) fn box_of(mask: &Rle) -> BoxXywh {
    match mask.bounding_box() {
        Some(found) => {
            [found.x, found.y, found.width - 1, found.height - 1].map(|value| value as f32)
        }
        None => [0.0; 4],
    }
}

/// A picture at another size, each pixel the nearest of its own, as [1, 3, H, W] with ImageNet's mean and deviation taken out.
pub(super) fn normalised(image: &RgbImage, [height, width]: [usize; 2]) -> Tensor<'static> {
    let mut values = Vec::with_capacity(3 * height * width);
    for channel in 0..3 {
        let (mean, std) = (IMAGENET_MEAN[channel], IMAGENET_STD[channel]);
        for y in 0..height {
            let row = y * image.height / height * image.width;
            values.extend((0..width).map(|x| {
                let pixel = row + x * image.width / width;
                (f32::from(image.pixels[3 * pixel + channel]) / 255.0 - mean) / std
            }));
        }
    }
    Tensor::from_values([1, 3, height, width], values).expect("a number per pixel and colour")
}

impl Intake for PairIntake {
    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn shapes(&self, sizes: &Sizes) -> InputShapes {
        let usual = [&self.parts[0], &self.parts[2]].map(|part| {
            let asked = sizes.get(part.name).copied().or(part.size);
            asked.unwrap_or_default()
        });
        let patches = |[height, width]: [usize; 2]| (height / PATCH) * (width / PATCH);
        let picture = |view: usize| {
            let [height, width] = usual[view];
            (PICTURES[view], vec![1, 3, height, width])
        };
        vec![
            picture(0),
            picture(1),
            (POOLS[0], vec![1, 1, 2, patches(usual[0])]),
            (POOLS[1], vec![1, USUAL_CANDIDATES, 2, patches(usual[1])]),
        ]
    }

    fn example(&self, _: &Cpu, sample: &Sample, sizes: &Sizes) -> Result<Example, SampleError> {
        let unusable = |reason| SampleError::Unusable {
            sample: sample.name.clone(),
            reason,
        };
        match sample.masks(SOURCE_MASK)? {
            [mask] if mask.is_empty() => {
                let reason = format!("`{SOURCE_MASK}` is empty: there is nothing to look for");
                return Err(unusable(reason));
            }
            [_] => {}
            masks => {
                let found = masks.len();
                return Err(unusable(format!(
                    "`{SOURCE_MASK}` has {found} masks, expected the one of the object"
                )));
            }
        }
        let [source, source_pool] = self.view(sample, [SOURCE, SOURCE_MASK, ""], sizes)?;
        let [dest, dest_pool] = self.view(sample, [DEST, DEST_MASKS, DEST_BOXES], sizes)?;
        let candidates = vec![dest_pool.shape()[1] as i32];
        let candidates = Tensor::from_values([1], candidates).expect("one number");
        Ok(Example::of_one([
            (PICTURES[0], source),
            (PICTURES[1], dest),
            (POOLS[0], source_pool),
            (POOLS[1], dest_pool),
            (CANDIDATES, candidates),
        ]))
    }

    fn batch(&self, mut examples: Vec<Example>) -> Result<Example, BatchError> {
        fill_up(&mut examples, POOLS[1])?;
        Example::batch(examples)
    }
}

#[cfg(test)]
mod tests {
    use percept_data::masks::PixelBox;

    use super::*;

    fn pair(candidates: Vec<Rle>) -> Sample {
        let of = |width, height| Datum::Image(RgbImage::filled(width, height, [255, 0, 9]));
        let area = PixelBox {
            x: 3,
            y: 4,
            width: 10,
            height: 9,
        };
        let mask = Rle::filled_box(30, 45, area).unwrap();
        Sample::of("pair", SOURCE, of(45, 30))
            .with(SOURCE_MASK, Datum::Masks(vec![mask]))
            .with(DEST, of(28, 28))
            .with(DEST_MASKS, Datum::Masks(candidates))
    }

    #[test]
    fn pictures_are_cut_to_whole_patches_and_masks_follow() {
        let intake = PairIntake::new([28, 42], [28, 28], 100);
        let cpu = Cpu::new(1).unwrap();
        let sample = pair(vec![Rle::empty(28, 28).unwrap(); 3]);
        let example = intake.example(&cpu, &sample, &Sizes::new()).unwrap();
        let shape = |name: &str| example.get(name).unwrap().shape().to_vec();
        assert_eq!(shape("source"), [1, 3, 28, 42]);
        assert_eq!(shape("source_pool"), [1, 1, 2, 6]);
        assert_eq!(shape("dest_pool"), [1, 3, 2, 4]);
        let pool = example.get("source_pool").unwrap().to_f32().into_owned();
        let sum = |half: &[f32]| half.iter().sum::<f32>();
        assert!((sum(&pool[..6]) - 1.0).abs() < 1e-5 && (sum(&pool[6..]) - 1.0).abs() < 1e-5);
    }

    #[test]
    fn pairs_with_fewer_candidates_are_filled_up_in_a_batch() {
        let intake = PairIntake::new([28, 42], [28, 28], 100);
        let cpu = Cpu::new(1).unwrap();
        let of = |count| {
            let sample = pair(vec![Rle::empty(28, 28).unwrap(); count]);
            intake.example(&cpu, &sample, &Sizes::new()).unwrap()
        };
        let batch = intake.batch(vec![of(3), of(5)]).unwrap();
        assert_eq!(batch.get("dest_pool").unwrap().shape(), [2, 5, 2, 4]);
        let counts = batch.get(CANDIDATES).unwrap();
        assert_eq!(counts.values::<i32>().unwrap(), [3, 5]);
    }

    #[test]
    fn empty_masks_are_not_offered() {
        let intake = PairIntake::new([28, 42], [28, 28], 100);
        let area = PixelBox {
            x: 2,
            y: 2,
            width: 14,
            height: 14,
        };
        let full = Rle::filled_box(28, 28, area).unwrap();
        let empty = Rle::empty(28, 28).unwrap();
        let cpu = Cpu::new(1).unwrap();
        let of = |masks| intake.example(&cpu, &pair(masks), &Sizes::new()).unwrap();
        let examples = vec![of(vec![empty.clone(), full.clone(), empty]), of(vec![full])];
        let batch = intake.batch(examples).unwrap();
        let offered = are_offered(batch.get(POOLS[1]).unwrap());
        assert_eq!(offered, [false, true, false, true, false, false]);
    }

    #[test]
    fn what_cannot_be_matched_is_named() {
        let intake = PairIntake::new([28, 42], [28, 28], 100);
        let cpu = Cpu::new(1).unwrap();
        let error = |sample: &Sample| {
            let made = intake.example(&cpu, sample, &Sizes::new());
            made.unwrap_err().to_string()
        };
        assert_eq!(error(&pair(Vec::new())), "pair: `dest-masks` has no mask");
        let mut nothing = pair(vec![Rle::empty(28, 28).unwrap()]);
        nothing.parts[1].1 = Datum::Masks(vec![Rle::empty(30, 45).unwrap()]);
        assert_eq!(
            error(&nothing),
            "pair: `source-mask` is empty: there is nothing to look for"
        );
        let other = error(&pair(vec![Rle::empty(30, 90).unwrap()]));
        assert!(other.contains("`dest-masks`, mask 0"), "{other}");
        let boxes = Tensor::from_values([2, 4], vec![0.0f32; 8]).unwrap();
        let sample = pair(vec![Rle::empty(28, 28).unwrap()]).with(DEST_BOXES, Datum::Tensor(boxes));
        assert!(error(&sample).contains("expected [1, 4]"));
    }
}

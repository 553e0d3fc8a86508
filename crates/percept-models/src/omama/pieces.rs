//! Pieces of O-MaMa's work on one pair, each measured apart: what becomes of its files, pictures and masks, our way and the
//! published one.

use std::fmt::Display;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use percept_data::arrays::NpzWriter;
use percept_data::egoexo::{
    DEST, DEST_MASKS, Direction, FoundMask, PairId, SOURCE, TRUTH, fit_mask, write_found_masks,
    write_results_json,
};
use percept_data::images::{RgbImage, decode_image, encode_jpeg};
use percept_data::masks::{Adjacency, PixelBox, Rle, read_masks};
use percept_data::seeded::{Family, seeded_values};
use percept_data::{Sample, SampleError, SampleKey};
use percept_graph::Tensor;

use super::intake::{box_of, normalised};
use super::lesson::{PairOptions, choose_negatives};
use super::pooling::{BoxXywh, PATCH, Pooling};
use super::published::means_of_enlarged;
use super::{FEATURES, Matcher, POOLS};
use crate::Model;
use crate::study::pipeline::{Piece, Work};

/// Candidates of a training sample.
const OFFERED: usize = 32;
/// Masks that the text's adjacency is about.
const MANY: usize = 64;
/// Neighbours of neighbours.
const ORDER: usize = 2;
/// Answers of an evaluation.
const ANSWERS: usize = 2000;
/// As cameras write them.
const JPEG_QUALITY: u8 = 90;

/// Everything that pieces are made of.
struct Pair {
    name: String,
    pictures: [RgbImage; 2],
    /// Candidates at the size of their picture: the sample's own, and quarters of them where it has too few.
    many: Vec<Rle>,
    truth: Rle,
    matcher: Matcher,
    margin: i64,
}

/// All pieces of a pair.
pub(super) fn pieces(
    model: &Model,
    sample: &Sample,
    folder: &Path,
) -> Result<Vec<Piece>, SampleError> {
    let pair = Arc::new(Pair::of(model, sample)?);
    let mut pieces = pair.files(folder)?;
    pieces.extend(pair.masks()?);
    pieces.extend(pair.descriptors()?);
    pieces.extend(pair.attention()?);
    pieces.extend(pair.neighbours(folder)?);
    pieces.extend(pair.answers(folder));
    Ok(pieces)
}

impl Pair {
    fn of(model: &Model, sample: &Sample) -> Result<Self, SampleError> {
        let pictures = [sample.image(SOURCE)?.clone(), sample.image(DEST)?.clone()];
        let at_size = |mask: &Rle| fit_mask(mask, &pictures[1]).map_err(unusable(&sample.name));
        let own = sample.masks(DEST_MASKS)?.iter().map(at_size);
        let own: Vec<Rle> = own.collect::<Result<_, _>>()?;
        let truth = match sample.masks(TRUTH)? {
            [truth] => at_size(truth)?,
            _ => return Err(unusable(&sample.name)("the truth is one mask")),
        };
        let quarters = own.iter().flat_map(quarters);
        let many: Vec<Rle> = own.iter().cloned().chain(quarters).take(MANY).collect();
        if many.len() < MANY {
            return Err(unusable(&sample.name)("too few masks to compare"));
        }
        let grid = |picture: &RgbImage| [picture.height, picture.width].map(|side| side / PATCH);
        let embedding = model.graph.params().iter();
        let mut embedding = embedding.filter(|param| param.name.ends_with("pos_embed_T"));
        let width = embedding
            .next()
            .and_then(|param| param.shape.last().copied());
        Ok(Self {
            name: sample.name.clone(),
            matcher: Matcher {
                width: width.ok_or_else(|| unusable(&sample.name)("no position embedding"))?,
                source_grid: grid(&pictures[0]),
                dest_grid: grid(&pictures[1]),
                visibility: false,
            },
            margin: model.settings.count("context") as i64,
            pictures,
            many,
            truth,
        })
    }

    fn offered(&self) -> &[Rle] {
        &self.many[..OFFERED]
    }

    /// Height and width of a view as the network sees it.
    fn seen(&self, view: usize) -> [usize; 2] {
        [self.matcher.source_grid, self.matcher.dest_grid][view].map(|side| side * PATCH)
    }

    /// What is read of a pair.
    fn files(self: &Arc<Self>, folder: &Path) -> Result<Vec<Piece>, SampleError> {
        let encoded = self.pictures.iter().map(|p| encode_jpeg(p, JPEG_QUALITY));
        let encoded: Vec<Vec<u8>> = encoded
            .collect::<Result<_, _>>()
            .map_err(unusable(&self.name))?;
        let [jpeg, resized] =
            ["jpg", "rgb"].map(|ending| [0, 1].map(|view| folder.join(format!("{view}.{ending}"))));
        for view in 0..2 {
            fs::write(&jpeg[view], &encoded[view]).map_err(unusable(&self.name))?;
            let [height, width] = self.seen(view);
            let numbers = normalised(&self.pictures[view], [height, width]);
            fs::write(&resized[view], numbers.bytes()).map_err(unusable(&self.name))?;
        }
        let stack = folder.join("masks.npz");
        let planes: Vec<u8> = self.offered().iter().flat_map(Rle::decode).collect();
        let [height, width] = [self.truth.height(), self.truth.width()];
        let planes =
            Tensor::from_values([OFFERED, height, width], planes).map_err(unusable(&self.name))?;
        let mut writer = NpzWriter::create(&stack)?.compressed();
        writer.add("arr_0", &planes)?;
        writer.finish()?;
        let texts: Vec<String> = self.offered().iter().map(Rle::coco_text).collect();

        let name = self.name.clone();
        let decode = time("pictures decoded", move || {
            for path in &jpeg {
                let file = fs::read(path).map_err(unusable(&name))?;
                black_box(decode_image(&file).map_err(unusable(&name))?);
            }
            Ok(())
        });
        let pair = Arc::clone(self);
        let resize = time("pictures resized", move || {
            for view in 0..2 {
                black_box(normalised(&pair.pictures[view], pair.seen(view)));
            }
            Ok(())
        });
        let name = self.name.clone();
        let read = time("resized pictures read", move || {
            for path in &resized {
                black_box(fs::read(path).map_err(unusable(&name))?);
            }
            Ok(())
        });
        let from_stack = time("masks from npz", move || {
            black_box(read_masks(&stack)?);
            Ok(())
        });
        let pair = Arc::clone(self);
        let from_text = time("masks from RLE", move || {
            for text in &texts {
                let mask = Rle::from_coco_text(height, width, text);
                black_box(mask.map_err(unusable(&pair.name))?);
            }
            Ok(())
        });
        let pixels = 3 * self.pictures[0].height * self.pictures[0].width;
        Ok(vec![
            decode,
            resize,
            read,
            from_stack,
            from_text,
            size("picture as bytes", pixels),
            size("picture as f32", 4 * pixels),
            size("masks as planes", OFFERED * height * width),
            size(
                "masks as runs",
                self.offered().iter().map(|m| 4 * m.counts().len()).sum(),
            ),
        ])
    }

    /// What masks become on their way to the network.
    fn masks(self: &Arc<Self>) -> Result<Vec<Piece>, SampleError> {
        let planes: Vec<Vec<u8>> = self.offered().iter().map(Rle::decode).collect();
        let pair = Arc::clone(self);
        let [from_height, from_width] = [self.truth.height(), self.truth.width()];
        let [height, width] = self.seen(1).map(|side| side / 4);
        let by_pixels = time("masks resized as floats", move || {
            for plane in &planes {
                let floats: Vec<f32> = plane.iter().map(|&inside| f32::from(inside)).collect();
                let row = |y: usize| y * from_height / height * from_width;
                let small =
                    (0..height).flat_map(|y| (0..width).map(move |x| (y, x * from_width / width)));
                let small: Vec<bool> = small.map(|(y, x)| floats[row(y) + x] > 0.5).collect();
                black_box(small);
            }
            Ok(())
        });
        let by_runs = time("masks resized as runs", move || {
            for mask in pair.offered() {
                black_box(
                    mask.resized_nearest(height, width)
                        .map_err(unusable(&pair.name))?,
                );
            }
            Ok(())
        });
        let pair = Arc::clone(self);
        let seen = self.seen_masks()?;
        let pooling = Pooling::new(self.seen(1));
        let weighed = time("weights of patches", move || {
            for (mask, around) in &seen {
                black_box(pooling.mask(mask).map_err(unusable(&pair.name))?);
                black_box(pooling.surroundings(*around, pair.margin));
            }
            Ok(())
        });
        Ok(vec![by_pixels, by_runs, weighed])
    }

    /// The candidates at the size that the network sees, with their boxes.
    fn seen_masks(&self) -> Result<Vec<(Rle, BoxXywh)>, SampleError> {
        let [height, width] = self.seen(1);
        let seen = self.offered().iter().map(|mask| {
            let seen = mask
                .resized_nearest(height, width)
                .map_err(unusable(&self.name))?;
            let around = box_of(&seen);
            Ok((seen, around))
        });
        seen.collect()
    }

    fn descriptors(self: &Arc<Self>) -> Result<Vec<Piece>, SampleError> {
        let (pair, seen) = (Arc::clone(self), self.seen_masks()?);
        let pooling = Pooling::new(self.seen(1));
        let (patches, width) = (pooling.patches(), self.matcher.width);
        let features = seeded_values(Family::Vision, "input.features", &[patches, width]);
        let cells = pooling.rows.cells() * pooling.columns.cells();
        let published = time("means of the enlarged map", move || {
            let means = means_of_enlarged(&pooling, &features, &seen, pair.margin);
            black_box(means.map_err(unusable(&pair.name))?);
            Ok(())
        });
        let graph = self
            .matcher
            .descriptor_graph()
            .map_err(unusable(&self.name))?;
        let inputs = vec![
            (FEATURES[1], vec![1, patches, width]),
            (POOLS[1], vec![1, OFFERED, 2, patches]),
        ];
        Ok(vec![
            published,
            piece("means of patches", Work::Graph(Box::new(graph), inputs)),
            size("enlarged map", 4 * cells * width),
            size("weights of patches in memory", 4 * 2 * OFFERED * patches),
        ])
    }

    fn attention(&self) -> Result<Vec<Piece>, SampleError> {
        let matcher = self.matcher;
        let rows = |name, count| (name, vec![1, count, matcher.width]);
        let patches = |[rows, columns]: [usize; 2]| rows * columns;
        let inputs = vec![
            rows("wanted", 1),
            rows("offered", OFFERED),
            rows("in_dest", patches(matcher.dest_grid)),
            rows("in_source", patches(matcher.source_grid)),
        ];
        let ways: [(_, super::published::Attend); 2] = [
            (
                "attention with keys and values",
                Matcher::published_attention,
            ),
            ("attention with absorbed weights", Matcher::cross_attention),
        ];
        let mut pieces = vec![size("similarity", 4 * OFFERED)];
        for (name, attend) in ways {
            let graph = matcher
                .attention_graph(attend)
                .map_err(unusable(&self.name))?;
            pieces.push(piece(name, Work::Graph(Box::new(graph), inputs.clone())));
        }
        Ok(pieces)
    }

    fn neighbours(self: &Arc<Self>, folder: &Path) -> Result<Vec<Piece>, SampleError> {
        let planes: Vec<Vec<u8>> = self.many.iter().map(Rle::decode).collect();
        let width = self.truth.width();
        let scanned = time("centroids of pixels", move || {
            for plane in &planes {
                let inside = plane.iter().enumerate().filter(|(_, inside)| **inside == 1);
                let sums = inside.fold([0usize; 3], |[y, x, n], (place, _)| {
                    [y + place / width, x + place % width, n + 1]
                });
                black_box(sums);
            }
            Ok(())
        });
        let pair = Arc::clone(self);
        let of_runs = time("centroids of runs", move || {
            pair.many.iter().for_each(|mask| {
                black_box(mask.centroid());
            });
            Ok(())
        });
        let pair = Arc::clone(self);
        let whole = time("adjacency", move || {
            black_box(Adjacency::of_masks(&pair.many).matrix(ORDER));
            Ok(())
        });
        let pair = Arc::clone(self);
        let adjacency = Adjacency::of_masks(&self.many);
        let matrix = adjacency.matrix(1);
        let squared = time("second order as a product", move || {
            let of = |i: usize, j: usize| u32::from(matrix[i * MANY + j]);
            let product: Vec<bool> = (0..MANY * MANY)
                .map(|at| {
                    (0..MANY)
                        .map(|k| of(at / MANY, k) * of(k, at % MANY))
                        .sum::<u32>()
                        > 0
                })
                .collect();
            black_box(product);
            Ok(())
        });
        let path = folder.join("adjacency.npy");
        let bytes: Vec<u8> = adjacency
            .matrix(ORDER)
            .iter()
            .map(|&near| near.into())
            .collect();
        fs::write(&path, bytes).map_err(unusable(&self.name))?;
        let by_lists = time("second order of lists", move || {
            black_box(adjacency.matrix(ORDER));
            Ok(())
        });
        let name = self.name.clone();
        let read = time("adjacency read", move || {
            black_box(fs::read(&path).map_err(unusable(&name))?);
            Ok(())
        });
        let key = SampleKey::default();
        let chosen = time("negatives", move || {
            let options = PairOptions::default();
            black_box(choose_negatives(&pair.many, &pair.truth, &options, &key));
            Ok(())
        });
        Ok(vec![
            scanned, of_runs, whole, squared, by_lists, read, chosen,
        ])
    }

    fn answers(self: &Arc<Self>, folder: &Path) -> Vec<Piece> {
        let answer = |number: usize| FoundMask {
            pair: PairId {
                take: "take".to_owned(),
                object: "cup".to_owned(),
                source_camera: "exo".to_owned(),
                dest_camera: "ego".to_owned(),
                frame: number as u32,
            },
            mask: self.many[number % MANY].clone(),
            confidence: 0.7,
        };
        let found: Arc<[FoundMask]> = (0..ANSWERS).map(answer).collect();
        let [text, binary] = ["answers.json", "answers.safetensors"].map(|n| folder.join(n));
        let (answers, name) = (Arc::clone(&found), self.name.clone());
        let json = time("answers as JSON", move || {
            let written =
                write_results_json(&text, Direction::ExoToEgo, &answers, |_| Ok(Vec::new()));
            written.map_err(unusable(&name))
        });
        let compact = time("answers as safetensors", move || {
            Ok(write_found_masks(&binary, &found)?)
        });
        vec![json, compact]
    }
}

/// The four quarters of a mask's box, as far as the mask fills them.
fn quarters(mask: &Rle) -> Vec<Rle> {
    let Some(around) = mask.bounding_box() else {
        return Vec::new();
    };
    let (width, height) = (around.width.div_ceil(2), around.height.div_ceil(2));
    let corners = [(0, 0), (width, 0), (0, height), (width, height)];
    let quarter = |(x, y)| {
        let area = PixelBox {
            x: around.x + x,
            y: around.y + y,
            width,
            height,
        };
        let quarter = Rle::filled_box(mask.height(), mask.width(), area).ok()?;
        mask.intersection(&quarter)
            .ok()
            .filter(|part| !part.is_empty())
    };
    corners.into_iter().filter_map(quarter).collect()
}

fn piece(name: &'static str, work: Work) -> Piece {
    Piece { name, work }
}

fn time(name: &'static str, work: impl FnMut() -> Result<(), SampleError> + 'static) -> Piece {
    piece(name, Work::Time(Box::new(work)))
}

fn size(name: &'static str, bytes: usize) -> Piece {
    piece(name, Work::Bytes(bytes))
}

fn unusable<E: Display>(sample: &str) -> impl FnOnce(E) -> SampleError + use<E> {
    let sample = sample.to_owned();
    |error| SampleError::Unusable {
        sample,
        reason: error.to_string(),
    }
}

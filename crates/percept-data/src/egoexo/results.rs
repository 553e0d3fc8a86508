//! What was found: the public results file, and a compact one.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use percept_graph::{Tensor, WeightError};
use serde::Serialize;

use super::{Direction, PairId, PairsError};
use crate::atomic::write_atomically;
use crate::error::FileError;
use crate::masks::{MaskFault, Rle};
use crate::safetensors::{Safetensors, read_safetensors, write_safetensors};

/// The answer to a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundMask {
    /// Which object was looked for, and where.
    pub pair: PairId,
    /// The mask that was chosen.
    pub mask: Rle,
    /// How sure the network is that it is the object, from 0 to 1.
    pub confidence: f32,
}

#[derive(Serialize)]
struct Answer<'a> {
    pred_mask: &'a Rle,
    confidence: f32,
}

#[derive(Default, Serialize)]
struct Take<'a> {
    /// By object, by cameras (`source_dest`), by frame.
    masks: BTreeMap<&'a str, BTreeMap<String, BTreeMap<u32, Answer<'a>>>>,
    subsample_idx: Vec<u32>,
}

/// Writes the public results file. `subsampled_frames` are the frames of a take that the evaluation looks at.
pub fn write_results_json(
    path: &Path,
    direction: Direction,
    found: &[FoundMask],
    subsampled_frames: impl Fn(&str) -> Result<Vec<u32>, PairsError>,
) -> Result<(), PairsError> {
    let mut takes: BTreeMap<&str, Take<'_>> = BTreeMap::new();
    for FoundMask {
        pair,
        mask,
        confidence,
    } in found
    {
        if !takes.contains_key(&*pair.take) {
            let take = Take {
                subsample_idx: subsampled_frames(&pair.take)?,
                ..Take::default()
            };
            takes.insert(&pair.take, take);
        }
        let take = takes.entry(&pair.take).or_default();
        let cameras = format!("{}_{}", pair.source_camera, pair.dest_camera);
        let frames = take.masks.entry(&pair.object).or_default();
        let answer = Answer {
            pred_mask: mask,
            confidence: *confidence,
        };
        frames
            .entry(cameras)
            .or_default()
            .insert(pair.frame, answer);
    }
    let name = match direction {
        Direction::EgoToExo => "ego-exo",
        Direction::ExoToEgo => "exo-ego",
    };
    let document = BTreeMap::from([(name, BTreeMap::from([("results", takes)]))]);
    write_atomically(path, |file| -> io::Result<()> {
        serde_json::to_writer(file, &document).map_err(io::Error::from)
    })
    .map_err(|error| PairsError::File(FileError::new(path, error)))
}

/// The version of the compact form, in its metadata.
const FORMAT: &str = "percept found masks 1";

/// Writes answers as a .safetensors file: `edges` i32, the places where masks are entered and left down the columns, one mask
/// behind the other; `ends` i64 [N], where the edges of each end; `sizes` i32 [N, 2], height and width; `confidence` f32 [N];
/// and `frames` i32 [N] with `names` u8, a line of take, object and cameras for each, parted by tabs.
pub fn write_found_masks(path: &Path, found: &[FoundMask]) -> Result<(), FileError> {
    let (mut edges, mut ends, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    let mut names = String::new();
    for FoundMask { pair, mask, .. } in found {
        // Places are at most the number of pixels, far below what i32 holds.
        edges.extend(mask.edges().iter().map(|&edge| edge as i32));
        ends.push(edges.len() as i64);
        sizes.extend([mask.height() as i32, mask.width() as i32]);
        let fields = [
            &pair.take,
            &pair.object,
            &pair.source_camera,
            &pair.dest_camera,
        ];
        if fields.iter().any(|field| field.contains(['\t', '\n'])) {
            let error = io::Error::other(format!("a tab or line break in the name of {pair}"));
            return Err(FileError::new(path, error));
        }
        names += &fields.map(String::as_str).join("\t");
        names += "\n";
    }
    let confidence: Vec<f32> = found.iter().map(|found| found.confidence).collect();
    let frames: Vec<i32> = found.iter().map(|found| found.pair.frame as i32).collect();
    let count = found.len();
    let fits = "as many values as the shape says";
    let tensors = [
        (
            "edges",
            Tensor::from_values([edges.len()], edges).expect(fits),
        ),
        ("ends", Tensor::from_values([count], ends).expect(fits)),
        ("sizes", Tensor::from_values([count, 2], sizes).expect(fits)),
        (
            "confidence",
            Tensor::from_values([count], confidence).expect(fits),
        ),
        ("frames", Tensor::from_values([count], frames).expect(fits)),
        (
            "names",
            Tensor::from_values([names.len()], names.into_bytes()).expect(fits),
        ),
    ]
    .map(|(name, tensor)| (name.to_owned(), tensor));
    let metadata = BTreeMap::from([("format".to_owned(), FORMAT.to_owned())]);
    write_safetensors(path, &tensors, &metadata)
}

/// Reads what [`write_found_masks`] wrote.
pub fn read_found_masks(path: &Path) -> Result<Vec<FoundMask>, PairsError> {
    let unfit = |reason: String| PairsError::unfit(path, reason);
    let file = Safetensors::open(path)?;
    if file.metadata().get("format").map(String::as_str) != Some(FORMAT) {
        return Err(unfit(format!("not a file of {FORMAT:?}")));
    }
    let tensors = read_safetensors(path).map_err(|error: WeightError| unfit(error.to_string()))?;
    let tensors: BTreeMap<String, Tensor<'static>> = tensors.into_iter().collect();
    parse_found_masks(&tensors).map_err(unfit)
}

fn parse_found_masks(
    tensors: &BTreeMap<String, Tensor<'static>>,
) -> Result<Vec<FoundMask>, String> {
    let tensor = |name: &str| {
        tensors
            .get(name)
            .ok_or_else(|| format!("no tensor `{name}`"))
    };
    let edges = tensor("edges")?.values::<i32>()?;
    let ends = tensor("ends")?.values::<i64>()?;
    let (sizes, _) = tensor("sizes")?.values::<i32>()?.as_chunks::<2>();
    let confidence = tensor("confidence")?.values::<f32>()?;
    let frames = tensor("frames")?.values::<i32>()?;
    let names = str::from_utf8(tensor("names")?.values()?).map_err(|error| error.to_string())?;
    let names: Vec<&str> = names.lines().collect();
    let count = ends.len();
    if [sizes.len(), confidence.len(), frames.len(), names.len()] != [count; 4] {
        return Err("the tensors tell of different numbers of masks".to_owned());
    }
    let mut found = Vec::with_capacity(count);
    let mut start = 0;
    for i in 0..count {
        let end = usize::try_from(ends[i]).unwrap_or(usize::MAX);
        let own = edges
            .get(start..end)
            .ok_or_else(|| format!("mask {i}: no such edges"))?;
        start = end;
        let mask = mask_of(sizes[i], own).map_err(|fault| format!("mask {i}: {fault}"))?;
        let fields: Vec<&str> = names[i].split('\t').collect();
        let [take, object, source_camera, dest_camera] = fields[..] else {
            return Err(format!("mask {i}: the name {:?}", names[i]));
        };
        let pair = PairId {
            take: take.to_owned(),
            object: object.to_owned(),
            source_camera: source_camera.to_owned(),
            dest_camera: dest_camera.to_owned(),
            frame: u32::try_from(frames[i]).map_err(|_| format!("mask {i}: a negative frame"))?,
        };
        found.push(FoundMask {
            pair,
            mask,
            confidence: confidence[i],
        });
    }
    Ok(found)
}

fn mask_of([height, width]: [i32; 2], edges: &[i32]) -> Result<Rle, MaskFault> {
    // Negative numbers become sizes and runs that no mask has.
    let side = |pixels: i32| usize::try_from(pixels).unwrap_or(usize::MAX);
    let (height, width) = (side(height), side(width));
    let pixels = Rle::empty(height, width)?.counts().iter().sum::<u32>();
    let mut counts = Vec::with_capacity(edges.len() + 1);
    let mut last = 0i64;
    for edge in edges
        .iter()
        .map(|&edge| i64::from(edge))
        .chain([i64::from(pixels)])
    {
        counts.push(u32::try_from(edge - last).unwrap_or(u32::MAX));
        last = edge;
    }
    Rle::from_counts(height, width, &counts)
}

//! The public layout: frames, annotations, lists of pairs and candidates in folders of their own.
//!
//! ```text
//! processed/split.json                                  {"train": [take], "val": [..], "test": [..]}
//! processed/TAKE/annotation.json                        masks[object][camera][frame] = {size, counts}, subsample_idx
//! processed/TAKE/CAMERA/FRAME.jpg
//! dataset_jsons/*_pairs.json                            [[ego rgb, ego mask, exo rgb, exo mask]], each
//!                                                       "root//take//camera//object//rgb|mask//frame"
//! Masks_{TRAIN,VAL,TEST}_{EXO2EGO,EGO2EXO}/TAKE/CAMERA/FRAME_masks.npz and FRAME_boxes.npy
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::annotation::{Annotation, read_json};
use super::{
    DEST, DEST_BOXES, DEST_MASKS, Direction, PairId, PairsError, SOURCE, SOURCE_MASK, Split, TRUTH,
    fit_boxes, fit_mask,
};
use crate::arrays::read_npy;
use crate::error::FileError;
use crate::images::{RgbImage, read_image};
use crate::masks::{Rle, read_masks};
use crate::sample::{Datum, Sample, SampleError, Samples};

/// Pairs of a split of Ego-Exo4D, or of any folder in its layout.
#[derive(Debug)]
pub struct EgoExo {
    root: PathBuf,
    direction: Direction,
    split: Split,
    pairs: Vec<PairId>,
    /// The annotations of each take of the pairs, read when first asked for, and once.
    takes: BTreeMap<String, Mutex<Option<Arc<Annotation>>>>,
}

impl EgoExo {
    /// Reads the list of pairs below `root`. Of several lists the one is taken whose name has the split and the direction
    /// (`egoexo` or `exoego`) in it.
    pub fn open(root: &Path, split: Split, direction: Direction) -> Result<Self, PairsError> {
        let list = find_list(&root.join("dataset_jsons"), split, direction)?;
        let lines: Vec<[String; 4]> = read_json(&list)?;
        let of_split = takes_of_split(root, split)?;
        let mut pairs = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let pair = parse_pair(line, direction).map_err(|reason| PairsError::BadPair {
                path: list.clone(),
                index,
                reason,
            })?;
            if of_split
                .as_ref()
                .is_none_or(|takes| takes.contains(&pair.take))
            {
                pairs.push(pair);
            }
        }
        if pairs.is_empty() {
            return Err(PairsError::NoPairs {
                path: list,
                expected: "pairs of takes that split.json has in this split",
            });
        }
        let takes = pairs
            .iter()
            .map(|pair| (pair.take.clone(), Mutex::default()));
        Ok(Self {
            root: root.to_owned(),
            direction,
            split,
            takes: takes.collect(),
            pairs,
        })
    }

    /// The pairs, in the order of the samples.
    pub fn pairs(&self) -> &[PairId] {
        &self.pairs
    }

    /// From which view to which.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The frames of a take that the public evaluation looks at.
    pub fn subsampled_frames(&self, take: &str) -> Result<Vec<u32>, PairsError> {
        Ok(self.annotation(take)?.subsampled_frames().to_vec())
    }

    fn annotation(&self, take: &str) -> Result<Arc<Annotation>, PairsError> {
        let path = self
            .root
            .join("processed")
            .join(take)
            .join("annotation.json");
        let Some(slot) = self.takes.get(take) else {
            return Ok(Arc::new(Annotation::read(path)?));
        };
        // A thread that needs the same take waits for the one that reads it.
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some(annotation) => Ok(annotation.clone()),
            None => {
                let annotation = Arc::new(Annotation::read(path)?);
                *slot = Some(annotation.clone());
                Ok(annotation)
            }
        }
    }

    fn frame(&self, pair: &PairId, camera: &str) -> Result<RgbImage, FileError> {
        let folder = self.root.join("processed").join(&pair.take).join(camera);
        read_image(&folder.join(format!("{}.jpg", pair.frame)))
    }

    /// Candidates and their boxes, at the size of the image.
    fn candidates(
        &self,
        pair: &PairId,
        image: &RgbImage,
    ) -> Result<Vec<(&'static str, Datum)>, PairsError> {
        let direction = match self.direction {
            Direction::EgoToExo => "EGO2EXO",
            Direction::ExoToEgo => "EXO2EGO",
        };
        let split = self.split.name().to_uppercase();
        let folder = self.root.join(format!("Masks_{split}_{direction}"));
        let folder = folder.join(&pair.take).join(&pair.dest_camera);
        let file = |what: &str| folder.join(format!("{}_{what}", pair.frame));
        read_candidates(&file("masks.npz"), &file("boxes.npy"), image)
    }

    fn read(&self, pair: &PairId) -> Result<Sample, PairsError> {
        let PairId {
            take,
            object,
            source_camera,
            dest_camera,
            frame,
        } = pair;
        let annotation = self.annotation(take)?;
        let source = self.frame(pair, source_camera)?;
        let dest = self.frame(pair, dest_camera)?;
        let unfit = |fault| PairsError::unfit(annotation.path(), fault);
        let source_mask = annotation.seen_mask(object, source_camera, *frame)?;
        let source_mask = fit_mask(&source_mask, &source).map_err(unfit)?;
        let truth = match annotation.mask(object, dest_camera, *frame)? {
            Some(mask) => fit_mask(&mask, &dest),
            None => Rle::empty(dest.height, dest.width),
        };
        let truth = truth.map_err(unfit)?;
        let candidates = self.candidates(pair, &dest)?;
        let sample = Sample::of(pair.to_string(), SOURCE, Datum::Image(source))
            .with(SOURCE_MASK, Datum::Masks(vec![source_mask]))
            .with(DEST, Datum::Image(dest));
        let sample = candidates
            .into_iter()
            .fold(sample, |sample, (part, datum)| sample.with(part, datum));
        Ok(sample.with(TRUTH, Datum::Masks(vec![truth])))
    }
}

impl Samples for EgoExo {
    fn len(&self) -> usize {
        self.pairs.len()
    }

    fn name(&self, index: usize) -> String {
        self.pairs[index].to_string()
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        Ok(self.read(&self.pairs[index])?)
    }
}

/// Candidates at the size of their image, and their boxes where there is a file of them.
pub(super) fn read_candidates(
    masks: &Path,
    boxes: &Path,
    image: &RgbImage,
) -> Result<Vec<(&'static str, Datum)>, PairsError> {
    let candidates = read_masks(masks)?;
    let fitted = candidates.iter().map(|mask| fit_mask(mask, image));
    let fitted = fitted.collect::<Result<Vec<Rle>, _>>();
    let fitted = fitted.map_err(|fault| PairsError::unfit(masks, fault))?;
    let mut parts = vec![(DEST_MASKS, Datum::Masks(fitted))];
    if let (Some(first), true) = (candidates.first(), boxes.exists()) {
        let tensor = read_npy(boxes)?;
        let expected = [candidates.len(), 4];
        if tensor.shape() != expected {
            let reason = format!("boxes of shape {:?}, expected {expected:?}", tensor.shape());
            return Err(PairsError::unfit(boxes, reason));
        }
        let fitted = fit_boxes(&tensor, first, image);
        let fitted = fitted.map_err(|reason| PairsError::unfit(boxes, reason))?;
        parts.push((DEST_BOXES, Datum::Tensor(fitted)));
    }
    Ok(parts)
}

/// The list of pairs of this split and direction.
fn find_list(folder: &Path, split: Split, direction: Direction) -> Result<PathBuf, PairsError> {
    let entries = fs::read_dir(folder).map_err(|error| FileError::new(folder, error))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let all: BTreeSet<String> = names.filter(|name| name.ends_with("_pairs.json")).collect();
    let tag = match direction {
        Direction::EgoToExo => "egoexo",
        Direction::ExoToEgo => "exoego",
    };
    // A name says the split, the direction, both or neither; what it says has to be right.
    let says_another = |name: &str, own: &str, kinds: &[&str]| {
        !name.contains(own) && kinds.iter().any(|kind| name.contains(kind))
    };
    let fits = |name: &&String| {
        !says_another(name, split.name(), &["train", "val", "test"])
            && !says_another(name, tag, &["egoexo", "exoego"])
    };
    let fitting: Vec<&String> = all.iter().filter(fits).collect();
    match fitting[..] {
        [only] => Ok(folder.join(only)),
        _ => Err(PairsError::Lists {
            path: folder.to_owned(),
            wanted: format!("{} and {tag}", split.name()),
            lists: all.into_iter().collect(),
        }),
    }
}

/// The takes of a split, where the dataset says so.
fn takes_of_split(root: &Path, split: Split) -> Result<Option<BTreeSet<String>>, PairsError> {
    let path = root.join("processed/split.json");
    if !path.exists() {
        return Ok(None);
    }
    let mut splits: BTreeMap<String, BTreeSet<String>> = read_json(&path)?;
    Ok(Some(splits.remove(split.name()).unwrap_or_default()))
}

/// A pair from the four names of a line: ego picture, ego mask, exo picture, exo mask.
fn parse_pair(line: &[String; 4], direction: Direction) -> Result<PairId, String> {
    let [ego, _, exo, _] = line;
    let (ego, exo) = (parse_name(ego)?, parse_name(exo)?);
    let (source, dest) = match direction {
        Direction::EgoToExo => (ego, exo),
        Direction::ExoToEgo => (exo, ego),
    };
    if (source.take, source.object, source.frame) != (dest.take, dest.object, dest.frame) {
        return Err(format!("`{}` and `{}` are no pair", line[0], line[2]));
    }
    Ok(PairId {
        take: source.take.to_owned(),
        object: source.object.to_owned(),
        source_camera: source.camera.to_owned(),
        dest_camera: dest.camera.to_owned(),
        frame: source.frame,
    })
}

struct FrameName<'a> {
    take: &'a str,
    camera: &'a str,
    object: &'a str,
    frame: u32,
}

/// Reads "root//take//camera//object//rgb//frame". Takes and cameras become folders, so they must not lead elsewhere.
fn parse_name(name: &str) -> Result<FrameName<'_>, String> {
    let wrong = || format!("expected \"root//take//camera//object//rgb//frame\", found {name:?}");
    let parts: Vec<&str> = name.rsplitn(6, "//").collect();
    let [frame, _, object, camera, take, _] = parts[..] else {
        return Err(wrong());
    };
    let is_folder = |name: &str| {
        !name.is_empty() && !name.contains(['/', '\\', '\0']) && !name.starts_with("..")
    };
    if !is_folder(take) || !is_folder(camera) {
        return Err(wrong());
    }
    let frame = frame.parse().map_err(|_| wrong())?;
    Ok(FrameName {
        take,
        camera,
        object,
        frame,
    })
}

//! A plain folder of a user's own pairs: a folder for each, with a file for each part, named as the part is.
//!
//! ```text
//! FOLDER/NAME/source.jpg           or .png
//! FOLDER/NAME/source-mask.png      or .json, .npz, .npy: one mask
//! FOLDER/NAME/dest.jpg
//! FOLDER/NAME/dest-masks.npz       or .json, .npy, .png, or a folder of them
//! FOLDER/NAME/dest-boxes.npy       where a segmenter gave boxes
//! FOLDER/NAME/truth.png            where it is known
//! ```
//!
//! A folder that holds the files of one pair itself is that pair.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::dataset::read_candidates;
use super::{
    DEST, DEST_BOXES, DEST_MASKS, PairId, PairsError, SOURCE, SOURCE_MASK, TRUTH, fit_mask,
};
use crate::error::FileError;
use crate::images::{RgbImage, read_image};
use crate::masks::{Rle, read_masks};
use crate::sample::{Datum, Sample, SampleError, Samples};

const LAYOUT: &str = "a folder per pair with source, source-mask, dest and dest-masks in it";

/// Pairs in a plain folder.
#[derive(Debug)]
pub struct PairFolder {
    pairs: Vec<PairFiles>,
}

/// The files of a pair.
#[derive(Debug)]
struct PairFiles {
    name: String,
    folder: PathBuf,
    parts: BTreeMap<String, PathBuf>,
}

impl PairFolder {
    /// The pairs of a folder, by name.
    pub fn open(folder: &Path) -> Result<Self, PairsError> {
        if let Some(pair) = PairFiles::find(folder)? {
            return Ok(Self { pairs: vec![pair] });
        }
        let mut pairs = Vec::new();
        for path in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
            pairs.extend(PairFiles::find(&path)?);
        }
        if pairs.is_empty() {
            return Err(PairsError::NoPairs {
                path: folder.to_owned(),
                expected: LAYOUT,
            });
        }
        Ok(Self { pairs })
    }

    /// What results call a pair: the folder's name stands for the take.
    pub fn pair(&self, index: usize) -> PairId {
        PairId {
            take: self.pairs[index].name.clone(),
            object: "object".to_owned(),
            source_camera: SOURCE.to_owned(),
            dest_camera: DEST.to_owned(),
            frame: 0,
        }
    }
}

impl PairFiles {
    /// The pair of this folder; none where it has no picture to look from.
    fn find(folder: &Path) -> Result<Option<Self>, PairsError> {
        let mut parts = BTreeMap::new();
        for path in entries(folder)? {
            let Some(part) = path.file_stem().and_then(|stem| stem.to_str()) else {
                continue;
            };
            if ![SOURCE, SOURCE_MASK, DEST, DEST_MASKS, DEST_BOXES, TRUTH].contains(&part) {
                continue;
            }
            if let Some(other) = parts.insert(part.to_owned(), path.clone()) {
                let reason = format!("{} stands for the same part", other.display());
                return Err(PairsError::unfit(&path, reason));
            }
        }
        if !parts.contains_key(SOURCE) {
            return Ok(None);
        }
        let name = folder.file_name().unwrap_or(folder.as_os_str());
        Ok(Some(Self {
            name: name.to_string_lossy().into_owned(),
            folder: folder.to_owned(),
            parts,
        }))
    }

    fn file(&self, part: &str) -> Result<&Path, PairsError> {
        let found = self.parts.get(part).map(PathBuf::as_path);
        found.ok_or_else(|| PairsError::unfit(&self.folder, format!("no file `{part}`")))
    }

    fn read(&self) -> Result<Sample, PairsError> {
        let source = read_image(self.file(SOURCE)?)?;
        let dest = read_image(self.file(DEST)?)?;
        let source_mask = one_mask(self.file(SOURCE_MASK)?, &source)?;
        let boxes = self.parts.get(DEST_BOXES).cloned().unwrap_or_default();
        let candidates = read_candidates(self.file(DEST_MASKS)?, &boxes, &dest)?;
        let truth = self.parts.get(TRUTH);
        let truth = truth.map(|path| one_mask(path, &dest)).transpose()?;
        let sample = Sample::of(self.name.clone(), SOURCE, Datum::Image(source))
            .with(SOURCE_MASK, Datum::Masks(vec![source_mask]))
            .with(DEST, Datum::Image(dest));
        let truth = truth.map(|mask| (TRUTH, Datum::Masks(vec![mask])));
        let parts = candidates.into_iter().chain(truth);
        Ok(parts.fold(sample, |sample, (part, datum)| sample.with(part, datum)))
    }
}

impl Samples for PairFolder {
    fn len(&self) -> usize {
        self.pairs.len()
    }

    fn name(&self, index: usize) -> String {
        self.pairs[index].name.clone()
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        Ok(self.pairs[index].read()?)
    }
}

/// The single mask of a file, at the size of its image.
fn one_mask(path: &Path, image: &RgbImage) -> Result<Rle, PairsError> {
    let masks = read_masks(path)?;
    let [mask] = &masks[..] else {
        let reason = format!("{} masks, expected one", masks.len());
        return Err(PairsError::unfit(path, reason));
    };
    fit_mask(mask, image).map_err(|fault| PairsError::unfit(path, fault))
}

/// What a folder holds, by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, PairsError> {
    let paths = fs::read_dir(folder).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect::<Result<Vec<PathBuf>, std::io::Error>>()
    });
    let mut paths = paths.map_err(|error| FileError::new(folder, error))?;
    paths.sort();
    Ok(paths)
}

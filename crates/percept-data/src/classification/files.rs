use std::path::PathBuf;

use super::DatasetError;
use crate::error::FileError;
use crate::images::{RgbImage, read_image};
use crate::random::{hash, permutation};
use crate::{Sample, SampleError, Samples};

/// The file of one picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its class, as a place among the classes.
    pub label: usize,
}

/// Pictures in files, decoded when they are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFiles {
    root: PathBuf,
    classes: Vec<String>,
    files: Vec<ImageFile>,
}

impl ImageFiles {
    /// The `files` of a dataset at `root`; every class must have one. `split` names the part in the error.
    pub(super) fn new(
        root: PathBuf,
        classes: Vec<String>,
        files: Vec<ImageFile>,
        split: Option<&'static str>,
    ) -> Result<Self, DatasetError> {
        let mut counts = vec![0usize; classes.len()];
        for file in &files {
            counts[file.label] += 1;
        }
        if let Some(empty) = counts.iter().position(|&count| count == 0) {
            return Err(DatasetError::EmptyClass {
                path: root,
                class: classes[empty].clone(),
                split,
            });
        }
        Ok(Self {
            root,
            classes,
            files,
        })
    }

    /// The files, in the order of their indices.
    pub fn files(&self) -> &[ImageFile] {
        &self.files
    }

    /// The label of a picture. Panics past the end, as indexing does.
    pub fn label(&self, index: usize) -> usize {
        self.files[index].label
    }

    /// A picture. Panics past the end, as indexing does.
    pub fn image(&self, index: usize) -> Result<RgbImage, FileError> {
        read_image(&self.files[index].path)
    }

    /// Cuts off `share` of each class for testing: (training, testing).
    ///
    /// Which files go follows from the seed and their order. Both parts keep at least one file of each class, so a class
    /// with a single file is an error.
    pub fn hold_out(self, share: f64, seed: u64) -> Result<(Self, Self), DatasetError> {
        let mut is_held = vec![false; self.files.len()];
        for class in 0..self.classes.len() {
            let members: Vec<usize> = (0..self.files.len())
                .filter(|&index| self.files[index].label == class)
                .collect();
            let most = members.len().saturating_sub(1);
            let held = ((members.len() as f64 * share).round() as usize).clamp(most.min(1), most);
            let order = permutation(members.len(), |index| hash(seed, class as u64, index));
            for &member in &order[..held] {
                is_held[members[member]] = true;
            }
        }
        let (held, kept): (Vec<_>, Vec<_>) =
            self.files.into_iter().zip(is_held).partition(|pair| pair.1);
        let part = |files: Vec<(ImageFile, bool)>, split| {
            let files = files.into_iter().map(|pair| pair.0).collect();
            Self::new(self.root.clone(), self.classes.clone(), files, Some(split))
        };
        Ok((part(kept, "training")?, part(held, "testing")?))
    }
}

impl Samples for ImageFiles {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn name(&self, index: usize) -> String {
        self.files[index].path.display().to_string()
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let image = self.image(index)?;
        Ok(super::sample(self.name(index), image, self.label(index)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(counts: &[usize]) -> ImageFiles {
        let files = counts.iter().enumerate().flat_map(|(label, &count)| {
            (0..count).map(move |i| ImageFile {
                path: format!("{label}/{i}.png").into(),
                label,
            })
        });
        let classes = (0..counts.len()).map(|class| format!("class {class}"));
        ImageFiles::new("root".into(), classes.collect(), files.collect(), None).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn parts_are_disjoint_complete_and_have_every_class(
            counts in prop::collection::vec(2usize..12, 1..6),
            share in 0.0..1.0,
            seed in any::<u64>(),
        ) {
            let whole = listed(&counts);
            let (kept, held) = whole.clone().hold_out(share, seed).unwrap();
            let mut together = [kept.files(), held.files()].concat();
            together.sort_by(|a, b| (a.label, &a.path).cmp(&(b.label, &b.path)));
            let mut expected = whole.files().to_vec();
            expected.sort_by(|a, b| (a.label, &a.path).cmp(&(b.label, &b.path)));
            prop_assert_eq!(together, expected);
            for (class, &count) in counts.iter().enumerate() {
                let held = held.files().iter().filter(|file| file.label == class).count();
                prop_assert!((held as f64 - count as f64 * share).abs() <= 1.0);
            }
        }
    }

    #[test]
    fn a_single_file_cannot_be_in_both_parts() {
        let error = listed(&[4, 1]).hold_out(0.5, 0).unwrap_err().to_string();
        assert_eq!(error, "root: class `class 1` has no images for testing");
    }

    #[test]
    fn the_seed_decides_which_files_go() {
        let held = |seed| listed(&[50]).hold_out(0.5, seed).unwrap().1;
        assert_eq!(held(3), held(3));
        assert_ne!(held(3), held(4));
    }
}

//! Finds out how a folder of pictures is laid out.

use std::path::{Path, PathBuf};

use super::{DatasetError, ImageFiles, read_cub, read_image_folder};
use crate::Samples;

/// Pictures to train with and pictures to test with.
#[derive(Clone, Debug)]
pub struct SplitImages {
    /// Pictures to train with.
    pub training: ImageFiles,
    /// Pictures to test with.
    pub testing: ImageFiles,
}

/// How a folder of pictures is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The lists of CUB-200-2011 beside the folder `images`.
    Cub,
    /// A folder of classes to train with, `train`, and one of the same classes to test with: `val`, `valid` or `test`.
    TrainAndTest,
    /// One folder of classes.
    Classes,
}

/// How much of a dataset without a split of its own is held out for testing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoldOut {
    /// The share of each class.
    pub share: f64,
    /// What decides which pictures.
    pub seed: u64,
}

/// A dataset as [`read_images`] finds it.
#[derive(Clone, Debug)]
pub struct FoundImages {
    /// The pictures.
    pub images: SplitImages,
    /// How they lie in their folder.
    pub layout: Layout,
    /// Files among them that were passed over, because they are neither `.jpg`, `.jpeg` nor `.png`.
    pub ignored: Vec<PathBuf>,
}

/// Reads the pictures below `root`, whichever layout they have.
pub fn read_images(root: &Path, hold_out: HoldOut) -> Result<FoundImages, DatasetError> {
    if root.join("images.txt").is_file() {
        return Ok(FoundImages {
            images: read_cub(root)?,
            layout: Layout::Cub,
            ignored: Vec::new(),
        });
    }
    let training = root.join("train");
    let testing = ["val", "valid", "test"].map(|name| root.join(name));
    let testing = testing.into_iter().find(|folder| folder.is_dir());
    if let Some(testing) = testing.filter(|_| training.is_dir()) {
        return read_both(&training, &testing);
    }
    let listing = read_image_folder(root)?;
    let (training, testing) = listing.images.hold_out(hold_out.share, hold_out.seed)?;
    Ok(FoundImages {
        images: SplitImages { training, testing },
        layout: Layout::Classes,
        ignored: listing.ignored,
    })
}

fn read_both(training: &Path, testing: &Path) -> Result<FoundImages, DatasetError> {
    let [mut train, test] = [read_image_folder(training)?, read_image_folder(testing)?];
    let (known, tested) = (train.images.classes(), test.images.classes());
    // Both are sorted and without doubles: what differs is a class that one of them lacks.
    let lacking = |folder: &Path, classes: &[String], others: &[String]| {
        let class = others.iter().find(|class| !classes.contains(class))?;
        Some(DatasetError::EmptyClass {
            path: folder.to_owned(),
            class: class.clone(),
            split: None,
        })
    };
    if let Some(error) =
        lacking(testing, tested, known).or_else(|| lacking(training, known, tested))
    {
        return Err(error);
    }
    train.ignored.extend(test.ignored);
    Ok(FoundImages {
        images: SplitImages {
            training: train.images,
            testing: test.images,
        },
        layout: Layout::TrainAndTest,
        ignored: train.ignored,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::classification::cub::tests::fixture;
    use crate::images::tests::png;

    const HALF: HoldOut = HoldOut {
        share: 0.5,
        seed: 1,
    };

    fn write(root: &Path, names: &[&str]) {
        for name in names {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, png()).unwrap();
        }
    }

    fn counts(found: &FoundImages) -> (Layout, usize, usize) {
        let SplitImages { training, testing } = &found.images;
        assert_eq!(training.classes(), testing.classes());
        (found.layout, training.len(), testing.len())
    }

    #[test]
    fn every_layout_is_recognised() {
        let cub = fixture();
        let found = read_images(cub.path(), HALF).unwrap();
        assert_eq!(counts(&found), (Layout::Cub, 2, 2));

        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[
                "auk/1.png",
                "auk/2.png",
                "jay/1.png",
                "jay/2.png",
                "jay/3.txt",
            ],
        );
        let found = read_images(folder.path(), HALF).unwrap();
        assert_eq!(counts(&found), (Layout::Classes, 2, 2));
        assert_eq!(found.ignored, [folder.path().join("jay/3.txt")]);

        for testing in ["val", "valid", "test"] {
            let folder = tempfile::tempdir().unwrap();
            write(
                folder.path(),
                &["train/auk/1.png", "train/auk/2.png", "train/jay/1.png"],
            );
            let classes = ["auk/9.png", "jay/9.png"].map(|name| format!("{testing}/{name}"));
            write(folder.path(), &classes.each_ref().map(String::as_str));
            let found = read_images(folder.path(), HALF).unwrap();
            assert_eq!(counts(&found), (Layout::TrainAndTest, 3, 2));
        }
    }

    #[test]
    fn a_class_that_one_part_lacks_is_named() {
        for (lacking, names) in [
            (
                "test",
                ["train/auk/1.png", "train/jay/1.png", "test/auk/1.png"],
            ),
            (
                "train",
                ["train/auk/1.png", "test/jay/1.png", "test/auk/1.png"],
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), &names);
            let error = read_images(folder.path(), HALF).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("{lacking}: class `jay` has no images")),
                "{error}"
            );
        }
    }
}

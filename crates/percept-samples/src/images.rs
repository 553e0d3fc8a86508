//! Image files, and folders of them.

use std::path::{Path, PathBuf};

use percept_data::images::read_image;
use percept_data::{Datum, Sample, SampleError, Samples};

use crate::error::OpenError;

/// The files of a folder whose names end so, in the order of their names.
pub(crate) fn files_in(
    folder: &Path,
    endings: &[&str],
    expected: &'static str,
) -> Result<Vec<PathBuf>, OpenError> {
    let io = |source| OpenError::io(folder, source);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_ascii_lowercase();
        if endings.iter().any(|ending| name.ends_with(ending)) {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(OpenError::EmptyFolder {
            path: folder.to_path_buf(),
            expected,
        });
    }
    files.sort();
    Ok(files)
}

/// Folders inside folders that are looked into.
const MOST_LEVELS: usize = 16;
/// How names of pictures end.
const PICTURES: [&str; 3] = [".jpg", ".jpeg", ".png"];

/// The pictures of a folder and of those inside it, in the order of their paths: a dataset may have a folder for each class.
fn pictures_in(folder: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), 0)];
    while let Some((inside, level)) = folders.pop() {
        match files_in(&inside, &PICTURES, ".jpg or .png") {
            Ok(files) => found.extend(files.into_iter().filter(|path| path.is_file())),
            Err(OpenError::EmptyFolder { .. }) => {}
            Err(error) => return Err(error),
        }
        if level < MOST_LEVELS {
            let io = |source| OpenError::io(&inside, source);
            for entry in std::fs::read_dir(&inside).map_err(io)? {
                let entry = entry.map_err(io)?;
                // Links are not followed: they may lead back.
                if entry.file_type().map_err(io)?.is_dir() {
                    folders.push((entry.path(), level + 1));
                }
            }
        }
    }
    if found.is_empty() {
        return Err(OpenError::EmptyFolder {
            path: folder.to_path_buf(),
            expected: ".jpg or .png",
        });
    }
    found.sort();
    Ok(found)
}

/// A picture per file.
pub(crate) struct Images {
    part: &'static str,
    files: Vec<PathBuf>,
}

impl Images {
    /// The given files, and those inside given folders, however deep.
    pub(crate) fn open(part: &'static str, paths: &[&Path]) -> Result<Self, OpenError> {
        let mut files = Vec::new();
        for path in paths {
            match path.is_dir() {
                true => files.extend(pictures_in(path)?),
                false => files.push(path.to_path_buf()),
            }
        }
        Ok(Self { part, files })
    }
}

impl Samples for Images {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn name(&self, index: usize) -> String {
        self.files[index].display().to_string()
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let image = read_image(&self.files[index])?;
        Ok(Sample::of(self.name(index), self.part, Datum::Image(image)))
    }
}

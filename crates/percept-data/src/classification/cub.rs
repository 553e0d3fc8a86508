//! The layout of CUB-200-2011: four text files beside the folder `images`.
//!
//! | file | a line |
//! |---|---|
//! | `classes.txt` | class id, name |
//! | `images.txt` | image id, path below `images` |
//! | `image_class_labels.txt` | image id, class id |
//! | `train_test_split.txt` | image id, 1 for training or 0 for testing |

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{DatasetError, ImageFile, ImageFiles, SplitImages};

/// The most bytes of a text file that are read; the longest of CUB-200-2011 has 0.8 MB.
const MOST_BYTES: u64 = 64 << 20;

/// Reads the lists below `root` and checks that they agree with each other and with the files on the disk.
///
/// Labels follow the ascending ids of classes.
pub fn read_cub(root: &Path) -> Result<SplitImages, DatasetError> {
    let table = |name: &str, row| Table::read(root.join(name), row);
    let classes = table("classes.txt", "a class id and a name")?;
    let images = table("images.txt", "an image id and a relative path")?;
    let labels = table("image_class_labels.txt", "an image id and a class id")?;
    let splits = table("train_test_split.txt", "an image id and 0 or 1")?;

    let places: BTreeMap<u32, usize> = classes.rows.keys().copied().zip(0..).collect();
    let mut parts = [Vec::new(), Vec::new()];
    for (&id, row) in &images.rows {
        let path = Path::new(&row.value);
        let is_below = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_below {
            return Err(images.bad_line(row));
        }
        let path = root.join("images").join(path);
        if !path.is_file() {
            let list = images.path.clone();
            let line = row.line;
            return Err(DatasetError::MissingFile { path, list, line });
        }
        let row = labels.get(id, "image")?;
        let class = row.value.parse().map_err(|_| labels.bad_line(row))?;
        let label = *places
            .get(&class)
            .ok_or_else(|| classes.missing(class, "class"))?;
        let row = splits.get(id, "image")?;
        let part = match row.value.as_str() {
            "1" => 0,
            "0" => 1,
            _ => return Err(splits.bad_line(row)),
        };
        parts[part].push(ImageFile { path, label });
    }
    for list in [&labels, &splits] {
        if let Some(&id) = list.rows.keys().find(|id| !images.rows.contains_key(id)) {
            return Err(images.missing(id, "image"));
        }
    }
    let names: Vec<String> = classes.rows.into_values().map(|row| row.value).collect();
    if names.is_empty() {
        let path = classes.path;
        return Err(DatasetError::NoClasses { path });
    }
    let part = |files, split| ImageFiles::new(root.to_owned(), names.clone(), files, Some(split));
    let [training, testing] = parts;
    Ok(SplitImages {
        training: part(training, "training")?,
        testing: part(testing, "testing")?,
    })
}

/// A text file of lines "id value".
struct Table {
    path: PathBuf,
    rows: BTreeMap<u32, Row>,
    /// What a line holds, for errors.
    row: &'static str,
}

struct Row {
    line: usize,
    value: String,
}

impl Table {
    fn read(path: PathBuf, row: &'static str) -> Result<Self, DatasetError> {
        let bytes = fs::metadata(&path).map_err(DatasetError::io(&path))?.len();
        if bytes > MOST_BYTES {
            let limit = MOST_BYTES;
            return Err(DatasetError::TooLong { path, bytes, limit });
        }
        let content = fs::read(&path).map_err(DatasetError::io(&path))?;
        let mut table = Self {
            path,
            rows: BTreeMap::new(),
            row,
        };
        for (line, text) in content.split(|&byte| byte == b'\n').enumerate() {
            let line = line + 1;
            let text = String::from_utf8_lossy(text);
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            let (id, value) = text
                .split_once(char::is_whitespace)
                .and_then(|(id, value)| Some((id.parse().ok()?, value.trim().to_owned())))
                .ok_or_else(|| table.bad_text(line, text))?;
            if table.rows.insert(id, Row { line, value }).is_some() {
                let path = table.path;
                return Err(DatasetError::Repeated { path, line, id });
            }
        }
        Ok(table)
    }

    fn get(&self, id: u32, what: &'static str) -> Result<&Row, DatasetError> {
        self.rows.get(&id).ok_or_else(|| self.missing(id, what))
    }

    fn missing(&self, id: u32, what: &'static str) -> DatasetError {
        let path = self.path.clone();
        DatasetError::Missing { path, what, id }
    }

    fn bad_line(&self, row: &Row) -> DatasetError {
        self.bad_text(row.line, &row.value)
    }

    fn bad_text(&self, line: usize, text: &str) -> DatasetError {
        DatasetError::BadLine {
            path: self.path.clone(),
            line,
            expected: self.row,
            got: text.chars().take(80).collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::Samples;
    use crate::images::tests::png;

    const FILES: [(&str, &str); 4] = [
        ("classes.txt", "1 001.Auk\n2 002.Black_Bird\n"),
        (
            "images.txt",
            "1 001.Auk/a.png\n2 001.Auk/b.png\n3 002.Black_Bird/c d.png\n4 002.Black_Bird/e.png\n",
        ),
        ("image_class_labels.txt", "1 1\n2 1\n3 2\n4 2\n"),
        ("train_test_split.txt", "1 1\n2 0\n3 0\n4 1\n"),
    ];

    /// Four pictures of two classes, half of them for training.
    pub(in super::super) fn fixture() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in FILES {
            fs::write(folder.path().join(name), text).unwrap();
        }
        for class in ["001.Auk", "002.Black_Bird"] {
            fs::create_dir_all(folder.path().join("images").join(class)).unwrap();
        }
        for line in FILES[1].1.lines() {
            let path = folder.path().join("images").join(&line[2..]);
            fs::write(path, png()).unwrap();
        }
        folder
    }

    #[test]
    fn the_split_and_the_labels_are_read() {
        let folder = fixture();
        let cub = read_cub(folder.path()).unwrap();
        let labels =
            |part: &ImageFiles| -> Vec<usize> { (0..part.len()).map(|i| part.label(i)).collect() };
        assert_eq!(cub.training.classes(), ["001.Auk", "002.Black_Bird"]);
        assert_eq!(
            (labels(&cub.training), labels(&cub.testing)),
            (vec![0, 1], vec![0, 1])
        );
        assert!(cub.testing.name(1).ends_with("c d.png"));
        assert_eq!(cub.testing.image(1).unwrap().height, 23);
    }

    #[test]
    fn every_fault_is_told_with_its_place() {
        // File, its content, what the error must say.
        let table = [
            (
                "images.txt",
                "1 001.Auk/a.png\nx 001.Auk/b.png\n",
                "images.txt:2: expected an image id and a relative path, got \"x 001",
            ),
            (
                "images.txt",
                "1 001.Auk/a.png\n\n1 001.Auk/b.png\n",
                "images.txt:3: the id 1 appears twice",
            ),
            (
                "images.txt",
                "1 ../images/001.Auk/a.png\n",
                "images.txt:1: expected",
            ),
            ("images.txt", "1 /etc/passwd\n", "images.txt:1: expected"),
            (
                "images.txt",
                "7 001.Auk/a.png\n",
                "image_class_labels.txt: the image 7 is missing",
            ),
            (
                "images.txt",
                "1 001.Auk/none.png\n",
                "none.png: no such file, but ",
            ),
            (
                "images.txt",
                "1 001.Auk/a.png\n",
                "images.txt: the image 2 is missing",
            ),
            (
                "image_class_labels.txt",
                "1 1\n2 9\n3 2\n4 2\n",
                "classes.txt: the class 9 is missing",
            ),
            (
                "image_class_labels.txt",
                "1 one\n",
                "image_class_labels.txt:1: expected an image id and a class id, got \"one\"",
            ),
            (
                "train_test_split.txt",
                "1 1\n2 0\n3 2\n4 1\n",
                "train_test_split.txt:3: expected an image id and 0 or 1, got \"2\"",
            ),
            (
                "train_test_split.txt",
                "1 1\n2 1\n3 1\n4 0\n",
                "class `001.Auk` has no images for testing",
            ),
            (
                "classes.txt",
                "1 001.Auk\n2 002.Black_Bird\n3 Ghost\n",
                "class `Ghost` has no images for training",
            ),
            ("classes.txt", "", "classes.txt: the class 1 is missing"),
        ];
        for (name, text, expected) in table {
            let folder = fixture();
            fs::write(folder.path().join(name), text).unwrap();
            let error = read_cub(folder.path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{name} {text:?}: {error}");
        }
        let folder = fixture();
        fs::remove_file(folder.path().join("classes.txt")).unwrap();
        assert!(matches!(
            read_cub(folder.path()),
            Err(DatasetError::Io { .. })
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn damaged_lists_give_an_error_or_a_sound_dataset(
            which in 0usize..4,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let folder = fixture();
            let (name, text) = FILES[which];
            let mut bytes = text.as_bytes().to_vec();
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            fs::write(folder.path().join(name), bytes).unwrap();
            if let Ok(cub) = read_cub(folder.path()) {
                for part in [&cub.training, &cub.testing] {
                    for index in 0..part.len() {
                        prop_assert!(part.label(index) < part.classes().len());
                        prop_assert!(part.image(index).is_ok());
                    }
                }
            }
        }
    }
}

//! What a user names: a path, and perhaps the part of a sample that it holds.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file or folder, of one part of a sample or of whole samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The part, where one is named.
    pub part: Option<String>,
    /// The file or folder.
    pub path: PathBuf,
}

impl FromStr for Given {
    type Err = Infallible;

    /// `PATH` or `PART=PATH`. A file that has an equals sign in its name is itself.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let is_name = |part: &str| {
            let mut letters = part.chars();
            letters.next().is_some_and(|c| c.is_ascii_alphabetic())
                && letters.all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        };
        let (part, path) = match text.split_once('=') {
            Some((part, path)) if is_name(part) && !Path::new(text).exists() => {
                (Some(part.to_owned()), path)
            }
            _ => (None, text),
        };
        Ok(Self {
            part,
            path: PathBuf::from(path),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_in_front_of_their_paths() {
        let rows = [
            ("a.jpg", None, "a.jpg"),
            ("image=a.jpg", Some("image"), "a.jpg"),
            ("source-mask=m=1.png", Some("source-mask"), "m=1.png"),
            ("photos/a=b.jpg", None, "photos/a=b.jpg"),
            ("=a", None, "=a"),
        ];
        for (text, part, path) in rows {
            let given: Given = text.parse().unwrap();
            assert_eq!((given.part.as_deref(), given.path), (part, path.into()));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x=1.jpg");
        std::fs::write(&path, "").unwrap();
        let given: Given = path.to_str().unwrap().parse().unwrap();
        assert_eq!((given.part, given.path), (None, path));
    }
}

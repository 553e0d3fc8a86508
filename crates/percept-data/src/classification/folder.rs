//! One folder a class, as torchvision's `ImageFolder` reads it: classes and files in the order of their names.

use std::fs;
use std::path::{Path, PathBuf};

use super::{DatasetError, ImageFile, ImageFiles};

/// Folders below a class that are looked into; links to folders are not followed there, so there is no way round.
const MOST_LEVELS: usize = 16;

/// What a folder of classes holds.
#[derive(Clone, Debug)]
pub struct FolderListing {
    /// The pictures.
    pub images: ImageFiles,
    /// Files that were passed over because they are neither `.jpg`, `.jpeg` nor `.png`.
    pub ignored: Vec<PathBuf>,
}

/// Lists the pictures of `root/CLASS/**`; hidden files and folders are passed over.
pub fn read_image_folder(root: &Path) -> Result<FolderListing, DatasetError> {
    let (mut classes, mut files, mut ignored) = (Vec::new(), Vec::new(), Vec::new());
    for folder in sorted_entries(root)? {
        if !folder.is_dir() {
            continue;
        }
        let class = name_of(&folder);
        let mut found = Vec::new();
        walk(&folder, MOST_LEVELS, &mut found)?;
        let (images, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|path| is_image(path));
        if images.is_empty() {
            let path = folder;
            let split = None;
            return Err(DatasetError::EmptyClass { path, class, split });
        }
        let label = classes.len();
        files.extend(images.into_iter().map(|path| ImageFile { path, label }));
        ignored.extend(others);
        classes.push(class);
    }
    if classes.is_empty() {
        let path = root.to_owned();
        return Err(DatasetError::NoClasses { path });
    }
    let images = ImageFiles::new(root.to_owned(), classes, files, None)?;
    Ok(FolderListing { images, ignored })
}

fn walk(folder: &Path, levels: usize, found: &mut Vec<PathBuf>) -> Result<(), DatasetError> {
    for path in sorted_entries(folder)? {
        let is_link = path.is_symlink();
        if path.is_file() {
            found.push(path);
        } else if path.is_dir() && !is_link && levels > 0 {
            walk(&path, levels - 1, found)?;
        } else {
            // A dangling link, a link to a folder, a pipe: nothing that can be read as a picture.
            continue;
        }
    }
    Ok(())
}

/// The visible entries of a folder, by name.
fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let entries = fs::read_dir(folder).map_err(DatasetError::io(folder))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(DatasetError::io(folder))?.path();
        if !name_of(&path).starts_with('.') {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["jpg", "jpeg", "png"]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Samples;
    use crate::images::tests::{jpeg, png};

    fn write(root: &Path, files: &[(&str, &[u8])]) {
        for (name, content) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn classes_and_files_stand_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let (jpeg, png) = (jpeg(), png());
        write(
            root,
            &[
                ("sparrow/10.JPG", &jpeg),
                ("sparrow/9.png", &png),
                ("sparrow/more/1.jpeg", &jpeg),
                ("sparrow/.hidden/1.png", &png),
                ("sparrow/notes.txt", b"seen in June"),
                ("auk/1.png", &png),
                (".cache/1.png", &png),
                ("README.md", b"birds"),
            ],
        );
        let listing = read_image_folder(root).unwrap();
        let images = &listing.images;
        assert_eq!(images.classes(), ["auk", "sparrow"]);
        let found: Vec<_> = images
            .files()
            .iter()
            .map(|file| (file.path.strip_prefix(root).unwrap(), file.label))
            .collect();
        let expected = [
            ("auk/1.png", 0),
            ("sparrow/10.JPG", 1),
            ("sparrow/9.png", 1),
            ("sparrow/more/1.jpeg", 1),
        ];
        assert_eq!(
            found,
            expected.map(|(path, label)| (Path::new(path), label))
        );
        assert_eq!(listing.ignored, [root.join("sparrow/notes.txt")]);
        for index in 0..images.len() {
            assert_eq!(
                images.image(index).unwrap().width,
                37,
                "{}",
                images.name(index)
            );
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let error = |root: &Path| read_image_folder(root).unwrap_err().to_string();
        assert!(error(root).contains("no classes"));
        write(root, &[("a/1.png", &png()), ("b/readme", b"")]);
        assert!(
            error(root).ends_with("b: class `b` has no images"),
            "{}",
            error(root)
        );
        assert!(error(&root.join("none")).contains("none: "));
        assert!(error(&root.join("a/1.png")).contains("1.png: "));
    }

    #[cfg(unix)]
    #[test]
    fn links_to_classes_are_followed_and_circles_are_not() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, &[("far/auk/1.png", &png())]);
        fs::create_dir(root.join("near")).unwrap();
        symlink(root.join("far/auk"), root.join("near/auk")).unwrap();
        symlink(root, root.join("far/auk/circle")).unwrap();
        symlink(root.join("gone"), root.join("far/auk/2.png")).unwrap();
        let images = read_image_folder(&root.join("near")).unwrap().images;
        assert_eq!(
            (images.len(), images.classes()),
            (1, &["auk".to_owned()][..])
        );
    }
}

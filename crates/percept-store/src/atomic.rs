//! Files that appear whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::{Builder, NamedTempFile};

/// Writes the file at `path` beside its place and renames it when it is complete.
///
/// On any failure, of `write` or of the disk, an earlier file at `path` stays as it was and the
/// half-written one is removed. On success the file outlives a loss of power: its content and its
/// name are on the disk. A process that is killed leaves a temporary file, which [`remove_leftovers`]
/// finds. A device or pipe (`/dev/stdout`) cannot be renamed over and is
/// written directly.
///
/// ```
/// use std::io::Write;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("answer.txt");
/// percept_store::atomic::write_atomically(&path, |file| write!(file, "{}", 42))?;
/// assert_eq!(std::fs::read_to_string(&path)?, "42");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_atomically<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let mut file = AtomicFile::create(path)?;
    let value = write(&mut file)?;
    file.finish()?;
    Ok(value)
}

/// A file that is written bit by bit and appears at its place when it is finished: [`write_atomically`] for those who cannot
/// write it in one go. Dropped unfinished, it is removed.
#[derive(Debug)]
pub struct AtomicFile {
    writer: BufWriter<Place>,
    target: PathBuf,
}

/// Where bytes go meanwhile.
#[derive(Debug)]
enum Place {
    /// Into a file beside the target.
    Beside(NamedTempFile),
    /// Into a device or pipe.
    Direct(fs::File),
}

impl AtomicFile {
    /// Begins the file that is to be at `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        // Following links first keeps a linked output a link.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_special = |existing: fs::Metadata| !existing.is_file() && !existing.is_dir();
        let place = if fs::metadata(&target).is_ok_and(is_special) {
            Place::Direct(OpenOptions::new().write(true).open(&target)?)
        } else {
            let mut builder = Builder::new();
            builder.prefix(TEMPORARY_PREFIX).suffix(TEMPORARY_SUFFIX);
            #[cfg(unix)]
            {
                // Temporary files are private by default; an output is as public as the user's umask says.
                use std::os::unix::fs::PermissionsExt;
                builder.permissions(fs::Permissions::from_mode(0o666));
            }
            let beside = builder.tempfile_in(folder_of(&target));
            Place::Beside(beside.map_err(without_temporary_name)?)
        };
        Ok(Self {
            writer: BufWriter::with_capacity(1 << 18, place),
            target,
        })
    }

    /// Brings the whole file to its place and to the disk.
    pub fn finish(self) -> io::Result<()> {
        match self.writer.into_inner().map_err(io::Error::from)? {
            Place::Direct(mut file) => file.flush(),
            Place::Beside(temporary) => {
                temporary.as_file().sync_all()?;
                let persisted = temporary.persist(&self.target);
                persisted.map_err(|failed| failed.error)?;
                sync_folder(folder_of(&self.target))
            }
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(file) => file.as_file_mut().write(bytes),
            Self::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Beside(file) => file.as_file_mut().flush(),
            Self::Direct(file) => file.flush(),
        }
    }
}

/// What the system said of a temporary file, without its name: callers name the file that it was to become.
pub fn without_temporary_name(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.rsplit_once(" at path \"") {
        Some((said, _)) if error.raw_os_error().is_none() => {
            io::Error::new(error.kind(), said.to_owned())
        }
        _ => error,
    }
}

fn folder_of(target: &Path) -> &Path {
    match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

const TEMPORARY_PREFIX: &str = ".percept-";
const TEMPORARY_SUFFIX: &str = ".tmp";

/// Removes what killed processes left half-written in `folder`, and says what that was.
///
/// Nobody may be writing there meanwhile.
pub fn remove_leftovers(folder: &Path) -> io::Result<Vec<PathBuf>> {
    remove_old_leftovers(folder, Duration::ZERO)
}

/// [`remove_leftovers`] where others may be writing: removes only what nobody has touched for so long.
pub fn remove_old_leftovers(folder: &Path, age: Duration) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        let is_temporary = name.starts_with(TEMPORARY_PREFIX.as_bytes())
            && name.ends_with(TEMPORARY_SUFFIX.as_bytes())
            && entry.file_type()?.is_file();
        let old = || -> io::Result<bool> {
            let touched = entry.metadata()?.modified()?;
            Ok(touched.elapsed().unwrap_or_default() >= age)
        };
        if is_temporary && (age.is_zero() || old()?) {
            fs::remove_file(entry.path())?;
            removed.push(entry.path());
        }
    }
    removed.sort();
    Ok(removed)
}

/// Brings the names in a folder to the disk: a rename alone may be lost with the power.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied};
    if !cfg!(unix) {
        return Ok(());
    }
    match fs::File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems have no such thing, and some folders can be written but not read.
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        fs::write(&path, "old").unwrap();
        let failed: io::Result<()> = write_atomically(&path, |file| {
            file.write_all(&[0; 1 << 19])?;
            Err(io::Error::other("disk full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "disk full");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(file_names(folder.path()), ["out.bin"]);

        write_atomically(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(file_names(folder.path()), ["out.bin"]);
    }

    #[test]
    fn leftovers_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            ".percept-a1b2.tmp",
            "percept-1.tmp",
            ".percept-x",
            "kept.safetensors",
        ] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::create_dir(folder.path().join(".percept-folder.tmp")).unwrap();
        let young = remove_old_leftovers(folder.path(), Duration::from_secs(3600)).unwrap();
        assert!(young.is_empty());
        let removed = remove_leftovers(folder.path()).unwrap();
        assert_eq!(removed, [folder.path().join(".percept-a1b2.tmp")]);
        assert_eq!(file_names(folder.path()).len(), 4);
        assert!(remove_leftovers(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_folder_in_the_way_and_a_missing_folder_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("taken");
        fs::create_dir(&in_the_way).unwrap();
        assert!(write_atomically(&in_the_way, |file| file.write_all(b"x")).is_err());
        let failed = write_atomically(&folder.path().join("no/such"), |file| file.write_all(b"x"));
        let said = failed.expect_err("there is no folder").to_string();
        assert!(!said.contains(TEMPORARY_PREFIX), "{said}");
        assert!(
            write_atomically(&folder.path().join("no/such"), |file| file.write_all(b"x")).is_err()
        );
        assert_eq!(file_names(folder.path()), ["taken"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_atomically(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        write_atomically(Path::new("/dev/null"), |out| out.write_all(b"gone")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}

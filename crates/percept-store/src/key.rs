//! Keys: what a record was computed from.

use std::fmt;

use crate::StoreError;

/// A sort of content with the version of the code that makes it, for example neighbour lists, version 2.
///
/// A record of another version is not what was asked for: raise it whenever the same inputs give other bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    name: String,
    version: u32,
}

impl Collection {
    /// A kind; its name becomes a folder.
    pub fn new(name: &str, version: u32) -> Result<Collection, StoreError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > 32 || !name.bytes().all(fits) {
            return Err(StoreError::Collection {
                kind: name.to_owned(),
            });
        }
        Ok(Collection {
            name: name.to_owned(),
            version,
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version.
    pub fn version(&self) -> u32 {
        self.version
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name, self.version)
    }
}

/// The hash of everything that a record depends on. Shown as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) [u8; Key::BYTES]);

impl Key {
    /// Length of a key.
    pub const BYTES: usize = 32;

    /// Starts a key.
    pub fn of() -> KeyBuilder {
        KeyBuilder(blake3::Hasher::new())
    }

    /// Reads the digits that [`Key`] is shown as.
    pub(crate) fn parse(digits: &str) -> Option<Key> {
        Some(Key(*blake3::Hash::from_hex(digits).ok()?.as_bytes()))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key in the making.
///
/// ```
/// use percept_store::Key;
/// let points = [[0.0f32, 1.0, 2.0]];
/// let key = Key::of().part(points.as_flattened()).part(&[16u32]).finish();
/// assert_ne!(key, Key::of().part(points.as_flattened()).part(&[8u32]).finish());
/// ```
#[derive(Clone, Debug)]
pub struct KeyBuilder(blake3::Hasher);

impl KeyBuilder {
    /// Adds plain numbers or bytes. Lengths count too, so neighbouring parts cannot run into each other.
    pub fn part<T: bytemuck::NoUninit>(mut self, values: &[T]) -> KeyBuilder {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        let key = |parts: &[&str]| {
            let add = |key: KeyBuilder, part: &&str| key.part(part.as_bytes());
            parts.iter().fold(Key::of(), add).finish()
        };
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["ab"]), key(&["ab", ""]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
    }

    #[test]
    fn keys_are_read_as_they_are_shown() {
        let key = Key::of().part(&[1.5f32]).finish();
        assert_eq!(Key::parse(&key.to_string()), Some(key));
        assert_eq!(Key::parse("12"), None);
    }

    #[test]
    fn kinds_must_name_a_folder() {
        assert!(Collection::new("knn-16", 1).is_ok());
        for name in ["", "..", "a/b", "Knn", "ü", &"x".repeat(33)] {
            let refused = Collection::new(name, 1);
            assert!(
                matches!(refused, Err(StoreError::Collection { .. })),
                "{name}"
            );
        }
    }
}

//! Writing PLY: points with colours and numbers of each, as viewers show them.

use std::io::{self, Write};
use std::path::Path;

use crate::atomic::write_atomically;
use crate::points::error::PointsError;

/// Points, and what is known of each.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlyPoints<'a> {
    /// Metres.
    pub positions: &'a [[f32; 3]],
    /// Red, green and blue of each point; none to leave colours out.
    pub colours: Option<&'a [[u8; 3]]>,
    /// Named numbers of each point, e.g. `label`.
    pub scalars: &'a [(&'a str, &'a [f32])],
}

/// Writes `points` as the vertices of a binary PLY file, beside and renamed.
pub fn write_ply(path: &Path, points: &PlyPoints<'_>) -> Result<(), PointsError> {
    points.check(path)?;
    write_atomically(path, |file| points.write(file))
        .map_err(|source| PointsError::io(path, source))
}

impl PlyPoints<'_> {
    fn check(&self, path: &Path) -> Result<(), PointsError> {
        let count = self.positions.len();
        let one_each = |what: &str, found: usize| {
            if found == count {
                return Ok(());
            }
            let what = format!("{found} values of {what} for {count} points");
            Err(PointsError::invalid(path, what))
        };
        self.colours
            .map_or(Ok(()), |c| one_each("colour", c.len()))?;
        for (name, values) in self.scalars {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                let what = format!("{name:?} cannot be the name of a property");
                return Err(PointsError::invalid(path, what));
            }
            one_each(name, values.len())?;
        }
        Ok(())
    }

    fn write(&self, file: &mut dyn Write) -> io::Result<()> {
        writeln!(file, "ply\nformat binary_little_endian 1.0")?;
        writeln!(file, "element vertex {}", self.positions.len())?;
        for axis in ["x", "y", "z"] {
            writeln!(file, "property float {axis}")?;
        }
        if self.colours.is_some() {
            for channel in ["red", "green", "blue"] {
                writeln!(file, "property uchar {channel}")?;
            }
        }
        for (name, _) in self.scalars {
            writeln!(file, "property float {name}")?;
        }
        writeln!(file, "end_header")?;
        for (index, position) in self.positions.iter().enumerate() {
            for value in position {
                file.write_all(&value.to_le_bytes())?;
            }
            if let Some(colours) = self.colours {
                file.write_all(&colours[index])?;
            }
            for (_, values) in self.scalars {
                file.write_all(&values[index].to_le_bytes())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::read_points;

    const POINTS: PlyPoints<'_> = PlyPoints {
        positions: &[[1.0, 2.0, 3.0], [-4.0, 0.5, 0.0]],
        colours: Some(&[[255, 0, 7], [1, 2, 3]]),
        scalars: &[("label", &[9.0, 19.0]), ("intensity", &[40.0, 80.0])],
    };

    #[test]
    fn written_points_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        write_ply(&path, &POINTS).unwrap();
        let cloud = read_points(&path, None).unwrap();
        assert_eq!(
            cloud.values,
            [1.0, 2.0, 3.0, 40.0, 0.0, -4.0, 0.5, 0.0, 80.0, 0.0]
        );
        let file = std::fs::read(&path).unwrap();
        let header = "ply\nformat binary_little_endian 1.0\nelement vertex 2\nproperty float x\nproperty float y\n\
            property float z\nproperty uchar red\nproperty uchar green\nproperty uchar blue\nproperty float label\n\
            property float intensity\nend_header\n";
        let rows = file.strip_prefix(header.as_bytes()).unwrap();
        assert_eq!(rows.len(), 2 * (12 + 3 + 8));
        assert_eq!(rows[12..15], [255, 0, 7]);
        assert_eq!(rows[15..19], 9f32.to_le_bytes());

        write_ply(&path, &PlyPoints::default()).unwrap();
        assert!(read_points(&path, None).unwrap().is_empty());
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ply");
        for (broken, expected) in [
            (
                PlyPoints {
                    colours: Some(&[[0; 3]]),
                    ..POINTS
                },
                "1 values of colour for 2 points",
            ),
            (
                PlyPoints {
                    scalars: &[("label", &[])],
                    ..POINTS
                },
                "0 values of label for 2 points",
            ),
            (
                PlyPoints {
                    scalars: &[("my label", &[0.0; 2])],
                    ..POINTS
                },
                "my label",
            ),
        ] {
            let error = write_ply(&path, &broken).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!path.exists());
        }
    }
}

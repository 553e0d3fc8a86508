use std::path::Path;

use super::error::{PointsError, read_bytes};
use crate::atomic::write_atomically;

/// A point's truth in SemanticKITTI's coding: what it is, and of which object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PointLabel {
    /// SemanticKITTI's raw class id (0 unlabelled, 10 car, 40 road, 252 moving car, ...).
    pub class: u16,
    /// The object, the same in every scan of a sequence; 0 for things that are not objects.
    pub instance: u16,
}

impl PointLabel {
    /// From a `.label` word: class in the low half, instance in the high half.
    pub fn from_word(word: u32) -> Self {
        Self {
            class: (word & 0xffff) as u16,
            instance: (word >> 16) as u16,
        }
    }

    /// The `.label` word.
    pub fn to_word(self) -> u32 {
        u32::from(self.class) | u32::from(self.instance) << 16
    }

    /// The class among the 19 that networks learn, 1..=19; 0 for everything that is left out.
    pub fn learned_class(self) -> u8 {
        match self.class {
            10 | 252 => 1,
            11 => 2,
            15 => 3,
            18 | 258 => 4,
            13 | 16 | 20 | 256 | 257 | 259 => 5,
            30 | 254 => 6,
            31 | 253 => 7,
            32 | 255 => 8,
            40 | 60 => 9,
            44 => 10,
            48 => 11,
            49 => 12,
            50 => 13,
            51 => 14,
            70 => 15,
            71 => 16,
            72 => 17,
            80 => 18,
            81 => 19,
            _ => 0,
        }
    }
}

/// The raw id that the public tools write for each learned class.
pub const LEARNED_CLASS_IDS: [u16; 20] = [
    0, 10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81,
];

/// The names of the learned classes; index 0 is what is left out.
pub const LEARNED_CLASS_NAMES: [&str; 20] = [
    "unlabeled",
    "car",
    "bicycle",
    "motorcycle",
    "truck",
    "other-vehicle",
    "person",
    "bicyclist",
    "motorcyclist",
    "road",
    "parking",
    "sidewalk",
    "other-ground",
    "building",
    "fence",
    "vegetation",
    "trunk",
    "terrain",
    "pole",
    "traffic-sign",
];

/// Reads a `.label` file: one little-endian u32 a point.
pub fn read_labels(path: &Path) -> Result<Vec<PointLabel>, PointsError> {
    let bytes = read_bytes(path)?;
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(PointsError::PartialRow {
            path: path.to_path_buf(),
            bytes: bytes.len(),
            row_bytes: 4,
            rows: "labels",
        });
    }
    Ok(words
        .iter()
        .map(|word| PointLabel::from_word(u32::from_le_bytes(*word)))
        .collect())
}

/// Reads the labels of a cloud of `points` points.
pub fn read_labels_for(path: &Path, points: usize) -> Result<Vec<PointLabel>, PointsError> {
    let labels = read_labels(path)?;
    if labels.len() != points {
        return Err(PointsError::LabelCount {
            path: path.to_path_buf(),
            labels: labels.len(),
            points,
        });
    }
    Ok(labels)
}

/// The bytes of a `.label` file.
pub fn encode_labels(labels: &[PointLabel]) -> Vec<u8> {
    labels
        .iter()
        .flat_map(|label| label.to_word().to_le_bytes())
        .collect()
}

/// Writes a `.label` file, beside and renamed.
pub fn write_labels(path: &Path, labels: &[PointLabel]) -> Result<(), PointsError> {
    write_atomically(path, |file| file.write_all(&encode_labels(labels)))
        .map_err(|source| PointsError::io(path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_files_round_trip_and_must_fit_their_cloud() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000000.label");
        let labels = [10, 252 | 7 << 16, u32::MAX].map(PointLabel::from_word);
        write_labels(&path, &labels).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[4..8], [252, 0, 7, 0]);
        assert_eq!(read_labels_for(&path, 3).unwrap(), labels);
        assert!(matches!(
            read_labels_for(&path, 4),
            Err(PointsError::LabelCount {
                labels: 3,
                points: 4,
                ..
            })
        ));
        std::fs::write(&path, [0; 7]).unwrap();
        assert!(matches!(
            read_labels(&path),
            Err(PointsError::PartialRow { bytes: 7, .. })
        ));
    }

    #[test]
    fn words_round_trip() {
        for word in [0, 10, 252 | 7 << 16, u32::MAX] {
            assert_eq!(PointLabel::from_word(word).to_word(), word);
        }
    }

    #[test]
    fn learned_classes_follow_the_published_map() {
        let learned = |class| PointLabel { class, instance: 0 }.learned_class();
        let left_out = [0, 1, 52, 99, 12345];
        assert!(left_out.into_iter().all(|raw| learned(raw) == 0));
        let still = [
            10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81,
        ];
        for (index, raw) in still.into_iter().enumerate() {
            assert_eq!(usize::from(learned(raw)), index + 1);
            assert_eq!(LEARNED_CLASS_IDS[index + 1], raw);
        }
        assert_eq!(
            [252, 253, 254, 255, 256, 257, 258, 259].map(learned),
            [1, 7, 6, 8, 5, 5, 4, 5]
        );
    }
}

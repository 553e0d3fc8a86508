//! `.npy` arrays of whole numbers, as point labels and class indices are kept: u16 and u32 are no element types of
//! tensors, so they have functions of their own.

use std::path::Path;

use super::ArrayFault;
use super::npy::{encode_header_of, split_npy, unsupported, wrong};
use crate::atomic::write_atomically;
use crate::error::FileError;

/// A whole number that numpy knows.
pub trait NpyInteger: bytemuck::NoUninit {
    /// numpy's name of the type.
    const DESCR: &'static str;
}

impl NpyInteger for u16 {
    const DESCR: &'static str = "<u2";
}

impl NpyInteger for u32 {
    const DESCR: &'static str = "<u4";
}

/// Writes `values` as a `.npy` array of one axis, beside and renamed.
pub fn write_npy_integers<T: NpyInteger>(path: &Path, values: &[T]) -> Result<(), FileError> {
    let header =
        encode_header_of(T::DESCR, &[values.len()]).map_err(|fault| FileError::new(path, fault))?;
    write_atomically(path, |file| {
        file.write_all(&header)?;
        file.write_all(bytemuck::cast_slice(values))
    })
    .map_err(|error| FileError::new(path, error))
}

/// Reads a `.npy` array of whole numbers of any width, in file order; negative ones and those beyond u32 are refused.
pub fn read_npy_integers(path: &Path) -> Result<Vec<u32>, FileError> {
    let file = std::fs::read(path).map_err(|error| FileError::new(path, error))?;
    parse_integers(&file).map_err(|fault| FileError::new(path, fault))
}

fn parse_integers(file: &[u8]) -> Result<Vec<u32>, ArrayFault> {
    let (header, data) = split_npy(file)?;
    let widened = |bytes: &[u8], is_signed: bool| {
        let negative = is_signed && bytes.last().is_some_and(|&high| high & 0x80 != 0);
        let mut word = [if negative { 0xff } else { 0 }; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        i64::from_le_bytes(word)
    };
    let (element_bytes, is_signed) = match header.descr {
        "|u1" | "<u1" => (1, false),
        "<u2" => (2, false),
        "<u4" => (4, false),
        "|i1" | "<i1" => (1, true),
        "<i2" => (2, true),
        "<i4" => (4, true),
        "<i8" => (8, true),
        descr => {
            return Err(unsupported(format!(
                "the element type {descr} for whole numbers"
            )));
        }
    };
    if header.fortran_order && header.shape.len() > 1 {
        return Err(unsupported("Fortran's order for whole numbers".to_owned()));
    }
    let elements = header
        .shape
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size));
    let bytes = elements.and_then(|elements| elements.checked_mul(element_bytes));
    if bytes != Some(data.len()) {
        return Err(wrong("the shape does not fit the length of the file"));
    }
    let value = |bytes: &[u8]| {
        let value = widened(bytes, is_signed);
        u32::try_from(value).map_err(|_| unsupported(format!("the label {value}")))
    };
    data.chunks_exact(element_bytes).map(value).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn array(descr: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
        let mut file = encode_header_of(descr, shape).unwrap();
        file.extend(data);
        file
    }

    #[test]
    fn labels_of_both_widths_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.npy");
        for count in [0u16, 1, 1000] {
            let narrow: Vec<u16> = (0..count).map(|i| u16::MAX - i).collect();
            write_npy_integers(&path, &narrow).unwrap();
            let wide: Vec<u32> = narrow.iter().map(|&v| v.into()).collect();
            assert_eq!(read_npy_integers(&path).unwrap(), wide);
            let wide: Vec<u32> = wide.iter().map(|v| v << 16).collect();
            write_npy_integers(&path, &wide).unwrap();
            assert_eq!(read_npy_integers(&path).unwrap(), wide);
        }
        // The header that numpy writes for an array of u16.
        write_npy_integers(&path, &[7u16, 8]).unwrap();
        let file = std::fs::read(&path).unwrap();
        let dict = b"{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }";
        assert_eq!(file[10..10 + dict.len()], *dict);
        assert_eq!(file[file.len() - 4..], [7, 0, 8, 0]);
        assert_eq!(file.len(), 128 + 4);
    }

    #[test]
    fn integers_of_other_hands_are_read_or_refused() {
        assert_eq!(
            parse_integers(&array("<i8", &[1], &5i64.to_le_bytes())).unwrap(),
            [5]
        );
        assert_eq!(
            parse_integers(&array("|u1", &[2, 1], &[1, 255])).unwrap(),
            [1, 255]
        );
        let negative = array("<i4", &[1], &(-1i32).to_le_bytes());
        let large = array("<i8", &[1], &(1i64 << 32).to_le_bytes());
        for (file, expected) in [
            (negative, "-1"),
            (large, "4294967296"),
            (array("<f4", &[1], &[0; 4]), "<f4"),
            (array("<u2", &[3], &[0; 4]), "the shape does not fit"),
            (
                array("<u2", &[usize::MAX, 2], &[0; 4]),
                "the shape does not fit",
            ),
            (b"PK".to_vec(), "not an npy file"),
        ] {
            let error = parse_integers(&file).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn damage_is_told_or_gives_as_many_values_as_fit(
            at in any::<prop::sample::Index>(), byte: u8, cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut file = array("<u4", &[5], &[1; 20]);
            let at = at.index(file.len());
            file[at] = byte;
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            if let Ok(values) = parse_integers(&file) {
                prop_assert!(values.len() <= file.len());
            }
        }
    }
}

//! `.npy`: a magic number, a Python dict literal as header, and the elements.

use std::borrow::Cow;
use std::path::Path;

use super::ArrayFault;
use crate::atomic::write_atomically;
use crate::error::{FileError, describe_content};
use percept_graph::{DType, Tensor, byte_length};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The data begins at a multiple of this, as numpy writes it.
const ALIGNMENT: usize = 64;

/// Reads the array of a `.npy` file. Fortran-ordered arrays are brought into row-major order.
pub fn read_npy(path: &Path) -> Result<Tensor<'static>, FileError> {
    let file = std::fs::read(path).map_err(|error| FileError::new(path, error))?;
    let tensor = parse_npy(&file).map_err(|fault| FileError::new(path, fault))?;
    Ok(tensor.into_owned())
}

/// Writes `tensor` as a `.npy` file, beside and renamed.
pub fn write_npy(path: &Path, tensor: &Tensor<'_>) -> Result<(), FileError> {
    let header = encode_header(tensor).map_err(|fault| FileError::new(path, fault))?;
    write_atomically(path, |file| {
        file.write_all(&header)?;
        file.write_all(tensor.bytes())
    })
    .map_err(|error| FileError::new(path, error))
}

/// Parses a whole npy file.
pub(super) fn parse_npy(file: &[u8]) -> Result<Tensor<'_>, ArrayFault> {
    let (
        Header {
            descr,
            fortran_order,
            shape,
        },
        data,
    ) = split_npy(file)?;
    let dtype =
        dtype_described(descr).ok_or_else(|| unsupported(format!("the element type {descr}")))?;
    let expected = byte_length(dtype, &shape).unwrap_or(usize::MAX);
    if expected != data.len() {
        let (array, found) = (String::new(), data.len());
        return Err(ArrayFault::Length {
            array,
            dtype,
            shape,
            expected,
            found,
        });
    }
    let bytes = if fortran_order && shape.len() > 1 {
        Cow::Owned(to_row_major(data, &shape, dtype.size_bytes()))
    } else {
        Cow::Borrowed(data)
    };
    Tensor::new(dtype, shape, bytes).map_err(|_| wrong("shape and data disagree"))
}

/// The header of an npy file and the data behind it, which is not yet checked against it.
pub(super) fn split_npy(file: &[u8]) -> Result<(Header<'_>, &[u8]), ArrayFault> {
    let Some(rest) = file.strip_prefix(MAGIC) else {
        let found = describe_content(file);
        return Err(ArrayFault::WrongFormat {
            expected: "an npy file",
            found,
        });
    };
    let cut = || wrong("the header is cut off");
    let (&[major, _minor], rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _ => return Err(unsupported(format!("format version {major}"))),
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = str::from_utf8(header).map_err(|_| wrong("the header is not text"))?;
    let header = HeaderParser { rest: header }
        .parse()
        .ok_or_else(|| wrong("the header is not the dict of descr, fortran_order and shape"))?;
    Ok((header, data))
}

pub(super) fn wrong(reason: &'static str) -> ArrayFault {
    ArrayFault::Header {
        array: String::new(),
        reason,
    }
}

pub(super) fn unsupported(what: String) -> ArrayFault {
    ArrayFault::Unsupported {
        array: String::new(),
        what,
    }
}

/// Everything of an npy file that stands before the data.
pub(super) fn encode_header(tensor: &Tensor<'_>) -> Result<Vec<u8>, ArrayFault> {
    let descr = match tensor.dtype() {
        DType::F64 => "<f8",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::BF16 => {
            return Err(unsupported(
                "the element type bf16, which numpy does not have,".to_owned(),
            ));
        }
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::Bool => "|b1",
    };
    encode_header_of(descr, tensor.shape())
}

/// Everything that stands before the data of an array of numpy's type `descr`.
pub(super) fn encode_header_of(descr: &str, shape: &[usize]) -> Result<Vec<u8>, ArrayFault> {
    let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
    // Python writes a tuple of one with its comma, longer ones without the last.
    let shape = if shape.len() == 1 {
        sizes.trim_end()
    } else {
        sizes.trim_end_matches(", ")
    };
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let prefix = MAGIC.len() + 4;
    let length = (prefix + dict.len() + 1).next_multiple_of(ALIGNMENT) - prefix;
    let Ok(short_length) = u16::try_from(length) else {
        return Err(unsupported("a shape of this many axes".to_owned()));
    };
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend(short_length.to_le_bytes());
    header.extend(dict.as_bytes());
    header.resize(prefix + length - 1, b' ');
    header.push(b'\n');
    Ok(header)
}

pub(super) fn dtype_described(descr: &str) -> Option<DType> {
    Some(match descr {
        "<f8" => DType::F64,
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "|i1" | "<i1" => DType::I8,
        "|u1" | "<u1" => DType::U8,
        "<i2" => DType::I16,
        "<i4" => DType::I32,
        "<i8" => DType::I64,
        "|b1" | "<b1" => DType::Bool,
        _ => return None,
    })
}

fn to_row_major(data: &[u8], shape: &[usize], element_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len());
    let mut position = vec![0; shape.len()];
    for _ in 0..data.len() / element_bytes {
        let at = position
            .iter()
            .zip(shape)
            .rev()
            .fold(0, |at, (index, size)| at * size + index);
        bytes.extend_from_slice(&data[at * element_bytes..(at + 1) * element_bytes]);
        for (index, &size) in position.iter_mut().zip(shape).rev() {
            *index += 1;
            if *index < size {
                break;
            }
            *index = 0;
        }
    }
    bytes
}

/// The dict at the beginning of an npy file.
pub(super) struct Header<'a> {
    pub(super) descr: &'a str,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<usize>,
}

/// Parses the one kind of dict literal that npy headers hold, keys in any order.
struct HeaderParser<'a> {
    rest: &'a str,
}

impl<'a> HeaderParser<'a> {
    fn parse(mut self) -> Option<Header<'a>> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect("{")?;
        while self.expect("}").is_none() {
            let key = self.quoted()?;
            self.expect(":")?;
            let is_new = match key {
                "descr" => descr.replace(self.descr()?).is_none(),
                "fortran_order" => fortran_order.replace(self.boolean()?).is_none(),
                "shape" => shape.replace(self.shape()?).is_none(),
                _ => false,
            };
            if !is_new || (self.expect(",").is_none() && !self.rest.trim_start().starts_with('}')) {
                return None;
            }
        }
        let complete = self.rest.trim().is_empty();
        Some(Header {
            descr: descr?,
            fortran_order: fortran_order?,
            shape: shape?,
        })
        .filter(|_| complete)
    }

    fn expect(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(token)?;
        Some(())
    }

    fn quoted(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let quote = rest
            .chars()
            .next()
            .filter(|first| matches!(first, '\'' | '"'))?;
        let (text, rest) = rest[1..].split_once(quote)?;
        self.rest = rest;
        Some(text)
    }

    /// A type code, or the list of fields of a structured type, which is kept as it is to be named in the error.
    fn descr(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        if !rest.starts_with('[') {
            return self.quoted();
        }
        let end = rest.rfind(']')? + 1;
        // Nested field lists end at the bracket before the next key.
        let end = rest.find("], 'fortran_order'").map_or(end, |at| at + 1);
        self.rest = &rest[end..];
        Some(&rest[..end])
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.expect("True") {
            Some(()) => Some(true),
            None => self.expect("False").map(|()| false),
        }
    }

    fn shape(&mut self) -> Option<Vec<usize>> {
        self.expect("(")?;
        let (sizes, rest) = self.rest.split_once(')')?;
        self.rest = rest;
        let sizes = sizes.trim();
        if sizes.is_empty() {
            return Some(Vec::new());
        }
        let sizes = sizes.strip_suffix(',').unwrap_or(sizes);
        // Python 2 wrote long integers with an L.
        sizes
            .split(',')
            .map(|size| size.trim().trim_end_matches('L').parse().ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn npy(dict: &str, data: &[u8]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend([1, 0]);
        file.extend((dict.len() as u16).to_le_bytes());
        file.extend(dict.as_bytes());
        file.extend(data);
        file
    }

    #[test]
    fn headers_of_many_hands_are_read() {
        let data: Vec<u8> = (0..6).collect();
        let table: [(&str, &[usize]); 6] = [
            (
                "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }  \n",
                &[2, 3],
            ),
            (
                "{\"shape\":(6,),\"fortran_order\":False,\"descr\":\"|u1\"}",
                &[6],
            ),
            (
                "{'descr': '<i1', 'fortran_order': False, 'shape': (2L, 3L), }",
                &[2, 3],
            ),
            (
                "{'descr': '|b1', 'fortran_order': True, 'shape': (6,), }",
                &[6],
            ),
            (
                "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 1), }",
                &[3, 1],
            ),
            (
                "{ 'descr' : '|u1' , 'fortran_order' : False , 'shape' : ( 1 , 6 ) }",
                &[1, 6],
            ),
        ];
        for (dict, shape) in table {
            let file = npy(dict, &data);
            let tensor = parse_npy(&file).unwrap_or_else(|fault| panic!("{dict}: {fault}"));
            assert_eq!(
                (tensor.shape(), tensor.bytes()),
                (shape, &data[..]),
                "{dict}"
            );
        }
        let scalar = npy(
            "{'descr': '<f8', 'fortran_order': False, 'shape': (), }",
            &7f64.to_le_bytes(),
        );
        assert_eq!(*parse_npy(&scalar).unwrap().to_f64(), [7.0]);
    }

    #[test]
    fn bad_headers_are_told() {
        let table = [
            (
                "{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }",
                "needs 7 bytes, the file holds 6",
            ),
            (
                "{'descr': '<f8', 'fortran_order': False, 'shape': (4000000000000,), }",
                "needs 32000000000000 bytes",
            ),
            (
                "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
                "corrupt npy",
            ),
            (
                "{'descr': '|u1', 'fortran_order': False, 'shape': (-6,), }",
                "not the dict",
            ),
            (
                "{'descr': '|u1', 'fortran_order': Maybe, 'shape': (6,), }",
                "not the dict",
            ),
            ("{'descr': '|u1', 'shape': (6,), }", "not the dict"),
            (
                "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (6,), }",
                "not the dict",
            ),
            (
                "{'descr': '|u1', 'fortran_order': False, 'shape': (6,), } x",
                "not the dict",
            ),
            (
                "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",
                "element type >f4 is not supported",
            ),
            (
                "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
                "element type |O is not supported",
            ),
            (
                "{'descr': [('x', '<f4'), ('y', '<f4')], 'fortran_order': False, 'shape': (1,), }",
                "[('x', '<f4'), ('y', '<f4')] is not supported",
            ),
        ];
        for (dict, expected) in table {
            let error = parse_npy(&npy(dict, &[0; 6])).unwrap_err().to_string();
            assert!(error.contains(expected), "{dict}: {error}");
        }
        assert!(
            parse_npy(b"PK\x03\x04")
                .unwrap_err()
                .to_string()
                .contains("a zip archive")
        );
        assert!(
            parse_npy(b"\x93NUMPY\x09\x00")
                .unwrap_err()
                .to_string()
                .contains("format version 9")
        );
    }

    #[test]
    fn bf16_has_no_npy_form() {
        let tensor = Tensor::new(DType::BF16, vec![1], vec![0, 0]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.npy");
        assert!(
            write_npy(&path, &tensor)
                .unwrap_err()
                .to_string()
                .contains("bf16")
        );
        assert!(!path.exists());
    }

    proptest! {
        #[test]
        fn written_arrays_are_read_back(shape in prop::collection::vec(0usize..5, 0..5)) {
            let values: Vec<i64> = (0..shape.iter().product::<usize>() as i64).collect();
            let tensor = Tensor::from_values(shape, &values).unwrap();
            let header = encode_header(&tensor).unwrap();
            prop_assert_eq!(header.len() % ALIGNMENT, 0);
            let file = [&header[..], tensor.bytes()].concat();
            prop_assert_eq!(parse_npy(&file).unwrap(), tensor);
        }

        #[test]
        fn damaged_files_give_an_error_or_an_array(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut file = npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", &[7; 24]);
            for (at, byte) in flips {
                let at = at.index(file.len());
                file[at] = byte;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            if let Ok(tensor) = parse_npy(&file) {
                prop_assert!(tensor.bytes().len() <= file.len());
            }
        }
    }
}

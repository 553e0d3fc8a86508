//! Stacks of byte planes, one plane at a time: a stack of masks of a few kilobytes can be gigabytes when it is expanded.

use std::io::Read;

use super::ArrayFault;
use super::npy::{dtype_described, split_npy, unsupported, wrong};
use percept_graph::DType;

/// An npy array [N, H, W] or [H, W] of bytes or booleans, read plane by plane.
pub(crate) struct Planes<R> {
    file: R,
    /// Planes.
    pub(crate) count: usize,
    /// Rows of a plane.
    pub(crate) height: usize,
    /// Columns of a plane.
    pub(crate) width: usize,
    plane: Vec<u8>,
}

impl<R: Read> Planes<R> {
    /// Reads the header. No plane is read, so who asks for one has judged its size.
    pub(crate) fn open(mut file: R) -> Result<Self, ArrayFault> {
        // Magic number, version, and the length of the rest, which has two bytes in the one version that numpy writes for
        // headers of less than 64 KB.
        let mut header = vec![0; 10];
        let cut = |_| wrong("the header is cut off");
        file.read_exact(&mut header).map_err(cut)?;
        if header[6] == 1 {
            let length = usize::from(u16::from_le_bytes([header[8], header[9]]));
            header.resize(10 + length, 0);
            file.read_exact(&mut header[10..]).map_err(cut)?;
        }
        let (header, _) = split_npy(&header)?;
        if !matches!(dtype_described(header.descr), Some(DType::U8 | DType::Bool)) {
            let what = format!("the element type {} for masks", header.descr);
            return Err(unsupported(what));
        }
        let (count, height, width) = match header.shape[..] {
            [height, width] => (1, height, width),
            [count, height, width] => (count, height, width),
            ref shape => return Err(unsupported(format!("the shape {shape:?} for masks"))),
        };
        if header.fortran_order {
            return Err(unsupported("Fortran's order for masks".to_owned()));
        }
        Ok(Self {
            file,
            count,
            height,
            width,
            plane: Vec::new(),
        })
    }

    /// The next plane, row by row.
    pub(crate) fn next_plane(&mut self) -> Result<&[u8], ArrayFault> {
        self.plane.resize(self.height.saturating_mul(self.width), 0);
        self.file
            .read_exact(&mut self.plane)
            .map_err(|_| wrong("the data ends before the last plane"))?;
        Ok(&self.plane)
    }

    /// What follows the planes that were read.
    pub(crate) fn into_rest(self) -> R {
        self.file
    }
}

#[cfg(test)]
mod tests {
    use super::super::npy::encode_header_of;
    use super::*;

    fn file(descr: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
        let mut file = encode_header_of(descr, shape).unwrap();
        file.extend(data);
        file
    }

    #[test]
    fn planes_come_one_by_one() {
        let file = file("|b1", &[2, 1, 3], &[0, 1, 0, 1, 1, 0]);
        let mut planes = Planes::open(&file[..]).unwrap();
        assert_eq!((planes.count, planes.height, planes.width), (2, 1, 3));
        assert_eq!(planes.next_plane().unwrap(), [0, 1, 0]);
        assert_eq!(planes.next_plane().unwrap(), [1, 1, 0]);
        let fault = planes.next_plane().unwrap_err().to_string();
        assert!(fault.contains("ends before the last plane"), "{fault}");
        assert!(planes.into_rest().is_empty());
    }

    #[test]
    fn other_arrays_are_refused() {
        for (file, expected) in [
            (file("<f4", &[2, 2], &[0; 16]), "the element type <f4"),
            (file("|u1", &[4], &[0; 4]), "the shape [4]"),
            (b"\x93NUMPY".to_vec(), "the header is cut off"),
            (
                b"\x93NUMPY\x01\x00\xff\xff{}".to_vec(),
                "the header is cut off",
            ),
            (b"\x93NUMPY\x07\x00\xff\xff{}".to_vec(), "format version 7"),
            (
                b"PK\x03\x04......".to_vec(),
                "not an npy file: a zip archive",
            ),
        ] {
            let fault = Planes::open(&file[..]).err().unwrap().to_string();
            assert!(fault.contains(expected), "{fault}");
        }
    }
}

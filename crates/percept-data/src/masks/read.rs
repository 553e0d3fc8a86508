//! Files of masks: stacks in npz and npy files, PNG pictures, COCO's JSON, and folders of them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use percept_kernels::MappedFile;

use super::coco_json::parse_coco_json;
use super::rle::checked_size;
use super::{MaskFault, Rle};
use crate::arrays::{ArrayFault, Planes};
use crate::error::{Fault, FileError, describe_content};
use crate::images::decode_image;
use crate::zip::ZipDirectory;

/// Most ends of runs of one file: 256 MB. A stack that a short file expands to is bounded by them.
const MAX_EDGES: usize = 1 << 26;

/// The masks of a file, all of one size, in their order; or of a folder of such files, in the order of their names.
///
/// | file | masks |
/// |---|---|
/// | `.npz`, `.npy` | an array [N, H, W] or [H, W] of u8 or bool; of several arrays that named `masks` or `arr_0` |
/// | `.png`, `.jpg` | one: what is not black |
/// | `.json` | an RLE, a list of them, a list of annotations or a dataset as COCO writes them, of one image |
pub fn read_masks(path: &Path) -> Result<Vec<Rle>, FileError> {
    let metadata = fs::metadata(path).map_err(|error| FileError::new(path, error))?;
    if !metadata.is_dir() {
        return read_file(path);
    }
    let mut masks: Vec<Rle> = Vec::new();
    for file in files_of(path)? {
        let of_file = read_file(&file)?;
        check_one_size(masks.first().into_iter().chain(&of_file))
            .map_err(|fault| FileError::new(&file, fault))?;
        masks.extend(of_file);
    }
    if masks.is_empty() {
        return Err(FileError::new(path, MaskFault::NoMasks));
    }
    Ok(masks)
}

/// The files of a folder that can hold masks, by name.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = fs::read_dir(folder).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect::<Result<Vec<PathBuf>, std::io::Error>>()
    });
    let mut files = entries.map_err(|error| FileError::new(folder, error))?;
    files.retain(|path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let extension = extension.map(str::to_ascii_lowercase);
        matches!(extension.as_deref(), Some("png" | "npz" | "npy" | "json"))
    });
    files.sort();
    Ok(files)
}

fn read_file(path: &Path) -> Result<Vec<Rle>, FileError> {
    let file = MappedFile::open(path).map_err(|error| FileError::new(path, error))?;
    parse_masks(&file).map_err(|fault| FileError::new(path, fault))
}

fn parse_masks(file: &[u8]) -> Result<Vec<Rle>, Fault> {
    let masks = if ZipDirectory::looks_like(file) {
        parse_npz(file)?
    } else if file.starts_with(b"\x93NUMPY") {
        let mut planes = Planes::open(file)?;
        let masks = encode_planes(&mut planes)?;
        if !planes.into_rest().is_empty() {
            return Err(Fault::Mask(MaskFault::MoreThanShape));
        }
        masks
    } else if file.starts_with(b"\x89PNG") || file.starts_with(b"\xff\xd8\xff") {
        vec![parse_picture(file)?]
    } else if let Some(b'{' | b'[') = file.trim_ascii_start().first() {
        parse_coco_json(file)?
    } else {
        let found = describe_content(file);
        return Err(Fault::Mask(MaskFault::NotMasks { found }));
    };
    check_one_size(&masks)?;
    Ok(masks)
}

fn check_one_size<'a>(masks: impl IntoIterator<Item = &'a Rle>) -> Result<(), MaskFault> {
    let mut masks = masks.into_iter();
    let Some(first) = masks.next() else {
        return Ok(());
    };
    masks.try_for_each(|mask| first.check_same_size(mask))
}

fn parse_npz(file: &[u8]) -> Result<Vec<Rle>, Fault> {
    let archive = ZipDirectory::parse(file).map_err(ArrayFault::Zip)?;
    let arrays: Vec<_> = archive.entries().iter().collect();
    let named = |name: &str| arrays.iter().find(|entry| entry.name == name);
    let entry = match arrays[..] {
        [only] => only,
        _ => named("masks.npy")
            .or_else(|| named("arr_0.npy"))
            .ok_or_else(|| MaskFault::NoStack {
                present: arrays.iter().map(|entry| entry.name.clone()).collect(),
            })?,
    };
    let content = entry.stream(file).map_err(ArrayFault::Zip)?;
    let of_array = |fault: ArrayFault| fault.of_array(entry.name.trim_end_matches(".npy"));
    let mut planes = Planes::open(content).map_err(of_array)?;
    let masks = encode_planes(&mut planes)?;
    planes.into_rest().finish().map_err(ArrayFault::Zip)?;
    Ok(masks)
}

fn encode_planes<R: Read>(planes: &mut Planes<R>) -> Result<Vec<Rle>, Fault> {
    let (count, height, width) = (planes.count, planes.height, planes.width);
    checked_size(height, width)?;
    if height * width == 0 && count > 0 {
        return Err(Fault::Mask(MaskFault::NoPixels { count }));
    }
    let (mut masks, mut edges) = (Vec::new(), 0);
    for _ in 0..count {
        let mask = Rle::encode(height, width, planes.next_plane()?)?;
        edges += mask.edges().len();
        if edges > MAX_EDGES {
            return Err(Fault::Mask(MaskFault::TooManyRuns {
                most: MAX_EDGES / 2,
            }));
        }
        masks.push(mask);
    }
    Ok(masks)
}

fn parse_picture(file: &[u8]) -> Result<Rle, Fault> {
    let image = decode_image(file)?;
    let (pixels, _) = image.pixels.as_chunks();
    let set: Vec<u8> = pixels.iter().map(|&[r, g, b]| r | g | b).collect();
    Ok(Rle::encode(image.height, image.width, &set)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arrays::{write_npy, write_npz};
    use crate::images::encode_grey_png;
    use crate::zip::tests::compressed;
    use percept_graph::{DType, Tensor};

    /// How an npy file of bytes begins.
    fn header_of(shape: &[usize; 3]) -> Vec<u8> {
        let [count, height, width] = shape;
        let dict = format!(
            "{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, {height}, {width})}}\n"
        );
        [
            b"\x93NUMPY\x01\x00",
            &(dict.len() as u16).to_le_bytes()[..],
            dict.as_bytes(),
        ]
        .concat()
    }

    fn stack() -> (Vec<u8>, Vec<Rle>) {
        let pixels: Vec<u8> = (0..3 * 4 * 5).map(|i| u8::from(i % 7 < i / 20)).collect();
        let masks = pixels
            .chunks(20)
            .map(|plane| Rle::encode(4, 5, plane).unwrap());
        (pixels.clone(), masks.collect())
    }

    fn tensor(dtype: DType, shape: &[usize], bytes: Vec<u8>) -> Tensor<'static> {
        Tensor::new(dtype, shape.to_vec(), bytes).unwrap()
    }

    #[test]
    fn stacks_pictures_and_folders_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (pixels, masks) = stack();
        let array = tensor(DType::U8, &[3, 4, 5], pixels.clone());
        write_npy(&path("a.npy"), &array).unwrap();
        assert_eq!(read_masks(&path("a.npy")).unwrap(), masks);
        let flags = tensor(DType::Bool, &[3, 4, 5], pixels.clone());
        let other = tensor(DType::F32, &[1], vec![0; 4]);
        write_npz(
            &path("b.npz"),
            &[("boxes".to_owned(), other), ("arr_0".to_owned(), flags)],
        )
        .unwrap();
        assert_eq!(read_masks(&path("b.npz")).unwrap(), masks);
        let json = serde_json::to_vec(&masks).unwrap();
        fs::write(path("c.json"), json).unwrap();
        let grey: Vec<u8> = pixels[40..].iter().map(|&p| p * 200).collect();
        fs::write(path("d.png"), encode_grey_png(5, 4, &grey).unwrap()).unwrap();
        assert_eq!(read_masks(&path("d.png")).unwrap(), masks[2..]);
        let all = read_masks(folder.path()).unwrap();
        assert_eq!(all[..9], [&masks[..], &masks, &masks].concat());
        assert_eq!(all[9..], masks[2..]);
        // A mask of another image in the same folder.
        fs::write(path("e.png"), encode_grey_png(2, 2, &[1; 4]).unwrap()).unwrap();
        let error = read_masks(folder.path()).unwrap_err().to_string();
        assert!(error.contains("e.png: the mask is 2x2"), "{error}");
    }

    #[test]
    fn a_compressed_stack_far_larger_than_its_file_is_read() {
        // 65 MB in some kilobytes, as FastSAM's stacks are.
        let mut content = header_of(&[65, 1000, 1024]);
        for mask in 0..65 {
            let start = content.len();
            content.resize(start + 1000 * 1024, 0);
            content[start + 5_000..][..mask].fill(1);
        }
        let file = compressed(&content, content.len() as u32);
        let masks = parse_masks(&file).unwrap();
        let areas: Vec<u64> = masks.iter().map(Rle::area).collect();
        assert_eq!(areas, (0..65).collect::<Vec<u64>>());
        let mut torn = file.clone();
        let middle = file.len() / 2;
        torn[middle] ^= 0x55;
        assert!(parse_masks(&torn).is_err());
    }

    #[test]
    fn files_without_masks_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_masks(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("no masks"), "{error}");
        assert!(read_masks(&folder.path().join("none.npz")).is_err());
        for (file, expected) in [
            (
                &b""[..],
                "not masks: expected npz, npy, PNG or COCO's JSON, found an empty file",
            ),
            (b"GIF89a", "found a GIF image"),
        ] {
            let fault = parse_masks(file).unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        }
        for (shape, expected) in [
            ([1usize << 40, 1 << 40, 1 << 40], "the mask is too large"),
            ([1 << 60, 0, 5], "masks without a pixel"),
            ([usize::MAX, 4, 5], "ends before the last plane"),
        ] {
            let fault = parse_masks(&header_of(&shape));
            let fault = fault.unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn damaged_files_give_an_error_or_masks_of_one_size(
            kind in 0usize..3,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let (pixels, masks) = stack();
            let mut file = match kind {
                0 => [header_of(&[3, 4, 5]), pixels].concat(),
                1 => encode_grey_png(5, 12, &pixels).unwrap(),
                _ => serde_json::to_vec(&masks).unwrap(),
            };
            for (at, byte) in flips {
                let at = at.index(file.len());
                file[at] = byte;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            if let Ok(masks) = parse_masks(&file) {
                prop_assert!(masks.windows(2).all(|pair| pair[0].size() == pair[1].size()));
            }
        }
    }
}

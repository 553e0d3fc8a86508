//! Hand-made and damaged checkpoints.

mod old_form;

use proptest::prelude::*;

use super::*;
use crate::error::FaultKind;
use crate::zip::tests::archive_of;

/// Writes pickles operation by operation.
#[derive(Clone, Default)]
struct Pickle(Vec<u8>);

impl Pickle {
    fn op(mut self, bytes: &[u8]) -> Pickle {
        self.0.extend(bytes);
        self
    }
    fn text(self, text: &str) -> Pickle {
        self.op(&[0x8c, text.len() as u8]).op(text.as_bytes())
    }
    fn int(self, value: i32) -> Pickle {
        self.op(b"J").op(&value.to_le_bytes())
    }
    fn ints(self, values: &[i32]) -> Pickle {
        let opened = self.op(b"(");
        values
            .iter()
            .fold(opened, |pickle, &value| pickle.int(value))
            .op(b"t")
    }
    fn global(self, module: &str, name: &str) -> Pickle {
        self.op(b"c")
            .op(module.as_bytes())
            .op(b"\n")
            .op(name.as_bytes())
            .op(b"\n")
    }
    fn storage(self, class: &str, key: &str, elements: i32) -> Pickle {
        let opened = self.op(b"(").text("storage").global("torch", class);
        opened.text(key).text("cpu").int(elements).op(b"tQ")
    }
    /// A view of the storage "0" of floats.
    fn tensor(self, elements: i32, offset: i32, shape: &[i32], strides: &[i32]) -> Pickle {
        let opened = self.global("torch._utils", "_rebuild_tensor_v2").op(b"(");
        let view = opened.storage("FloatStorage", "0", elements);
        view.rebuilt(offset, shape, strides)
    }
    /// The arguments after a tensor's storage, and the call that rebuilds it.
    fn rebuilt(self, offset: i32, shape: &[i32], strides: &[i32]) -> Pickle {
        let view = self.int(offset).ints(shape).ints(strides).op(b"\x89");
        view.global("collections", "OrderedDict").op(b")RtR")
    }
    fn finish(self) -> Vec<u8> {
        self.op(b".").0
    }
}

/// A dict of one tensor `w` of four floats.
fn one_tensor(shape: &[i32], strides: &[i32], offset: i32, elements: i32) -> Vec<u8> {
    let pickle = Pickle::default().op(b"\x80\x02}").text("w");
    pickle
        .tensor(elements, offset, shape, strides)
        .op(b"s")
        .finish()
}

fn archive(pickle: &[u8], extra: &[(&str, &[u8])]) -> Vec<u8> {
    let values: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let whole: Vec<(&str, &[u8])> = [("any/data.pkl", pickle), ("any/data/0", &values)]
        .into_iter()
        .chain(extra.iter().copied())
        .collect();
    let entries: Vec<(&str, &[&[u8]])> = whole
        .iter()
        .map(|(name, content)| (*name, std::slice::from_ref(content)))
        .collect();
    archive_of(&entries)
}

fn read_all(file: &[u8]) -> Result<Vec<(String, Vec<f32>)>, CheckpointFault> {
    let contents = Contents::read(file, None)?;
    let tensors = contents.tensors.iter().map(|(name, tensor)| {
        let tensor = tensor.read(name, &contents.storages, file)?;
        Ok((name.clone(), tensor.to_f32().into_owned()))
    });
    tensors.collect()
}

fn fault_of(pickle: &[u8]) -> CheckpointFault {
    read_all(&archive(pickle, &[])).unwrap_err()
}

#[test]
fn a_plain_state_dict_is_read() {
    let file = archive(&one_tensor(&[2, 2], &[2, 1], 0, 4), &[]);
    assert_eq!(
        read_all(&file).unwrap(),
        [("w".to_owned(), vec![1.0, 2.0, 3.0, 4.0])]
    );
    let transposed = archive(&one_tensor(&[2, 2], &[1, 2], 0, 4), &[]);
    assert_eq!(read_all(&transposed).unwrap()[0].1, [1.0, 3.0, 2.0, 4.0]);
}

#[test]
fn newer_protocols_and_wrapped_tensors_are_read() {
    // Protocol 4: frames, stack globals, memoised values; the tensor is a subclass with attributes.
    let pickle = Pickle::default()
        .op(b"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94(")
        .text("w")
        .op(b"\x94")
        .text("torch._tensor")
        .text("_rebuild_from_type_v2")
        .op(b"\x93(")
        .global("torch._utils", "_rebuild_tensor_v2")
        .global("torch", "Tensor")
        .op(b"(")
        .storage("FloatStorage", "0", 4)
        .int(1)
        .ints(&[2])
        .ints(&[1])
        .op(b"t}tR")
        .text("set")
        .op(b"\x8f(K\x01K\x02\x90(K\x03\x91\x86")
        .op(b"u")
        .finish();
    let contents = read_all(&archive(&pickle, &[])).unwrap();
    assert_eq!(contents, [("w".to_owned(), vec![2.0, 3.0])]);
}

#[test]
fn nothing_is_executed() {
    let pickle = Pickle::default()
        .op(b"\x80\x02}(")
        .text("evil")
        .global("os", "system")
        .op(b"(")
        .text("touch pwned")
        .op(b"tR")
        .text("w")
        .tensor(4, 0, &[4], &[1])
        .op(b"u")
        .finish();
    let contents = Contents::read(&archive(&pickle, &[]), None).unwrap();
    assert_eq!(
        (contents.tensors.len(), contents.skipped),
        (1, vec!["evil".to_owned()])
    );
}

#[test]
fn views_outside_their_storage_are_corrupt() {
    let i = i32::MAX;
    let table: [(&[i32], &[i32], i32, i32); 9] = [
        (&[5], &[1], 0, 4),
        (&[4], &[1], 1, 4),
        (&[2, 2], &[4, 1], 0, 4),
        (&[4], &[1], i, 4),
        (&[4], &[1], 0, 1000),
        (&[i, i, i], &[1, 1, 1], 0, 4),
        (&[i, i], &[0, 0], 0, 4),
        (&[4], &[1, 1], 0, 4),
        (&[2, 2], &[i, i], 0, 4),
    ];
    for (shape, strides, offset, elements) in table {
        let fault = fault_of(&one_tensor(shape, strides, offset, elements));
        assert!(matches!(fault, CheckpointFault::Tensor { .. }), "{fault}");
        assert!(fault.to_string().contains("tensor `w`") && fault.kind() == FaultKind::Corrupt);
    }
    assert!(matches!(
        fault_of(&one_tensor(&[-1], &[1], 0, 4)),
        CheckpointFault::Pickle { .. }
    ));
    // Strides of single elements and the offset of an empty tensor do not matter.
    for (shape, strides, offset) in [([1, 4], [i, 1], 0), ([0, i], [i, i], i)] {
        assert!(read_all(&archive(&one_tensor(&shape, &strides, offset, 4), &[])).is_ok());
    }
}

#[test]
fn archives_of_other_kinds_are_told_apart() {
    let pickle = one_tensor(&[4], &[1], 0, 4);
    let fault = |extra: &[(&str, &[u8])]| read_all(&archive(&pickle, extra)).unwrap_err();
    assert!(matches!(
        fault(&[("any/constants.pkl", b".")]),
        CheckpointFault::TorchScript
    ));
    assert!(matches!(
        fault(&[("any/code/a.py", b"")]),
        CheckpointFault::TorchScript
    ));
    assert!(matches!(
        fault(&[("any/byteorder", b"big")]),
        CheckpointFault::BigEndian
    ));
    assert!(matches!(
        fault(&[("other/data.pkl", b".")]),
        CheckpointFault::NotCheckpoint { .. }
    ));
    assert!(read_all(&archive(&pickle, &[("any/byteorder", b"little")])).is_ok());

    let arrays = archive_of(&[("a.npy", &[b""])]);
    assert!(
        read_all(&arrays)
            .unwrap_err()
            .to_string()
            .contains("an npz file")
    );
    assert!(matches!(
        read_all(b"\x80\x04K\x01."),
        Err(CheckpointFault::PlainPickle)
    ));
}

#[test]
fn broken_pickles_are_corrupt_or_unsupported() {
    let table: [(&[u8], FaultKind); 10] = [
        (b"", FaultKind::Corrupt),
        (b".", FaultKind::Corrupt),
        (b"(.", FaultKind::Corrupt),
        (b"h\x07.", FaultKind::Corrupt),
        (b"X\xff\xff\xff\xff", FaultKind::Corrupt),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff", FaultKind::Corrupt),
        (b"cos", FaultKind::Corrupt),
        (b"}K\x01s.", FaultKind::Corrupt),
        (b"I1\n.", FaultKind::Unsupported),
        (b"K\x01.", FaultKind::Unsupported),
    ];
    for (pickle, kind) in table {
        let fault = fault_of(pickle);
        assert_eq!(fault.kind(), kind, "{pickle:?}: {fault}");
    }
}

#[test]
fn endless_and_cyclic_pickles_end() {
    assert!(matches!(
        fault_of(&vec![b'N'; 9_000_000]),
        CheckpointFault::TooLong { .. }
    ));
    let cycle = Pickle::default()
        .op(b"}q\0")
        .text("again")
        .op(b"h\0s")
        .finish();
    assert!(matches!(
        fault_of(&cycle),
        CheckpointFault::NoStateDict { .. }
    ));
    // Each level holds the one below twice: 2^60 paths, 60 dicts.
    let doubled = (0..60).fold(Pickle::default().op(b"}q\0"), |pickle, level: u8| {
        pickle
            .op(b"}(")
            .text("a")
            .op(&[b'h', level])
            .text("b")
            .op(&[b'h', level, b'u', b'q', level + 1])
    });
    assert!(matches!(
        fault_of(&doubled.finish()),
        CheckpointFault::NoStateDict { .. }
    ));
    let deep = Pickle::default()
        .op(&b"]".repeat(1_000_000))
        .op(&b"a".repeat(999_999))
        .finish();
    assert!(matches!(
        fault_of(&deep),
        CheckpointFault::NoStateDict { .. }
    ));
}

#[test]
fn flipped_weights_are_noticed() {
    let mut file = archive(&one_tensor(&[4], &[1], 0, 4), &[]);
    let value = 3.0f32.to_le_bytes();
    let at = file.windows(4).position(|window| window == value).unwrap();
    file[at] ^= 1;
    let fault = read_all(&file).unwrap_err();
    assert!(
        fault.to_string().contains("`any/data/0` has the checksum"),
        "{fault}"
    );
}

/// Damage of up to three bytes, and perhaps a cut, in one of `files`.
fn damaged(files: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (
        prop::sample::select(files),
        flips,
        prop::option::of(any::<prop::sample::Index>()),
    )
        .prop_map(|(mut file, flips, cut)| {
            for (at, byte) in flips {
                let at = at.index(file.len());
                file[at] = byte;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            file
        })
}

/// Damage may well be harmless. Else it is told as such, and never as a fault of the system; and what is read
/// is no larger than an expanded tensor may be.
fn assert_told_or_bounded(file: &[u8]) -> Result<(), TestCaseError> {
    match read_all(file) {
        Ok(tensors) => {
            for (name, values) in tensors {
                prop_assert!(values.len() <= view::MAX_EXPANDED_BYTES, "{name}");
            }
        }
        Err(fault) => prop_assert_ne!(fault.kind(), FaultKind::Io),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damaged_files_are_told_or_give_values_in_bounds(file in damaged(vec![
        include_bytes!("../../../tests/fixtures/nested.pth").to_vec(),
        archive(&one_tensor(&[2, 2], &[1, 2], 0, 4), &[]),
    ])) {
        assert_told_or_bounded(&file)?;
    }

    #[test]
    fn damaged_pickles_in_sound_archives_are_told_or_give_values_in_bounds(
        pickle in damaged(vec![one_tensor(&[2, 2], &[1, 2], 0, 4)]),
    ) {
        assert_told_or_bounded(&archive(&pickle, &[]))?;
    }

    #[test]
    fn random_pickles_give_an_error(
        operations in prop::collection::vec(prop::sample::select(b"(.0122)]}NKtaesuRbqhQ\x81\x85\x86\x87\x94\x93\x88".to_vec()), 0..60),
    ) {
        prop_assert!(read_all(&archive(&operations, &[])).is_err());
    }
}

//! Files in the form before PyTorch 1.6, written by hand.

use super::*;

/// Magic number, protocol version and facts about the machine, each a pickle.
fn preamble(version: u16) -> Vec<u8> {
    let mut file = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
    file.extend(b"\x80\x02M");
    file.extend(version.to_le_bytes());
    file.extend(b".");
    let machine = Pickle::default().op(b"\x80\x02}(").text("little_endian");
    file.extend(machine.op(b"\x88u").finish());
    file
}

/// A storage as it follows the pickles: elements that it claims, bytes that it holds.
type Stored<'a> = (&'a str, u64, &'a [u8]);

fn file_of(object: Pickle, storages: &[Stored<'_>]) -> Vec<u8> {
    let mut file = preamble(1001);
    file.extend(object.finish());
    let keys = Pickle::default().op(b"\x80\x02](");
    let keys = storages
        .iter()
        .fold(keys, |pickle, (key, ..)| pickle.text(key));
    file.extend(keys.op(b"e").finish());
    for (_, elements, bytes) in storages {
        file.extend(elements.to_le_bytes());
        file.extend(*bytes);
    }
    file
}

fn floats(count: u8) -> Vec<u8> {
    (1..=count)
        .flat_map(|value| f32::from(value).to_le_bytes())
        .collect()
}

fn object() -> Pickle {
    Pickle::default().op(b"\x80\x02}(")
}

/// Two views of one storage of six floats, as the values of `state_dict` beside an epoch.
fn shared_storage() -> Vec<u8> {
    let dict = object().text("epoch").int(3).text("state_dict").op(b"}(");
    let dict = dict.text("module.a").tensor(6, 1, &[2, 2], &[1, 3]);
    let dict = dict.text("module.b").tensor(6, 4, &[2], &[1]);
    file_of(dict.op(b"uu"), &[("0", 6, &floats(6))])
}

fn fault_of(file: &[u8]) -> CheckpointFault {
    read_all(file).unwrap_err()
}

#[test]
fn views_of_a_shared_storage_are_read_from_a_nested_dict() {
    let file = shared_storage();
    let expected = [
        ("a".to_owned(), vec![2.0, 5.0, 3.0, 6.0]),
        ("b".to_owned(), vec![5.0, 6.0]),
    ];
    assert_eq!(read_all(&file).unwrap(), expected);
    let contents = Contents::read(&file, None).unwrap();
    assert_eq!(contents.dicts[contents.chosen].path, "state_dict");
    // The last two floats of the file.
    let range = contents.tensors[1].1.plain_range(&contents.storages);
    assert_eq!(range, Some(file.len() - 8..file.len()));
}

#[test]
fn storages_follow_each_other_in_the_order_of_their_keys() {
    let rebuild = |pickle: Pickle| pickle.global("torch._utils", "_rebuild_tensor_v2").op(b"(");
    let dict = rebuild(object().text("quantised")).storage("QInt32Storage", "q", 3);
    let dict = dict.rebuilt(0, &[3], &[1]);
    let dict = rebuild(dict.text("long")).storage("LongStorage", "l", 1);
    let dict = dict.rebuilt(0, &[1], &[1]);
    let dict = dict.text("float").tensor(2, 0, &[2], &[1]).op(b"u");
    let long = 7i64.to_le_bytes();
    let stored: [Stored<'_>; 3] = [("l", 1, &long), ("q", 3, &[0; 12]), ("0", 2, &floats(2))];
    let file = file_of(dict, &stored);
    let contents = Contents::read(&file, None).unwrap();
    let read = |index: usize| {
        let (name, tensor) = &contents.tensors[index];
        tensor.read(name, &contents.storages, &file)
    };
    assert!(matches!(
        read(0),
        Err(CheckpointFault::UnsupportedType { dtype, .. }) if dtype == "QInt32Storage"
    ));
    assert_eq!(*read(1).unwrap().to_f32(), [7.0]);
    assert_eq!(*read(2).unwrap().to_f32(), [1.0, 2.0]);
}

#[test]
fn windows_into_other_storages_are_read() {
    let windowed = |first: i32, elements: i32, shape: i32| {
        let dict = object()
            .text("w")
            .global("torch._utils", "_rebuild_tensor")
            .op(b"((");
        let dict = dict.text("storage").global("torch", "FloatStorage");
        let dict = dict.text("0").text("cpu").int(6).op(b"(").text("view");
        let dict = dict.int(first).int(elements).op(b"ttQ");
        let dict = dict.int(1).ints(&[shape]).ints(&[1]).op(b"tRu");
        read_all(&file_of(dict, &[("0", 6, &floats(6))]))
    };
    assert_eq!(windowed(2, 3, 2).unwrap()[0].1, [4.0, 5.0]);
    assert!(matches!(
        windowed(2, 3, 3),
        Err(CheckpointFault::Tensor { .. })
    ));
    assert!(matches!(
        windowed(2, 5, 2),
        Err(CheckpointFault::Pickle { .. })
    ));
}

#[test]
fn pickled_modules_are_told_by_their_class() {
    let class = object().text("model").op(b"(").text("module");
    let class = class
        .global("my.net", "Net")
        .text("net.py")
        .text("class Net");
    let file = file_of(class.op(b"tQ)\x81}bu"), &[]);
    let fault = fault_of(&file);
    assert!(fault.to_string().contains("my.net.Net"), "{fault}");
    assert_eq!(fault.kind(), FaultKind::Unsupported);
}

#[test]
fn storages_that_do_not_fit_are_told_by_their_key() {
    let dict = || object().text("w").tensor(4, 0, &[4], &[1]).op(b"u");
    let four = floats(4);
    let table: [(&[Stored<'_>], &str); 6] = [
        (&[("0", 4, &four[..15])], "storage `0` ends past the end"),
        (&[("0", 5, &four)], "storage `0` does not hold as many"),
        (
            &[("0", u64::MAX, &four)],
            "storage `0` does not hold as many",
        ),
        (
            &[("0", 4, &four), ("0", 4, &four)],
            "storage `0` appears twice",
        ),
        (
            &[("0", 4, &four), ("1", 1, &four)],
            "storage `1` belongs to no tensor",
        ),
        (&[], "tensor `w` (storage `0`) has no storage in the file"),
    ];
    for (storages, expected) in table {
        let fault = fault_of(&file_of(dict(), storages));
        assert!(fault.to_string().contains(expected), "{fault}");
        assert_eq!(fault.kind(), FaultKind::Corrupt);
    }
    // The pickle and the count agree on a length that no memory could hold.
    let huge = object().text("w").tensor(i32::MAX, 0, &[4], &[1]).op(b"u");
    let file = file_of(huge, &[("0", i32::MAX as u64, &four)]);
    assert!(fault_of(&file).to_string().contains("truncated?"));
    let unknown = object()
        .text("w")
        .global("torch._utils", "_rebuild_tensor_v2")
        .op(b"(")
        .storage("NewStorage", "0", 4)
        .rebuilt(0, &[4], &[1]);
    let fault = fault_of(&file_of(unknown.op(b"u"), &[("0", 4, &four)]));
    assert!(fault.to_string().contains("NewStorage"), "{fault}");
    assert_eq!(fault.kind(), FaultKind::Unsupported);
}

#[test]
fn another_version_of_the_protocol_is_told() {
    let mut file = shared_storage();
    let other = preamble(1002);
    file[..other.len()].copy_from_slice(&other);
    let fault = fault_of(&file);
    assert!(fault.to_string().contains("1001"), "{fault}");
}

#[test]
fn every_cut_is_told() {
    let file = shared_storage();
    for length in 0..file.len() {
        let fault = fault_of(&file[..length]);
        // Less than the magic number could be anything.
        let told = fault.kind() == FaultKind::Corrupt || length < 15;
        assert!(told, "cut at {length}: {fault}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damaged_old_files_are_told_or_give_values_in_bounds(file in damaged(vec![
        include_bytes!("../../../tests/fixtures/old_form.pth").to_vec(),
        shared_storage(),
    ])) {
        assert_told_or_bounded(&file)?;
    }

    #[test]
    fn huge_lengths_in_old_files_are_told_or_give_values_in_bounds(
        at in any::<prop::sample::Index>(), length in prop::sample::select(vec![u32::MAX, i32::MAX as u32, 1 << 30]),
    ) {
        let mut file = shared_storage();
        let at = at.index(file.len() - 4);
        file[at..at + 4].copy_from_slice(&length.to_le_bytes());
        assert_told_or_bounded(&file)?;
    }
}

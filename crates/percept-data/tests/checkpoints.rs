//! Files that PyTorch itself wrote (see fixtures/make_checkpoints.py).

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use percept_data::checkpoint::{Checkpoint, StateDict};
use percept_data::{FaultKind, TensorSource, open_weights};
use percept_graph::DType;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn ramp() -> Vec<f32> {
    (0..24).map(|value| value as f32).collect()
}

#[test]
fn the_largest_dict_is_opened_and_its_prefix_stripped() {
    let checkpoint = Checkpoint::open(&fixture("nested.pth")).unwrap();
    assert_eq!(
        *checkpoint.dict(),
        StateDict {
            path: "state_dict".to_owned(),
            tensors: 18
        }
    );
    let paths: Vec<_> = checkpoint
        .dicts()
        .iter()
        .map(|dict| dict.path.as_str())
        .collect();
    assert_eq!(paths[..2], ["state_dict", "ema.net"]);
    assert!(
        paths[2..]
            .iter()
            .all(|path| path.starts_with("optimizer.state."))
    );
    assert_eq!(checkpoint.names()[..2], ["f32", "parameter"]);
    assert!(checkpoint.describe().ends_with("nested.pth (state_dict)"));
}

#[test]
fn views_of_every_kind_are_read() {
    let checkpoint = Checkpoint::open(&fixture("nested.pth")).unwrap();
    let values = |name: &str| checkpoint.read_f32(name).unwrap().into_owned();
    let transposed: Vec<f32> = (0..24).map(|i| (i % 4 * 6 + i / 4) as f32).collect();
    let table: [(&str, &[usize], Vec<f32>); 8] = [
        ("f32", &[2, 3, 4], ramp()),
        ("parameter", &[2, 3], vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5]),
        ("transposed", &[6, 4], transposed),
        ("strided", &[5], vec![1.0, 6.0, 11.0, 16.0, 21.0]),
        ("tail", &[4], vec![20.0, 21.0, 22.0, 23.0]),
        ("expanded", &[2, 3], vec![1.0, 1.0, 1.0, 2.0, 2.0, 2.0]),
        ("scalar", &[], vec![7.0]),
        ("empty", &[0, 5], vec![]),
    ];
    for (name, shape, expected) in table {
        assert_eq!(checkpoint.shape(name).as_deref(), Some(shape), "{name}");
        assert_eq!(values(name), expected, "{name}");
        checkpoint.release(name);
        assert_eq!(values(name), expected, "{name} after release");
    }
    assert!(matches!(
        checkpoint.read_f32("f32").unwrap(),
        Cow::Borrowed(_)
    ));
}

#[test]
fn element_types_are_told_apart() {
    let checkpoint = Checkpoint::open(&fixture("nested.pth")).unwrap();
    let table = [
        ("float64", DType::F64),
        ("float16", DType::F16),
        ("bfloat16", DType::BF16),
        ("int8", DType::I8),
        ("uint8", DType::U8),
        ("int32", DType::I32),
        ("int64", DType::I64),
        ("bool", DType::Bool),
    ];
    for (name, dtype) in table {
        assert_eq!(checkpoint.dtype(name), Some(dtype));
        assert_eq!(
            *checkpoint.read_f32(name).unwrap(),
            [0.0, 1.0, 1.0],
            "{name}"
        );
    }
    for name in ["float8", "uint16"] {
        assert_eq!(checkpoint.dtype(name), None);
        let error = checkpoint.read(name).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("not supported"),
            "{error}"
        );
    }
}

#[test]
fn another_dict_can_be_asked_for() {
    let path = fixture("nested.pth");
    let ema = Checkpoint::open_dict(&path, Some("ema.net")).unwrap();
    assert_eq!(ema.names(), ["f32"]);
    assert_eq!(*ema.read_f32("f32").unwrap(), *ramp());
    let error = Checkpoint::open_dict(&path, Some("model")).err().unwrap();
    assert!(error.to_string().contains("state_dict, ema.net"), "{error}");
}

#[test]
fn forms_that_are_not_read_are_explained() {
    let error = open_weights(&fixture("pickled_module.pt")).err().unwrap();
    assert!(
        error.to_string().contains("torch.nn.modules.linear.Linear"),
        "{error}"
    );
    assert_eq!(error.kind(), FaultKind::Unsupported);
    assert!(error.hint().is_some_and(|hint| hint.contains("torch.save")));
}

#[test]
fn files_from_before_the_zip_form_are_read_in_place() {
    let weights = open_weights(&fixture("old_form.pth")).unwrap();
    assert_eq!(weights.names(), ["w"]);
    assert_eq!(weights.shape("w"), Some(vec![24]));
    weights.release("w");
    assert_eq!(*weights.read_f32("w").unwrap(), *ramp());
}

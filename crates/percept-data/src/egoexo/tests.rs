use std::fs;
use std::path::Path;

use percept_graph::{DType, Tensor};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arrays::{write_npy, write_npz};
use crate::images::{encode_grey_png, encode_jpeg};
use crate::masks::PixelBox;
use crate::sample::{Datum, Sample, Samples};

const EGO: (usize, usize) = (16, 16);
const EXO: (usize, usize) = (9, 16);

fn square(x: u32, (height, width): (usize, usize)) -> Rle {
    let area = PixelBox {
        x,
        y: 2,
        width: 3,
        height: 4,
    };
    Rle::filled_box(height, width, area).unwrap()
}

fn write_picture(path: &Path, (height, width): (usize, usize)) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let picture = RgbImage::filled(width, height, [200, 30, 40]);
    fs::write(path, encode_jpeg(&picture, 90).unwrap()).unwrap();
}

fn write_stack(path: &Path, masks: &[Rle]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let shape = [masks.len(), masks[0].height(), masks[0].width()];
    let bytes: Vec<u8> = masks.iter().flat_map(Rle::decode).collect();
    let stack = Tensor::new(DType::U8, shape.to_vec(), bytes).unwrap();
    write_npz(path, &[("arr_0".to_owned(), stack)]).unwrap();
}

/// One take with two frames; in the second the exo camera does not see the cup.
fn write_public_layout(root: &Path) {
    let take = root.join("processed/take1");
    for frame in [0, 30] {
        write_picture(&take.join(format!("ego/{frame}.jpg")), EGO);
        write_picture(&take.join(format!("exo/{frame}.jpg")), EXO);
        let candidates = [square(1, (18, 32)), square(8, (18, 32))];
        let folder = root.join("Masks_TEST_EGO2EXO/take1/exo");
        write_stack(&folder.join(format!("{frame}_masks.npz")), &candidates);
        let boxes = vec![1.0f32, 2.0, 3.0, 4.0, 8.0, 2.0, 3.0, 4.0];
        let boxes = Tensor::from_values([2, 4], boxes).unwrap();
        write_npy(&folder.join(format!("{frame}_boxes.npy")), &boxes).unwrap();
        let folder = root.join("Masks_TEST_EXO2EGO/take1/ego");
        write_stack(
            &folder.join(format!("{frame}_masks.npz")),
            &[square(5, EGO)],
        );
    }
    let annotation = json!({
        "masks": {"cup": {
            "ego": {"0": square(5, EGO), "30": square(6, EGO)},
            "exo": {"0": square(4, EXO)},
        }},
        "subsample_idx": [0, 30],
    });
    fs::write(take.join("annotation.json"), annotation.to_string()).unwrap();
    let splits = json!({"train": [], "val": [], "test": ["take1"]});
    fs::write(root.join("processed/split.json"), splits.to_string()).unwrap();
    let name = |camera: &str, kind: &str, frame: u32| {
        format!("data//take1//{camera}//cup//{kind}//{frame}")
    };
    let line = |frame| {
        let names = [
            ("ego", "rgb"),
            ("ego", "mask"),
            ("exo", "rgb"),
            ("exo", "mask"),
        ];
        names.map(|(camera, kind)| name(camera, kind, frame))
    };
    fs::create_dir(root.join("dataset_jsons")).unwrap();
    let write_list = |list: &str, lines: &[[String; 4]]| {
        let json = serde_json::to_vec(lines).unwrap();
        fs::write(root.join("dataset_jsons").join(list), json).unwrap();
    };
    write_list("test_egoexo_pairs.json", &[line(0), line(30)]);
    write_list("test_exoego_pairs.json", &[line(0)]);
}

fn images(sample: &Sample) -> [(usize, usize); 2] {
    [SOURCE, DEST].map(|part| {
        let image = sample.image(part).unwrap();
        (image.height, image.width)
    })
}

#[test]
fn masks_are_brought_to_the_size_of_their_image_unless_they_are_of_another() {
    let half = PixelBox {
        x: 0,
        y: 0,
        width: 8,
        height: 9,
    };
    let mask = Rle::filled_box(9, 16, half).unwrap();
    let image = |width, height| RgbImage::filled(width, height, [0; 3]);
    let fitted = fit_mask(&mask, &image(32, 18)).unwrap();
    assert_eq!(
        (fitted.height(), fitted.width(), fitted.area()),
        (18, 32, 288)
    );
    assert_eq!(fit_mask(&mask, &image(16, 9)).unwrap(), mask);
    let fault = fit_mask(&mask, &image(9, 16)).unwrap_err().to_string();
    assert_eq!(fault, "the mask is 16x9 (width x height), expected 9x16");
    assert!(fit_mask(&Rle::empty(0, 0).unwrap(), &image(4, 4)).is_err());
    let boxes = Tensor::from_values([1, 4], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let scaled = fit_boxes(&boxes, &mask, &image(32, 9)).unwrap();
    assert_eq!(scaled.values::<f32>().unwrap(), [2.0, 2.0, 6.0, 4.0]);
}

#[test]
fn the_public_layout_is_read_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    write_public_layout(folder.path());
    let pairs = EgoExo::open(folder.path(), Split::Test, Direction::EgoToExo).unwrap();
    assert_eq!(pairs.len(), 2);
    assert_eq!(pairs.name(1), "take1/cup/ego_exo/30");
    let sample = pairs.sample(0).unwrap();
    assert_eq!(images(&sample), [EGO, EXO]);
    assert_eq!(sample.masks(SOURCE_MASK).unwrap(), [square(5, EGO)]);
    assert_eq!(sample.masks(TRUTH).unwrap(), [square(4, EXO)]);
    // Candidates of twice the size, and their boxes, come to the size of the image.
    let candidates = sample.masks(DEST_MASKS).unwrap();
    let expected = square(8, (18, 32)).resized_nearest(9, 16).unwrap();
    assert_eq!((candidates.len(), &candidates[1]), (2, &expected));
    let Datum::Tensor(boxes) = sample.part(DEST_BOXES).unwrap() else {
        panic!("boxes are a tensor")
    };
    assert_eq!(boxes.values::<f32>().unwrap()[4..], [4.0, 1.0, 1.5, 2.0]);
    // Not in view: an empty truth.
    let hidden = pairs.sample(1).unwrap();
    assert!(hidden.masks(TRUTH).unwrap()[0].is_empty());
    assert_eq!(pairs.subsampled_frames("take1").unwrap(), [0, 30]);

    let pairs = EgoExo::open(folder.path(), Split::Test, Direction::ExoToEgo).unwrap();
    let sample = pairs.sample(0).unwrap();
    assert_eq!(images(&sample), [EXO, EGO]);
    assert_eq!(sample.masks(SOURCE_MASK).unwrap(), [square(4, EXO)]);
    assert!(sample.get(DEST_BOXES).is_none());
}

#[test]
fn annotations_are_read_once() {
    let folder = tempfile::tempdir().unwrap();
    write_public_layout(folder.path());
    let pairs = EgoExo::open(folder.path(), Split::Test, Direction::EgoToExo).unwrap();
    pairs.sample(0).unwrap();
    fs::remove_file(folder.path().join("processed/take1/annotation.json")).unwrap();
    pairs.sample(1).unwrap();
    let fresh = EgoExo::open(folder.path(), Split::Test, Direction::EgoToExo).unwrap();
    let error = fresh.sample(0).unwrap_err().to_string();
    assert!(error.contains("annotation.json"), "{error}");
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write_public_layout(root);
    let open = |split| EgoExo::open(root, split, Direction::EgoToExo);
    let error = open(Split::Train).unwrap_err().to_string();
    assert!(
        error.contains("for train and egoexo, found test_egoexo_pairs.json"),
        "{error}"
    );
    let pairs = open(Split::Test).unwrap();
    write_picture(&root.join("processed/take1/exo/0.jpg"), EGO);
    let error = pairs.sample(0).unwrap_err().to_string();
    assert!(
        error.contains("the mask is 16x9 (width x height), expected 16x16"),
        "{error}"
    );
    fs::remove_file(root.join("processed/take1/ego/0.jpg")).unwrap();
    let error = pairs.sample(0).unwrap_err().to_string();
    assert!(error.contains("0.jpg"), "{error}");
    let list = root.join("dataset_jsons/test_egoexo_pairs.json");
    for (line, expected) in [
        (json!([["a", "b", "c", "d"]]), "pair 0: expected"),
        (
            json!([["r//..//c//o//rgb//0", "", "r//t//c//o//rgb//0", ""]]),
            "found \"r//..//c//o//rgb//0\"",
        ),
        (
            json!([["r//a//c//o//rgb//0", "", "r//b//c//o//rgb//0", ""]]),
            "are no pair",
        ),
        (json!([]), "no pairs"),
        (json!({}), "invalid type: map"),
    ] {
        fs::write(&list, line.to_string()).unwrap();
        let error = open(Split::Test).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

fn write_pair(folder: &Path) {
    write_picture(&folder.join("source.jpg"), EGO);
    write_picture(&folder.join("dest.jpg"), EXO);
    let pixels: Vec<u8> = square(5, EGO).decode().iter().map(|p| p * 255).collect();
    let picture = encode_grey_png(EGO.1, EGO.0, &pixels).unwrap();
    fs::write(folder.join("source-mask.png"), picture).unwrap();
    write_stack(
        &folder.join("dest-masks.npz"),
        &[square(1, EXO), square(8, EXO)],
    );
}

#[test]
fn a_plain_folder_is_read_with_and_without_truth() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| folder.path().join(name));
    write_pair(&first);
    write_pair(&second);
    fs::create_dir(folder.path().join("notes")).unwrap();
    let truth = serde_json::to_vec(&square(8, EXO)).unwrap();
    fs::write(second.join("truth.json"), truth).unwrap();
    let pairs = PairFolder::open(folder.path()).unwrap();
    assert_eq!((pairs.len(), pairs.name(1)), (2, "b".to_owned()));
    let sample = pairs.sample(0).unwrap();
    assert_eq!(images(&sample), [EGO, EXO]);
    assert_eq!(sample.masks(SOURCE_MASK).unwrap(), [square(5, EGO)]);
    assert_eq!(sample.masks(DEST_MASKS).unwrap().len(), 2);
    assert!(sample.get(TRUTH).is_none());
    assert_eq!(
        pairs.sample(1).unwrap().masks(TRUTH).unwrap(),
        [square(8, EXO)]
    );
    assert_eq!(PairFolder::open(&first).unwrap().len(), 1);

    write_stack(&first.join("source-mask.npz"), &[square(5, EGO)]);
    let error = PairFolder::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("stands for the same part"), "{error}");
    fs::remove_file(first.join("source-mask.png")).unwrap();
    fs::remove_file(first.join("dest-masks.npz")).unwrap();
    let error = PairFolder::open(&first)
        .unwrap()
        .sample(0)
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("a: no file `dest-masks`"), "{error}");
    let error = PairFolder::open(&folder.path().join("notes"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no pairs: expected a folder per pair"),
        "{error}"
    );
}

fn found() -> Vec<FoundMask> {
    let found = |take: &str, frame, mask, confidence| FoundMask {
        pair: PairId {
            take: take.to_owned(),
            object: "cup".to_owned(),
            source_camera: "exo".to_owned(),
            dest_camera: "ego".to_owned(),
            frame,
        },
        mask,
        confidence,
    };
    vec![
        found("t2", 30, square(5, EGO), 0.625),
        found("t1", 0, Rle::empty(9, 16).unwrap(), 0.25),
        found("t2", 0, Rle::from_counts(2, 2, &[0, 4]).unwrap(), 1.0),
    ]
}

#[test]
fn the_public_results_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let frames = |take: &str| Ok(vec![if take == "t1" { 7 } else { 8 }]);
    write_results_json(&path, Direction::ExoToEgo, &found(), frames).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let takes = &document["exo-ego"]["results"];
    let answer = &takes["t2"]["masks"]["cup"]["exo_ego"]["30"];
    assert_eq!(answer["confidence"], 0.625);
    assert_eq!(answer["pred_mask"], json!(square(5, EGO)));
    assert_eq!(takes["t1"]["subsample_idx"], json!([7]));
    assert_eq!(
        takes["t2"]["masks"]["cup"]["exo_ego"]
            .as_object()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn the_compact_form_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("found.safetensors");
    for answers in [found(), Vec::new()] {
        write_found_masks(&path, &answers).unwrap();
        assert_eq!(read_found_masks(&path).unwrap(), answers);
    }
    let mut bad = found();
    bad[1].pair.object = "a\tb".to_owned();
    assert!(write_found_masks(&path, &bad).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn damaged_files_give_an_error_or_answers(
        kind in 0usize..4,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write_public_layout(root);
        let compact = root.join("found.safetensors");
        write_found_masks(&compact, &found()).unwrap();
        let path = match kind {
            0 => root.join("processed/take1/annotation.json"),
            1 => root.join("dataset_jsons/test_egoexo_pairs.json"),
            2 => root.join("Masks_TEST_EGO2EXO/take1/exo/0_masks.npz"),
            _ => compact.clone(),
        };
        let mut file = fs::read(&path).unwrap();
        for (at, byte) in flips {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        fs::write(&path, file).unwrap();
        if let Ok(pairs) = EgoExo::open(root, Split::Test, Direction::EgoToExo)
            && let Ok(sample) = pairs.sample(0)
        {
            prop_assert_eq!(sample.masks(SOURCE_MASK).unwrap().len(), 1);
        }
        if let Ok(found) = read_found_masks(&compact) {
            prop_assert_eq!(found.len(), 3);
        }
    }
}

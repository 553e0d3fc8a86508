//! Real photographs, read where `PERCEPT_SHARED` (default: `../shared`) has them.

use std::path::{Path, PathBuf};

use percept_data::classification::{ImageDataset, read_image_folder};

fn shared() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    std::env::var_os("PERCEPT_SHARED").map_or(default, PathBuf::from)
}

#[test]
fn five_classes_of_cub_are_read() {
    let root = shared().join("data/cub200");
    if !root.is_dir() {
        eprintln!("skipped: no photographs at {}", root.display());
        return;
    }
    let images = read_image_folder(&root)
        .expect("a folder of classes")
        .images;
    assert_eq!((images.classes().len(), images.len()), (5, 60));
    assert_eq!(images.classes()[4], "010.Red_winged_Blackbird");
    for index in 0..images.len() {
        let image = images.image(index).expect("a photograph");
        assert!(
            image.width.max(image.height) >= 300,
            "{}",
            images.name(index)
        );
    }
}

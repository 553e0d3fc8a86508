//! Real photographs, read where `PERCEPT_SHARED` (default: `../shared`) has them.

use percept_data::Samples;
use percept_data::classification::read_image_folder;

#[test]
fn five_classes_of_cub_are_read() {
    let Some(root) = percept_testing::shared("data/cub200") else {
        return;
    };
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

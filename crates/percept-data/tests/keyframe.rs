//! A real keyframe of nuScenes, read where `PERCEPT_SHARED` (default: `../shared`) has it.

use percept_data::points::{CAMERA_CHANNELS, LidarDataset};

#[test]
fn boxes_of_a_real_keyframe_fall_into_its_pictures() {
    let Some(folder) = percept_testing::shared("data/nuscenes") else {
        return;
    };
    let frame = LidarDataset::open(&folder).unwrap().frame(0, 1).unwrap();
    let channels: Vec<_> = frame.cameras.iter().map(|c| c.channel.as_str()).collect();
    assert_eq!(channels, CAMERA_CHANNELS);
    assert_eq!(frame.points.len() + frame.dropped_non_finite, 34_688);
    let mut seen = vec![0; frame.boxes.as_ref().unwrap().len()];
    for camera in &frame.cameras {
        let image = camera.image().unwrap();
        assert_eq!((image.width, image.height), (1600, 900));
        for (object, times) in frame.boxes.iter().flatten().zip(&mut seen) {
            let in_world = frame.sensor_to_world.apply(object.centre);
            if let Some(([x, y], _)) = camera.project(in_world)
                && (0.0..1600.0).contains(&x)
                && (0.0..900.0).contains(&y)
            {
                *times += 1;
            }
        }
    }
    // Six cameras look all around, and overlap a little at their edges.
    let boxes = seen.len();
    let found = seen.iter().filter(|times| **times > 0).count();
    let twice = seen.iter().filter(|times| **times > 1).count();
    assert!(found * 10 >= boxes * 9, "{found} of {boxes} boxes");
    assert!(
        twice * 3 < boxes,
        "{twice} of {boxes} boxes in two pictures"
    );
}

//! What is written reads back; what cannot be written leaves nothing behind; what is damaged is refused.

use percept_kernels::Cpu;
use proptest::prelude::*;

use crate::{MakeOptions, World, WorldConfig, WorldError, WorldKind, make};
use percept_data::points::{LidarDataset, LidarFrame, PointsError};

const KINDS: [WorldKind; 2] = [WorldKind::NuScenes, WorldKind::SemanticKitti];

fn cpu(threads: usize) -> Cpu {
    Cpu::new(threads).expect("a CPU")
}

#[test]
fn written_worlds_read_back_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let cpu = cpu(2);
    for kind in KINDS {
        let out = folder.path().join(kind.to_string());
        let config = WorldConfig {
            sweeps: if kind == WorldKind::NuScenes { 3 } else { 1 },
            ..WorldConfig::new(kind, 6)
        };
        let options = MakeOptions {
            config,
            frames: 3,
            out: out.clone(),
            cameras: None,
            force: false,
        };
        let mut heard = Vec::new();
        let summary = make(&cpu, &options, |done| heard.push(done)).expect("made");
        assert_eq!(heard, [1, 2, 3]);
        assert_eq!((summary.frames, summary.clouds), (3, 3 * config.sweeps));
        let dataset = LidarDataset::open(&out).expect("opens");
        assert_eq!(dataset.frames(), 3);
        let mut world = World::new(config);
        let first_pose = world.frame(&cpu, 0).sensor_to_world;
        let mut boxes = 0;
        for index in 0..3 {
            let (read, made) = (
                dataset.frame(index, config.sweeps).expect("reads"),
                world.frame(&cpu, index),
            );
            assert_eq!(read.convention, made.convention);
            compare_points(&read, &made);
            match kind {
                WorldKind::NuScenes | WorldKind::Places => {
                    compare_boxes(&read, &made);
                    boxes += read.boxes.map_or(0, |b| b.len());
                    assert_eq!(read.timestamp_us, made.timestamp_us);
                }
                WorldKind::SemanticKitti => {
                    assert_eq!(read.labels, made.labels);
                    let expected = first_pose.inverse().compose(&made.sensor_to_world);
                    for (a, b) in read
                        .sensor_to_world
                        .to_rows()
                        .iter()
                        .zip(expected.to_rows())
                    {
                        assert!((a - b).abs() < 1e-9);
                    }
                    assert_eq!(read.timestamp_us, made.timestamp_us - 1_704_067_201_000_000);
                }
            }
        }
        assert_eq!(boxes, summary.boxes);
    }
}

fn compare_points(read: &LidarFrame, made: &LidarFrame) {
    assert_eq!(read.points.len(), made.points.len());
    let own = made.own_sweep().len();
    for (index, (a, b)) in read.points.iter().zip(&made.points).enumerate() {
        let same = a
            .position
            .iter()
            .zip(b.position)
            .all(|(x, y)| x.to_bits() == y.to_bits());
        // Older sweeps are moved by poses that went through quaternions.
        let near = a
            .position
            .iter()
            .zip(b.position)
            .all(|(x, y)| (x - y).abs() < 1e-4);
        assert!(same || (index >= own && near), "point {index}: {a:?} {b:?}");
        assert_eq!(a.intensity, b.intensity);
        assert!((a.age_s - b.age_s).abs() < 1e-6);
    }
}

fn compare_boxes(read: &LidarFrame, made: &LidarFrame) {
    let (read, made) = (
        read.boxes.as_ref().expect("boxes"),
        made.boxes.as_ref().expect("boxes"),
    );
    assert_eq!(read.len(), made.len());
    for (a, b) in read.iter().zip(made) {
        assert_eq!(
            (a.class, a.lidar_points, a.size),
            (b.class, b.lidar_points, b.size)
        );
        assert!((0..3).all(|i| (a.centre[i] - b.centre[i]).abs() < 1e-9));
        assert!(libm::cos(a.yaw_rad - b.yaw_rad) > 1.0 - 1e-12);
        // The reader derives velocities from neighbouring keyframes, half a second apart.
        if let (Some(a), Some(b)) = (a.velocity, b.velocity) {
            let off = ((a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1])).sqrt();
            assert!(off < 3.0, "{a:?} {b:?}");
        }
    }
}

#[test]
fn nothing_is_half_written_and_nothing_is_replaced_by_accident() {
    let folder = tempfile::tempdir().expect("a folder");
    let cpu = cpu(1);
    let out = folder.path().join("world");
    let config = WorldConfig::new(WorldKind::NuScenes, 1);
    let options = MakeOptions {
        config,
        frames: 1,
        out: out.clone(),
        cameras: None,
        force: false,
    };
    let names = || -> Vec<_> {
        let entries = std::fs::read_dir(folder.path()).expect("lists");
        entries
            .map(|entry| entry.expect("entry").file_name())
            .collect()
    };

    let none = MakeOptions {
        frames: 0,
        ..options.clone()
    };
    assert!(matches!(
        make(&cpu, &none, |_| ()),
        Err(WorldError::NoFrames)
    ));
    let many = MakeOptions {
        config: WorldConfig {
            sweeps: 11,
            ..config
        },
        ..options.clone()
    };
    assert!(matches!(
        make(&cpu, &many, |_| ()),
        Err(WorldError::Sweeps { sweeps: 11 })
    ));
    assert!(names().is_empty());

    let interrupted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        make(&cpu, &options, |_| panic!("stopped"))
    }));
    assert!(interrupted.is_err() && names().is_empty(), "{:?}", names());

    // A file that is not ours stays, with and without force.
    std::fs::create_dir(&out).expect("made");
    std::fs::write(out.join("thesis.txt"), "mine").expect("written");
    assert!(matches!(
        make(&cpu, &options, |_| ()),
        Err(WorldError::Exists { .. })
    ));
    let forced = MakeOptions {
        force: true,
        ..options.clone()
    };
    assert!(matches!(
        make(&cpu, &forced, |_| ()),
        Err(WorldError::NotOurs { .. })
    ));
    assert_eq!(
        std::fs::read_to_string(out.join("thesis.txt")).expect("reads"),
        "mine"
    );
    std::fs::remove_dir_all(&out).expect("removed");

    make(&cpu, &options, |_| ()).expect("made");
    assert!(matches!(
        make(&cpu, &options, |_| ()),
        Err(WorldError::Exists { .. })
    ));
    let other = MakeOptions {
        config: WorldConfig::new(WorldKind::SemanticKitti, 1),
        ..forced
    };
    make(&cpu, &other, |_| ()).expect("replaced");
    assert!(out.join("sequences").is_dir() && !out.join("samples").exists());
    assert_eq!(names(), ["world"]);
}

/// Every file of a small world that a reader parses, relative to its root.
fn files_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("lists") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                open.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.sort();
    found
}

#[test]
fn damaged_folders_give_frames_or_typed_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    for kind in KINDS {
        let out = folder.path().join(kind.to_string());
        let config = WorldConfig {
            sweeps: if kind == WorldKind::NuScenes { 2 } else { 1 },
            ..WorldConfig::new(kind, 8)
        };
        make(
            &cpu(2),
            &MakeOptions {
                config,
                frames: 2,
                out: out.clone(),
                cameras: None,
                force: false,
            },
            |_| (),
        )
        .expect("made");
        let files = files_below(&out);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(30));
        let damage = (
            0..files.len(),
            any::<prop::sample::Index>(),
            any::<u8>(),
            any::<bool>(),
            any::<bool>(),
        );
        let outcome = runner.run(&damage, |(file, place, byte, cut, remove)| {
            let whole = std::fs::read(&files[file]).expect("reads");
            let mut damaged = whole.clone();
            let at = place.index(damaged.len());
            damaged[at] = byte;
            if cut {
                damaged.truncate(at);
            }
            std::fs::write(&files[file], &damaged).expect("writes");
            if cut && remove {
                std::fs::remove_file(&files[file]).expect("removes");
            }
            let read = || -> Result<usize, PointsError> {
                let dataset = LidarDataset::open(&out)?;
                (0..dataset.frames())
                    .map(|index| Ok(dataset.frame(index, 2)?.points.len()))
                    .sum()
            };
            let result = read();
            std::fs::write(&files[file], &whole).expect("restores");
            if let Ok(points) = result {
                prop_assert!(points <= 700_000);
            }
            Ok(())
        });
        outcome.expect("no damage makes a reader panic");
    }
}

fn places(out: &std::path::Path) -> MakeOptions {
    let size = crate::PictureSize::new(80, 44).expect("a size");
    MakeOptions {
        config: WorldConfig {
            passes: 3,
            frames_per_pass: 3,
            ..WorldConfig::new(WorldKind::Places, 2)
        },
        frames: 0,
        cameras: Some(crate::CameraRig::nuscenes(size)),
        out: out.to_path_buf(),
        force: false,
    }
}

#[test]
fn places_read_back_with_their_cameras_and_revisits() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cpu, out) = (cpu(2), folder.path().join("town"));
    let options = places(&out);
    let summary = make(&cpu, &options, |_| ()).expect("made");
    assert_eq!((summary.frames, summary.pictures), (9, 54));
    let dataset = LidarDataset::open(&out).expect("opens");
    assert_eq!(dataset.frames(), 9);
    let mut world = World::new(options.config);
    for index in [0, 4, 8] {
        let read = dataset.frame(index, 1).expect("reads");
        compare_points(&read, &world.frame(&cpu, index));
        let rig = options.cameras.as_ref().expect("a rig");
        let seen = world.views(&cpu, index, rig);
        assert_eq!(read.cameras.len(), 6);
        for (camera, seen) in read.cameras.iter().zip(&seen) {
            assert_eq!(camera.channel, seen.camera.channel);
            let [a, b] = [camera, &seen.camera].map(|c| c.intrinsics);
            let pairs = a.as_flattened().iter().zip(b.as_flattened());
            assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-9));
            assert_eq!(camera.timestamp_us, seen.camera.timestamp_us);
            let (a, b) = (camera.camera_to_world(), seen.camera.camera_to_world());
            assert!(
                a.to_rows()
                    .iter()
                    .zip(b.to_rows())
                    .all(|(a, b)| (a - b).abs() < 1e-9)
            );
            let image = camera.image().expect("a picture");
            let apart = image.pixels.iter().zip(&seen.view.image.pixels);
            let apart: u64 = apart.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
            let mean = apart as f64 / image.pixels.len() as f64;
            assert!(mean < 12.0, "{mean} after JPEG");
        }
    }
    let LidarDataset::NuScenes(tables) = &dataset else {
        panic!("a table folder");
    };
    let samples = &tables.tables().sample;
    let text = std::fs::read_to_string(out.join("revisits.csv")).expect("reads");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("query,database,metres"));
    let row = |token: &str| {
        samples
            .iter()
            .position(|s| s.token == token)
            .expect("a sample")
    };
    let mut read = Vec::new();
    for line in lines {
        let [query, database, metres] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("three columns");
        };
        let metres: f64 = metres.parse().expect("a number");
        assert!(metres <= crate::REVISIT_M);
        read.push((row(query), row(database)));
    }
    let made: Vec<_> = world
        .revisits()
        .iter()
        .map(|r| (r.query, r.database))
        .collect();
    assert_eq!(read, made);
    // Every frame of the other lane and of the opposite way comes by some frame of the first pass.
    assert!(
        (3..9).all(|query| read.iter().any(|(q, _)| *q == query)),
        "{read:?}"
    );
    let scenes = &tables.tables().scene;
    assert!(
        scenes[2].description.contains("opposite heading"),
        "{}",
        scenes[2].description
    );
}

#[test]
fn missing_and_broken_pictures_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("town");
    let mut options = places(&out);
    options.config.passes = 1;
    options.config.frames_per_pass = 1;
    make(&cpu(2), &options, |_| ()).expect("made");
    let frame = LidarDataset::open(&out)
        .and_then(|d| d.frame(0, 1))
        .expect("reads");
    let back = frame.camera("CAM_BACK").expect("a camera");
    let whole = std::fs::read(&back.path).expect("a file");
    std::fs::write(&back.path, &whole[..whole.len() / 3]).expect("writes");
    let told = back.image().expect_err("half a picture").to_string();
    assert!(told.contains("CAM_BACK") && told.contains("JPEG"), "{told}");
    std::fs::remove_file(&back.path).expect("removes");
    let told = back.image().expect_err("no picture").to_string();
    assert!(told.contains("CAM_BACK"), "{told}");
}

#[test]
fn rooms_read_back_in_both_layouts() {
    use percept_data::Samples;
    use percept_data::egoexo::{Direction, EgoExo, PairFolder, Split};

    let folder = tempfile::tempdir().expect("a folder");
    let size = |w, h| crate::PictureSize::new(w, h).expect("a size");
    let options = crate::MakeRoomsOptions {
        config: crate::EgoExoConfig {
            seed: 4,
            frames_per_take: 2,
            ego: size(84, 84),
            exo: size(154, 84),
        },
        takes: 3,
        layout: crate::RoomLayout::Omama,
        out: folder.path().join("omama"),
        force: false,
    };
    let cpu = cpu(2);
    let summary = crate::make_rooms(&cpu, &options, |_| ()).expect("made");
    assert_eq!((summary.frames, summary.pictures), (6, 12));
    let rooms = crate::EgoExo::new(options.config);
    let splits = [(Split::Train, 0), (Split::Val, 1), (Split::Test, 2)];
    for (split, take) in splits {
        for direction in [Direction::EgoToExo, Direction::ExoToEgo] {
            let pairs = EgoExo::open(&options.out, split, direction).expect("opens");
            let made = rooms.pair(&cpu, 2 * take + 1);
            let is_last = |id: &&percept_data::egoexo::PairId| id.frame == 30;
            let (index, id) = pairs
                .pairs()
                .iter()
                .enumerate()
                .rfind(|(_, id)| is_last(id))
                .expect("a pair of the second frame");
            let object = made
                .objects
                .iter()
                .find(|o| o.name == id.object)
                .expect("the object");
            let (source, truth, sight) = match direction {
                Direction::EgoToExo => (&object.ego, &object.exo, &made.exo),
                Direction::ExoToEgo => (&object.exo, &object.ego, &made.ego),
            };
            let sample = pairs.sample(index).expect("reads");
            let masks = |part: &str| sample.masks(part).expect("masks").to_vec();
            assert_eq!(masks("source-mask"), std::slice::from_ref(source));
            assert_eq!(masks("truth"), std::slice::from_ref(truth));
            let candidates: Vec<_> = sight.candidates.iter().map(|c| c.mask.clone()).collect();
            assert_eq!(masks("dest-masks"), candidates);
        }
    }
    let options = crate::MakeRoomsOptions {
        layout: crate::RoomLayout::Pairs,
        takes: 1,
        out: folder.path().join("pairs"),
        ..options
    };
    crate::make_rooms(&cpu, &options, |_| ()).expect("made");
    let pairs = PairFolder::open(&options.out).expect("opens");
    assert!(pairs.len() >= 10, "{}", pairs.len());
    let sample = pairs.sample(0).expect("reads");
    assert!(sample.masks("truth").is_ok() && sample.masks("dest-masks").is_ok());
}

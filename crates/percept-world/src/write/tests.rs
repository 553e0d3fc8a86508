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

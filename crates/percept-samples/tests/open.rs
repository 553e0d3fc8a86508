//! What users name, as samples.

use std::path::{Path, PathBuf};

use percept_data::images::{RgbImage, encode_png};
use percept_data::points::encode_velodyne;
use percept_data::safetensors::write_safetensors;
use percept_data::seeded::{Family, seeded_values};
use percept_data::{Example, Sample, Samples};
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_models::{Model, Settings, zoo};
use percept_samples::{Given, OpenError, OpenOptions, open};

fn network(name: &str) -> Model {
    zoo::build(name, &Settings::none()).unwrap()
}

fn given(part: Option<&str>, path: &Path) -> Given {
    Given {
        part: part.map(str::to_owned),
        path: path.to_owned(),
    }
}

fn opened(name: &str, paths: &[&Path]) -> Result<Box<dyn Samples>, OpenError> {
    let paths: Vec<Given> = paths.iter().map(|path| given(None, path)).collect();
    open(&network(name), &paths, &OpenOptions::default())
}

fn names(samples: &dyn Samples) -> Vec<String> {
    let file = |index| {
        let name = samples.name(index);
        name.rsplit('/').next().unwrap_or_default().to_owned()
    };
    (0..samples.len()).map(file).collect()
}

#[test]
fn folders_are_listed_and_read_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let image = RgbImage::filled(3, 2, [9, 8, 7]);
    std::fs::write(folder.path().join("b.png"), encode_png(&image).unwrap()).unwrap();
    std::fs::write(folder.path().join("a.JPG"), "no image").unwrap();
    std::fs::write(folder.path().join("notes.txt"), "").unwrap();
    let samples = opened("resnet18", &[folder.path()]).unwrap();
    assert_eq!(names(&*samples), ["a.JPG", "b.png"]);
    assert!(samples.sample(0).unwrap_err().to_string().contains("a.JPG"));
    assert_eq!(samples.sample(1).unwrap().image("image").unwrap(), &image);
    let empty = tempfile::tempdir().unwrap();
    let error = opened("resnet18", &[empty.path()]).err().unwrap();
    assert!(
        error.to_string().contains("no .jpg or .png files"),
        "{error}"
    );
}

/// A KITTI scan of points along x.
fn scan(folder: &Path, name: &str, points: usize) -> PathBuf {
    let point = |index: usize| percept_data::points::Point {
        position: [index as f32, 0.0, 0.0],
        intensity: 0.5,
        age_s: 0.0,
        ring: None,
    };
    std::fs::create_dir_all(folder).unwrap();
    let points: Vec<_> = (0..points).map(point).collect();
    let path = folder.join(name);
    std::fs::write(&path, encode_velodyne(&points)).unwrap();
    path
}

fn count(sample: &Sample) -> usize {
    sample.frame("points").unwrap().points.len()
}

#[test]
fn points_come_from_files_folders_and_datasets() {
    let root = tempfile::tempdir().unwrap();
    let flat = root.path().join("flat");
    let file = scan(&flat, "1.bin", 4);
    scan(&flat, "2.bin", 9);
    scan(&root.path().join("kitti/velodyne"), "000000.bin", 3);
    let sequence = root.path().join("semantic/sequences/00/velodyne");
    scan(&sequence, "000000.bin", 6);
    scan(&sequence, "000001.bin", 7);
    let [kitti, semantic] = ["kitti", "semantic"].map(|name| root.path().join(name));
    let all: [&Path; 4] = [&file, &flat, &kitti, &semantic];
    let samples = opened("centerpoint", &all).unwrap();
    let counts: Vec<usize> = (0..samples.len())
        .map(|index| count(&samples.sample(index).unwrap()))
        .collect();
    assert_eq!(counts, [4, 4, 9, 3, 6, 7]);
    assert!(samples.name(5).ends_with("semantic, frame 1"));

    let one = OpenOptions {
        frame: Some(1),
        ..OpenOptions::default()
    };
    let paths = [given(None, &semantic)];
    let samples = open(&network("centerpoint"), &paths, &one).unwrap();
    assert_eq!((samples.len(), count(&samples.sample(0).unwrap())), (1, 7));
    let beyond = OpenOptions {
        frame: Some(2),
        ..one
    };
    let error = open(&network("centerpoint"), &paths, &beyond)
        .err()
        .unwrap();
    assert!(
        error.is_usage() && error.to_string().contains("2 frames"),
        "{error}"
    );
    let sweeps = OpenOptions {
        sweeps: 3,
        ..OpenOptions::default()
    };
    let error = open(&network("centerpoint"), &[given(None, &flat)], &sweeps);
    assert!(error.err().unwrap().is_usage());
}

#[test]
fn seeded_samples_are_slices_of_one_stream() {
    let model = network("resnet18").sized(None, [5, 7]).unwrap();
    let options = OpenOptions {
        count: 3,
        ..OpenOptions::default()
    };
    let samples = open(&model, &[], &options).unwrap();
    let cpu = Cpu::new(1).unwrap();
    let examples = (0..3).map(|index| {
        let sample = samples.sample(index).unwrap();
        model.example(&cpu, &sample).unwrap()
    });
    let batch = model.batch(examples.collect()).unwrap();
    let whole = seeded_values(Family::Vision, "input.image", &[3, 3, 5, 7]);
    assert_eq!(batch.samples, 3);
    assert_eq!(batch.get("image").unwrap().values::<f32>().unwrap(), whole);
}

#[test]
fn the_street_stands_in_for_points() {
    let options = OpenOptions {
        count: 2,
        seed: 3,
        ..OpenOptions::default()
    };
    let samples = open(&network("centerpoint"), &[], &options).unwrap();
    assert_eq!(samples.name(1), "synthetic world, seed 3, frame 1");
    // Any order gives the same frames.
    let (second, first) = (samples.sample(1).unwrap(), samples.sample(0).unwrap());
    let again = samples.sample(1).unwrap();
    assert_eq!(
        second.frame("points").unwrap(),
        again.frame("points").unwrap()
    );
    assert_ne!(
        first.frame("points").unwrap(),
        second.frame("points").unwrap()
    );
}

/// Points and counts of two samples, as references store them.
#[test]
fn tensors_of_several_samples_are_one_example() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let points = Tensor::from_values([3, 5], vec![1f32; 15]).unwrap();
    let counts = Tensor::from_values([2], vec![2i64, 1]).unwrap();
    let tensors = [("input.points", points), ("counts", counts)];
    let tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor));
    write_safetensors(&path, &tensors, &Default::default()).unwrap();
    let model = network("centerpoint");
    let samples = opened("centerpoint", &[&path]).unwrap();
    let sample = samples.sample(0).unwrap();
    let example: Example = model.example(&Cpu::new(1).unwrap(), &sample).unwrap();
    assert_eq!((samples.len(), example.samples), (1, 2));
    let counts = example.get("counts").unwrap();
    assert_eq!(counts.values::<i32>().unwrap(), [2, 1]);

    let error = opened("paco-contrast", &[&path]).err().unwrap().to_string();
    assert!(
        error.contains("`labels`") && error.contains("counts"),
        "{error}"
    );
}

#[test]
fn parts_are_named_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = |name: &str, tensor: Tensor<'static>| {
        let path = folder.path().join(name);
        write_safetensors(&path, &[("t".to_owned(), tensor)], &Default::default()).unwrap();
        path
    };
    let labels = tensor(
        "l.safetensors",
        Tensor::from_values([1], vec![0i32]).unwrap(),
    );
    let model = network("paco-contrast");
    let shape = model.input_shapes(1).remove(1).1;
    let values = vec![0f32; shape.iter().product()];
    let parts = tensor("p.safetensors", Tensor::from_values(shape, values).unwrap());
    let options = OpenOptions::default();
    let both = [given(Some("labels"), &labels), given(Some("parts"), &parts)];
    let samples = open(&model, &both, &options).unwrap();
    let sample = samples.sample(0).unwrap();
    assert!(sample.tensor("labels").is_ok() && sample.tensor("parts").is_ok());

    let error = |given: &[Given]| open(&model, given, &options).err().unwrap().to_string();
    let mixed = [given(Some("labels"), &labels), given(None, &parts)];
    assert!(error(&mixed).contains("name the part"));
    let uneven = [both[0].clone(), both[0].clone(), both[1].clone()];
    assert_eq!(error(&uneven), "labels has 2 samples, parts has 1");
    let unknown = [given(Some("camera"), &labels)];
    assert_eq!(
        error(&unknown),
        "paco-contrast has no part `camera`; a sample of it has labels, parts"
    );
}

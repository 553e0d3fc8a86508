//! Scans with a label for each point: towns of the synthetic world, rendered once and kept in memory, or a folder.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use percept_data::points::{
    LEARNED_CLASS_NAMES, LidarConvention, LidarDataset, LidarFrame, Point, PointLabel, PointsError,
    read_labels_for, read_velodyne,
};
use percept_data::random::hash;
use percept_data::{Datum, Sample, SampleError, Samples, SettingError};
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_models::randlanet::LABEL_COUNTS;
use percept_world::{World, WorldConfig, WorldKind};
use serde::{Deserialize, Serialize};

use crate::OpenError;
use crate::images::files_in;

/// How many scans of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScanSettings {
    /// Everything in the towns follows from this; held-out towns have another.
    pub seed: u64,
    /// Scans to learn from.
    pub frames: usize,
    /// Scans to be judged by, in other towns.
    pub testing_frames: usize,
    /// Scans of a town.
    pub per_town: usize,
    /// Every so many scans of a town's drive, ten a second, one is taken.
    pub every: usize,
}

impl Default for ScanSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            frames: 600,
            testing_frames: 200,
            per_town: 3,
            every: 60,
        }
    }
}

/// The part of a sample with the points and their labels.
const POINTS: &str = "points";
/// What the seed of held-out towns differs by.
const HELD_OUT: u64 = 0x7465_7374;
/// Scans of a folder that are read to know how common each class is.
const COUNTED_SCANS: usize = 200;

impl ScanSettings {
    /// Renders scans to learn from, and scans of other towns to be judged by.
    pub(super) fn render(&self, cpu: &Cpu) -> Result<[Scans; 2], SettingError> {
        for (setting, value) in [
            ("data.scans.frames", self.frames),
            ("data.scans.testing_frames", self.testing_frames),
            ("data.scans.per_town", self.per_town),
            ("data.scans.every", self.every),
        ] {
            SettingError::unless(value > 0, setting, value, "at least 1")?;
        }
        let training = self.towns(cpu, self.seed, self.frames);
        let testing = self.towns(cpu, hash(self.seed, HELD_OUT, 0), self.testing_frames);
        Ok([
            Scans::new("a street", Source::Kept(training)),
            Scans::new("a street of a held-out town", Source::Kept(testing)),
        ])
    }

    fn towns(&self, cpu: &Cpu, seed: u64, scans: usize) -> Vec<KeptScan> {
        let towns = (0..scans).step_by(self.per_town).enumerate();
        let town = |(town, first): (usize, usize)| {
            let seed = hash(seed, town as u64, 0);
            let mut world = World::new(WorldConfig::new(WorldKind::SemanticKitti, seed));
            let own = 0..self.per_town.min(scans - first);
            let scans = own.map(|scan| KeptScan::of(&world.frame(cpu, scan * self.every)));
            scans.collect::<Vec<_>>()
        };
        towns.flat_map(town).collect()
    }
}

/// A scan without what no lesson asks for, so that many fit into memory.
struct KeptScan {
    /// x, y, z and intensity.
    points: Vec<[f32; 4]>,
    classes: Vec<u16>,
}

impl KeptScan {
    fn of(frame: &LidarFrame) -> Self {
        let row = |point: &Point| {
            let [x, y, z] = point.position;
            [x, y, z, point.intensity]
        };
        let labels = frame.labels.iter().flatten();
        Self {
            points: frame.points.iter().map(row).collect(),
            classes: labels.map(|label| label.class).collect(),
        }
    }

    fn frame(&self) -> LidarFrame {
        let point = |&[x, y, z, intensity]: &[f32; 4]| Point {
            position: [x, y, z],
            intensity,
            age_s: 0.0,
            ring: None,
        };
        let label = |&class: &u16| PointLabel { class, instance: 0 };
        LidarFrame {
            labels: Some(self.classes.iter().map(label).collect()),
            ..LidarFrame::from_points(
                LidarConvention::Kitti,
                self.points.iter().map(point).collect(),
            )
        }
    }
}

/// The scans of a folder: SemanticKITTI's layout, one sequence of it, or `.bin` files with `.label` files beside them. The last
/// `hold_out` of them are to be judged by.
pub(super) fn read_folder(folder: &Path, hold_out: f64) -> Result<[Scans; 2], OpenError> {
    let open = || -> Result<(Folder, usize), OpenError> {
        match LidarDataset::open(folder) {
            Ok(dataset) => {
                let count = dataset.frames();
                Ok((Folder::Dataset(dataset), count))
            }
            Err(PointsError::UnknownLayout { .. }) => {
                let sequence = folder.join("velodyne");
                let inside = if sequence.is_dir() { &sequence } else { folder };
                let files = files_in(inside, &[".bin"], "point")?;
                let count = files.len();
                Ok((Folder::Files(files), count))
            }
            Err(error) => Err(error.into()),
        }
    };
    let name = folder.display().to_string();
    let (training, count) = open()?;
    let (testing, _) = open()?;
    let held_out = ((count as f64 * hold_out) as usize).min(count);
    let first = count - held_out;
    let part = |folder, first, count| Source::Folder {
        folder,
        first,
        count,
    };
    Ok([
        Scans::new(&name, part(training, 0, first)),
        Scans::new(&name, part(testing, first, held_out)),
    ])
}

enum Folder {
    Dataset(LidarDataset),
    Files(Vec<PathBuf>),
}

impl Folder {
    fn frame(&self, index: usize) -> Result<LidarFrame, PointsError> {
        match self {
            Self::Dataset(dataset) => dataset.frame(index, 1),
            Self::Files(files) => labelled_file(&files[index]),
        }
    }

    fn name(&self, folder: &str, index: usize) -> String {
        match self {
            Self::Dataset(_) => format!("{folder}, scan {index}"),
            Self::Files(files) => files[index].display().to_string(),
        }
    }
}

/// A scan with the labels that lie beside it, or in the `labels` folder beside its own.
fn labelled_file(path: &Path) -> Result<LidarFrame, PointsError> {
    let cloud = read_velodyne(path)?;
    let beside = path.with_extension("label");
    let sequence = path.parent().and_then(Path::parent);
    let in_sequence = sequence
        .zip(beside.file_name())
        .map(|(sequence, name)| sequence.join("labels").join(name));
    let label_path = in_sequence.filter(|labels| !beside.is_file() && labels.is_file());
    let labels = read_labels_for(&label_path.unwrap_or(beside), cloud.rows())?;
    Ok(LidarFrame {
        labels: Some(cloud.of_kept(labels)),
        ..LidarFrame::from_cloud(LidarConvention::Kitti, cloud)
    })
}

enum Source {
    /// In memory.
    Kept(Vec<KeptScan>),
    /// Read when asked for.
    Folder {
        folder: Folder,
        first: usize,
        count: usize,
    },
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Self::Kept(scans) => scans.len(),
            Self::Folder { count, .. } => *count,
        }
    }

    fn frame(&self, index: usize) -> Result<LidarFrame, PointsError> {
        match self {
            Self::Kept(scans) => Ok(scans[index].frame()),
            Self::Folder { folder, first, .. } => folder.frame(first + index),
        }
    }
}

/// Scans with the class of each point.
pub(super) struct Scans {
    name: String,
    source: Source,
    classes: Vec<String>,
    /// How many points each class has in some of the scans, counted when it is first asked for.
    label_counts: OnceLock<Vec<i64>>,
}

impl Scans {
    fn new(name: &str, source: Source) -> Self {
        let classes = LEARNED_CLASS_NAMES[1..].iter();
        Self {
            name: name.to_owned(),
            source,
            classes: classes.map(|class| (*class).to_owned()).collect(),
            label_counts: OnceLock::new(),
        }
    }

    /// Of scans all over the data; those that cannot be read do not count.
    fn label_counts(&self) -> Vec<i64> {
        let counted = self.label_counts.get_or_init(|| {
            let mut counts = vec![0; LEARNED_CLASS_NAMES.len()];
            let step = self.len().div_ceil(COUNTED_SCANS).max(1);
            let frames = (0..self.len()).step_by(step);
            for frame in frames.filter_map(|index| self.source.frame(index).ok()) {
                for label in frame.labels.iter().flatten() {
                    counts[usize::from(label.learned_class())] += 1;
                }
            }
            counts
        });
        counted.clone()
    }
}

impl Samples for Scans {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn name(&self, index: usize) -> String {
        match &self.source {
            Source::Kept(_) => format!("{}, scan {index}", self.name),
            Source::Folder { folder, first, .. } => folder.name(&self.name, first + index),
        }
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let frame = self.source.frame(index)?;
        let name = self.name(index);
        let counts = self.label_counts();
        let counts =
            Tensor::from_values([counts.len()], counts).map_err(|error| SampleError::Unusable {
                sample: name.clone(),
                reason: error.to_string(),
            })?;
        Ok(Sample::of(name, POINTS, Datum::Frame(Box::new(frame)))
            .with(LABEL_COUNTS, Datum::Tensor(counts)))
    }
}

#[cfg(test)]
mod tests {
    use percept_data::points::{encode_velodyne, write_labels};

    use super::*;

    fn write_scan(bin: &Path, label: &Path, points: usize, labels: usize) {
        for path in [bin, label] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        let point = |x: usize| Point {
            position: [x as f32, 0.0, 0.0],
            intensity: 0.5,
            age_s: 0.0,
            ring: None,
        };
        let points: Vec<Point> = (0..points).map(point).collect();
        std::fs::write(bin, encode_velodyne(&points)).unwrap();
        let label_of = |_| PointLabel {
            class: 40,
            instance: 0,
        };
        write_labels(label, &(0..labels).map(label_of).collect::<Vec<_>>()).unwrap();
    }

    #[test]
    fn towns_differ_and_are_the_same_again() {
        let settings = ScanSettings {
            frames: 3,
            testing_frames: 1,
            per_town: 2,
            ..ScanSettings::default()
        };
        let cpu = Cpu::new(2).unwrap();
        let [training, testing] = settings.render(&cpu).unwrap();
        assert_eq!((training.len(), testing.len()), (3, 1));
        assert_eq!(training.classes().len(), 19);
        let points = |scans: &Scans, index| {
            let sample = scans.sample(index).unwrap();
            let frame = sample.frame(POINTS).unwrap();
            assert_eq!(frame.labels.as_ref().unwrap().len(), frame.points.len());
            frame.points.clone()
        };
        let all = [
            points(&training, 0),
            points(&training, 1),
            points(&training, 2),
            points(&testing, 0),
        ];
        for (place, cloud) in all.iter().enumerate() {
            assert!(!all[..place].contains(cloud));
        }
        let [again, _] = settings.render(&Cpu::new(1).unwrap()).unwrap();
        assert_eq!(points(&again, 2), all[2]);
        let sample = training.sample(0).unwrap();
        let counts = sample.tensor(LABEL_COUNTS).unwrap();
        let labelled: i64 = counts.values::<i64>().unwrap().iter().sum();
        let expected: usize = all[..3].iter().map(Vec::len).sum();
        assert_eq!(labelled, expected as i64);
    }

    #[test]
    fn every_layout_of_a_folder_is_read() {
        let layouts = [
            ("sequences/00/velodyne", "sequences/00/labels"),
            ("velodyne", "labels"),
            (".", "."),
        ];
        for (bins, labels) in layouts {
            let folder = tempfile::tempdir().unwrap();
            for scan in 0..5 {
                let bin = folder.path().join(bins).join(format!("{scan:06}.bin"));
                let label = folder.path().join(labels).join(format!("{scan:06}.label"));
                write_scan(&bin, &label, 10 + scan, 10 + scan);
            }
            let [training, testing] = read_folder(folder.path(), 0.2).unwrap();
            assert_eq!((training.len(), testing.len()), (4, 1), "{bins}");
            let sample = testing.sample(0).unwrap();
            let frame = sample.frame(POINTS).unwrap();
            assert_eq!(frame.points.len(), 14);
            assert_eq!(frame.labels.as_ref().unwrap()[13].learned_class(), 9);
            let sample = training.sample(0).unwrap();
            let counts = sample.tensor(LABEL_COUNTS).unwrap();
            assert_eq!(counts.values::<i64>().unwrap()[9], 10 + 11 + 12 + 13);
        }
    }

    #[test]
    fn labels_of_another_length_and_none_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let (bin, label) = (folder.path().join("a.bin"), folder.path().join("a.label"));
        write_scan(&bin, &label, 10, 9);
        let [_, testing] = read_folder(folder.path(), 0.999).unwrap();
        assert_eq!(testing.len(), 0);
        let [training, _] = read_folder(folder.path(), 0.0).unwrap();
        let error = training.sample(0).unwrap_err().to_string();
        assert!(
            error.contains("a.label") && error.contains('9') && error.contains("10"),
            "{error}"
        );
        std::fs::remove_file(&label).unwrap();
        let error = training.sample(0).unwrap_err().to_string();
        assert!(error.contains("a.label"), "{error}");
        assert!(read_folder(&folder.path().join("none"), 0.2).is_err());
    }
}

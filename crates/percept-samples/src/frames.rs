//! LiDAR frames: single files, folders of them, and datasets, whose frames have cameras too.

use std::path::{Path, PathBuf};

use percept_data::points::{LidarDataset, LidarFrame, PointFormat, PointsError, read_frame};
use percept_data::{Datum, POSITION, Sample, SampleError, Samples};
use percept_models::intake::{Part, PartKind};

use crate::OpenOptions;
use crate::error::OpenError;
use crate::images::files_in;
use crate::places::position;

/// How names of point files end.
const ENDINGS: [&str; 4] = [".bin", ".pcd", ".ply", ".npy"];

/// Where KITTI keeps its scans.
const VELODYNE: [&str; 3] = ["velodyne", "velodyne_points/data", "training/velodyne"];

/// Frames of all given paths, one after the other.
pub(crate) struct Frames {
    parts: Vec<Part>,
    sources: Vec<Source>,
    sweeps: usize,
    format: Option<PointFormat>,
}

enum Source {
    /// A file per frame.
    Files(Vec<PathBuf>),
    /// Frames of a dataset, beginning with one.
    Dataset {
        path: PathBuf,
        dataset: LidarDataset,
        first: usize,
        count: usize,
    },
}

impl Frames {
    pub(crate) fn open(
        parts: &[Part],
        paths: &[&Path],
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let open = |path: &&Path| Source::open(path, parts, options);
        Ok(Self {
            parts: parts.to_vec(),
            sources: paths.iter().map(open).collect::<Result<_, _>>()?,
            sweeps: options.sweeps,
            format: options.format,
        })
    }

    /// The source that holds a sample, and its place there.
    fn find(&self, index: usize) -> (&Source, usize) {
        let mut within = index;
        for source in &self.sources {
            match within.checked_sub(source.len()) {
                Some(behind) => within = behind,
                None => return (source, within),
            }
        }
        panic!("sample {index} of {}", self.len())
    }
}

impl Source {
    fn open(path: &Path, parts: &[Part], options: &OpenOptions) -> Result<Self, OpenError> {
        if !path.is_dir() {
            let cameras = parts.iter().find(|part| part.kind == PartKind::Images);
            if let Some(part) = cameras {
                return Err(OpenError::NotAFolder {
                    path: path.to_path_buf(),
                    part: part.name,
                });
            }
            return Self::files(path, vec![path.to_path_buf()], options);
        }
        match LidarDataset::open(path) {
            Ok(dataset) => Self::dataset(path, dataset, options),
            Err(error @ PointsError::UnknownLayout { .. }) => {
                let inside = VELODYNE.map(|folder| path.join(folder));
                let folder = inside.into_iter().find(|folder| folder.is_dir());
                match files_in(folder.as_deref().unwrap_or(path), &ENDINGS, "point") {
                    Ok(files) => Self::files(path, files, options),
                    Err(OpenError::EmptyFolder { .. }) => Err(error.into()),
                    Err(other) => Err(other),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn files(path: &Path, files: Vec<PathBuf>, options: &OpenOptions) -> Result<Self, OpenError> {
        if options.sweeps > 1 {
            return Err(OpenError::OneSweep {
                path: path.to_path_buf(),
                sweeps: options.sweeps,
            });
        }
        let wanted = wanted(path, files.len(), options)?;
        Ok(Self::Files(files[wanted].to_vec()))
    }

    fn dataset(
        path: &Path,
        dataset: LidarDataset,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let wanted = wanted(path, dataset.frames(), options)?;
        Ok(Self::Dataset {
            path: path.to_path_buf(),
            dataset,
            first: wanted.start,
            count: wanted.len(),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Files(files) => files.len(),
            Self::Dataset { count, .. } => *count,
        }
    }

    fn name(&self, index: usize) -> String {
        match self {
            Self::Files(files) => files[index].display().to_string(),
            Self::Dataset { path, first, .. } => {
                format!("{}, frame {}", path.display(), first + index)
            }
        }
    }
}

/// The frames of a place that are asked for: one, or all.
fn wanted(
    path: &Path,
    frames: usize,
    options: &OpenOptions,
) -> Result<std::ops::Range<usize>, OpenError> {
    match options.frame {
        None => Ok(0..frames),
        Some(frame) if frame < frames => Ok(frame..frame + 1),
        Some(frame) => Err(OpenError::NoSuchFrame {
            path: path.to_path_buf(),
            frame,
            frames,
        }),
    }
}

impl Samples for Frames {
    fn len(&self) -> usize {
        self.sources.iter().map(Source::len).sum()
    }

    fn name(&self, index: usize) -> String {
        let (source, within) = self.find(index);
        source.name(within)
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let (source, within) = self.find(index);
        let frame = match source {
            Source::Files(files) => read_frame(&files[within], self.format)?,
            Source::Dataset { dataset, first, .. } => dataset.frame(first + within, self.sweeps)?,
        };
        let mut sample = Sample {
            name: source.name(within),
            parts: Vec::new(),
        };
        // A file alone does not know where it was.
        if let Source::Dataset { .. } = source {
            sample = sample.with(POSITION, position(frame.sensor_to_world.translation));
        }
        for part in self
            .parts
            .iter()
            .filter(|part| part.kind == PartKind::Images)
        {
            let images = frame.cameras.iter().map(|camera| camera.image());
            let images = images.collect::<Result<Vec<_>, _>>()?;
            sample = sample.with(part.name, Datum::Images(images));
        }
        Ok(with_points(sample, &self.parts, frame))
    }
}

fn with_points(sample: Sample, parts: &[Part], frame: LidarFrame) -> Sample {
    let points = parts
        .iter()
        .find(|part| matches!(part.kind, PartKind::Points(_)));
    match points {
        Some(part) => sample.with(part.name, Datum::Frame(Box::new(frame))),
        None => sample,
    }
}

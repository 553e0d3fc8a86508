//! One cloud in one file, in any of the common formats, as the rows that detection networks take.

mod pcd;
mod ply;
mod ply_write;
mod table;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use half::f16;

pub use self::ply_write::{PlyPoints, write_ply};
use super::cloud::{f32_columns, read_velodyne, split_rows};
use super::error::{PointsError, read_bytes};
use super::frame::{LidarConvention, LidarFrame, Point};
use crate::arrays::read_npy;

/// KITTI stores intensities of 0 to 1; networks take 0 to 255.
const KITTI_INTENSITY: f32 = 255.0;

/// A way to store points in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointFormat {
    /// nuScenes: f32 x, y, z, intensity, ring.
    NuScenes,
    /// KITTI: f32 x, y, z, intensity of 0 to 1.
    Kitti,
    /// Merged sweeps: f16 x, y, z, intensity, seconds before the keyframe.
    F16x5,
    /// The Point Cloud Library's PCD, ascii or binary, with fields x, y, z and perhaps intensity and dt.
    Pcd,
    /// Stanford's PLY, ascii or binary, with vertex properties x, y, z and perhaps intensity and dt.
    Ply,
    /// A numpy array of N x 3, 4 or 5: x, y, z, intensity, seconds before the keyframe.
    Npy,
}

impl PointFormat {
    /// Every format.
    pub const ALL: [Self; 6] = [
        Self::NuScenes,
        Self::Kitti,
        Self::F16x5,
        Self::Pcd,
        Self::Ply,
        Self::Npy,
    ];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::NuScenes => "nuscenes",
            Self::Kitti => "kitti",
            Self::F16x5 => "f16x5",
            Self::Pcd => "pcd",
            Self::Ply => "ply",
            Self::Npy => "npy",
        }
    }

    /// The format that a file's name tells, or else the only one whose rows fit into its length.
    fn guess(path: &Path, bytes: usize) -> Result<Self, PointsError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_ascii_lowercase();
        let named = [
            (".pcd.bin", Self::NuScenes),
            ("_fp16x5.bin", Self::F16x5),
            (".pcd", Self::Pcd),
            (".ply", Self::Ply),
            (".npy", Self::Npy),
        ];
        if let Some((_, format)) = named.into_iter().find(|(end, _)| name.ends_with(end)) {
            return Ok(format);
        }
        if !name.ends_with(".bin") {
            return Err(PointsError::UnknownFormat {
                path: path.to_path_buf(),
            });
        }
        let fitting: Vec<Self> = [(Self::Kitti, 16), (Self::NuScenes, 20), (Self::F16x5, 10)]
            .into_iter()
            .filter(|(_, row_bytes)| bytes.is_multiple_of(*row_bytes))
            .map(|(format, _)| format)
            .collect();
        match fitting[..] {
            [format] => Ok(format),
            // No points, whatever they are.
            [format, ..] if bytes == 0 => Ok(format),
            _ => Err(PointsError::AmbiguousFormat {
                path: path.to_path_buf(),
                bytes,
                fitting: fitting.into_iter().map(Self::name).collect(),
            }),
        }
    }
}

impl fmt::Display for PointFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PointFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown point format '{text}': expected one of {names}")
        })
    }
}

/// Points as detection networks take them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointCloud {
    /// Rows of x, y, z (metres), intensity (0 to 255), seconds before the keyframe.
    pub values: Vec<f32>,
    /// The rows of the file that were left out, ascending: a value in them is NaN or infinite.
    pub dropped_rows: Vec<usize>,
}

impl PointCloud {
    /// Values of a point.
    pub const CHANNELS: usize = 5;

    /// The points of a frame.
    pub fn from_frame(frame: &LidarFrame) -> Self {
        Self::from_points(frame.convention, &frame.points)
    }

    /// These points.
    pub fn from_points(convention: LidarConvention, points: &[Point]) -> Self {
        let scale = match convention {
            LidarConvention::NuScenes => 1.0,
            LidarConvention::Kitti => KITTI_INTENSITY,
        };
        let row = |point: &Point| {
            let [x, y, z] = point.position;
            [x, y, z, point.intensity * scale, point.age_s]
        };
        points.iter().map(row).collect()
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.values.len() / Self::CHANNELS
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl FromIterator<[f32; PointCloud::CHANNELS]> for PointCloud {
    fn from_iter<I: IntoIterator<Item = [f32; PointCloud::CHANNELS]>>(rows: I) -> Self {
        let mut cloud = PointCloud::default();
        for (place, row) in rows.into_iter().enumerate() {
            if row.iter().all(|value| value.is_finite()) {
                cloud.values.extend(row);
            } else {
                cloud.dropped_rows.push(place);
            }
        }
        cloud
    }
}

/// Reads the points of a file in the given format, or else the one that its name and length tell.
pub fn read_points(path: &Path, format: Option<PointFormat>) -> Result<PointCloud, PointsError> {
    let bytes = read_bytes(path)?;
    let format = match format {
        Some(format) => format,
        None => PointFormat::guess(path, bytes.len())?,
    };
    match format {
        PointFormat::NuScenes => {
            let rows = split_rows::<20>(path, &bytes, "points of 5 x f32")?;
            let point = |row| {
                let [x, y, z, intensity, _ring] = f32_columns(row);
                [x, y, z, intensity, 0.0]
            };
            Ok(rows.iter().map(point).collect())
        }
        PointFormat::Kitti => {
            let rows = split_rows::<16>(path, &bytes, "points of 4 x f32")?;
            let point = |row| {
                let [x, y, z, intensity] = f32_columns(row);
                [x, y, z, intensity * KITTI_INTENSITY, 0.0]
            };
            Ok(rows.iter().map(point).collect())
        }
        PointFormat::F16x5 => {
            let rows = split_rows::<10>(path, &bytes, "points of 5 x f16")?;
            Ok(rows.iter().map(f16_columns).collect())
        }
        PointFormat::Pcd => pcd::parse(path, &bytes),
        PointFormat::Ply => ply::parse(path, &bytes),
        PointFormat::Npy => array_points(path),
    }
}

/// Reads the points of a file as a frame: those of KITTI's format as KITTI has them, all others as nuScenes does.
pub fn read_frame(path: &Path, format: Option<PointFormat>) -> Result<LidarFrame, PointsError> {
    let format = match format {
        Some(format) => format,
        None => {
            let length = std::fs::metadata(path).map_err(|error| PointsError::io(path, error))?;
            PointFormat::guess(path, length.len() as usize)?
        }
    };
    if format == PointFormat::Kitti {
        let cloud = read_velodyne(path)?;
        return Ok(LidarFrame::from_cloud(LidarConvention::Kitti, cloud));
    }
    let cloud = read_points(path, Some(format))?;
    let (rows, _) = cloud.values.as_chunks::<{ PointCloud::CHANNELS }>();
    let point = |&[x, y, z, intensity, age_s]: &[f32; PointCloud::CHANNELS]| Point {
        position: [x, y, z],
        intensity,
        age_s,
        ring: None,
    };
    let points = rows.iter().map(point).collect();
    Ok(LidarFrame {
        dropped_non_finite: cloud.dropped_rows.len(),
        dropped_rows: cloud.dropped_rows,
        ..LidarFrame::from_points(LidarConvention::NuScenes, points)
    })
}

/// The columns of a row of five f16.
pub(super) fn f16_columns(row: &[u8; 10]) -> [f32; 5] {
    let (columns, _) = row.as_chunks::<2>();
    std::array::from_fn(|i| f16::from_le_bytes(columns[i]).to_f32())
}

fn array_points(path: &Path) -> Result<PointCloud, PointsError> {
    let tensor = read_npy(path)?;
    let columns = match *tensor.shape() {
        [_, columns @ 3..=PointCloud::CHANNELS] => columns,
        _ => {
            let what = format!(
                "an array of shape {:?}: expected N x 3, 4 or 5 (x, y, z, intensity, dt)",
                tensor.shape()
            );
            return Err(PointsError::invalid(path, what));
        }
    };
    let values = tensor.to_f32();
    let padded = |row: &[f32]| std::array::from_fn(|i| row.get(i).copied().unwrap_or(0.0));
    Ok(values.chunks_exact(columns).map(padded).collect())
}

#[cfg(test)]
mod tests;

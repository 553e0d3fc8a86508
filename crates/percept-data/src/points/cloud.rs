use std::path::Path;

use super::error::{PointsError, read_bytes};
use super::file::f16_columns;
use super::frame::Point;

/// The points of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cloud {
    /// The points, in file order.
    pub points: Vec<Point>,
    /// The rows that were left out because a coordinate, an intensity or an age in them is NaN or infinite.
    pub dropped_rows: Vec<usize>,
}

impl Cloud {
    /// How many rows the file has, with those that were left out.
    pub fn rows(&self) -> usize {
        self.points.len() + self.dropped_rows.len()
    }

    /// What `values`, one per row of the file, says of the points that were kept.
    pub fn of_kept<T>(&self, mut values: Vec<T>) -> Vec<T> {
        let (mut row, mut dropped) = (0, self.dropped_rows.iter().peekable());
        values.retain(|_| {
            let is_dropped = dropped.next_if_eq(&&row).is_some();
            row += 1;
            !is_dropped
        });
        values
    }
}

/// Reads a KITTI velodyne `.bin`: little-endian f32 x, y, z, intensity.
pub fn read_velodyne(path: &Path) -> Result<Cloud, PointsError> {
    decode_rows::<16>(path, "points of 4 x f32", |row| {
        let [x, y, z, intensity] = f32_columns(row);
        Decoded::new([x, y, z], intensity, 0.0)
    })
}

/// Reads a nuScenes `.pcd.bin` (which is not a PCD file): little-endian f32 x, y, z, intensity, ring.
pub fn read_nuscenes_cloud(path: &Path) -> Result<Cloud, PointsError> {
    decode_rows::<20>(path, "points of 5 x f32", |row| {
        let [x, y, z, intensity, ring] = f32_columns(row);
        Decoded {
            ring: Some(ring),
            ..Decoded::new([x, y, z], intensity, 0.0)
        }
    })
}

/// Reads merged sweeps stored as little-endian f16 x, y, z, intensity, age in seconds.
pub fn read_merged_f16(path: &Path) -> Result<Cloud, PointsError> {
    decode_rows::<10>(path, "points of 5 x f16", |row| {
        let [x, y, z, intensity, age_s] = f16_columns(row);
        Decoded::new([x, y, z], intensity, age_s)
    })
}

/// The bytes of a velodyne `.bin`.
pub fn encode_velodyne(points: &[Point]) -> Vec<u8> {
    points
        .iter()
        .flat_map(|p| [p.position[0], p.position[1], p.position[2], p.intensity])
        .flat_map(f32::to_le_bytes)
        .collect()
}

/// The bytes of a nuScenes `.pcd.bin`; a point without a ring gets ring 0.
pub fn encode_nuscenes_cloud(points: &[Point]) -> Vec<u8> {
    points
        .iter()
        .flat_map(|p| {
            let ring = f32::from(p.ring.unwrap_or(0));
            [
                p.position[0],
                p.position[1],
                p.position[2],
                p.intensity,
                ring,
            ]
        })
        .flat_map(f32::to_le_bytes)
        .collect()
}

/// The columns of a row of f32.
pub(super) fn f32_columns<const ROW: usize, const N: usize>(row: &[u8; ROW]) -> [f32; N] {
    let (columns, _) = row.as_chunks::<4>();
    std::array::from_fn(|i| columns.get(i).map_or(f32::NAN, |c| f32::from_le_bytes(*c)))
}

/// The rows of a file that holds nothing else.
pub(super) fn split_rows<'a, const ROW: usize>(
    path: &Path,
    bytes: &'a [u8],
    rows: &'static str,
) -> Result<&'a [[u8; ROW]], PointsError> {
    let (chunks, rest) = bytes.as_chunks::<ROW>();
    if !rest.is_empty() {
        return Err(PointsError::PartialRow {
            path: path.to_path_buf(),
            bytes: bytes.len(),
            row_bytes: ROW,
            rows,
        });
    }
    Ok(chunks)
}

/// A row of a file, not yet looked at.
struct Decoded {
    position: [f32; 3],
    intensity: f32,
    age_s: f32,
    ring: Option<f32>,
}

impl Decoded {
    fn new(position: [f32; 3], intensity: f32, age_s: f32) -> Self {
        Self {
            position,
            intensity,
            age_s,
            ring: None,
        }
    }

    fn is_finite(&self) -> bool {
        let rest = [self.intensity, self.age_s];
        self.position.iter().chain(&rest).all(|v| v.is_finite())
    }
}

fn decode_rows<const ROW: usize>(
    path: &Path,
    rows: &'static str,
    decode: impl Fn(&[u8; ROW]) -> Decoded,
) -> Result<Cloud, PointsError> {
    let bytes = read_bytes(path)?;
    let mut cloud = Cloud::default();
    for (index, row) in split_rows::<ROW>(path, &bytes, rows)?.iter().enumerate() {
        let decoded = decode(row);
        if !decoded.is_finite() {
            cloud.dropped_rows.push(index);
            continue;
        }
        let ring = match decoded.ring {
            Some(ring) if ring.fract() != 0.0 || !(0.0..=255.0).contains(&ring) => {
                return Err(PointsError::BadRing {
                    path: path.to_path_buf(),
                    index,
                    ring,
                });
            }
            ring => ring.map(|ring| ring as u8),
        };
        cloud.points.push(Point {
            position: decoded.position,
            intensity: decoded.intensity,
            age_s: decoded.age_s,
            ring,
        });
    }
    Ok(cloud)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on_disk(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn any_point() -> impl Strategy<Value = Point> {
        (
            prop::array::uniform3(-100.0..100.0f32),
            0.0..255.0f32,
            0..32u8,
        )
            .prop_map(|(position, intensity, ring)| Point {
                position,
                intensity,
                age_s: 0.0,
                ring: Some(ring),
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn clouds_round_trip(points in prop::collection::vec(any_point(), 0..50)) {
            let file = on_disk(&encode_nuscenes_cloud(&points));
            prop_assert_eq!(&read_nuscenes_cloud(file.path()).unwrap().points, &points);
            let file = on_disk(&encode_velodyne(&points));
            let without_ring: Vec<_> = points.iter().map(|p| Point { ring: None, ..*p }).collect();
            prop_assert_eq!(read_velodyne(file.path()).unwrap().points, without_ring);
        }

        #[test]
        fn any_bytes_give_points_or_a_typed_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let file = on_disk(&bytes);
            for (row, result) in [
                (16, read_velodyne(file.path())),
                (20, read_nuscenes_cloud(file.path())),
                (10, read_merged_f16(file.path())),
            ] {
                match result {
                    Ok(cloud) => {
                        prop_assert_eq!(cloud.rows() * row, bytes.len());
                        prop_assert!(cloud.points.iter().all(|p| p.position.iter().all(|v| v.is_finite())));
                    }
                    Err(PointsError::PartialRow { .. }) => prop_assert!(bytes.len() % row != 0),
                    Err(PointsError::BadRing { index, .. }) => prop_assert!(index < bytes.len() / row),
                    Err(other) => prop_assert!(false, "unexpected {other}"),
                }
            }
        }
    }

    #[test]
    fn rows_that_are_not_finite_are_left_out_and_told() {
        let points: Vec<Point> = (0..4)
            .map(|i| Point {
                position: [i as f32; 3],
                intensity: 0.5,
                age_s: 0.0,
                ring: Some(3),
            })
            .collect();
        let mut bytes = encode_nuscenes_cloud(&points);
        // All of row 1, as sensors write "no return"; the intensity of row 3.
        for column in 0..5 {
            bytes[20 + 4 * column..24 + 4 * column].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        bytes[72..76].copy_from_slice(&f32::INFINITY.to_le_bytes());
        let cloud = read_nuscenes_cloud(on_disk(&bytes).path()).unwrap();
        assert_eq!(cloud.points, [points[0], points[2]]);
        assert_eq!(cloud.dropped_rows, [1, 3]);
        assert_eq!(cloud.of_kept(vec!['a', 'b', 'c', 'd']), ['a', 'c']);
    }

    #[test]
    fn errors_name_the_file_and_the_point() {
        let mut bytes = encode_nuscenes_cloud(
            &[Point {
                position: [1.0; 3],
                intensity: 0.5,
                age_s: 0.0,
                ring: None,
            }; 3],
        );
        bytes[36..40].copy_from_slice(&0.5f32.to_le_bytes());
        let file = on_disk(&bytes);
        let text = read_nuscenes_cloud(file.path()).unwrap_err().to_string();
        assert!(text.contains("point 1: ring is 0.5"), "{text}");
        let text = read_velodyne(file.path()).unwrap_err().to_string();
        assert!(
            text.contains("60 bytes") && text.contains("16-byte"),
            "{text}"
        );
    }
}

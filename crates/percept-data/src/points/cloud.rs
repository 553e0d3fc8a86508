use std::path::Path;

use super::error::{PointsError, read_bytes};
use super::file::f16_columns;
use super::frame::Point;

/// Reads a KITTI velodyne `.bin`: little-endian f32 x, y, z, intensity.
pub fn read_velodyne(path: &Path) -> Result<Vec<Point>, PointsError> {
    decode_rows::<16>(path, "points of 4 x f32", |row| {
        let [x, y, z, intensity] = f32_columns(row);
        Ok(Point {
            position: [x, y, z],
            intensity,
            age_s: 0.0,
            ring: None,
        })
    })
}

/// Reads a nuScenes `.pcd.bin` (which is not a PCD file): little-endian f32 x, y, z, intensity, ring.
pub fn read_nuscenes_cloud(path: &Path) -> Result<Vec<Point>, PointsError> {
    decode_rows::<20>(path, "points of 5 x f32", |row| {
        let [x, y, z, intensity, ring] = f32_columns(row);
        if ring.fract() != 0.0 || !(0.0..=255.0).contains(&ring) {
            return Err(("ring", ring));
        }
        Ok(Point {
            position: [x, y, z],
            intensity,
            age_s: 0.0,
            ring: Some(ring as u8),
        })
    })
}

/// Reads merged sweeps stored as little-endian f16 x, y, z, intensity, age in seconds.
pub fn read_merged_f16(path: &Path) -> Result<Vec<Point>, PointsError> {
    decode_rows::<10>(path, "points of 5 x f16", |row| {
        let [x, y, z, intensity, age_s] = f16_columns(row);
        Ok(Point {
            position: [x, y, z],
            intensity,
            age_s,
            ring: None,
        })
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

fn decode_rows<const ROW: usize>(
    path: &Path,
    rows: &'static str,
    decode: impl Fn(&[u8; ROW]) -> Result<Point, (&'static str, f32)>,
) -> Result<Vec<Point>, PointsError> {
    let bytes = read_bytes(path)?;
    let chunks = split_rows::<ROW>(path, &bytes, rows)?;
    let finite = |point: Point| {
        let [x, y, z] = point.position;
        let columns = [
            ("x", x),
            ("y", y),
            ("z", z),
            ("intensity", point.intensity),
            ("age", point.age_s),
        ];
        match columns.into_iter().find(|(_, value)| !value.is_finite()) {
            Some(bad) => Err(bad),
            None => Ok(point),
        }
    };
    chunks
        .iter()
        .enumerate()
        .map(|(index, row)| {
            decode(row)
                .and_then(finite)
                .map_err(|(column, value)| PointsError::BadPoint {
                    path: path.to_path_buf(),
                    index,
                    column,
                    value,
                })
        })
        .collect()
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
            prop_assert_eq!(&read_nuscenes_cloud(file.path()).unwrap(), &points);
            let file = on_disk(&encode_velodyne(&points));
            let without_ring: Vec<_> = points.iter().map(|p| Point { ring: None, ..*p }).collect();
            prop_assert_eq!(read_velodyne(file.path()).unwrap(), without_ring);
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
                    Ok(points) => {
                        prop_assert_eq!(points.len() * row, bytes.len());
                        prop_assert!(points.iter().all(|p| p.position.iter().all(|v| v.is_finite())));
                    }
                    Err(PointsError::PartialRow { .. }) => prop_assert!(bytes.len() % row != 0),
                    Err(PointsError::BadPoint { index, .. }) => prop_assert!(index < bytes.len() / row),
                    Err(other) => prop_assert!(false, "unexpected {other}"),
                }
            }
        }
    }

    #[test]
    fn errors_name_the_file_and_the_point() {
        let mut bytes = encode_velodyne(
            &[Point {
                position: [1.0; 3],
                intensity: 0.5,
                age_s: 0.0,
                ring: None,
            }; 3],
        );
        bytes[20..24].copy_from_slice(&f32::NAN.to_le_bytes());
        let file = on_disk(&bytes);
        let text = read_velodyne(file.path()).unwrap_err().to_string();
        assert!(text.contains("point 1: y is NaN"), "{text}");
        let text = read_nuscenes_cloud(file.path()).unwrap_err().to_string();
        assert!(
            text.contains("48 bytes") && text.contains("20-byte"),
            "{text}"
        );
    }
}

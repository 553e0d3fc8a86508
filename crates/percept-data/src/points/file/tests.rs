//! Every format reads what it should, refuses what it must, and survives damage.

use proptest::prelude::*;

use super::*;
use crate::arrays::write_npy;
use percept_graph::Tensor;

/// A file of this name in a folder that goes away with it.
fn on_disk(name: &str, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("written");
    (folder, path)
}

fn read(name: &str, bytes: &[u8], format: Option<PointFormat>) -> Result<PointCloud, PointsError> {
    let (_folder, path) = on_disk(name, bytes);
    read_points(&path, format)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

const PCD_HEADER: &str = "# .PCD v.7\nVERSION .7\nFIELDS ring x y z rgb intensity\nSIZE 2 4 4 8 1 4\n\
    TYPE U F F F U F\nCOUNT 1 1 1 1 3 1\nWIDTH 2\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 2\nDATA ";

/// Two points, the second with a NaN, behind the header above.
fn pcd(data: &str) -> Vec<u8> {
    let mut file = format!("{PCD_HEADER}{data}\n").into_bytes();
    if data == "ascii" {
        file.extend(b"7 1 2 3 255 0 9 40.5\n7 1 nan 3 255 0 9 40.5\n");
        return file;
    }
    for y in [2.0, f32::NAN] {
        file.extend(7u16.to_le_bytes());
        file.extend(floats(&[1.0, y]));
        file.extend(3f64.to_le_bytes());
        file.extend([255, 0, 9]);
        file.extend(40.5f32.to_le_bytes());
    }
    file
}

/// The same points as vertices, with faces behind them.
fn ply(form: &str) -> Vec<u8> {
    let mut file = format!(
        "ply\r\nformat {form} 1.0\r\ncomment made by hand\r\nelement vertex 2\r\nproperty float x\r\n\
         property float y\r\nproperty double z\r\nproperty uchar intensity\r\nproperty short label\r\n\
         property float dt\r\nelement face 1\r\nproperty list uchar int vertex_indices\r\nend_header\r\n"
    )
    .into_bytes();
    for y in [2.0f32, f32::NAN] {
        match form {
            "ascii" => file.extend(format!("1 {y} 3 40 -1 0.05\n").into_bytes()),
            "binary_little_endian" => {
                file.extend(floats(&[1.0, y]));
                file.extend(3f64.to_le_bytes());
                file.push(40);
                file.extend((-1i16).to_le_bytes());
                file.extend(0.05f32.to_le_bytes());
            }
            _ => {
                file.extend([1.0, y].iter().flat_map(|v: &f32| v.to_be_bytes()));
                file.extend(3f64.to_be_bytes());
                file.push(40);
                file.extend((-1i16).to_be_bytes());
                file.extend(0.05f32.to_be_bytes());
            }
        }
    }
    file.extend(b"3 0 1 0\n");
    file
}

fn one_point_one_dropped(row: [f32; 5]) -> PointCloud {
    PointCloud {
        values: row.to_vec(),
        dropped_rows: vec![1],
    }
}

#[test]
fn raw_rows_by_name_and_by_length() {
    let five = floats(&[
        1.0,
        2.0,
        3.0,
        40.0,
        31.0,
        1.0,
        f32::INFINITY,
        3.0,
        40.0,
        31.0,
    ]);
    let expected = one_point_one_dropped([1.0, 2.0, 3.0, 40.0, 0.0]);
    assert_eq!(read("a.pcd.bin", &five, None).unwrap(), expected);
    assert_eq!(
        read("a.dat", &five, Some(PointFormat::NuScenes)).unwrap(),
        expected
    );

    let four = floats(&[1.0, 2.0, 3.0, 0.5]);
    let cloud = read("000000.bin", &four, None).unwrap();
    assert_eq!(cloud.values, [1.0, 2.0, 3.0, 127.5, 0.0]);

    let halves: Vec<u8> = [1.0, 2.0, 3.0, 40.0, 0.25]
        .iter()
        .flat_map(|&v| f16::from_f32(v).to_le_bytes())
        .collect();
    for name in ["x_fp16x5.bin", "x.bin"] {
        let cloud = read(name, &halves, None).unwrap();
        assert_eq!(cloud.values, [1.0, 2.0, 3.0, 40.0, 0.25], "{name}");
    }
}

#[test]
fn what_is_ambiguous_or_unknown_is_refused_with_a_hint() {
    for (name, bytes, expected) in [
        ("a.bin", 80, "80 bytes fit kitti, nuscenes, f16x5"),
        ("a.bin", 40, "40 bytes fit nuscenes, f16x5"),
        ("a.bin", 7, "7 bytes fit none"),
        ("a.xyz", 16, "not a known point format"),
    ] {
        let error = read(name, &vec![0; bytes], None).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(
            error.hint().is_some_and(|hint| hint.contains("--format")),
            "{error}"
        );
    }
    let error = read("a.pcd.bin", &[0; 21], None).unwrap_err();
    assert!(error.to_string().contains("21 bytes"), "{error}");
}

#[test]
fn files_without_points_are_empty_clouds() {
    for name in ["a.bin", "a.pcd.bin"] {
        assert_eq!(
            read(name, &[], None).unwrap(),
            PointCloud::default(),
            "{name}"
        );
    }
    let empty = PCD_HEADER.replace("POINTS 2", "POINTS 0");
    for data in ["ascii\n", "binary\n"] {
        let cloud = read("a.pcd", format!("{empty}{data}").as_bytes(), None);
        assert_eq!(cloud.unwrap(), PointCloud::default());
    }
}

#[test]
fn pcd_and_ply_in_all_their_encodings() {
    let expected = one_point_one_dropped([1.0, 2.0, 3.0, 40.5, 0.0]);
    for data in ["ascii", "binary"] {
        assert_eq!(read("a.pcd", &pcd(data), None).unwrap(), expected, "{data}");
    }
    let expected = one_point_one_dropped([1.0, 2.0, 3.0, 40.0, 0.05]);
    for form in ["ascii", "binary_little_endian", "binary_big_endian"] {
        assert_eq!(read("a.ply", &ply(form), None).unwrap(), expected, "{form}");
    }
}

#[test]
fn arrays_of_three_to_five_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    for columns in 2..7usize {
        let values: Vec<f32> = (0..2 * columns).map(|v| v as f32).collect();
        let tensor = Tensor::from_values(vec![2, columns], &values).unwrap();
        write_npy(&path, &tensor).unwrap();
        match read_points(&path, None) {
            Ok(cloud) => {
                assert!((3..=5).contains(&columns));
                assert_eq!(cloud.len(), 2);
                assert_eq!(cloud.values[5..8], values[columns..columns + 3]);
                assert_eq!(cloud.values[4], if columns == 5 { 4.0 } else { 0.0 });
            }
            Err(error) => {
                assert!(!(3..=5).contains(&columns), "{error}");
                assert!(error.to_string().contains("N x 3, 4 or 5"), "{error}");
            }
        }
    }
}

#[test]
fn bad_headers_are_told() {
    let text = |from: &str, to: &str| PCD_HEADER.replace(from, to) + "ascii\n1 1 1 1 1 1 1 1\n";
    for (file, expected) in [
        (
            text("POINTS 2", "POINTS 9"),
            "tells of 9 points, but only 1",
        ),
        (text("POINTS 2", "POINTS 0"), "tells of 0 points, but more"),
        (text("POINTS 2", "POINTS -1"), "POINTS"),
        (text("FIELDS", "FELDS"), "no line FIELDS"),
        (text("SIZE 2", "SIZE 3"), "U 3"),
        (text("SIZE 2 4", "SIZE 2"), "equally long"),
        (text("ring x", "ring a"), "no columns x, y and z"),
        (text("COUNT 1", "COUNT 99999999999"), "columns"),
        (text("COUNT 1", "COUNT 18446744073709551615"), "columns"),
        (text("DATA", "DATEN"), "no end"),
        (
            PCD_HEADER.to_owned() + "binary_compressed\n",
            "not supported",
        ),
        (PCD_HEADER.to_owned() + "morse\n", "morse"),
        (
            PCD_HEADER.to_owned() + "ascii\n1 2 3\n",
            "a.pcd:12: expected one number",
        ),
        (
            PCD_HEADER.replace("POINTS 2", "POINTS 4611686018427387904") + "binary\nabc",
            "3 bytes follow",
        ),
    ] {
        let error = read("a.pcd", file.as_bytes(), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{file}: {error}");
    }
    let text = |from: &str, to: &str| {
        String::from_utf8_lossy(&ply("ascii"))
            .replace(from, to)
            .into_bytes()
    };
    for (file, expected) in [
        (text("vertex 2", "vertex 20"), "one number for each column"),
        (text("vertex 2", "vertex many"), "a number of vertices"),
        (
            text("element vertex", "element edge 1\nelement vertex"),
            "before its vertices",
        ),
        (
            text("property float x", "property list int float x"),
            "have lists",
        ),
        (
            text("property float x", "property real x"),
            "a type that PLY has",
        ),
        (
            text("ascii", "binary_middle_endian"),
            "a format that PLY has",
        ),
        (text("end_header", "the end"), "no end"),
        (b"ply\nand nothing else".to_vec(), "no end"),
        (b"solid".to_vec(), "not a PLY"),
    ] {
        let error = read("a.ply", &file, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damage_gives_points_or_a_typed_error(
        which in 0usize..5,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        format in prop::option::of(prop::sample::select(PointFormat::ALL.to_vec())),
    ) {
        let (name, mut file) = match which {
            0 => ("a.pcd", pcd("ascii")),
            1 => ("a.pcd", pcd("binary")),
            2 => ("a.ply", ply("ascii")),
            3 => ("a.ply", ply("binary_little_endian")),
            _ => ("a.ply", ply("binary_big_endian")),
        };
        for (at, byte) in flips {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(cloud) = read(name, &file, format) {
            prop_assert!(cloud.values.iter().all(|value| value.is_finite()));
            prop_assert!(cloud.len() + cloud.dropped_rows.len() <= file.len());
        }
    }
}

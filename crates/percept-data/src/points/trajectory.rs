use std::path::Path;

use super::error::{PointsError, read_text};
use super::pose::Pose;

/// How far from orthonormal a stored rotation may be: published poses carry about seven digits.
pub(super) const ROTATION_TOLERANCE: f64 = 1e-3;

/// Reads KITTI poses: one row-major 3x4 matrix a line, separated by spaces or commas.
pub fn read_poses(path: &Path) -> Result<Vec<Pose>, PointsError> {
    let text = read_text(path)?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| parse_pose(path, index + 1, line))
        .collect()
}

/// Reads the `Tr` line of a KITTI odometry `calib.txt`: the pose of the LiDAR in the first camera's frame.
pub fn read_lidar_to_camera(path: &Path) -> Result<Pose, PointsError> {
    let text = read_text(path)?;
    for (index, line) in text.lines().enumerate() {
        if let Some(matrix) = line.strip_prefix("Tr:") {
            return parse_pose(path, index + 1, matrix);
        }
    }
    Err(PointsError::invalid(path, "no line \"Tr: <12 numbers>\""))
}

/// Reads a KITTI `times.txt`: seconds, one a line; returned in microseconds.
pub fn read_times_us(path: &Path) -> Result<Vec<i64>, PointsError> {
    let text = read_text(path)?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| match line.trim().parse::<f64>() {
            Ok(seconds) if seconds.abs() < 1e12 => Ok((seconds * 1e6).round() as i64),
            _ => Err(bad_line(path, index + 1, "a time in seconds", line)),
        })
        .collect()
}

/// The text of a `poses.txt`, with every digit that matters.
pub fn encode_poses(poses: &[Pose]) -> String {
    poses.iter().map(|pose| encode_pose(pose) + "\n").collect()
}

/// Twelve numbers in KITTI's notation that read back to the same bits.
pub fn encode_pose(pose: &Pose) -> String {
    pose.to_rows().map(|v| format!("{v:.16e}")).join(" ")
}

fn parse_pose(path: &Path, line_number: usize, line: &str) -> Result<Pose, PointsError> {
    let bad = || {
        bad_line(
            path,
            line_number,
            "12 numbers that make a rigid 3x4 pose",
            line,
        )
    };
    let mut values = [0.0; 12];
    let mut words = line
        .split([' ', ',', '\t'])
        .filter(|word| !word.trim().is_empty());
    for value in &mut values {
        *value = words
            .next()
            .and_then(|word| word.trim().parse().ok())
            .ok_or_else(bad)?;
    }
    let pose = Pose::from_rows(&values);
    if words.next().is_some() || !pose.is_rigid(ROTATION_TOLERANCE) {
        return Err(bad());
    }
    Ok(pose)
}

fn bad_line(path: &Path, line: usize, expected: &'static str, got: &str) -> PointsError {
    PointsError::BadLine {
        path: path.to_path_buf(),
        line,
        expected,
        got: got.chars().take(60).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on_disk(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn poses_round_trip_to_the_bit(yaws in prop::collection::vec(-3.0..3.0f64, 0..6)) {
            let poses: Vec<_> = yaws.iter().map(|yaw| Pose::from_yaw(*yaw, [1e3 * yaw, 0.1, -7.0 / 3.0])).collect();
            let file = on_disk(&encode_poses(&poses));
            prop_assert_eq!(read_poses(file.path()).unwrap(), poses);
        }

        #[test]
        fn any_text_gives_poses_or_a_typed_error(text in "[0-9eE+,. \\-\nTr:]{0,200}") {
            let file = on_disk(&text);
            let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
            let refused = |error: &PointsError| match error {
                PointsError::BadLine { line, .. } => (1..=text.lines().count()).contains(line),
                _ => false,
            };
            match read_poses(file.path()) {
                Ok(poses) => {
                    prop_assert_eq!(poses.len(), lines);
                    prop_assert!(poses.iter().all(|pose| pose.is_rigid(ROTATION_TOLERANCE)));
                }
                Err(error) => prop_assert!(refused(&error), "{error}"),
            }
            match read_times_us(file.path()) {
                Ok(times) => prop_assert_eq!(times.len(), lines),
                Err(error) => prop_assert!(refused(&error), "{error}"),
            }
            match read_lidar_to_camera(file.path()) {
                Ok(pose) => prop_assert!(pose.is_rigid(ROTATION_TOLERANCE)),
                Err(PointsError::Invalid { .. }) => prop_assert!(!text.lines().any(|line| line.starts_with("Tr:"))),
                Err(error) => prop_assert!(refused(&error), "{error}"),
            }
        }
    }

    #[test]
    fn commas_and_spaces_both_separate() {
        let file = on_disk("1,0,0,5,0,1,0,6,0,0,1,7\n\n1 0 0 8 0 1 0 9 0 0 1 1e1\n");
        let poses = read_poses(file.path()).unwrap();
        assert_eq!(poses[0].translation, [5.0, 6.0, 7.0]);
        assert_eq!(poses[1].translation, [8.0, 9.0, 10.0]);
    }

    #[test]
    fn what_is_not_a_pose_is_refused_with_its_line() {
        for bad in [
            "1 2 3",
            "1 0 0 0 0 1 0 0 0 0 1 x",
            "2 0 0 0 0 2 0 0 0 0 2 0",
            "1 0 0 0 0 1 0 0 0 0 1 0 0",
            "nan 0 0 0 0 1 0 0 0 0 1 0",
        ] {
            let file = on_disk(&format!("1 0 0 0 0 1 0 0 0 0 1 0\n{bad}\n"));
            match read_poses(file.path()) {
                Err(PointsError::BadLine { line: 2, .. }) => {}
                other => panic!("{bad:?} gave {other:?}"),
            }
        }
    }
}

//! Rigid motions, rotations as nuScenes writes them, and the few vector functions that they need.

use serde::{Deserialize, Serialize};

/// A rigid motion: `apply(p) = rotation * p + translation`.
///
/// A pose named `a_to_b` takes coordinates in frame `a` to coordinates in frame `b`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pose {
    /// Row-major rotation matrix.
    pub rotation: [[f64; 3]; 3],
    /// Metres.
    pub translation: [f64; 3],
}

/// A rotation as nuScenes writes it: w, x, y, z.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quaternion(pub [f64; 4]);

impl Pose {
    /// The pose that moves nothing.
    pub const IDENTITY: Self = Self {
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        translation: [0.0; 3],
    };

    /// Turned by `yaw_rad` about the vertical, then moved by `translation`.
    pub fn from_yaw(yaw_rad: f64, translation: [f64; 3]) -> Self {
        let (sin, cos) = libm::sincos(yaw_rad);
        Self {
            rotation: [[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]],
            translation,
        }
    }

    /// From a row-major 3x4 matrix, without checking that it is rigid (see [`Pose::is_rigid`]).
    pub fn from_rows(m: &[f64; 12]) -> Self {
        Self {
            rotation: [[m[0], m[1], m[2]], [m[4], m[5], m[6]], [m[8], m[9], m[10]]],
            translation: [m[3], m[7], m[11]],
        }
    }

    /// The row-major 3x4 matrix.
    pub fn to_rows(&self) -> [f64; 12] {
        let [a, b, c] = self.rotation;
        let t = self.translation;
        [
            a[0], a[1], a[2], t[0], b[0], b[1], b[2], t[1], c[0], c[1], c[2], t[2],
        ]
    }

    /// Whether the rotation is orthonormal and right-handed up to `tolerance`, and everything finite.
    pub fn is_rigid(&self, tolerance: f64) -> bool {
        let r = &self.rotation;
        let finite = r
            .iter()
            .flatten()
            .chain(&self.translation)
            .all(|v| v.is_finite());
        let orthonormal = (0..3).all(|i| {
            (0..3).all(|j| {
                let expected = if i == j { 1.0 } else { 0.0 };
                (dot(r[i], r[j]) - expected).abs() <= tolerance
            })
        });
        finite && orthonormal && (dot(cross(r[0], r[1]), r[2]) - 1.0).abs() <= 2.0 * tolerance
    }

    /// Moves a point.
    #[inline]
    pub fn apply(&self, p: [f64; 3]) -> [f64; 3] {
        let q = self.rotate(p);
        [
            q[0] + self.translation[0],
            q[1] + self.translation[1],
            q[2] + self.translation[2],
        ]
    }

    /// Turns a direction.
    #[inline]
    pub fn rotate(&self, v: [f64; 3]) -> [f64; 3] {
        [
            dot(self.rotation[0], v),
            dot(self.rotation[1], v),
            dot(self.rotation[2], v),
        ]
    }

    /// First `inner`, then `self`.
    pub fn compose(&self, inner: &Pose) -> Pose {
        let columns = transpose(inner.rotation);
        let rotation = self
            .rotation
            .map(|row| columns.map(|column| dot(row, column)));
        Pose {
            rotation,
            translation: self.apply(inner.translation),
        }
    }

    /// The motion back. Exact for rigid poses only.
    pub fn inverse(&self) -> Pose {
        let rotation = transpose(self.rotation);
        let back = Pose {
            rotation,
            translation: [0.0; 3],
        };
        Pose {
            rotation,
            translation: back.rotate(self.translation).map(|v| -v),
        }
    }

    /// The heading of the frame's x axis, in radians.
    pub fn yaw_rad(&self) -> f64 {
        libm::atan2(self.rotation[1][0], self.rotation[0][0])
    }
}

impl Quaternion {
    /// A turn by `yaw_rad` about the vertical.
    pub fn from_yaw(yaw_rad: f64) -> Self {
        let (sin, cos) = libm::sincos(0.5 * yaw_rad);
        Self([cos, 0.0, 0.0, sin])
    }

    /// The rotation of `pose`.
    pub fn from_pose(pose: &Pose) -> Self {
        let m = &pose.rotation;
        // The largest of the four squared components is at least 1/4, so its root divides safely.
        let squares = [
            1.0 + m[0][0] + m[1][1] + m[2][2],
            1.0 + m[0][0] - m[1][1] - m[2][2],
            1.0 - m[0][0] + m[1][1] - m[2][2],
            1.0 - m[0][0] - m[1][1] + m[2][2],
        ];
        let largest = (0..4).fold(
            0,
            |best, i| if squares[i] > squares[best] { i } else { best },
        );
        let (yz, zx, xy) = (m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]);
        let (sx, sy, sz) = (m[2][1] + m[1][2], m[0][2] + m[2][0], m[1][0] + m[0][1]);
        let raw = match largest {
            0 => [squares[0], yz, zx, xy],
            1 => [yz, squares[1], sz, sy],
            2 => [zx, sz, squares[2], sx],
            _ => [xy, sy, sx, squares[3]],
        };
        let scale = 0.5 / squares[largest].sqrt();
        let sign = if raw[0] < 0.0 { -scale } else { scale };
        Self(raw.map(|v| v * sign))
    }

    /// The pose with this rotation; `None` when the quaternion is not finite or far from unit length.
    pub fn to_pose(self, translation: [f64; 3]) -> Option<Pose> {
        let length = self.0.iter().map(|v| v * v).sum::<f64>().sqrt();
        if !length.is_finite()
            || (length - 1.0).abs() > 1e-2
            || translation.iter().any(|v| !v.is_finite())
        {
            return None;
        }
        let [w, x, y, z] = self.0.map(|v| v / length);
        let rotation = [
            [
                1.0 - 2.0 * (y * y + z * z),
                2.0 * (x * y - w * z),
                2.0 * (x * z + w * y),
            ],
            [
                2.0 * (x * y + w * z),
                1.0 - 2.0 * (x * x + z * z),
                2.0 * (y * z - w * x),
            ],
            [
                2.0 * (x * z - w * y),
                2.0 * (y * z + w * x),
                1.0 - 2.0 * (x * x + y * y),
            ],
        ];
        Some(Pose {
            rotation,
            translation,
        })
    }
}

/// Scalar product.
#[inline]
pub fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Vector product.
#[inline]
pub fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

/// Difference.
#[inline]
pub fn sub(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// `a + s * b`.
#[inline]
pub fn add_scaled(a: [f64; 3], s: f64, b: [f64; 3]) -> [f64; 3] {
    [a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2]]
}

/// The angle in (-pi, pi] that points the same way.
pub fn wrap_angle(angle_rad: f64) -> f64 {
    let (sin, cos) = libm::sincos(angle_rad);
    libm::atan2(sin, cos)
}

fn transpose(m: [[f64; 3]; 3]) -> [[f64; 3]; 3] {
    [
        [m[0][0], m[1][0], m[2][0]],
        [m[0][1], m[1][1], m[2][1]],
        [m[0][2], m[1][2], m[2][2]],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_pose() -> impl Strategy<Value = Pose> {
        let unit = prop::array::uniform4(-1.0..1.0f64).prop_filter("not near zero", |q| {
            q.iter().map(|v| v * v).sum::<f64>() > 0.01
        });
        (unit, prop::array::uniform3(-1e3..1e3f64)).prop_map(|(q, t)| {
            let length = q.iter().map(|v| v * v).sum::<f64>().sqrt();
            Quaternion(q.map(|v| v / length))
                .to_pose(t)
                .expect("unit quaternion")
        })
    }

    fn close(a: &Pose, b: &Pose, tolerance: f64) -> bool {
        a.to_rows()
            .iter()
            .zip(b.to_rows())
            .all(|(x, y)| (x - y).abs() <= tolerance)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn quaternion_round_trip(pose in any_pose()) {
            let back = Quaternion::from_pose(&pose).to_pose(pose.translation).expect("unit");
            prop_assert!(close(&pose, &back, 1e-12));
            prop_assert!(pose.is_rigid(1e-12));
        }

        #[test]
        fn inverse_undoes(a in any_pose(), b in any_pose()) {
            let there_and_back = a.compose(&b).compose(&b.inverse()).compose(&a.inverse());
            prop_assert!(close(&there_and_back, &Pose::IDENTITY, 1e-9));
        }
    }

    #[test]
    fn yaw_agrees_between_pose_and_quaternion() {
        for step in -6..=6 {
            let yaw = 0.5 * f64::from(step);
            let pose = Pose::from_yaw(yaw, [1.0, 2.0, 3.0]);
            assert!((pose.yaw_rad() - yaw).abs() < 1e-12);
            assert!(close(
                &pose,
                &Quaternion::from_yaw(yaw).to_pose([1.0, 2.0, 3.0]).unwrap(),
                1e-12
            ));
        }
    }

    #[test]
    fn hostile_quaternions_are_refused() {
        for q in [
            [0.0; 4],
            [f64::NAN, 0.0, 0.0, 1.0],
            [5.0, 0.0, 0.0, 0.0],
            [f64::INFINITY; 4],
        ] {
            assert_eq!(Quaternion(q).to_pose([0.0; 3]), None);
        }
    }
}

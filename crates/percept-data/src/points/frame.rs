use super::camera::Camera;
use super::cloud::Cloud;
use super::error::PointsError;
use super::label::PointLabel;
use super::pose::{Pose, sub};

/// One LiDAR return, in the sensor's frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Metres.
    pub position: [f32; 3],
    /// As the dataset stores it: 0..=255 in nuScenes, 0..=1 in KITTI.
    pub intensity: f32,
    /// Seconds between this point's sweep and the frame's (0 for the frame's own sweep, positive for older ones).
    pub age_s: f32,
    /// The laser, counted from the lowest, where the layout stores it.
    pub ring: Option<u8>,
}

impl Point {
    /// Distance from the sensor, in metres.
    pub fn range_m(&self) -> f64 {
        let [x, y, z] = self.position.map(f64::from);
        (x * x + y * y + z * z).sqrt()
    }

    /// Distance from the sensor in the ground plane, in metres.
    pub fn ground_range_m(&self) -> f64 {
        let [x, y, _] = self.position.map(f64::from);
        (x * x + y * y).sqrt()
    }
}

/// The ten classes of the nuScenes detection task, in the order of its class ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum ObjectClass {
    Car,
    Truck,
    ConstructionVehicle,
    Bus,
    Trailer,
    Barrier,
    Motorcycle,
    Bicycle,
    Pedestrian,
    TrafficCone,
}

impl ObjectClass {
    /// Every class, by id.
    pub const ALL: [Self; 10] = [
        Self::Car,
        Self::Truck,
        Self::ConstructionVehicle,
        Self::Bus,
        Self::Trailer,
        Self::Barrier,
        Self::Motorcycle,
        Self::Bicycle,
        Self::Pedestrian,
        Self::TrafficCone,
    ];

    /// The id, 0..10.
    pub fn id(self) -> usize {
        self as usize
    }

    /// The detection task's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Car => "car",
            Self::Truck => "truck",
            Self::ConstructionVehicle => "construction_vehicle",
            Self::Bus => "bus",
            Self::Trailer => "trailer",
            Self::Barrier => "barrier",
            Self::Motorcycle => "motorcycle",
            Self::Bicycle => "bicycle",
            Self::Pedestrian => "pedestrian",
            Self::TrafficCone => "traffic_cone",
        }
    }

    /// The class with the detection task's `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The class of a nuScenes category; `None` for the categories that the task leaves out.
    pub fn from_category(category: &str) -> Option<Self> {
        Some(match category {
            "vehicle.car" => Self::Car,
            "vehicle.truck" => Self::Truck,
            "vehicle.construction" => Self::ConstructionVehicle,
            "vehicle.bus.bendy" | "vehicle.bus.rigid" => Self::Bus,
            "vehicle.trailer" => Self::Trailer,
            "movable_object.barrier" => Self::Barrier,
            "vehicle.motorcycle" => Self::Motorcycle,
            "vehicle.bicycle" => Self::Bicycle,
            "human.pedestrian.adult"
            | "human.pedestrian.child"
            | "human.pedestrian.construction_worker"
            | "human.pedestrian.police_officer" => Self::Pedestrian,
            "movable_object.trafficcone" => Self::TrafficCone,
            _ => return None,
        })
    }

    /// The nuScenes category that stands for this class when we write one.
    pub fn category(self) -> &'static str {
        match self {
            Self::Car => "vehicle.car",
            Self::Truck => "vehicle.truck",
            Self::ConstructionVehicle => "vehicle.construction",
            Self::Bus => "vehicle.bus.rigid",
            Self::Trailer => "vehicle.trailer",
            Self::Barrier => "movable_object.barrier",
            Self::Motorcycle => "vehicle.motorcycle",
            Self::Bicycle => "vehicle.bicycle",
            Self::Pedestrian => "human.pedestrian.adult",
            Self::TrafficCone => "movable_object.trafficcone",
        }
    }
}

/// The true box of an object, in the sensor's frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Box3d {
    /// What it is.
    pub class: ObjectClass,
    /// The middle of the box, metres.
    pub centre: [f64; 3],
    /// Length (along the heading), width, height, metres.
    pub size: [f64; 3],
    /// Heading about the sensor's vertical axis, radians, counter-clockwise from x.
    pub yaw_rad: f64,
    /// Metres a second in the sensor's ground plane, relative to the world; unknown where a track has one box only.
    pub velocity: Option<[f64; 2]>,
    /// LiDAR returns of the frame's own sweep on the object.
    pub lidar_points: usize,
    /// The same number for the same object in every frame of a sequence.
    pub instance: u32,
}

impl Box3d {
    /// Whether the box, grown by `margin_m` on every side, contains `p`.
    pub fn contains(&self, p: [f64; 3], margin_m: f64) -> bool {
        let local = Pose::from_yaw(-self.yaw_rad, [0.0; 3]).rotate(sub(p, self.centre));
        (0..3).all(|axis| local[axis].abs() <= 0.5 * self.size[axis] + margin_m)
    }

    /// The four corners seen from above, counter-clockwise, front left first.
    pub fn corners_bev(&self) -> [[f64; 2]; 4] {
        let pose = Pose::from_yaw(self.yaw_rad, self.centre);
        let (l, w) = (0.5 * self.size[0], 0.5 * self.size[1]);
        [[l, w], [-l, w], [-l, -w], [l, -w]].map(|[x, y]| {
            let p = pose.apply([x, y, 0.0]);
            [p[0], p[1]]
        })
    }
}

/// The ends of the twelve edges of an upright box of this size (length, width, height).
pub fn box_edges(centre: [f64; 3], size: [f64; 3], yaw_rad: f64) -> [[[f64; 3]; 2]; 12] {
    let pose = Pose::from_yaw(yaw_rad, centre);
    // The bits of a corner's number tell its side along each axis; corners that differ in one bit share an edge.
    let corner = |number: usize| {
        let side = |axis: usize| if number >> axis & 1 == 1 { 0.5 } else { -0.5 };
        pose.apply([0, 1, 2].map(|axis| side(axis) * size[axis]))
    };
    std::array::from_fn(|edge| {
        let (axis, place) = (edge / 4, edge % 4);
        let low = (place >> axis << (axis + 1)) | (place & ((1 << axis) - 1));
        [corner(low), corner(low | 1 << axis)]
    })
}

/// Whose conventions the points follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LidarConvention {
    /// nuScenes: x to the right, y forward; 32 beams; intensity 0..=255; beams that met nothing stand at the sensor.
    NuScenes,
    /// KITTI: x forward, y to the left; 64 beams; intensity 0..=1.
    Kitti,
}

impl LidarConvention {
    /// The azimuth of the vehicle's forward direction, radians counter-clockwise from x.
    pub fn forward_rad(self) -> f64 {
        match self {
            Self::NuScenes => std::f64::consts::FRAC_PI_2,
            Self::Kitti => 0.0,
        }
    }

    /// How many beams the sensor has.
    pub fn beams(self) -> usize {
        match self {
            Self::NuScenes => 32,
            Self::Kitti => 64,
        }
    }

    /// The lowest and the highest beam, in radians.
    pub fn elevations_rad(self) -> [f64; 2] {
        let degrees: [f64; 2] = match self {
            Self::NuScenes => [-30.67, 10.67],
            Self::Kitti => [-24.8, 2.0],
        };
        degrees.map(f64::to_radians)
    }
}

/// One moment of a LiDAR sequence with whatever truth is known: the value that networks, statistics and
/// pictures start from, whether it came from a real dataset, a synthetic folder or straight from the world.
#[derive(Clone, Debug, PartialEq)]
pub struct LidarFrame {
    /// How to read the points.
    pub convention: LidarConvention,
    /// The cloud; the frame's own sweep first, then older sweeps moved into its frame.
    pub points: Vec<Point>,
    /// One label a point, where the dataset has them.
    pub labels: Option<Vec<PointLabel>>,
    /// Points left out because a value in them is NaN or infinite.
    pub dropped_non_finite: usize,
    /// Those of them that were rows of the frame's own file, ascending.
    pub dropped_rows: Vec<usize>,
    /// The objects, where the dataset has boxes.
    pub boxes: Option<Vec<Box3d>>,
    /// The cameras of the same moment, where the dataset has them, in the order of
    /// [`CAMERA_CHANNELS`](super::CAMERA_CHANNELS), others behind.
    pub cameras: Vec<Camera>,
    /// Where the sensor is.
    pub sensor_to_world: Pose,
    /// Microseconds.
    pub timestamp_us: i64,
}

impl LidarFrame {
    /// A frame of points alone.
    pub fn from_points(convention: LidarConvention, points: Vec<Point>) -> Self {
        Self {
            convention,
            points,
            labels: None,
            dropped_non_finite: 0,
            dropped_rows: Vec::new(),
            boxes: None,
            cameras: Vec::new(),
            sensor_to_world: Pose::IDENTITY,
            timestamp_us: 0,
        }
    }

    /// A frame of a file's points alone.
    pub fn from_cloud(convention: LidarConvention, cloud: Cloud) -> Self {
        Self {
            dropped_non_finite: cloud.dropped_rows.len(),
            dropped_rows: cloud.dropped_rows,
            ..Self::from_points(convention, cloud.points)
        }
    }

    /// What `values`, one per point, says of every row of the frame's own file: those that were left out get `nothing`.
    pub fn of_rows<T: Copy>(&self, values: &[T], nothing: T) -> Vec<T> {
        let mut values = values.iter().copied();
        let mut dropped = self.dropped_rows.iter().peekable();
        let mut rows = Vec::with_capacity(values.len() + self.dropped_rows.len());
        loop {
            let row = rows.len();
            match dropped.next_if(|dropped| **dropped == row) {
                Some(_) => rows.push(nothing),
                None => match values.next() {
                    Some(value) => rows.push(value),
                    None => return rows,
                },
            }
        }
    }

    /// The camera of a channel such as `CAM_FRONT`.
    pub fn camera(&self, channel: &str) -> Result<&Camera, PointsError> {
        let camera = self.cameras.iter().find(|c| c.channel == channel);
        camera.ok_or_else(|| PointsError::NoCamera {
            channel: channel.to_owned(),
            present: self.cameras.iter().map(|c| c.channel.clone()).collect(),
        })
    }

    /// The points of the frame's own sweep (those with age 0), which stand first.
    pub fn own_sweep(&self) -> &[Point] {
        let end = self
            .points
            .iter()
            .position(|p| p.age_s != 0.0)
            .unwrap_or(self.points.len());
        &self.points[..end]
    }
}

/// Points this near to the sensor in both x and y are the vehicle itself, or beams that met nothing;
/// older sweeps drop them when they are merged, as the nuScenes tools do.
pub const EGO_HALF_EXTENT_M: f32 = 1.0;

/// Appends an older sweep to `points`: drops the ego's own returns, moves the rest by `sweep_to_frame`, and
/// stamps them with `age_s`. `kept` is told the index of every point that stays.
pub fn append_older_sweep(
    points: &mut Vec<Point>,
    sweep: &[Point],
    sweep_to_frame: &Pose,
    age_s: f32,
    mut kept: impl FnMut(usize),
) {
    for (index, point) in sweep.iter().enumerate() {
        let [x, y, _] = point.position;
        if x.abs() < EGO_HALF_EXTENT_M && y.abs() < EGO_HALF_EXTENT_M {
            continue;
        }
        let moved = sweep_to_frame.apply(point.position.map(f64::from));
        points.push(Point {
            position: moved.map(|v| v as f32),
            age_s,
            ..*point
        });
        kept(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_name_themselves_both_ways() {
        for (id, class) in ObjectClass::ALL.into_iter().enumerate() {
            assert_eq!(class.id(), id);
            assert_eq!(ObjectClass::from_name(class.name()), Some(class));
            assert_eq!(ObjectClass::from_category(class.category()), Some(class));
        }
        assert_eq!(ObjectClass::from_category("animal"), None);
    }

    #[test]
    fn a_turned_box_contains_what_it_should() {
        let long = Box3d {
            class: ObjectClass::Bus,
            centre: [10.0, 5.0, 1.0],
            size: [8.0, 2.0, 2.0],
            yaw_rad: std::f64::consts::FRAC_PI_2,
            velocity: None,
            lidar_points: 0,
            instance: 1,
        };
        assert!(long.contains([10.0, 8.9, 1.0], 0.0));
        assert!(!long.contains([13.0, 5.0, 1.0], 0.0));
        assert!(long.contains([13.0, 5.0, 1.0], 2.0));
        // Four edges along each axis, each as long as the box is there, none twice.
        let edges = box_edges(long.centre, long.size, long.yaw_rad);
        let length = |[a, b]: [[f64; 3]; 2]| {
            let [x, y, z] = sub(a, b);
            (x * x + y * y + z * z).sqrt().round() as usize
        };
        assert_eq!(edges.map(length), [8, 8, 8, 8, 2, 2, 2, 2, 2, 2, 2, 2]);
        assert!((1..12).all(|i| edges[..i].iter().all(|other| *other != edges[i])));
        let front_left = long.corners_bev()[0];
        assert!((front_left[0] - 9.0).abs() < 1e-12 && (front_left[1] - 9.0).abs() < 1e-12);
    }

    #[test]
    fn older_sweeps_lose_the_ego_and_move() {
        let point = |x| Point {
            position: [x, 0.5, 0.0],
            intensity: 1.0,
            age_s: 0.0,
            ring: Some(3),
        };
        let mut merged = vec![point(0.1)];
        let mut kept = Vec::new();
        let shift = Pose {
            translation: [1.0, 0.0, 0.0],
            ..Pose::IDENTITY
        };
        append_older_sweep(&mut merged, &[point(0.2), point(4.0)], &shift, 0.05, |i| {
            kept.push(i)
        });
        assert_eq!(kept, [1]);
        assert_eq!(merged.len(), 2);
        assert_eq!(
            merged[1],
            Point {
                position: [5.0, 0.5, 0.0],
                age_s: 0.05,
                ..point(4.0)
            }
        );
        let frame = LidarFrame::from_points(LidarConvention::NuScenes, merged);
        assert_eq!(frame.own_sweep().len(), 1);
    }

    #[test]
    fn rows_that_were_left_out_get_nothing() {
        let frame = |dropped: &[usize]| LidarFrame {
            dropped_rows: dropped.to_vec(),
            ..LidarFrame::from_points(LidarConvention::Kitti, Vec::new())
        };
        assert_eq!(frame(&[0, 2, 5]).of_rows(&[7, 8, 9], 0), [0, 7, 0, 8, 9, 0]);
        assert_eq!(frame(&[]).of_rows(&[7, 8], 0), [7, 8]);
        assert_eq!(frame(&[0, 1]).of_rows(&[], 0), [0, 0]);
    }
}

//! The annotated objects of a keyframe.

use super::tables::SampleAnnotation;
use super::{NuScenes, SampleRows};
use crate::points::error::PointsError;
use crate::points::frame::{Box3d, ObjectClass};
use crate::points::pose::{Pose, wrap_angle};

/// The category of bicycle stands, whose bicycles nobody annotates one by one.
pub const BICYCLE_RACK: &str = "static_object.bicycle_rack";

/// Two annotations further apart than this say nothing about a velocity (a neighbour each way: twice).
const MAX_VELOCITY_GAP_S: f64 = 1.5;

/// What a keyframe's tables say of an object.
#[derive(Clone, Copy, Debug)]
pub struct Annotation<'a> {
    /// The box, in the global frame.
    pub record: &'a SampleAnnotation,
    /// nuScenes' category.
    pub category: &'a str,
    /// The detection class, for categories that have one.
    pub class: Option<ObjectClass>,
    /// What the object does, where annotated.
    pub attribute: Option<&'a str>,
    /// Metres per second in the global frame, where neighbouring keyframes tell.
    pub velocity: Option<[f64; 3]>,
    /// The same number for the same object in every frame.
    pub instance: u32,
}

impl NuScenes {
    /// Every annotation of keyframe `index`, those without a detection class too.
    pub fn annotations(&self, index: usize) -> Result<Vec<Annotation<'_>>, PointsError> {
        let rows = self.sample_rows(index)?;
        rows.annotations
            .iter()
            .map(|&row| self.annotation(&self.tables.sample_annotation[row]))
            .collect()
    }

    /// The boxes of the detection classes in the frame that `world_to_sensor` leads to.
    pub(super) fn sensor_boxes(
        &self,
        rows: &SampleRows,
        world_to_sensor: &Pose,
    ) -> Result<Vec<Box3d>, PointsError> {
        let mut boxes = Vec::with_capacity(rows.annotations.len());
        for &row in &rows.annotations {
            let annotation = self.annotation(&self.tables.sample_annotation[row])?;
            boxes.extend(self.sensor_box(&annotation, world_to_sensor)?);
        }
        Ok(boxes)
    }

    fn annotation<'a>(
        &'a self,
        record: &'a SampleAnnotation,
    ) -> Result<Annotation<'a>, PointsError> {
        let token = &record.instance_token;
        let row = self.row(&self.instance_rows, "instance", token)?;
        let token = &self.tables.instance[row].category_token;
        let category = self.row(&self.category_rows, "category", token)?;
        let category = self.tables.category[category].name.as_str();
        let attribute = match record.attribute_tokens.as_slice() {
            [] => None,
            [token] => {
                let attribute = self.row(&self.attribute_rows, "attribute", token)?;
                Some(self.tables.attribute[attribute].name.as_str())
            }
            several => {
                let what = format!("{} attributes, expected at most one", several.len());
                return Err(self.invalid(format!("sample_annotation {:?}: {what}", record.token)));
            }
        };
        Ok(Annotation {
            record,
            category,
            class: ObjectClass::from_category(category),
            attribute,
            velocity: self.velocity(record)?,
            instance: row as u32 + 1,
        })
    }

    fn sensor_box(
        &self,
        annotation: &Annotation<'_>,
        world_to_sensor: &Pose,
    ) -> Result<Option<Box3d>, PointsError> {
        let Some(class) = annotation.class else {
            return Ok(None);
        };
        let record = annotation.record;
        let in_world = record.rotation.to_pose(record.translation).ok_or_else(|| {
            self.invalid(format!(
                "sample_annotation {:?}: not a rotation",
                record.token
            ))
        })?;
        let [width, length, height] = record.size;
        if ![width, length, height]
            .iter()
            .all(|v| v.is_finite() && *v > 0.0)
        {
            return Err(self.invalid(format!(
                "sample_annotation {:?}: size {:?}",
                record.token, record.size
            )));
        }
        let in_sensor = world_to_sensor.compose(&in_world);
        let velocity = annotation.velocity.map(|v| {
            let v = world_to_sensor.rotate(v);
            [v[0], v[1]]
        });
        Ok(Some(Box3d {
            class,
            centre: in_sensor.translation,
            size: [length, width, height],
            yaw_rad: wrap_angle(in_sensor.yaw_rad()),
            velocity,
            lidar_points: record.num_lidar_pts,
            instance: annotation.instance,
        }))
    }

    /// Central difference over the neighbouring annotations (one-sided at a track's ends), in the world.
    fn velocity(&self, annotation: &SampleAnnotation) -> Result<Option<[f64; 3]>, PointsError> {
        let neighbour = |token: &str| -> Result<&SampleAnnotation, PointsError> {
            if token.is_empty() {
                return Ok(annotation);
            }
            Ok(&self.tables.sample_annotation
                [self.row(&self.annotation_rows, "sample_annotation", token)?])
        };
        let (first, last) = (neighbour(&annotation.prev)?, neighbour(&annotation.next)?);
        // Seconds are subtracted, not microseconds: since 1970 they are so many that the last digits are lost, and
        // nuScenes' public velocities, which metrics must meet, lack them too.
        let time_s = |a: &SampleAnnotation| {
            let row = self.row(&self.sample_row_of_token, "sample", &a.sample_token)?;
            Ok::<_, PointsError>(1e-6 * self.tables.sample[row].timestamp as f64)
        };
        let gap_s = time_s(last)? - time_s(first)?;
        let two_sided = !annotation.prev.is_empty() && !annotation.next.is_empty();
        let longest_s = if two_sided {
            2.0 * MAX_VELOCITY_GAP_S
        } else {
            MAX_VELOCITY_GAP_S
        };
        if gap_s <= 0.0 || gap_s > longest_s {
            return Ok(None);
        }
        Ok(Some(std::array::from_fn(|i| {
            (last.translation[i] - first.translation[i]) / gap_s
        })))
    }
}

//! A box as the file spells it.

use std::borrow::Cow;

use percept_data::points::{ObjectClass, Quaternion};
use serde::{Deserialize, Serialize};

use crate::detection::boxes::{Attribute, GlobalBox, Prediction};

/// The fields of a box, by their public names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::detection) struct BoxRecord<'a> {
    #[serde(borrow = "'a")]
    pub sample_token: Cow<'a, str>,
    translation: [f64; 3],
    size: [f64; 3],
    rotation: [f64; 4],
    /// Not known where a number is missing.
    velocity: [Option<f64>; 2],
    detection_name: Cow<'a, str>,
    /// Absent in truth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detection_score: Option<f64>,
    attribute_name: Cow<'a, str>,
    /// -1 where nobody counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    num_pts: Option<i64>,
}

impl<'a> BoxRecord<'a> {
    /// `prediction` in frame `token`.
    pub fn of(token: &'a str, prediction: &'a Prediction) -> Self {
        let Prediction { found, score } = prediction;
        Self {
            sample_token: token.into(),
            translation: found.centre,
            size: found.size_wlh,
            rotation: found.rotation.0,
            velocity: match found.velocity {
                Some(velocity) => velocity.map(Some),
                None => [None, None],
            },
            detection_name: found.class.name().into(),
            detection_score: Some(*score),
            attribute_name: found.attribute.map_or("", Attribute::name).into(),
            num_pts: None,
        }
    }

    /// The box, and what was wrong with its names if there is none.
    pub fn into_box(self) -> Result<GlobalBox, String> {
        let class = ObjectClass::from_name(&self.detection_name)
            .ok_or_else(|| format!("unknown detection_name {:?}", self.detection_name))?;
        let attribute = match self.attribute_name.as_ref() {
            "" => None,
            name => Some(
                Attribute::from_name(name)
                    .ok_or_else(|| format!("unknown attribute_name {name:?}"))?,
            ),
        };
        let [x, y] = self.velocity;
        Ok(GlobalBox {
            class,
            centre: self.translation,
            size_wlh: self.size,
            rotation: Quaternion(self.rotation),
            velocity: x.zip(y).map(|(x, y)| [x, y]),
            attribute,
            points: self.num_pts.and_then(|points| points.try_into().ok()),
        })
    }

    /// The box and its score.
    pub fn into_prediction(self) -> Result<Prediction, String> {
        let score = self.detection_score.ok_or("no detection_score")?;
        Ok(Prediction {
            found: self.into_box()?,
            score,
        })
    }
}

//! Masks in JSON: a single RLE, lists of them, and COCO's annotations and results around them.

use serde::Deserialize;
use serde_json::Value;

use super::{MaskFault, Rle};

/// The masks of a JSON file, in file order. All must be of one image.
pub(super) fn parse_coco_json(file: &[u8]) -> Result<Vec<Rle>, MaskFault> {
    let document = serde_json::from_slice(file).map_err(json_fault)?;
    let annotations = match document {
        Value::Array(list) => list,
        Value::Object(mut object) => match object.remove("annotations") {
            Some(Value::Array(list)) => list,
            Some(_) => {
                return Err(MaskFault::Json {
                    reason: "`annotations` is no list".to_owned(),
                });
            }
            None => vec![Value::Object(object)],
        },
        // The caller looked at the first character.
        other => vec![other],
    };
    let mut image: Option<Value> = None;
    let mut masks = Vec::with_capacity(annotations.len());
    for (index, annotation) in annotations.into_iter().enumerate() {
        let (mask, of_image) = parse_annotation(index, annotation)?;
        if let (Some(first), Some(second)) = (&image, &of_image)
            && first != second
        {
            let (first, second) = (first.to_string(), second.to_string());
            return Err(MaskFault::SeveralImages { first, second });
        }
        image = image.or(of_image);
        masks.push(mask);
    }
    Ok(masks)
}

/// A mask, and the image that it belongs to where that is said.
fn parse_annotation(index: usize, mut value: Value) -> Result<(Rle, Option<Value>), MaskFault> {
    let in_annotation = |error: serde_json::Error| MaskFault::Json {
        reason: format!("mask {index}: {error}"),
    };
    match value.get_mut("segmentation").map(Value::take) {
        Some(Value::Array(_)) => Err(MaskFault::Polygons { index }),
        Some(mask) => {
            let mask = Rle::deserialize(mask).map_err(in_annotation)?;
            Ok((mask, value.get_mut("image_id").map(Value::take)))
        }
        None => Ok((Rle::deserialize(value).map_err(in_annotation)?, None)),
    }
}

fn json_fault(error: serde_json::Error) -> MaskFault {
    MaskFault::Json {
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrapping_of_an_rle_is_read() {
        let mask = Rle::from_counts(2, 3, &[1, 2, 3]).unwrap();
        let rle = r#"{"size": [2, 3], "counts": "123"}"#;
        for (json, count) in [
            (rle.to_owned(), 1),
            (format!("[{rle}, {rle}]"), 2),
            ("[]".to_owned(), 0),
            (
                format!(r#"[{{"segmentation": {rle}, "image_id": 7, "score": 0.5}}]"#),
                1,
            ),
            (
                format!(
                    r#"{{"images": [], "annotations": [{{"segmentation": {rle}, "image_id": "a"}}, {{"segmentation": {rle}}}]}}"#
                ),
                2,
            ),
        ] {
            let masks = parse_coco_json(json.as_bytes()).unwrap();
            assert_eq!(masks, vec![mask.clone(); count], "{json}");
        }
    }

    #[test]
    fn what_is_no_mask_is_told_with_its_place() {
        for (json, expected) in [
            ("{", "EOF while parsing"),
            ("{}", "mask 0: missing field `size`"),
            (r#"{"annotations": 3}"#, "`annotations` is no list"),
            (
                r#"[{"segmentation": [[0, 0, 1, 1, 2, 0]]}]"#,
                "annotation 0: polygons are not supported",
            ),
            (
                r#"[{"size": [2, 3], "counts": "123"}, {"size": [2, 2], "counts": "123"}]"#,
                "mask 1: corrupt RLE: its runs cover 6 pixels, 2x2 has 4",
            ),
            (
                r#"[{"segmentation": {"size": [1, 1], "counts": [1]}, "image_id": 1},
                    {"segmentation": {"size": [1, 1], "counts": [1]}, "image_id": 2}]"#,
                "masks of several images (1 and 2)",
            ),
        ] {
            let fault = parse_coco_json(json.as_bytes()).unwrap_err().to_string();
            assert!(fault.contains(expected), "{json}: {fault}");
        }
    }
}

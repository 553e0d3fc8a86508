//! Classes: the likeliest, with their probabilities.

use percept_data::{Datum, Sample};
use percept_models::answer::{Classes, Prediction};
use percept_picture::{Picture, Pixels, draw_classes};
use percept_report::Table;
use serde_json::{Value, json};

use super::nothing_to_draw_on;
use crate::fail::{Blame, Result};

const TOP: usize = 5;

pub fn text(name: &str, classes: &Classes, top: Option<usize>) -> String {
    let mut table = Table::new(&["probability", "<class"]);
    for prediction in classes.top(top.unwrap_or(TOP)) {
        let probability = format!("{:.4}", prediction.probability);
        table.row([probability, class_name(&prediction)]);
    }
    format!("{name}\n{}\n", table.render())
}

pub fn record(classes: &Classes, top: Option<usize>) -> Value {
    let top = classes.top(top.unwrap_or(TOP));
    top.iter()
        .map(|p| json!({"class": p.class, "name": p.name, "probability": p.probability}))
        .collect()
}

/// The columns of a table to save, and its rows.
pub const COLUMNS: [&str; 4] = ["place", "class", "name", "probability"];

pub fn rows(classes: &Classes, top: Option<usize>) -> Vec<[String; 4]> {
    let top = classes.top(top.unwrap_or(TOP));
    let row = |(place, p): (usize, &Prediction<'_>)| {
        [
            (place + 1).to_string(),
            p.class.to_string(),
            p.name.unwrap_or_default().to_owned(),
            p.probability.to_string(),
        ]
    };
    top.iter().enumerate().map(row).collect()
}

pub fn picture(sample: &Sample, classes: &Classes, top: Option<usize>) -> Result<Picture> {
    let image = sample.parts.iter().find_map(|(_, datum)| match datum {
        Datum::Image(image) => Some(image),
        _ => None,
    });
    let image = image.ok_or_else(|| nothing_to_draw_on(sample, "image"))?;
    let [width, height] = [image.width, image.height].map(|side| side as u32);
    let pixels = Pixels::new(width, height, image.pixels.clone()).bad_input()?;
    let top: Vec<(String, f64)> = classes
        .top(top.unwrap_or(TOP))
        .iter()
        .map(|p| (class_name(p), f64::from(p.probability)))
        .collect();
    let top: Vec<(&str, f64)> = top.iter().map(|(name, p)| (name.as_str(), *p)).collect();
    Ok(draw_classes(&sample.name, &pixels, &top))
}

fn class_name(prediction: &Prediction<'_>) -> String {
    let name = prediction.name.map(str::to_owned);
    name.unwrap_or_else(|| prediction.class.to_string())
}

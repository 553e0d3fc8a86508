//! Matches: which candidates are what is looked for.

use std::path::Path;

use percept_data::egoexo::{DEST, DEST_MASKS, SOURCE, SOURCE_MASK};
use percept_data::images::encode_grey_png;
use percept_data::masks::Rle;
use percept_data::{Sample, SampleError};
use percept_models::answer::{Match, Matches};
use percept_picture::{Mask, MatchView, Picture, Pixels, draw_matches};
use percept_report::Table;
use serde_json::{Value, json};

use crate::fail::{Blame, Fail, Result};
use crate::outcome::{write_file, write_text};

const TOP: usize = 5;

/// What a mask file may end in, beside `.csv` for the table.
pub const ENDINGS: [&str; 3] = ["csv", "png", "json"];

pub fn text(sample: &Sample, matches: &Matches, top: Option<usize>) -> String {
    let mut table = Table::new(&["place", "candidate", "similarity", "confidence", "pixels"]);
    let best = matches.ranked.iter().take(top.unwrap_or(TOP));
    for (place, found) in best.enumerate() {
        let pixels =
            mask_of(sample, found).map_or_else(|| "-".to_owned(), |m| m.area().to_string());
        table.row([
            (place + 1).to_string(),
            found.candidate.to_string(),
            format!("{:.4}", found.similarity),
            format!("{:.4}", found.confidence()),
            pixels,
        ]);
    }
    let verdict = match (matches.best(), matches.ranked.first()) {
        (Some(best), _) => format!("candidate {} is the match", best.candidate),
        (None, Some(best)) => format!(
            "no match: candidate {} has confidence {:.4}, which is not above {}",
            best.candidate,
            best.confidence(),
            matches.threshold
        ),
        (None, None) => "no match: there are no candidates".to_owned(),
    };
    let (name, rows) = (&sample.name, table.render());
    format!("{name}: {verdict}, of {}\n{rows}\n", matches.ranked.len())
}

pub fn record(sample: &Sample, matches: &Matches) -> Value {
    let candidate = |found: &Match| {
        let around = mask_of(sample, found).and_then(Rle::bounding_box);
        json!({
            "candidate": found.candidate, "similarity": found.similarity, "confidence": found.confidence(),
            "box": around.map(|b| [b.x, b.y, b.width, b.height]),
        })
    };
    json!({
        "match": matches.best().map(|best| best.candidate),
        "threshold": matches.threshold,
        "candidates": matches.ranked.iter().map(candidate).collect::<Vec<_>>(),
    })
}

/// The columns of a table to save, and its rows.
pub const COLUMNS: [&str; 4] = ["place", "candidate", "similarity", "confidence"];

pub fn rows(matches: &Matches) -> Vec<[String; 4]> {
    let row = |(place, found): (usize, &Match)| {
        [
            (place + 1).to_string(),
            found.candidate.to_string(),
            found.similarity.to_string(),
            found.confidence().to_string(),
        ]
    };
    matches.ranked.iter().enumerate().map(row).collect()
}

/// Writes the mask of the match as a picture or as COCO's RLE; an empty one where there is no match.
pub fn save(path: &Path, sample: &Sample, matches: &Matches) -> Result<()> {
    let image = sample.image(DEST)?;
    let found = matches.best().and_then(|best| mask_of(sample, best));
    let mask = match found {
        Some(mask) => mask.clone(),
        None => Rle::empty(image.height, image.width).bad_input()?,
    };
    if path.extension().is_some_and(|ending| ending == "json") {
        let confidence = matches.ranked.first().map(Match::confidence);
        let (size, counts) = ([mask.height(), mask.width()], mask.coco_text());
        let record = json!({"size": size, "counts": counts, "confidence": confidence});
        return write_text(path, &format!("{record}\n"));
    }
    let pixels: Vec<u8> = mask.decode().iter().map(|&inside| 255 * inside).collect();
    let file = encode_grey_png(mask.width(), mask.height(), &pixels);
    write_file(path, &file.bug()?)
}

pub fn picture(sample: &Sample, matches: &Matches) -> Result<Picture> {
    let pixels = |part: &str| -> Result<Pixels> {
        let image = sample.image(part)?;
        let [width, height] = [image.width, image.height].map(|side| side as u32);
        Pixels::new(width, height, image.pixels.clone()).bad_input()
    };
    let masks = |part: &str| -> Result<Vec<Mask>> {
        let masks = sample.masks(part)?.iter();
        masks.map(drawn).collect()
    };
    let asked = masks(SOURCE_MASK)?;
    let asked = asked.first().ok_or_else(|| no_mask(sample))?;
    let ranked: Vec<(usize, f32)> = matches
        .ranked
        .iter()
        .map(|found| (found.candidate, found.confidence()))
        .collect();
    Ok(draw_matches(&MatchView {
        title: &sample.name,
        query: &pixels(SOURCE)?,
        asked,
        view: &pixels(DEST)?,
        candidates: &masks(DEST_MASKS)?,
        ranked: &ranked,
        threshold: matches.threshold,
    }))
}

fn drawn(mask: &Rle) -> Result<Mask> {
    let [width, height] = [mask.width(), mask.height()].map(|side| side as u32);
    Mask::new(width, height, &mask.decode()).bad_input()
}

fn no_mask(sample: &Sample) -> Fail {
    Fail::from(SampleError::NoPart {
        sample: sample.name.clone(),
        part: SOURCE_MASK.to_owned(),
        present: Vec::new(),
    })
}

/// The mask of a candidate, where the sample has masks and not tensors.
fn mask_of<'s>(sample: &'s Sample, found: &Match) -> Option<&'s Rle> {
    sample.masks(DEST_MASKS).ok()?.get(found.candidate)
}

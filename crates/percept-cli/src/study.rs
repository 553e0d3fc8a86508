//! What all readers of a study share: finding it, and the settings of a row.

use std::collections::BTreeMap;

use percept_models::study::{Measured, Study, StudyRow};

use crate::fail::{Fail, Result};
use crate::model;

/// The study of a network; the error lists those that there are.
pub fn find(model: &str, name: &str) -> Result<&'static Study> {
    let entry = model::find(model)?;
    let found = entry.studies.iter().find(|study| study.name == name);
    found.ok_or_else(|| {
        let known: Vec<String> = entry
            .studies
            .iter()
            .map(|study| format!("{} ({})", study.name, study.about))
            .collect();
        let hint = match known.as_slice() {
            [] => format!("{model} brings none"),
            known => known.join("; "),
        };
        Fail::usage(format!("{model} has no study `{name}`")).hint(hint)
    })
}

/// Refuses a setting that the study varies by itself.
pub fn refuse_varied(study: &Study, set: &[String]) -> Result<()> {
    let keys = set.iter().filter_map(|text| text.split_once('='));
    let mut keys = keys.map(|(key, _)| key.trim());
    match keys.find(|key| study.varied().any(|varied| varied == *key)) {
        Some(key) => Err(Fail::usage(format!(
            "--set {key}: it is one of the things that the study {} compares",
            study.name
        ))),
        None => Ok(()),
    }
}

/// The settings of all rows, and a user's over them.
pub fn shared_settings(study: &Study, set: &[String]) -> Vec<String> {
    let none = StudyRow {
        title: "",
        set: &[],
        run: &[],
    };
    settings(study, &none, set)
}

/// The study over clouds that a network brings, for a user who gives numbers of points alone.
pub fn over_clouds(model: &str) -> Result<&'static str> {
    let mut studies = model::find(model)?.studies.iter();
    let found = studies.find(|study| matches!(study.measured, Measured::Clouds(_)));
    found.map(|study| study.name).ok_or_else(|| {
        let message = format!("--points: {model} brings no study over clouds of points");
        Fail::usage(message).hint("leave --points out")
    })
}

/// The settings of a row: those of all rows, a user's over them, its own over both.
pub fn settings(study: &Study, row: &StudyRow, set: &[String]) -> Vec<String> {
    let mut last: BTreeMap<&str, &str> = study.shared.iter().copied().collect();
    let given = set.iter().filter_map(|text| text.split_once('='));
    last.extend(given.map(|(key, value)| (key.trim(), value.trim())));
    last.extend(row.set.iter().copied());
    last.iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

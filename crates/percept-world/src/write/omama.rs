//! Rooms in the layout of the public O-MaMa system; `percept_data::egoexo` tells it and reads it.

use std::collections::BTreeMap;

use percept_data::arrays::{NpzWriter, write_npy};
use percept_data::masks::Rle;
use percept_graph::Tensor;
use percept_kernels::Cpu;
use serde::Serialize;

use crate::error::WorldError;
use crate::room::{EgoExo, EgoExoPair, FRAME_RATE, Sight};

use super::Folder;

const EGO: &str = "ego";
const EXO: &str = "exo";
const SPLITS: [&str; 3] = ["train", "val", "test"];

#[derive(Default, Serialize)]
struct Annotation {
    /// By object, camera and frame.
    masks: BTreeMap<String, BTreeMap<&'static str, BTreeMap<String, Rle>>>,
    subsample_idx: Vec<usize>,
}

/// Pictures and masks of an ego and an exo frame, as a list of pairs names them.
type PairLine = [String; 4];

/// The lists of pairs of a split: from ego to exo, and back.
#[derive(Default)]
struct Lists {
    ego_to_exo: Vec<PairLine>,
    exo_to_ego: Vec<PairLine>,
}

pub(super) fn write(
    cpu: &Cpu,
    rooms: &EgoExo,
    takes: usize,
    folder: &mut Folder,
    progress: &mut dyn FnMut(usize),
) -> Result<(), WorldError> {
    let per_take = rooms.config().frames_per_take;
    let mut splits: BTreeMap<&str, Vec<String>> = SPLITS.map(|name| (name, Vec::new())).into();
    let mut lists: BTreeMap<&str, Lists> = SPLITS.map(|name| (name, Lists::default())).into();
    for number in 0..takes {
        let split = split_of(number, takes);
        let take = format!("{}_{number:04}", rooms.room_of(number).name());
        let mut annotation = Annotation::default();
        for frame in 0..per_take {
            let pair = rooms.pair(cpu, number * per_take + frame);
            write_pair(folder, split, &take, &pair)?;
            annotation.subsample_idx.push(frame * FRAME_RATE);
            annotation.add(&pair);
            let lists = lists.entry(split).or_default();
            lists.add(&take, &pair);
            folder.summary.frames += 1;
            progress(number * per_take + frame + 1);
        }
        folder.write_json(&format!("processed/{take}/annotation.json"), &annotation)?;
        splits.entry(split).or_default().push(take);
    }
    folder.write_json("processed/split.json", &splits)?;
    for (split, lists) in lists {
        let path = |way: &str| format!("dataset_jsons/{split}_{way}_pairs.json");
        folder.write_json(&path("egoexo"), &lists.ego_to_exo)?;
        folder.write_json(&path("exoego"), &lists.exo_to_ego)?;
    }
    Ok(())
}

/// The last fifth of the takes is for tests, the fifth before it for validation; both have one where there are three.
fn split_of(number: usize, takes: usize) -> &'static str {
    let held_out = if takes < 3 { 0 } else { takes.div_ceil(5) };
    match takes - number {
        left if left <= held_out => "test",
        left if left <= 2 * held_out => "val",
        _ => "train",
    }
}

impl Annotation {
    fn add(&mut self, pair: &EgoExoPair) {
        let frame = (pair.frame * FRAME_RATE).to_string();
        for object in &pair.objects {
            for (camera, mask) in [(EGO, &object.ego), (EXO, &object.exo)] {
                if mask.is_empty() {
                    continue;
                }
                let cameras = self.masks.entry(object.name.clone()).or_default();
                let frames = cameras.entry(camera).or_default();
                frames.insert(frame.clone(), mask.clone());
            }
        }
    }
}

impl Lists {
    /// Objects that are seen where they are looked from; where they are looked for they may be hidden.
    fn add(&mut self, take: &str, pair: &EgoExoPair) {
        let frame = pair.frame * FRAME_RATE;
        for object in &pair.objects {
            let name = |camera: &str, what: &str| {
                format!(
                    "percept//{take}//{camera}//{}//{what}//{frame}",
                    object.name
                )
            };
            let line = || {
                [
                    name(EGO, "rgb"),
                    name(EGO, "mask"),
                    name(EXO, "rgb"),
                    name(EXO, "mask"),
                ]
            };
            if !object.ego.is_empty() {
                self.ego_to_exo.push(line());
            }
            if !object.exo.is_empty() {
                self.exo_to_ego.push(line());
            }
        }
    }
}

fn write_pair(
    folder: &mut Folder,
    split: &str,
    take: &str,
    pair: &EgoExoPair,
) -> Result<(), WorldError> {
    let frame = pair.frame * FRAME_RATE;
    let split = split.to_uppercase();
    // Candidates belong to the view in which an object is looked for.
    for (camera, way, sight) in [(EGO, "EXO2EGO", &pair.ego), (EXO, "EGO2EXO", &pair.exo)] {
        folder.write_jpeg(
            &format!("processed/{take}/{camera}/{frame}.jpg"),
            &sight.view.image,
        )?;
        let candidates = format!("Masks_{split}_{way}/{take}/{camera}/{frame}");
        write_candidates(folder, &candidates, sight)?;
    }
    let seen = |mask: &Rle| usize::from(!mask.is_empty());
    let masks = pair.objects.iter().map(|o| seen(&o.ego) + seen(&o.exo));
    folder.summary.masks += masks.sum::<usize>();
    Ok(())
}

fn write_candidates(folder: &mut Folder, name: &str, sight: &Sight) -> Result<(), WorldError> {
    let image = &sight.view.image;
    let masks = sight.candidates.iter().map(|candidate| &candidate.mask);
    let planes: Vec<u8> = masks.clone().flat_map(Rle::decode).collect();
    let boxes: Vec<f32> = masks
        .filter_map(Rle::bounding_box)
        .flat_map(|found| [found.x, found.y, found.width, found.height])
        .map(|side| side as f32)
        .collect();
    let count = sight.candidates.len();
    let path = folder.path_for(&format!("{name}_masks.npz"))?;
    let invalid = |error| WorldError::io(&path)(std::io::Error::other(error));
    let planes =
        Tensor::from_values([count, image.height, image.width], planes).map_err(invalid)?;
    let mut writer = NpzWriter::create(&path)?.compressed();
    writer.add("arr_0", &planes)?;
    writer.finish()?;
    folder.count(&path)?;
    let boxes = Tensor::from_values([count, 4], boxes).map_err(invalid)?;
    let path = folder.path_for(&format!("{name}_boxes.npy"))?;
    write_npy(&path, &boxes)?;
    folder.count(&path)?;
    folder.summary.masks += count;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_is_held_out_twice() {
        let splits = |takes| (0..takes).map(|n| split_of(n, takes)).collect::<Vec<_>>();
        assert_eq!(splits(2), ["train", "train"]);
        assert_eq!(splits(3), ["train", "val", "test"]);
        let ten = splits(10);
        assert_eq!(ten.iter().filter(|s| **s == "train").count(), 6);
        assert_eq!(ten[8..], ["test", "test"]);
    }
}

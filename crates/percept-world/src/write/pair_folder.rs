//! Rooms as a plain folder of pairs, as users make their own; `percept_data::egoexo::PairFolder` reads it.

use percept_data::masks::Rle;
use percept_kernels::Cpu;

use crate::error::WorldError;
use crate::room::EgoExo;

use super::Folder;

pub(super) fn write(
    cpu: &Cpu,
    rooms: &EgoExo,
    pairs: usize,
    folder: &mut Folder,
    progress: &mut dyn FnMut(usize),
) -> Result<(), WorldError> {
    for index in 0..pairs {
        let pair = rooms.pair(cpu, index);
        let candidates: Vec<&Rle> = pair.exo.candidates.iter().map(|c| &c.mask).collect();
        for object in pair.objects.iter().filter(|object| !object.ego.is_empty()) {
            let place = format!("{:04}_{:03}_{}", pair.take, pair.frame, object.name);
            folder.write_jpeg(&format!("{place}/source.jpg"), &pair.ego.view.image)?;
            folder.write_jpeg(&format!("{place}/dest.jpg"), &pair.exo.view.image)?;
            folder.write_json(&format!("{place}/source-mask.json"), &object.ego)?;
            folder.write_json(&format!("{place}/dest-masks.json"), &candidates)?;
            folder.write_json(&format!("{place}/truth.json"), &object.exo)?;
            folder.summary.masks += 2 + candidates.len();
        }
        folder.summary.frames += 1;
        progress(index + 1);
    }
    Ok(())
}

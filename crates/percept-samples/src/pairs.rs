//! Pairs of pictures with masks: rooms of the synthetic world, folders of pairs, and files of masks.

use std::path::{Path, PathBuf};

use percept_data::egoexo::{
    DEST, DEST_MASKS, Direction, EgoExo, PairFolder, SOURCE, SOURCE_MASK, Split, TRUTH,
};
use percept_data::masks::read_masks;
use percept_data::{Datum, Sample, SampleError, Samples};
use percept_kernels::Cpu;
use percept_models::Model;
use percept_world::{
    EgoExo as RoomsOfWorld, EgoExoConfig, EgoExoPair, PictureSize, SeenObject, Sight,
};

use crate::OpenOptions;
use crate::error::OpenError;

/// Files with masks, each those of one sample.
pub(crate) struct MaskFiles {
    part: &'static str,
    files: Vec<PathBuf>,
}

impl MaskFiles {
    pub(crate) fn open(part: &'static str, paths: &[&Path]) -> Self {
        let files = paths.iter().map(|path| path.to_path_buf()).collect();
        Self { part, files }
    }
}

impl Samples for MaskFiles {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn name(&self, index: usize) -> String {
        self.files[index].display().to_string()
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let masks = read_masks(&self.files[index])?;
        Ok(Sample::of(self.name(index), self.part, Datum::Masks(masks)))
    }
}

/// Pairs of all given folders, one after the other: plain folders, or the public layout.
pub(crate) struct Pairs {
    folders: Vec<Box<dyn Samples>>,
}

impl Pairs {
    pub(crate) fn open(network: &Model, paths: &[&Path]) -> Result<Self, OpenError> {
        let open = |path: &&Path| -> Result<Box<dyn Samples>, OpenError> {
            Ok(match path.join("processed").is_dir() {
                true => Box::new(EgoExo::open(path, Split::Test, direction(network))?),
                false => Box::new(PairFolder::open(path)?),
            })
        };
        let folders = paths.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { folders })
    }

    fn find(&self, index: usize) -> (&dyn Samples, usize) {
        let mut within = index;
        for folder in &self.folders {
            match within.checked_sub(folder.len()) {
                Some(behind) => within = behind,
                None => return (&**folder, within),
            }
        }
        panic!("sample {index} of {}", self.len())
    }
}

impl Samples for Pairs {
    fn len(&self) -> usize {
        self.folders.iter().map(|folder| folder.len()).sum()
    }

    fn name(&self, index: usize) -> String {
        let (folder, within) = self.find(index);
        folder.name(within)
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let (folder, within) = self.find(index);
        folder.sample(within)
    }
}

/// Usual height and width of a network's part.
fn usual_size(network: &Model, part: &str) -> [usize; 2] {
    let asked = network.sizes.get(part).copied();
    let parts = network.intake.parts().iter();
    let usual = parts.filter(|known| known.name == part);
    asked
        .or_else(|| usual.filter_map(|known| known.size).next())
        .unwrap_or([224, 224])
}

/// From which view to which a network looks: the camera on the stand has the wider pictures.
fn direction(network: &Model) -> Direction {
    let aspect = |part| {
        let [height, width] = usual_size(network, part);
        width as f64 / height.max(1) as f64
    };
    match aspect(SOURCE) >= aspect(DEST) {
        true => Direction::ExoToEgo,
        false => Direction::EgoToExo,
    }
}

/// Things on tables of the synthetic world, one of each room, looked for in the other view.
pub(crate) struct Rooms {
    rooms: RoomsOfWorld,
    direction: Direction,
    cpu: Cpu,
    count: usize,
}

impl Rooms {
    pub(crate) fn new(network: &Model, options: &OpenOptions) -> Result<Self, OpenError> {
        let direction = direction(network);
        let picture = |part| {
            let [height, width] = usual_size(network, part);
            PictureSize::new(width, height)
        };
        let (source, dest) = (picture(SOURCE)?, picture(DEST)?);
        let (ego, exo) = match direction {
            Direction::EgoToExo => (source, dest),
            Direction::ExoToEgo => (dest, source),
        };
        Ok(Self {
            rooms: RoomsOfWorld::new(EgoExoConfig {
                seed: options.seed,
                frames_per_take: 1,
                ego,
                exo,
            }),
            direction,
            cpu: Cpu::new(options.threads)?,
            count: options.count,
        })
    }

    fn seed(&self) -> u64 {
        self.rooms.config().seed
    }
}

/// The thing that is looked for: the largest in the view that shows it among those that both views show.
fn wanted(pair: &EgoExoPair) -> Option<&SeenObject> {
    let seen = |object: &&SeenObject| !object.ego.is_empty() && !object.exo.is_empty();
    let both = pair.objects.iter().filter(seen);
    both.max_by_key(|object| object.ego.area().min(object.exo.area()))
}

impl Samples for Rooms {
    fn len(&self) -> usize {
        self.count
    }

    fn name(&self, index: usize) -> String {
        format!("synthetic room, seed {}, pair {index}", self.seed())
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let pair = self.rooms.pair(&self.cpu, index);
        let nothing = || SampleError::Unusable {
            sample: self.name(index),
            reason: "both views show nothing together".to_owned(),
        };
        let object = wanted(&pair).ok_or_else(nothing)?.clone();
        let (source, dest, mask, truth) = match self.direction {
            Direction::EgoToExo => (pair.ego, pair.exo, object.ego, object.exo),
            Direction::ExoToEgo => (pair.exo, pair.ego, object.exo, object.ego),
        };
        let masks = |sight: &Sight| sight.candidates.iter().map(|c| c.mask.clone()).collect();
        let name = format!("{}, {}", self.name(index), object.name);
        Ok(Sample::of(name, SOURCE, Datum::Image(source.view.image))
            .with(SOURCE_MASK, Datum::Masks(vec![mask]))
            .with(DEST_MASKS, Datum::Masks(masks(&dest)))
            .with(DEST, Datum::Image(dest.view.image))
            .with(TRUTH, Datum::Masks(vec![truth])))
    }
}

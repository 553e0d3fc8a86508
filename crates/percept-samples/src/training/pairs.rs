//! Pairs of views with a masked thing: rooms of the synthetic world, rendered once and kept in memory, or a folder.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use percept_data::egoexo::{
    DEST, DEST_MASKS, Direction, EgoExo, PairFolder, SOURCE, SOURCE_MASK, Split, TRUTH,
};
use percept_data::images::RgbImage;
use percept_data::masks::Rle;
use percept_data::random::{Draws, hash};
use percept_data::{Datum, Sample, SampleError, Samples, SettingError};
use percept_kernels::Cpu;
use percept_world::{
    Candidate, CandidateKind, EgoExo as RoomsOfWorld, EgoExoConfig, EgoExoPair, PictureSize,
};
use serde::{Deserialize, Serialize};

use crate::OpenError;

/// How many rooms of the world, and how they are looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PairSettings {
    /// Everything in the rooms follows from this; held-out rooms, and the things in them, have another.
    pub seed: u64,
    /// Rooms to learn in. Each thing that is seen from both sides is a sample.
    pub rooms: usize,
    /// Rooms to be judged in.
    pub testing_rooms: usize,
    /// From which view to which.
    pub direction: Looking,
    /// Height and width of pictures from the head.
    pub ego: [usize; 2],
    /// Height and width of pictures from the stand.
    pub exo: [usize; 2],
    /// Things with fewer pixels in a view are not asked for.
    pub smallest: u64,
    /// Whether things that the other view does not show are learned from too: for a head that tells visibility.
    pub hidden: bool,
    /// Candidates of a sample to be judged by: the right one, things of its colour, then others at random.
    pub candidates: usize,
}

/// From which view to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Looking {
    ExoToEgo,
    EgoToExo,
}

impl From<Looking> for Direction {
    fn from(looking: Looking) -> Self {
        match looking {
            Looking::ExoToEgo => Self::ExoToEgo,
            Looking::EgoToExo => Self::EgoToExo,
        }
    }
}

impl Default for PairSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            rooms: 300,
            testing_rooms: 120,
            direction: Looking::ExoToEgo,
            ego: [224, 224],
            exo: [224, 392],
            smallest: 196,
            hidden: false,
            candidates: 20,
        }
    }
}

/// What the seed of held-out rooms differs by.
const HELD_OUT: u64 = 0x726f_6f6d;
/// What the draws of candidates are for.
const CHOICE: u64 = 0x6361_6e64;

impl PairSettings {
    /// Things in rooms to learn from, and things in other rooms to be judged by. They are rendered when first asked for.
    pub(super) fn rooms(&self, threads: usize) -> Result<[RoomSamples; 2], SettingError> {
        for (setting, value) in [
            ("data.pairs.rooms", self.rooms),
            ("data.pairs.testing_rooms", self.testing_rooms),
            ("data.pairs.candidates", self.candidates),
        ] {
            SettingError::unless(value > 0, setting, value, "at least 1")?;
        }
        let size = |setting: &'static str, [height, width]: [usize; 2]| {
            PictureSize::new(width, height).map_err(|error| SettingError {
                setting,
                value: format!("{height}x{width}"),
                expected: error.to_string(),
            })
        };
        let config = |seed| -> Result<EgoExoConfig, SettingError> {
            Ok(EgoExoConfig {
                seed,
                frames_per_take: 1,
                ego: size("data.pairs.ego", self.ego)?,
                exo: size("data.pairs.exo", self.exo)?,
            })
        };
        let samples = |seed, rooms, held_out| -> Result<RoomSamples, SettingError> {
            Ok(RoomSamples {
                config: config(seed)?,
                settings: *self,
                count: rooms,
                held_out,
                threads,
                kept: OnceLock::new(),
            })
        };
        Ok([
            samples(self.seed, self.rooms, false)?,
            samples(hash(self.seed, HELD_OUT, 0), self.testing_rooms, true)?,
        ])
    }
}

/// The pairs of a folder: the public layout with its own parts, or plain folders, of which the last are held out.
pub(super) fn read_folder(
    folder: &Path,
    direction: Direction,
    hold_out: f64,
) -> Result<[Arc<dyn Samples>; 2], OpenError> {
    if folder.join("processed").is_dir() {
        let part = |split| -> Result<Arc<dyn Samples>, OpenError> {
            Ok(Arc::new(EgoExo::open(folder, split, direction)?))
        };
        return Ok([part(Split::Train)?, part(Split::Test)?]);
    }
    let count = PairFolder::open(folder)?.len();
    let first = count - ((count as f64 * hold_out) as usize).min(count);
    let part = |from, count| -> Result<Arc<dyn Samples>, OpenError> {
        Ok(Arc::new(Partly {
            folder: PairFolder::open(folder)?,
            from,
            count,
        }))
    };
    Ok([part(0, first)?, part(first, count - first)?])
}

/// Some pairs of a folder.
struct Partly {
    folder: PairFolder,
    from: usize,
    count: usize,
}

impl Samples for Partly {
    fn len(&self) -> usize {
        self.count
    }

    fn name(&self, index: usize) -> String {
        self.folder.name(self.from + index)
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        self.folder.sample(self.from + index)
    }
}

/// Things in rooms.
pub(super) struct RoomSamples {
    config: EgoExoConfig,
    settings: PairSettings,
    count: usize,
    held_out: bool,
    threads: usize,
    kept: OnceLock<Kept>,
}

/// Rooms in memory, and the things in them that are asked for: (room, thing).
struct Kept {
    rooms: Vec<Room>,
    asked: Vec<(usize, usize)>,
}

/// A room as one direction sees it.
struct Room {
    source: RgbImage,
    dest: RgbImage,
    candidates: Vec<Candidate>,
    things: Vec<Thing>,
}

struct Thing {
    name: String,
    paint: usize,
    in_source: Rle,
    in_dest: Rle,
}

impl Room {
    fn of(pair: EgoExoPair, direction: Direction) -> Self {
        let (source, dest) = match direction {
            Direction::EgoToExo => (pair.ego, pair.exo),
            Direction::ExoToEgo => (pair.exo, pair.ego),
        };
        let things = pair.objects.into_iter().map(|object| {
            let (in_source, in_dest) = match direction {
                Direction::EgoToExo => (object.ego, object.exo),
                Direction::ExoToEgo => (object.exo, object.ego),
            };
            Thing {
                name: object.name,
                paint: object.paint,
                in_source,
                in_dest,
            }
        });
        Self {
            things: things.collect(),
            source: source.view.image,
            dest: dest.view.image,
            candidates: dest.candidates,
        }
    }

    /// Whether a thing is asked for: large enough where it is shown, and in the other view either that too or not there at all.
    fn is_asked(&self, thing: &Thing, settings: &PairSettings, held_out: bool) -> bool {
        let shown = thing.in_source.area() >= settings.smallest;
        match thing.in_dest.is_empty() {
            // Matching learns nothing from what is not there; whether that is noticed is judged.
            true if !held_out => shown && settings.hidden,
            true => shown && self.candidates.len() >= settings.candidates,
            false => {
                let found = !held_out || self.candidates.len() >= settings.candidates;
                shown && found && thing.in_dest.area() >= settings.smallest && self.is_found(thing)
            }
        }
    }

    /// Whether some candidate is the thing.
    fn is_found(&self, thing: &Thing) -> bool {
        let mut overlaps = self
            .candidates
            .iter()
            .map(|c| overlap(&c.mask, &thing.in_dest));
        overlaps.any(|iou| iou >= 0.5)
    }

    /// Some of the candidates: what fits a thing best, things of its paint, then others at random; in a random order.
    fn chosen(&self, number: usize, count: usize, draws: &mut Draws) -> Vec<Rle> {
        let thing = &self.things[number];
        let is_alike = |candidate: &Candidate| match candidate.kind {
            CandidateKind::Whole(other) => {
                other != number
                    && self
                        .things
                        .get(other)
                        .is_some_and(|o| o.paint == thing.paint)
            }
            _ => false,
        };
        let fit = |candidate: &Candidate| overlap(&candidate.mask, &thing.in_dest);
        let best = (0..self.candidates.len())
            .map(|place| (place, fit(&self.candidates[place])))
            .filter(|(_, iou)| *iou >= 0.5)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(place, _)| place);
        let mut order: Vec<(u8, u64, usize)> = (0..self.candidates.len())
            .map(|place| {
                let rank = match place {
                    place if Some(place) == best => 0,
                    place if is_alike(&self.candidates[place]) => 1,
                    _ => 2,
                };
                (rank, draws.word(), place)
            })
            .collect();
        order.sort_unstable();
        order.truncate(count);
        // What was drawn above is in no relation to what a candidate is.
        order.sort_unstable_by_key(|&(_, drawn, place)| (drawn, place));
        let masks = order
            .iter()
            .map(|&(_, _, place)| self.candidates[place].mask.clone());
        masks.collect()
    }
}

fn overlap(a: &Rle, b: &Rle) -> f64 {
    a.iou(b).unwrap_or(0.0)
}

impl RoomSamples {
    fn kept(&self) -> &Kept {
        self.kept.get_or_init(|| {
            let world = RoomsOfWorld::new(self.config);
            let cpu = Cpu::new(self.threads).or_else(|_| Cpu::new(1));
            let cpu = cpu.expect("every machine has a thread");
            let direction = Direction::from(self.settings.direction);
            let rooms = (0..self.count).map(|room| Room::of(world.pair(&cpu, room), direction));
            let rooms: Vec<Room> = rooms.collect();
            let asked = rooms.iter().enumerate().flat_map(|(number, room)| {
                let things = room.things.iter().enumerate();
                let asked =
                    things.filter(|(_, thing)| room.is_asked(thing, &self.settings, self.held_out));
                asked
                    .map(move |(thing, _)| (number, thing))
                    .collect::<Vec<_>>()
            });
            let asked = asked.collect();
            Kept { rooms, asked }
        })
    }
}

impl Samples for RoomSamples {
    fn len(&self) -> usize {
        self.kept().asked.len()
    }

    fn name(&self, index: usize) -> String {
        let kept = self.kept();
        let (room, thing) = kept.asked[index];
        let held_out = if self.held_out { "held-out " } else { "" };
        format!(
            "{held_out}room {room}, {}",
            kept.rooms[room].things[thing].name
        )
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let kept = self.kept();
        let (number, thing) = kept.asked[index];
        let room = &kept.rooms[number];
        let candidates = match self.held_out {
            true => {
                let mut draws = Draws::of(&[self.config.seed, CHOICE, index as u64]);
                room.chosen(thing, self.settings.candidates, &mut draws)
            }
            false => room.candidates.iter().map(|c| c.mask.clone()).collect(),
        };
        let thing = &room.things[thing];
        Ok(
            Sample::of(self.name(index), SOURCE, Datum::Image(room.source.clone()))
                .with(SOURCE_MASK, Datum::Masks(vec![thing.in_source.clone()]))
                .with(DEST, Datum::Image(room.dest.clone()))
                .with(DEST_MASKS, Datum::Masks(candidates))
                .with(TRUTH, Datum::Masks(vec![thing.in_dest.clone()])),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PairSettings {
        PairSettings {
            rooms: 2,
            testing_rooms: 2,
            ego: [112, 112],
            exo: [112, 196],
            smallest: 20,
            ..PairSettings::default()
        }
    }

    #[test]
    fn things_to_be_judged_by_have_twenty_candidates_and_one_is_right() {
        let [training, testing] = settings().rooms(2).unwrap();
        assert!(training.len() > 8 && testing.len() > 4);
        let mut alike = 0;
        for index in 0..testing.len() {
            let sample = testing.sample(index).unwrap();
            let masks = sample.masks(DEST_MASKS).unwrap();
            assert_eq!(masks.len(), 20);
            let truth = &sample.masks(TRUTH).unwrap()[0];
            let right = masks
                .iter()
                .filter(|mask| overlap(mask, truth) >= 0.5)
                .count();
            assert_eq!(right > 0, !truth.is_empty(), "{}", sample.name);
            let (room, thing) = testing.kept().asked[index];
            let room = &testing.kept().rooms[room];
            let same = |c: &&Candidate| {
                matches!(c.kind, CandidateKind::Whole(o)
                if o != thing && room.things[o].paint == room.things[thing].paint)
            };
            let expected = room.candidates.iter().filter(same).count();
            let offered = room
                .candidates
                .iter()
                .filter(same)
                .filter(|c| masks.contains(&c.mask));
            assert_eq!(offered.count(), expected.min(19));
            alike += expected;
        }
        assert!(
            alike > testing.len() / 2,
            "{alike} things of the same colour"
        );
        let [again, _] = settings().rooms(1).unwrap();
        let picture = |samples: &RoomSamples, index: usize| {
            let sample = samples.sample(index).unwrap();
            sample.image(SOURCE).unwrap().pixels.clone()
        };
        assert!(picture(&again, 3) == picture(&training, 3));
        assert!(picture(&training, 0) != picture(&testing, 0));
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for wrong in [
            PairSettings {
                rooms: 0,
                ..settings()
            },
            PairSettings {
                candidates: 0,
                ..settings()
            },
            PairSettings {
                ego: [0, 9],
                ..settings()
            },
        ] {
            assert!(wrong.rooms(1).is_err(), "{wrong:?}");
        }
    }
}

//! A room with a table and two cameras: one on the head of the person at it, one on a stand.

mod candidates;
mod furniture;
mod goods;
mod take;

use percept_data::masks::Rle;
use percept_data::random::key;
use percept_kernels::Cpu;

use super::view::{PictureSize, View};

pub use candidates::{Candidate, CandidateKind};
pub use furniture::RoomKind;
use take::Take;

/// Which rooms to look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgoExoConfig {
    /// Everything follows from it.
    pub seed: u64,
    /// Pairs of each take, a second apart; every take is another room with other things.
    pub frames_per_take: usize,
    /// The pictures of the camera on the head.
    pub ego: PictureSize,
    /// The pictures of the camera on the stand.
    pub exo: PictureSize,
}

/// Pairs of pictures of one table from two sides: any of them, in any order, always the same bits.
///
/// ```
/// use percept_kernels::Cpu;
/// use percept_world::{EgoExo, EgoExoConfig, PictureSize};
///
/// let size = PictureSize::new(64, 64)?;
/// let rooms = EgoExo::new(EgoExoConfig { seed: 1, frames_per_take: 8, ego: size, exo: size });
/// let pair = rooms.pair(&Cpu::new(2)?, 5);
/// assert!(pair.objects.len() >= 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EgoExo {
    config: EgoExoConfig,
}

/// Two pictures of one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct EgoExoPair {
    /// The number of the take.
    pub take: usize,
    /// The number of the pair in it.
    pub frame: usize,
    /// What the room is for.
    pub room: RoomKind,
    /// From the head.
    pub ego: Sight,
    /// From the stand.
    pub exo: Sight,
    /// The things of the take, seen or not.
    pub objects: Vec<SeenObject>,
}

/// A picture with what a segmenter would find in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
    /// The picture and what its pixels show; instance n is object n - 1.
    pub view: View,
    /// Masks without names, in no order.
    pub candidates: Vec<Candidate>,
}

/// A thing and its masks.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenObject {
    /// Its name in the take: its kind and a number.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its paint, by number: things of one paint have the same colour.
    pub paint: usize,
    /// Its pixels in the ego picture; empty when it is not seen there.
    pub ego: Rle,
    /// Its pixels in the exo picture.
    pub exo: Rle,
}

/// Frames per second of the recording that pairs are taken from.
pub(crate) const FRAME_RATE: usize = 30;

impl EgoExo {
    /// The rooms of `config`.
    pub fn new(config: EgoExoConfig) -> Self {
        Self { config }
    }

    /// What the rooms were made from.
    pub fn config(&self) -> &EgoExoConfig {
        &self.config
    }

    /// Pair `index`: takes follow one another, each with its own number of pairs.
    pub fn pair(&self, cpu: &Cpu, index: usize) -> EgoExoPair {
        let per_take = self.config.frames_per_take.max(1);
        let (number, frame) = (index / per_take, index % per_take);
        let take = self.take(number);
        let [ego, exo] = take.look(cpu, [self.config.ego, self.config.exo], frame);
        let objects = take
            .names()
            .enumerate()
            .map(|(object, (kind, name, paint))| SeenObject {
                name,
                kind,
                paint,
                ego: candidates::mask_of(&ego, object as u16 + 1),
                exo: candidates::mask_of(&exo, object as u16 + 1),
            })
            .collect();
        let sight = |view: View, side: u64| Sight {
            candidates: candidates::candidates(&view, key(&[take.key(), 5, frame as u64, side])),
            view,
        };
        EgoExoPair {
            take: number,
            frame,
            room: take.room(),
            ego: sight(ego, 0),
            exo: sight(exo, 1),
            objects,
        }
    }

    /// What the room of a take is for.
    pub(crate) fn room_of(&self, take: usize) -> RoomKind {
        self.take(take).room()
    }

    fn take(&self, number: usize) -> Take {
        Take::new(key(&[self.config.seed, 31, number as u64]))
    }

    /// Every pair in turn, for ever.
    pub fn stream(self, cpu: &Cpu) -> impl Iterator<Item = EgoExoPair> + '_ {
        (0..).map(move |index| self.pair(cpu, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn rooms(seed: u64, side: usize) -> EgoExo {
        let size = PictureSize::new(side, side).expect("a size");
        EgoExo::new(EgoExoConfig {
            seed,
            frames_per_take: 6,
            ego: size,
            exo: PictureSize::new(side * 7 / 4, side).expect("a size"),
        })
    }

    fn cpu(threads: usize) -> Cpu {
        Cpu::new(threads).expect("a CPU")
    }

    #[test]
    fn masks_sum_to_the_visible_instances() {
        let rooms = rooms(3, 112);
        for index in [0, 7, 14] {
            let pair = rooms.pair(&cpu(2), index);
            for (sight, masks) in [
                (
                    &pair.ego,
                    pair.objects.iter().map(|o| &o.ego).collect::<Vec<_>>(),
                ),
                (&pair.exo, pair.objects.iter().map(|o| &o.exo).collect()),
            ] {
                let mut sum = vec![0u16; sight.view.instances.len()];
                for (object, mask) in masks.iter().enumerate() {
                    for (sum, inside) in sum.iter_mut().zip(mask.decode()) {
                        *sum += u16::from(inside) * (object as u16 + 1);
                    }
                }
                assert!(sum == sight.view.instances, "pair {index}");
            }
        }
    }

    #[test]
    fn rooms_hold_many_kinds_and_things_are_hidden_now_and_then() {
        let rooms = rooms(9, 112);
        let mut kinds = BTreeSet::new();
        let (mut both, mut one) = (0, 0);
        for index in (0..60).step_by(6) {
            let pair = rooms.pair(&cpu(2), index);
            assert!(
                (10..=30).contains(&pair.objects.len()),
                "{}",
                pair.objects.len()
            );
            for object in &pair.objects {
                kinds.insert(object.kind);
                match (object.ego.is_empty(), object.exo.is_empty()) {
                    (false, false) => both += 1,
                    (true, true) => {}
                    _ => one += 1,
                }
            }
        }
        println!("{both} things seen by both cameras, {one} by one");
        assert!(
            kinds.len() >= 12 && both > 60 && one > 5,
            "{kinds:?} {both} {one}"
        );
    }

    #[test]
    fn things_move_and_pairs_repeat_on_any_number_of_threads() {
        let rooms = rooms(4, 56);
        let first = rooms.pair(&cpu(1), 2);
        assert!(first == rooms.pair(&cpu(2), 2) && first == rooms.pair(&cpu(3), 2));
        let second = rooms.stream(&cpu(2)).nth(3).expect("a pair");
        assert_ne!(first.exo.view.instances, second.exo.view.instances);
        assert_ne!(first.ego.view.depth_m, second.ego.view.depth_m);
        assert_ne!(first, rooms_of_another_seed());
    }

    fn rooms_of_another_seed() -> EgoExoPair {
        rooms(5, 56).pair(&cpu(2), 2)
    }
}

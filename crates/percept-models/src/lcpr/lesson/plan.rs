//! Which places are learned from together: a query, the same place in another drive, and others that the network takes for it.

use percept_data::loader::EpochPlan;
use percept_data::random::{Draws, permutation};

use super::super::DESCRIPTOR;
use super::prepare::{DRIVE, FAR_M, NEAR_M, PLACE, metres};
use crate::lesson::{Asked, Epoch, LessonError, tensor_of};

/// Places that negatives are chosen from at random, of which the hardest are kept.
const CANDIDATES: usize = 1000;
const HARDEST: usize = 60;

/// What random numbers are for.
mod purpose {
    pub(super) const FRAMES: u64 = 0x6672_616d;
    pub(super) const QUERIES: u64 = 0x7175_6572;
    pub(super) const OTHERS: u64 = 0x6f74_6865;
}

/// How much an epoch has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Frames that groups are made of.
    pub(super) frames: usize,
    pub(super) groups: usize,
    /// Negatives of each group.
    pub(super) negatives: usize,
}

/// What is known of a sample.
struct Seen {
    sample: usize,
    place: [f32; 2],
    drive: i32,
    descriptor: Vec<f32>,
}

impl Seen {
    /// Whether another frame shows the same place, on another drive.
    fn is_seen_again_in(&self, other: &Seen) -> bool {
        self.drive != other.drive && metres(self.place, other.place) <= NEAR_M
    }
}

/// Groups of a query, a positive and hard negatives with positives of their own, by the network's descriptors of the moment.
pub(super) fn hard_groups(
    epoch: Epoch,
    network: &mut dyn Asked,
    sizes: Sizes,
) -> Result<EpochPlan, LessonError> {
    let draws = |what: u64, number: u64| Draws::of(&[epoch.seed, epoch.number, what, number]);
    let all = network.samples();
    let mut asked = permutation(all, |index| draws(purpose::FRAMES, index).word());
    asked.truncate(sizes.frames);
    asked.sort_unstable();
    let mut seen: Vec<Seen> = Vec::with_capacity(asked.len());
    network.ask(&asked, &mut |batch| {
        let descriptors = batch.outputs.get(DESCRIPTOR)?.to_f32().into_owned();
        let places = tensor_of(batch.examples, PLACE)?.values::<f32>()?;
        let drives = tensor_of(batch.examples, DRIVE)?.values::<i32>()?;
        let width = descriptors.len() / batch.samples.len().max(1);
        let rows = descriptors.chunks_exact(width.max(1));
        let places = places.as_chunks::<2>().0.iter().zip(drives);
        for ((row, (place, drive)), sample) in rows.zip(places).zip(batch.samples) {
            seen.push(Seen {
                sample: *sample,
                place: *place,
                drive: *drive,
                descriptor: row.to_vec(),
            });
        }
        Ok(())
    })?;
    let order = permutation(seen.len(), |index| draws(purpose::QUERIES, index).word());
    let planned = order.into_iter().filter_map(|query| {
        let mut draws = draws(purpose::OTHERS, query as u64);
        group(&seen, query, sizes.negatives, &mut draws)
    });
    Ok(EpochPlan::of_groups(planned.take(sizes.groups)))
}

/// The samples of one group; none where the place was not seen in another drive.
fn group(seen: &[Seen], query: usize, negatives: usize, draws: &mut Draws) -> Option<Vec<usize>> {
    let here = &seen[query];
    let mut group = vec![here.sample, positive(seen, here, draws)?];
    let mut hard: Vec<(f32, usize)> = (0..CANDIDATES)
        .map(|_| draws.below(seen.len()))
        .filter(|&other| metres(here.place, seen[other].place) >= FAR_M)
        .map(|other| (squared(&here.descriptor, &seen[other].descriptor), other))
        .collect();
    hard.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    hard.dedup_by_key(|(_, other)| *other);
    hard.truncate(HARDEST);
    for _ in 0..negatives.min(hard.len()) {
        let (_, chosen) = hard.remove(draws.below(hard.len()));
        let negative = &seen[chosen];
        group.push(negative.sample);
        // A negative that has a positive is an anchor too.
        group.extend(positive(seen, negative, draws));
    }
    Some(group)
}

/// The same place on another drive.
fn positive(seen: &[Seen], here: &Seen, draws: &mut Draws) -> Option<usize> {
    let again = seen.iter().filter(|other| here.is_seen_again_in(other));
    let again: Vec<&Seen> = again.collect();
    match again.is_empty() {
        true => None,
        false => Some(again[draws.below(again.len())].sample),
    }
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

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
    pub(super) const QUERIES: u64 = 0x7175_6572;
    pub(super) const OTHERS: u64 = 0x6f74_6865;
}

/// What is known of a sample.
struct Seen {
    sample: usize,
    place: [f32; 2],
    drive: i32,
    descriptor: Vec<f32>,
}

/// Groups of a query, a positive and hard negatives, by the network's descriptors of the moment.
pub(super) fn hard_groups(
    epoch: Epoch,
    network: &mut dyn Asked,
    groups: usize,
    negatives: usize,
) -> Result<EpochPlan, LessonError> {
    let all: Vec<usize> = (0..network.samples()).collect();
    let mut seen: Vec<Seen> = Vec::with_capacity(all.len());
    network.ask(&all, &mut |batch| {
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
    let draws = |what: u64, number: u64| Draws::of(&[epoch.seed, epoch.number, what, number]);
    let order = permutation(seen.len(), |index| draws(purpose::QUERIES, index).word());
    let planned = order.into_iter().filter_map(|query| {
        let mut draws = draws(purpose::OTHERS, query as u64);
        group(&seen, query, negatives, &mut draws)
    });
    Ok(EpochPlan::of_groups(planned.take(groups)))
}

/// The samples of one group; none where the place was not seen in another drive.
fn group(seen: &[Seen], query: usize, negatives: usize, draws: &mut Draws) -> Option<Vec<usize>> {
    let here = &seen[query];
    let apart = |other: &Seen| metres(here.place, other.place);
    let positives: Vec<&Seen> = seen
        .iter()
        .filter(|other| other.drive != here.drive && apart(other) <= NEAR_M)
        .collect();
    if positives.is_empty() {
        return None;
    }
    let positive = positives[draws.below(positives.len())];
    let mut hard: Vec<(f32, usize)> = (0..CANDIDATES)
        .map(|_| &seen[draws.below(seen.len())])
        .filter(|other| apart(other) >= FAR_M)
        .map(|other| (squared(&here.descriptor, &other.descriptor), other.sample))
        .collect();
    hard.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    hard.dedup_by_key(|(_, sample)| *sample);
    hard.truncate(HARDEST);
    let mut group = vec![here.sample, positive.sample];
    for _ in 0..negatives.min(hard.len()) {
        let chosen = draws.below(hard.len());
        group.push(hard.remove(chosen).1);
    }
    Some(group)
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

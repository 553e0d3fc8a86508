//! Recall of places: the first drive is the database, later ones ask it.

use percept_metrics::retrieval::{AnsweredQuery, max_f1, recall_at};

use super::super::DESCRIPTOR;
use super::prepare::{DRIVE, NEAR_M, PLACE, metres};
use crate::lesson::{Better, Figure, Goal, Judged, LessonError, Metric, tensor_of};

/// Descriptors so far.
#[derive(Debug, Default)]
pub(super) struct PlaceJudge {
    seen: Vec<Seen>,
}

#[derive(Debug)]
struct Seen {
    place: [f32; 2],
    drive: i32,
    descriptor: Vec<f32>,
}

impl PlaceJudge {
    /// How the queries of these drives were answered.
    fn answered(&self, asks: impl Fn(i32) -> bool) -> Vec<AnsweredQuery> {
        let database: Vec<&Seen> = self.seen.iter().filter(|seen| seen.drive == 0).collect();
        let queries = self
            .seen
            .iter()
            .filter(|seen| seen.drive > 0 && asks(seen.drive));
        queries
            .filter_map(|query| {
                let mut ranking: Vec<(usize, f64)> = database
                    .iter()
                    .map(|place| {
                        let pairs = place.descriptor.iter().zip(&query.descriptor);
                        let apart = pairs.map(|(a, b)| f64::from(a - b).powi(2));
                        apart.sum::<f64>()
                    })
                    .enumerate()
                    .collect();
                ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
                let is_right = |place: usize| metres(database[place].place, query.place) <= NEAR_M;
                let has_place = (0..database.len()).any(is_right);
                AnsweredQuery::from_ranking(&ranking, has_place, is_right)
            })
            .collect()
    }
}

/// Drives of even numbers go the other way round.
fn is_opposite(drive: i32) -> bool {
    drive % 2 == 0
}

impl Metric for PlaceJudge {
    fn add(&mut self, batch: &Judged<'_>) -> Result<(), LessonError> {
        let descriptors = batch.outputs.get(DESCRIPTOR)?.to_f32().into_owned();
        let places = tensor_of(batch.examples, PLACE)?.values::<f32>()?;
        let drives = tensor_of(batch.examples, DRIVE)?.values::<i32>()?;
        let samples = batch.samples.len();
        if places.len() != 2 * samples || drives.len() != samples {
            return Err(LessonError::Mismatch(
                "not a place for each answer".to_owned(),
            ));
        }
        let width = (descriptors.len() / samples.max(1)).max(1);
        let truth = places.as_chunks::<2>().0.iter().zip(drives);
        for (row, (place, drive)) in descriptors.chunks_exact(width).zip(truth) {
            self.seen.push(Seen {
                place: *place,
                drive: *drive,
                descriptor: row.to_vec(),
            });
        }
        Ok(())
    }

    fn goal(&self) -> Goal {
        Goal {
            figure: "recall1",
            better: Better::Higher,
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let all = self.answered(|_| true);
        let share = |k: usize, queries: &[AnsweredQuery]| recall_at(k, queries).unwrap_or(f64::NAN);
        let same = self.answered(|drive| !is_opposite(drive));
        let opposite = self.answered(is_opposite);
        vec![
            Figure::share("recall1", "recall@1", share(1, &all)),
            Figure::share("recall5", "recall@5", share(5, &all)),
            Figure::share("recall20", "recall@20", share(20, &all)),
            Figure::share("same1", "recall@1, same heading", share(1, &same)),
            Figure::share(
                "opposite1",
                "recall@1, opposite heading",
                share(1, &opposite),
            ),
            Figure::number("f1", "max F1", max_f1(&all).unwrap_or(f64::NAN)),
        ]
    }
}

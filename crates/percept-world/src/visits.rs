//! Drives through one town on several days: the same streets and houses, other lanes, light, traffic and parked cars.

use percept_data::points::pose::sub;
use percept_data::random::{Draws, key};

use super::motion::Lap;
use super::streets::Axis;
use super::weather::Weather;

/// Which side of the street is driven on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// As traffic does.
    Right,
    /// The other lane, as on a one-way street.
    Left,
}

/// Which way round the tour is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// As in the first pass.
    Same,
    /// The other way round.
    Opposite,
}

/// One drive of the tour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// Its number; 0 is the database.
    pub number: usize,
    /// Which side of the street.
    pub lane: Lane,
    /// Which way round.
    pub heading: Heading,
    /// Light and air.
    pub weather: Weather,
}

/// A place that was passed before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Revisit {
    /// The frame of a later pass.
    pub query: usize,
    /// The frame of the first pass.
    pub database: usize,
    /// How far apart they are in the ground plane.
    pub metres: f64,
}

/// Two frames this near show one place, as LCPR counts.
pub const REVISIT_M: f64 = 9.0;

/// The streams of random numbers.
mod stream {
    pub(super) const WEATHER: u64 = 1;
    pub(super) const START: u64 = 2;
    pub(super) const TOUR: u64 = 3;
}

const TOUR_SPEED_M_S: f64 = 8.0;
const TURN_RADIUS_M: f64 = 7.0;

impl Pass {
    /// Pass `number` through the town of `seed`: the first in the right lane, then in turn the other lane, and the opposite
    /// heading; each under a weather of its own.
    pub fn new(seed: u64, number: usize) -> Self {
        let (lane, heading) = match number {
            0 => (Lane::Right, Heading::Same),
            odd if odd % 2 == 1 => (Lane::Left, Heading::Same),
            _ => (Lane::Right, Heading::Opposite),
        };
        Self {
            number,
            lane,
            heading,
            weather: Weather::drawn(&mut Draws::of(&[seed, stream::WEATHER, number as u64])),
        }
    }

    /// In a few words, for captions and tables.
    pub fn words(&self) -> String {
        let way = match (self.lane, self.heading) {
            (Lane::Right, Heading::Same) => "right lane",
            (Lane::Left, Heading::Same) => "other lane",
            (_, Heading::Opposite) => "opposite heading",
        };
        format!("pass {}, {way}, {}", self.number, self.weather.words())
    }
}

/// The crossings of a tour that comes by every inner crossing of the town but one, as street numbers along x and y.
const TOUR: [[usize; 2]; 14] = [
    [1, 1],
    [5, 1],
    [5, 2],
    [2, 2],
    [2, 3],
    [5, 3],
    [5, 5],
    [4, 5],
    [4, 4],
    [3, 4],
    [3, 5],
    [2, 5],
    [2, 4],
    [1, 4],
];

/// The way of a pass through the town, and when it is at its start.
pub(crate) fn course(seed: u64, pass: &Pass, x: &Axis, y: &Axis, covered_s: f64) -> (Lap, f64) {
    let mut draws = Draws::new(seed, stream::TOUR);
    let [swap, flip_x, flip_y] = [0; 3].map(|_| draws.chance(0.5));
    // Every town is toured in another way.
    let crossing = |[i, j]: [usize; 2]| {
        let [i, j] = if swap { [j, i] } else { [i, j] };
        let flipped = |flip: bool, v: usize| if flip { 6 - v } else { v };
        [flipped(flip_x, i), flipped(flip_y, j)]
    };
    let crossings: Vec<[usize; 2]> = TOUR.into_iter().map(crossing).collect();
    let lap = |lane: Lane, heading: Heading| {
        let mut way = crossings.clone();
        if heading == Heading::Opposite {
            way.reverse();
        }
        let corners = lane_corners(&way, lane, x, y);
        Lap::through(&corners, TURN_RADIUS_M, TOUR_SPEED_M_S)
    };
    let first = lap(Lane::Right, Heading::Same);
    let own = lap(pass.lane, pass.heading);
    // The opposite way begins where the first pass ends, so that both see the same streets.
    let begin_s = match pass.heading {
        Heading::Same => 0.0,
        Heading::Opposite => covered_s,
    };
    let jitter_s = Draws::of(&[seed, stream::START, pass.number as u64]).range(-0.25, 0.25);
    let start_s = own.time_near_s(first.position(begin_s)) + jitter_s;
    (own, start_s)
}

/// The corners of the lane through these crossings; neighbours share a street.
fn lane_corners(crossings: &[[usize; 2]], lane: Lane, x: &Axis, y: &Axis) -> Vec<[f64; 2]> {
    let side = match lane {
        Lane::Right => 1.0,
        Lane::Left => -1.0,
    };
    let count = crossings.len();
    (0..count)
        .map(|number| {
            let before = crossings[(number + count - 1) % count];
            let here = crossings[number];
            let after = crossings[(number + 1) % count];
            let mut corner = [x.streets[here[0]].middle, y.streets[here[1]].middle];
            for (from, to) in [(before, here), (here, after)] {
                if from[1] == to[1] {
                    // Along x: right is towards -y.
                    let sense = if to[0] > from[0] { 1.0 } else { -1.0 };
                    corner[1] =
                        y.streets[here[1]].middle - side * sense * y.streets[here[1]].lane_m;
                } else {
                    let sense = if to[1] > from[1] { 1.0 } else { -1.0 };
                    corner[0] =
                        x.streets[here[0]].middle + side * sense * x.streets[here[0]].lane_m;
                }
            }
            corner
        })
        .collect()
}

/// Who is in town on the day of a pass: decides for each object that the town has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guests {
    pub(crate) key: u64,
}

impl Guests {
    pub(crate) fn of(seed: u64, pass: &Pass) -> Self {
        Self {
            key: key(&[seed, 77, pass.number as u64]),
        }
    }

    /// The numbers that decide about object `index`.
    pub(crate) fn draws(&self, index: usize) -> Draws {
        Draws::of(&[self.key, 1, index as u64])
    }

    /// Whether there are road works in a block on that day.
    pub(crate) fn has_works(&self, block: usize) -> bool {
        Draws::of(&[self.key, 2, block as u64]).chance(0.5)
    }
}

/// The pairs of frames of the first and of later passes that show one place. `places[pass][frame]` are positions.
pub(crate) fn revisits(places: &[Vec<[f64; 3]>]) -> Vec<Revisit> {
    let Some((first, later)) = places.split_first() else {
        return Vec::new();
    };
    let queries = later.iter().flatten().enumerate();
    queries
        .flat_map(|(number, here)| {
            first
                .iter()
                .enumerate()
                .filter_map(move |(database, there)| {
                    let [dx, dy, _] = sub(*here, *there);
                    let metres = (dx * dx + dy * dy).sqrt();
                    (metres <= REVISIT_M).then_some(Revisit {
                        query: first.len() + number,
                        database,
                        metres,
                    })
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisits_are_the_pairs_within_nine_metres() {
        let line = |y: f64| {
            (0..5)
                .map(|i| [6.0 * f64::from(i), y, 0.0])
                .collect::<Vec<_>>()
        };
        let found = revisits(&[line(0.0), line(8.0)]);
        // Straight across 8 m; one along and across 10 m.
        let pairs: Vec<_> = found.iter().map(|r| (r.query, r.database)).collect();
        assert_eq!(pairs, (0..5).map(|i| (5 + i, i)).collect::<Vec<_>>());
        assert!(found.iter().all(|r| r.metres == 8.0));
    }

    #[test]
    fn passes_change_lane_heading_and_weather() {
        let passes = [0, 1, 2].map(|number| Pass::new(5, number));
        assert_eq!(passes[1].lane, Lane::Left);
        assert_eq!(passes[2].heading, Heading::Opposite);
        assert!(passes[0].weather != passes[1].weather && passes[1].weather != passes[2].weather);
    }
}

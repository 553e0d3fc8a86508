//! The plan of a town: three by three districts between wide streets, each cut into four blocks by quiet ones.

use super::ground::Surface;
use percept_data::random::Draws;

/// Districts along each side of the town; traffic circles each, and the ego circles the middle one.
pub(crate) const DISTRICTS: usize = 3;
/// Blocks along each side of the town.
pub(crate) const BLOCKS: usize = 2 * DISTRICTS;

/// From the kerb to the middle of the lane beside it, on wide streets.
pub(crate) const LANE_FROM_KERB_M: f64 = WIDE_PARKING_M + 0.5 * WIDE_LANE_M;
pub(crate) const PAVEMENT_M: f64 = 3.2;

const WIDE_PARKING_M: f64 = 2.4;
const WIDE_LANE_M: f64 = 3.5;
const QUIET_PARKING_M: f64 = 2.2;
const QUIET_LANE_M: f64 = 2.9;
const MARKING_M: f64 = 0.15;
const MEDIAN_M: f64 = 2.6;
const OUTSKIRTS_M: f64 = 40.0;
/// No longer patches than this, so that hills stay round.
const LONGEST_PATCH_M: f64 = 12.0;

/// What lies between two neighbouring lines of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Band {
    Street(Surface),
    Pavement,
    /// Inside of block number ...
    Lot(usize),
    Outskirts,
}

/// The lines that cut the town along one axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) lines: Vec<f64>,
    bands: Vec<Band>,
    /// Kerb to kerb, for each block.
    pub(crate) blocks: Vec<[f64; 2]>,
    /// In order; every second one is wide.
    pub(crate) streets: Vec<Street>,
}

/// A street that crosses an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Street {
    /// Where its middle is.
    pub(crate) middle: f64,
    /// From the middle to the middle of either lane.
    pub(crate) lane_m: f64,
}

impl Axis {
    pub(crate) fn new(draws: &mut Draws) -> Self {
        let mut axis = Self {
            lines: vec![0.0],
            bands: Vec::new(),
            blocks: Vec::new(),
            streets: Vec::new(),
        };
        axis.push(OUTSKIRTS_M, Band::Outskirts);
        for district in 0..DISTRICTS {
            axis.wide_street(draws);
            axis.block(2 * district, draws);
            axis.quiet_street();
            axis.block(2 * district + 1, draws);
        }
        axis.wide_street(draws);
        axis.push(OUTSKIRTS_M, Band::Outskirts);
        axis
    }

    fn push(&mut self, width: f64, band: Band) {
        let patches = libm::ceil(width / LONGEST_PATCH_M);
        let start = self.lines[self.lines.len() - 1];
        for patch in 1..=patches as usize {
            self.lines.push(start + width * patch as f64 / patches);
            self.bands.push(band);
        }
    }

    fn wide_street(&mut self, draws: &mut Draws) {
        let (middle, middle_m) = if draws.chance(0.4) {
            (Surface::Median, MEDIAN_M)
        } else {
            (Surface::Marking, MARKING_M)
        };
        let start = self.lines[self.lines.len() - 1];
        self.streets.push(Street {
            middle: start + WIDE_PARKING_M + WIDE_LANE_M + 0.5 * middle_m,
            lane_m: 0.5 * (WIDE_LANE_M + middle_m),
        });
        self.push(WIDE_PARKING_M, Band::Street(Surface::Parking));
        self.push(WIDE_LANE_M, Band::Street(Surface::Road));
        self.push(middle_m, Band::Street(middle));
        self.push(WIDE_LANE_M, Band::Street(Surface::Road));
        self.push(WIDE_PARKING_M, Band::Street(Surface::Parking));
    }

    fn quiet_street(&mut self) {
        let start = self.lines[self.lines.len() - 1];
        self.streets.push(Street {
            middle: start + QUIET_PARKING_M + QUIET_LANE_M,
            lane_m: 0.5 * QUIET_LANE_M,
        });
        self.push(QUIET_PARKING_M, Band::Street(Surface::Parking));
        self.push(2.0 * QUIET_LANE_M, Band::Street(Surface::Road));
        self.push(QUIET_PARKING_M, Band::Street(Surface::Parking));
    }

    fn block(&mut self, number: usize, draws: &mut Draws) {
        let start = self.lines[self.lines.len() - 1];
        self.push(PAVEMENT_M, Band::Pavement);
        self.push(draws.range(44.0, 66.0), Band::Lot(number));
        self.push(PAVEMENT_M, Band::Pavement);
        self.blocks.push([start, self.lines[self.lines.len() - 1]]);
    }

    /// Kerb to kerb, for each district.
    pub(crate) fn district(&self, number: usize) -> [f64; 2] {
        [self.blocks[2 * number][0], self.blocks[2 * number + 1][1]]
    }
}

/// The surface where band `i` of the x axis meets band `j` of the y axis; `lot` tells the surface inside of a block.
pub(crate) fn surface(
    x: &Axis,
    y: &Axis,
    i: usize,
    j: usize,
    lot: impl Fn([usize; 2]) -> Surface,
) -> Surface {
    match (x.bands[i], y.bands[j]) {
        (Band::Street(_), Band::Street(_)) => Surface::Road,
        (Band::Street(street), _) | (_, Band::Street(street)) => street,
        (Band::Outskirts, _) | (_, Band::Outskirts) => Surface::Lawn,
        (Band::Pavement, _) | (_, Band::Pavement) => Surface::Pavement,
        (Band::Lot(bx), Band::Lot(by)) => lot([bx, by]),
    }
}

/// One side of a block, along which things stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// Where the kerb begins, in the direction of the traffic beside it.
    corner: [f64; 2],
    along: [f64; 2],
    inward: [f64; 2],
    pub(crate) length_m: f64,
    /// Beside a wide street.
    pub(crate) wide: bool,
}

impl Side {
    /// The four sides of block (bx, by), clockwise.
    pub(crate) fn of_block(x: &Axis, y: &Axis, [bx, by]: [usize; 2]) -> [Side; 4] {
        let ([x0, x1], [y0, y1]) = (x.blocks[bx], y.blocks[by]);
        let (width, depth) = (x1 - x0, y1 - y0);
        let side = |corner, along: [f64; 2], length_m, wide| {
            let inward = [along[1], -along[0]];
            Side {
                corner,
                along,
                inward,
                length_m,
                wide,
            }
        };
        [
            side([x0, y1], [1.0, 0.0], width, by % 2 == 1),
            side([x1, y1], [0.0, -1.0], depth, bx % 2 == 1),
            side([x1, y0], [-1.0, 0.0], width, by % 2 == 0),
            side([x0, y0], [0.0, 1.0], depth, bx % 2 == 0),
        ]
    }

    /// The place `u` metres along the kerb and `v` metres inward of it.
    pub(crate) fn place(&self, u: f64, v: f64) -> [f64; 2] {
        [0, 1].map(|i| self.corner[i] + u * self.along[i] + v * self.inward[i])
    }

    /// The heading of the traffic beside it.
    pub(crate) fn heading_rad(&self) -> f64 {
        libm::atan2(self.along[1], self.along[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_surround_their_block() {
        let mut draws = Draws::new(1, 1);
        let (x, y) = (Axis::new(&mut draws), Axis::new(&mut draws));
        assert_eq!(x.blocks.len(), BLOCKS);
        assert!(x.lines.is_sorted() && x.bands.len() + 1 == x.lines.len());
        let within = |v: f64, [low, high]: [f64; 2]| low < v && v < high;
        for block in [[0, 0], [2, 3], [5, 4]] {
            for side in Side::of_block(&x, &y, block) {
                let [px, py] = side.place(0.5 * side.length_m, 1.0);
                assert!(within(px, x.blocks[block[0]]) && within(py, y.blocks[block[1]]));
                let [px, py] = side.place(0.5 * side.length_m, -1.0);
                assert!(!(within(px, x.blocks[block[0]]) && within(py, y.blocks[block[1]])));
            }
        }
    }
}

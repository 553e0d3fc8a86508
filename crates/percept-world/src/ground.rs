//! The ground: gentle hills cut into streets, pavements and lots by straight lines, with kerbs where levels meet.
//!
//! Between neighbouring lines the surface is one bilinear patch, so a ray walks from cell to cell and solves a
//! quadratic in each: exact, without a step size.

use percept_data::points::pose::{add_scaled, cross};

use super::material::Material;

/// What a cell of the ground is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    Road,
    Marking,
    Parking,
    Pavement,
    /// A raised strip with grass between the lanes.
    Median,
    Lawn,
    Yard,
}

impl Surface {
    /// Height above the road beside it.
    fn raise_m(self) -> f64 {
        match self {
            Self::Road | Self::Marking | Self::Parking => 0.0,
            Self::Pavement | Self::Yard => 0.14,
            Self::Lawn => 0.17,
            Self::Median => 0.2,
        }
    }

    pub(crate) fn material(self) -> &'static Material {
        match self {
            Self::Road | Self::Parking => &Material::ASPHALT,
            Self::Marking => &Material::MARKING,
            Self::Pavement => &Material::PAVING,
            Self::Yard => &Material::GRAVEL,
            Self::Median | Self::Lawn => &Material::GRASS,
        }
    }

    /// Whether rain stays on it as a film.
    pub(crate) fn is_paved(self) -> bool {
        matches!(
            self,
            Self::Road | Self::Marking | Self::Parking | Self::Pavement
        )
    }

    /// SemanticKITTI's raw class.
    pub(crate) fn class(self) -> u16 {
        match self {
            Self::Road => 40,
            Self::Marking => 60,
            Self::Parking => 44,
            Self::Pavement => 48,
            Self::Yard => 49,
            Self::Median | Self::Lawn => 72,
        }
    }
}

/// Where a ray meets the ground.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroundHit {
    pub(crate) distance: f64,
    /// Outward, of any length.
    pub(crate) normal: [f64; 3],
    pub(crate) surface: Surface,
    /// The upright face of a kerb rather than a surface.
    pub(crate) on_kerb: bool,
    /// Column and row of its cell.
    pub(crate) cell: [usize; 2],
}

/// The whole ground of a town.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    xs: Vec<f64>,
    ys: Vec<f64>,
    /// Road level at every crossing of lines, rows of equal y.
    levels: Vec<f64>,
    /// Rows of equal y, one shorter than the lines each way.
    surfaces: Vec<Surface>,
    highest: f64,
}

impl Ground {
    /// From the cutting lines (ascending, at least two each way), the hills, and what lies between the lines.
    pub(crate) fn new(
        xs: Vec<f64>,
        ys: Vec<f64>,
        hills: impl Fn(f64, f64) -> f64,
        surface: impl Fn(usize, usize) -> Surface,
    ) -> Self {
        let levels: Vec<f64> = ys
            .iter()
            .flat_map(|y| xs.iter().map(|x| hills(*x, *y)))
            .collect();
        let columns = xs.len() - 1;
        let surfaces = (0..columns * (ys.len() - 1))
            .map(|i| surface(i % columns, i / columns))
            .collect();
        let highest = levels.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b)) + 0.2;
        Self {
            xs,
            ys,
            levels,
            surfaces,
            highest,
        }
    }

    /// The surface under a place; the nearest cell's beyond the edge of the town.
    #[cfg(test)]
    pub(crate) fn surface(&self, x: f64, y: f64) -> Surface {
        self.cell(x, y).surface
    }

    /// The lines around a cell: lower and upper along x and y.
    pub(crate) fn cell_lines(&self, [column, row]: [usize; 2]) -> [[f64; 2]; 2] {
        [
            [self.xs[column], self.xs[column + 1]],
            [self.ys[row], self.ys[row + 1]],
        ]
    }

    /// Height of the ground.
    pub(crate) fn height(&self, x: f64, y: f64) -> f64 {
        self.cell(x, y).height(x, y)
    }

    fn cell(&self, x: f64, y: f64) -> Cell {
        self.cell_at(interval(&self.xs, x), interval(&self.ys, y))
    }

    fn cell_at(&self, column: usize, row: usize) -> Cell {
        let level = |dc: usize, dr: usize| self.levels[(row + dr) * self.xs.len() + column + dc];
        let surface = self.surfaces[row * (self.xs.len() - 1) + column];
        let (dx, dy) = (
            self.xs[column + 1] - self.xs[column],
            self.ys[row + 1] - self.ys[row],
        );
        let base = level(0, 0);
        Cell {
            corner: [self.xs[column], self.ys[row]],
            base: base + surface.raise_m(),
            along_x: (level(1, 0) - base) / dx,
            along_y: (level(0, 1) - base) / dy,
            twist: (level(1, 1) - level(1, 0) - level(0, 1) + base) / (dx * dy),
            surface,
        }
    }

    /// The first meeting of a ray with the ground before `farthest`; the origin must lie above the ground.
    pub(crate) fn cast(
        &self,
        origin: [f64; 3],
        direction: [f64; 3],
        farthest: f64,
    ) -> Option<GroundHit> {
        if direction[2] >= 0.0 && origin[2] > self.highest {
            return None;
        }
        let lines = [&self.xs, &self.ys];
        let mut index = [interval(&self.xs, origin[0]), interval(&self.ys, origin[1])];
        let step = [direction[0] > 0.0, direction[1] > 0.0];
        let boundary = |axis: usize, index: usize| {
            if direction[axis] == 0.0 {
                return f64::INFINITY;
            }
            (lines[axis][index + usize::from(step[axis])] - origin[axis]) / direction[axis]
        };
        let mut next = [boundary(0, index[0]), boundary(1, index[1])];
        let mut here = 0.0;
        let mut crossed = None;
        loop {
            let cell = self.cell_at(index[0], index[1]);
            let p = add_scaled(origin, here, direction);
            let clearance = p[2] - cell.height(p[0], p[1]);
            if clearance < 0.0 {
                let mut normal = [0.0; 3];
                let axis: usize = crossed?;
                normal[axis] = -direction[axis].signum();
                return Some(GroundHit {
                    distance: here,
                    normal,
                    surface: cell.surface,
                    on_kerb: true,
                    cell: index,
                });
            }
            let exit = next[0].min(next[1]).min(farthest);
            if let Some(ahead) = cell.descend(p, direction, clearance)
                && here + ahead <= exit
            {
                let at = add_scaled(p, ahead, direction);
                return Some(GroundHit {
                    distance: here + ahead,
                    normal: cell.normal(at[0], at[1]),
                    surface: cell.surface,
                    on_kerb: false,
                    cell: index,
                });
            }
            let axis = usize::from(next[1] < next[0]);
            if next[axis] >= farthest {
                return None;
            }
            here = next[axis];
            crossed = Some(axis);
            let last = lines[axis].len() - 2;
            index[axis] = match (step[axis], index[axis]) {
                (true, i) if i < last => i + 1,
                (false, i) if i > 0 => i - 1,
                _ => return None,
            };
            next[axis] = boundary(axis, index[axis]);
            if direction[2] >= 0.0 && origin[2] + here * direction[2] > self.highest {
                return None;
            }
        }
    }
}

struct Cell {
    corner: [f64; 2],
    base: f64,
    along_x: f64,
    along_y: f64,
    twist: f64,
    surface: Surface,
}

impl Cell {
    #[inline]
    fn height(&self, x: f64, y: f64) -> f64 {
        let (dx, dy) = (x - self.corner[0], y - self.corner[1]);
        self.base + self.along_x * dx + self.along_y * dy + self.twist * dx * dy
    }

    fn normal(&self, x: f64, y: f64) -> [f64; 3] {
        let (dx, dy) = (x - self.corner[0], y - self.corner[1]);
        cross(
            [1.0, 0.0, self.along_x + self.twist * dy],
            [0.0, 1.0, self.along_y + self.twist * dx],
        )
    }

    /// How far along `direction` from `p`, `clearance` above the patch, the patch is met.
    #[inline]
    fn descend(&self, p: [f64; 3], direction: [f64; 3], clearance: f64) -> Option<f64> {
        let (dx, dy) = (p[0] - self.corner[0], p[1] - self.corner[1]);
        let curve = -self.twist * direction[0] * direction[1];
        let slope = direction[2]
            - (self.along_x + self.twist * dy) * direction[0]
            - (self.along_y + self.twist * dx) * direction[1];
        let discriminant = slope * slope - 4.0 * curve * clearance;
        if discriminant < 0.0 {
            return None;
        }
        // The form of the root that neither divides by the (often zero) curvature nor cancels.
        let divisor = -slope + discriminant.sqrt();
        (divisor > 0.0).then(|| 2.0 * clearance / divisor)
    }
}

/// The interval of ascending `lines` that holds `v`, clamped to the first and last.
fn interval(lines: &[f64], v: f64) -> usize {
    lines
        .partition_point(|line| *line <= v)
        .clamp(1, lines.len() - 1)
        - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hilly() -> Ground {
        let lines: Vec<f64> = [-60.0, -31.0, -9.0, -6.0, 0.0, 4.0, 19.0, 40.0, 60.0].to_vec();
        let hills =
            |x: f64, y: f64| 0.8 * libm::sin(0.06 * x) + 0.7 * libm::cos(0.05 * y + 0.02 * x);
        Ground::new(lines.clone(), lines, hills, |i, j| {
            if i % 3 == 1 || j % 3 == 1 {
                Surface::Road
            } else {
                Surface::Pavement
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn rays_meet_the_ground_where_marching_finds_it(
            x in -50.0..50.0f64, y in -50.0..50.0f64, above in 0.3..4.0f64,
            azimuth in -3.1..3.1f64, elevation in -0.9..0.1f64,
        ) {
            let ground = hilly();
            let origin = [x, y, ground.height(x, y) + above];
            let (s, c) = libm::sincos(elevation);
            let direction = [c * libm::cos(azimuth), c * libm::sin(azimuth), s];
            let below = |t: f64| {
                let p = add_scaled(origin, t, direction);
                p[2] < ground.height(p[0], p[1])
            };
            let within = |t: f64| {
                let p = add_scaled(origin, t, direction);
                p[0].abs() < 60.0 && p[1].abs() < 60.0
            };
            match ground.cast(origin, direction, 150.0) {
                Some(hit) => {
                    let p = add_scaled(origin, hit.distance, direction);
                    if !hit.on_kerb {
                        prop_assert!((p[2] - ground.height(p[0], p[1])).abs() < 1e-9);
                    } else {
                        prop_assert!(below(hit.distance + 1e-6) && !below(hit.distance - 1e-6));
                    }
                    for k in 0..2000 {
                        let t = f64::from(k) / 2000.0 * (hit.distance - 1e-6);
                        prop_assert!(!below(t), "underground at {t} before {hit:?}");
                    }
                }
                None => {
                    for k in 0..2000 {
                        let t = 0.05 * f64::from(k);
                        prop_assert!(!within(t) || !below(t), "missed the ground at {t}");
                    }
                }
            }
        }
    }

    #[test]
    fn kerbs_stand_up() {
        let ground = Ground::new(
            vec![-10.0, 0.0, 10.0],
            vec![-10.0, 10.0],
            |_, _| 0.0,
            |i, _| {
                if i == 0 {
                    Surface::Road
                } else {
                    Surface::Pavement
                }
            },
        );
        let hit = ground
            .cast([-5.0, 0.0, 0.5], [1.0, 0.0, -0.08], 100.0)
            .unwrap();
        assert!(
            hit.on_kerb && (hit.distance - 5.0).abs() < 1e-12 && hit.normal == [-1.0, 0.0, 0.0]
        );
        let from_above = ground
            .cast([5.0, 0.0, 0.5], [-1.0, 0.0, -0.08], 100.0)
            .unwrap();
        assert!(!from_above.on_kerb && (from_above.distance - 4.5).abs() < 1e-12);
        assert_eq!(ground.surface(-1.0, 0.0), Surface::Road);
    }
}

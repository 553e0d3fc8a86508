//! What the heads should say: a heat map around every centre, and the box at each centre's cell.
//!
//! Of a box in a head's classes: its centre in cells is c = (xy - origin) / voxel / 8, clamped to the map, its cell trunc(c). The
//! heat map of its class gets exp(-(dx² + dy²) / 2σ²) around that cell, σ = (2r + 1) / 6, where a box shifted by r cells would
//! still overlap by a tenth (public formula, see [`radius_cells`]), and r is at least 2; overlapping ones merge by the larger. The
//! box is learned as (c - cell, z, log l, log w, log h, cos yaw, sin yaw, vx, vy). A velocity that is not known is NaN, and
//! nothing is learned of it.
//!
//! Values follow OpenPCDet's in f32, bump for bump.

use std::sync::Arc;

use percept_graph::{
    Builder, Cost, CustomOp, DType, Dim, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};

use super::CenterPoint;
use super::decode::STRIDE;
use super::head::HEADS;

/// Values of a true box: x, y, z, length, width, height, yaw, velocity along x and y, class id.
pub const BOX_VALUES: usize = 10;

/// Values that are learned of a box: centre in its cell (2), height, log size (3), cosine, sine, velocity (2).
pub(super) const CODE: usize = 10;

/// Boxes of a head and sample that are learned from.
const MAX_OBJECTS: usize = 500;

/// No heat is smaller than this, in cells.
const MIN_RADIUS: i32 = 2;

/// How much a box must still overlap itself when it is shifted by the radius.
const OVERLAP: f32 = 0.1;

/// Where the cells of the map lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MapGrid {
    pub origin_m: [f32; 2],
    pub voxel_m: [f32; 2],
    /// Height and width.
    pub cells: [usize; 2],
}

impl MapGrid {
    /// The map of a network whose voxels are `grid_cells` x, y, z.
    pub(super) fn new(network: &CenterPoint, grid_cells: [usize; 3]) -> Self {
        let [x, y, _] = grid_cells;
        let shrunk = |cells: usize| cells / STRIDE as usize;
        Self {
            origin_m: [-network.range_m; 2],
            voxel_m: [network.voxel_m[0], network.voxel_m[1]],
            cells: [shrunk(y), shrunk(x)],
        }
    }

    /// Metres along an axis in cells.
    fn in_cells(&self, axis: usize, metres: f32) -> f32 {
        metres / self.voxel_m[axis] / STRIDE
    }
}

/// What a head should say about one sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HeadTargets {
    /// [classes, H, W].
    pub heat: Vec<f32>,
    /// The cell of each object, y W + x.
    pub cells: Vec<usize>,
    /// The code of each object.
    pub codes: Vec<[f32; CODE]>,
}

/// The targets of the head with these class ids. Boxes of other classes, and those without an extent, are not its business.
pub(super) fn head_targets(
    classes: &[usize],
    boxes: &[[f32; BOX_VALUES]],
    grid: &MapGrid,
) -> HeadTargets {
    let [height, width] = grid.cells;
    let area = height * width;
    let mut targets = HeadTargets {
        heat: vec![0.0; classes.len() * area],
        cells: Vec::new(),
        codes: Vec::new(),
    };
    if area == 0 {
        return targets;
    }
    let of_head = boxes.iter().filter_map(|object| {
        let class = classes.iter().position(|&id| object[9] == id as f32)?;
        Some((class, object))
    });
    for (class, object) in of_head.take(MAX_OBJECTS) {
        let [x, y, z, length, width_m, height_m, yaw, vx, vy, _] = *object;
        let size = [grid.in_cells(0, length), grid.in_cells(1, width_m)];
        // Also false for what is no number.
        if !(size[0] > 0.0 && size[1] > 0.0 && height_m > 0.0 && x.is_finite() && y.is_finite()) {
            continue;
        }
        let centre = |axis: usize, metres: f32, cells: usize| {
            let place = grid.in_cells(axis, metres - grid.origin_m[axis]);
            place.clamp(0.0, cells as f32 - 0.5)
        };
        let centre = [centre(0, x, width), centre(1, y, height)];
        let cell = centre.map(|place| place as usize);
        let radius = (radius_cells(size) as i32).max(MIN_RADIUS);
        let map = &mut targets.heat[class * area..][..area];
        heat(map, grid.cells, cell, radius);
        targets.cells.push(cell[1] * width + cell[0]);
        let (sin, cos) = (libm::sinf(yaw), libm::cosf(yaw));
        let log = [length, width_m, height_m].map(libm::logf);
        targets.codes.push([
            centre[0] - cell[0] as f32,
            centre[1] - cell[1] as f32,
            z,
            log[0],
            log[1],
            log[2],
            cos,
            sin,
            vx,
            vy,
        ]);
    }
    targets
}

/// The smallest of three shifts after which a box of this size still overlaps itself by a tenth. The public code does not
/// divide the roots by the equations' leading factors; checkpoints learned from radii like that, and so do we.
fn radius_cells([length, width]: [f32; 2]) -> f32 {
    let (sum, product) = (length + width, length * width);
    let root = |a: f32, b: f32, c: f32| (b + (b * b - 4.0 * a * c).sqrt()) / 2.0;
    let inside_and_outside = root(1.0, sum, product * (1.0 - OVERLAP) / (1.0 + OVERLAP));
    let inside = root(4.0, 2.0 * sum, (1.0 - OVERLAP) * product);
    let outside = root(
        4.0 * OVERLAP,
        -2.0 * OVERLAP * sum,
        (OVERLAP - 1.0) * product,
    );
    inside_and_outside.min(inside).min(outside)
}

/// Draws a bump around `cell` [x, y] where it is higher than what is there.
fn heat(map: &mut [f32], [height, width]: [usize; 2], cell: [usize; 2], radius: i32) {
    let sigma = f64::from(2 * radius + 1) / 6.0;
    let rows = (-radius..=radius).filter_map(|dy| Some((dy, shifted(cell[1], dy, height)?)));
    for (dy, y) in rows {
        let columns = (-radius..=radius).filter_map(|dx| Some((dx, shifted(cell[0], dx, width)?)));
        for (dx, x) in columns {
            let bump = libm::exp(-f64::from(dx * dx + dy * dy) / (2.0 * sigma * sigma));
            let value = &mut map[y * width + x];
            if bump >= f64::EPSILON {
                *value = value.max(bump as f32);
            }
        }
    }
}

/// `place + by`, if that is below `limit`.
fn shifted(place: usize, by: i32, limit: usize) -> Option<usize> {
    let moved = place.checked_add_signed(by as isize)?;
    (moved < limit).then_some(moved)
}

/// The targets of one head as values of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetValues {
    /// [N, classes, H, W].
    pub heat: ValueId,
    /// Sample and cell of each object, i32 [objects, 2].
    pub cells: ValueId,
    /// [objects, CODE].
    pub codes: ValueId,
}

/// The targets of every head, from the true boxes [B, BOX_VALUES] of all samples and how many each has, i32 [N].
pub(super) fn targets(
    b: &mut Builder,
    grid: MapGrid,
    boxes: ValueId,
    counts: ValueId,
) -> Vec<TargetValues> {
    let mut values = Vec::with_capacity(HEADS.len());
    b.module("targets", "Targets", |b| {
        for head in 0..HEADS.len() {
            let op: Arc<dyn CustomOp> = Arc::new(AssignTargets { head, grid });
            let outputs = b.call_many(&head.to_string(), Op::Custom(op), &[boxes, counts]);
            // After an error, which the builder has kept, there is one output only.
            let [heat, cells, codes] =
                std::array::from_fn(|i| outputs.get(i).copied().unwrap_or(outputs[0]));
            values.push(TargetValues { heat, cells, codes });
        }
        values[0].heat
    });
    values
}

/// Which cells of a head should say what.
#[derive(Debug)]
struct AssignTargets {
    head: usize,
    grid: MapGrid,
}

impl Operator for AssignTargets {
    fn kind(&self) -> &'static str {
        "AssignTargets"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [boxes, counts] = inputs else {
            return Err("boxes and counts".to_owned());
        };
        let values = boxes.shape.get(1);
        if boxes.shape.len() != 2
            || values != Some(&BOX_VALUES.into())
            || counts.shape.len() != 1
            || counts.dtype != DType::I32
        {
            return Err(format!("boxes [B, {BOX_VALUES}] and counts i32 [N]"));
        }
        let [height, width] = self.grid.cells.map(Dim::from);
        let classes = Dim::from(HEADS[self.head].len());
        let objects = Dim::symbol(&format!("head{}.objects", self.head));
        Ok(vec![
            TensorType::f32([counts.shape[0].clone(), classes, height, width]),
            TensorType::i32([objects.clone(), 2.into()]),
            TensorType::f32([objects, CODE.into()]),
        ])
    }

    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        // Most of it is writing maps of zeros; a box draws a bump of some 25 cells.
        let boxes = inputs[0].shape[0].clone();
        Cost::elementwise(outputs[0].elements() + boxes * 25 * 5, 1)
    }

    fn describe(&self) -> String {
        format!("AssignTargets(head={})", self.head)
    }
}

impl CustomOp for AssignTargets {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [boxes, counts] = inputs else {
            return Err("takes boxes and counts".to_owned());
        };
        let mut rest = boxes.values::<f32>()?.as_chunks::<BOX_VALUES>().0;
        let counts = counts.values::<i32>()?;
        let classes = HEADS[self.head];
        let (mut heat, mut cells, mut codes) = (Vec::new(), Vec::new(), Vec::new());
        for (sample, &count) in counts.iter().enumerate() {
            let own = usize::try_from(count)
                .ok()
                .and_then(|n| rest.split_at_checked(n));
            let (own, others) =
                own.ok_or_else(|| format!("box counts {counts:?} do not fit the boxes"))?;
            rest = others;
            let targets = head_targets(classes, own, &self.grid);
            heat.extend(targets.heat);
            for (cell, code) in targets.cells.into_iter().zip(targets.codes) {
                cells.extend([sample as i32, cell as i32]);
                codes.extend(code);
            }
        }
        if !rest.is_empty() {
            return Err(format!(
                "box counts {counts:?} leave {} boxes over",
                rest.len()
            ));
        }
        let [height, width] = self.grid.cells;
        let objects = cells.len() / 2;
        Ok(vec![
            Tensor::from_values([counts.len(), classes.len(), height, width], heat)?,
            Tensor::from_values([objects, 2], cells)?,
            Tensor::from_values([objects, CODE], codes)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: MapGrid = MapGrid {
        origin_m: [-8.0; 2],
        voxel_m: [0.1; 2],
        cells: [20, 20],
    };

    fn car(x: f32, y: f32) -> [f32; BOX_VALUES] {
        [x, y, -1.0, 4.0, 2.0, 1.5, 0.5, f32::NAN, f32::NAN, 0.0]
    }

    #[test]
    fn a_box_heats_its_cell() {
        let targets = head_targets(&[0], &[car(0.3, -3.3)], &GRID);
        assert_eq!(targets.cells, [5 * 20 + 10]);
        assert_eq!(targets.heat[5 * 20 + 10], 1.0);
        assert_eq!(targets.heat.iter().filter(|v| **v > 0.0).count(), 25);
        let code = targets.codes[0];
        assert!((code[0] - 0.375).abs() < 1e-5 && (code[1] - 0.875).abs() < 1e-5);
        assert_eq!(code[2], -1.0);
        assert!(code[8].is_nan() && code[9].is_nan());
    }

    #[test]
    fn other_classes_and_broken_boxes_are_left_out() {
        let mut truck = car(0.0, 0.0);
        truck[9] = 1.0;
        let mut flat = car(0.0, 0.0);
        flat[4] = 0.0;
        let mut nowhere = car(0.0, 0.0);
        nowhere[0] = f32::NAN;
        let targets = head_targets(&[0], &[truck, flat, nowhere], &GRID);
        assert!(targets.cells.is_empty() && targets.heat.iter().all(|v| *v == 0.0));
        let targets = head_targets(&[1, 2], &[truck], &GRID);
        assert_eq!((targets.cells.len(), targets.heat.len()), (1, 800));
    }

    #[test]
    fn bumps_merge_by_the_larger_and_end_at_the_border() {
        let both = [car(0.3, 0.3), car(1.1, 0.3), car(-8.0, 7.99)];
        let together = head_targets(&[0], &both, &GRID);
        for (i, value) in together.heat.iter().enumerate() {
            let alone = both.map(|object| head_targets(&[0], &[object], &GRID).heat[i]);
            assert_eq!(*value, alone.into_iter().fold(0.0, f32::max));
        }
        assert_eq!(together.cells[2], 19 * 20);
    }
}

//! The levels of clouds as an op of the graph: neighbours, the points that stay, and the way back up.
//!
//! Inside the network, points are stored in the order of each level's tree, so that what is gathered is near in memory. The
//! clouds of a batch follow each other in every level. All lists have the same length: where a cloud has fewer points, a list
//! is filled up with the point itself, and `lists` says how many numbers count.

use std::sync::Arc;

use percept_graph::{
    Amount, Builder, CacheCounters, Cost, CustomOp, DType, Dim, Op, OpContext, Operator, Tensor,
    TensorType, ValueId,
};
use percept_kernels::Cpu;
use percept_kernels::points::{Level, LevelPlan};

use super::knn_cache::{CloudLevels, KnnCache};

/// How clouds are thinned out.
#[derive(Clone, Debug)]
pub(super) struct PointLevels {
    /// From each level to the next one point of so many stays.
    pub ratios: Vec<usize>,
    /// Neighbours of a point.
    pub neighbours: usize,
    /// Points of the next level that a point is interpolated from; their weights come along when there are several.
    pub up: usize,
    /// Coordinates are centred on their mean and divided by this.
    pub unit: Option<f32>,
    /// Where levels of clouds are kept, if at all.
    pub cache: Option<Arc<KnnCache>>,
}

/// One level in the graph, with what connects it to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelValues {
    /// Coordinates f32 [P, 3].
    pub points: ValueId,
    /// Places of the neighbours, i32 [P, K].
    pub neighbours: ValueId,
    /// Of each cloud, its points and how many neighbours count: i32 [N, 2].
    pub lists: ValueId,
    /// For each point of the next level its place in this one, i32 [P'].
    pub kept: ValueId,
    /// For each point the places of the nearest points of the next level, i32 [P, U].
    pub up: ValueId,
    /// What each of them counts, f32 [P, U]; equal to nothing when there is only one.
    pub up_weights: Option<ValueId>,
}

/// What the network needs to know of its clouds.
pub(super) struct Clouds {
    /// Points f32 [P, C] in the order of the first level.
    pub features: ValueId,
    /// For each row of the input its place in the first level, i32 [P].
    pub place_of_row: ValueId,
    /// All levels but the last, which is only gone up from.
    pub levels: Vec<LevelValues>,
}

impl PointLevels {
    /// Reads the points of clouds f32 [P, C] (x, y, z first), their priorities i32 [P] (the rows of a cloud whose numbers are
    /// smallest stay) and how many points each cloud has, i32 [N].
    pub(super) fn call(
        self,
        b: &mut Builder,
        points: ValueId,
        priority: ValueId,
        counts: ValueId,
    ) -> Clouds {
        let (depth, per_level) = (self.ratios.len(), self.outputs_per_level());
        let op: Arc<dyn CustomOp> = Arc::new(self);
        let outputs = b.call_many("levels", Op::Custom(op), &[points, priority, counts]);
        // After an error, which the builder has kept, there are fewer; any value serves then.
        let value = |at: usize| outputs.get(at).copied().unwrap_or(points);
        let level = |depth: usize| {
            let at = 2 + depth * per_level;
            LevelValues {
                points: value(at),
                neighbours: value(at + 1),
                lists: value(at + 2),
                kept: value(at + 3),
                up: value(at + 4),
                up_weights: (per_level > 5).then(|| value(at + 5)),
            }
        };
        Clouds {
            features: value(0),
            place_of_row: value(1),
            levels: (0..depth).map(level).collect(),
        }
    }

    fn outputs_per_level(&self) -> usize {
        5 + usize::from(self.up > 1)
    }

    /// The levels of one cloud, in the order of [`Operator::infer`]'s outputs, appended to those of the clouds before.
    fn append(&self, cpu: &Cpu, batch: &mut Batch, cloud: Cloud<'_>) -> Result<(), String> {
        let Cloud {
            rows,
            channels,
            priority,
        } = cloud;
        let mut points: Vec<[f32; 3]> = rows
            .chunks_exact(channels)
            .map(|row| [row[0], row[1], row[2]])
            .collect();
        if let Some(unit) = self.unit {
            centre(&mut points, unit);
        }
        let priority = ranks(priority)?;
        let plan = LevelPlan {
            ratios: &self.ratios,
            k: self.neighbours,
            up_k: self.up,
            priority: Some(&priority),
        };
        let made = match &self.cache {
            Some(cache) => cache.build(cpu, &points, &plan),
            None => CloudLevels::new(cpu, &points, &plan).map(Arc::new),
        };
        let made = made.map_err(|error| error.to_string())?;
        let first = made.levels().first().ok_or("there are no levels")?;
        let start = batch.place_of_row.len();
        batch.place_of_row.resize(start + points.len(), 0);
        for (place, &row) in first.source.iter().enumerate() {
            batch.place_of_row[start + row as usize] = (start + place) as i32;
        }
        if channels == 3 {
            batch.features.extend(first.points.as_flattened());
        } else {
            for (&row, point) in first.source.iter().zip(&first.points) {
                batch.features.extend(point);
                let others = &rows[row as usize * channels..][3..channels];
                batch.features.extend(others);
            }
        }
        if start > 0 {
            let levels = made.levels();
            let pairs = levels.iter().zip(levels.iter().skip(1));
            for ((level, next), lists) in pairs.zip(&mut batch.levels) {
                lists.append(level, &next.source, self);
            }
            return Ok(());
        }
        // The lists of the first cloud are taken over as they are, unless a cache holds them too.
        let mut levels = CloudLevels::unwrap_or_clone(made).into_iter().peekable();
        for lists in &mut batch.levels {
            let (Some(level), Some(next)) = (levels.next(), levels.peek()) else {
                break;
            };
            match level.k == self.neighbours && level.up_k == self.up {
                true => lists.take(level, &next.source),
                false => lists.append(&level, &next.source, self),
            }
        }
        Ok(())
    }
}

/// Subtracts the mean and divides. Means are summed in f64, so a cloud far away keeps its precision.
fn centre(points: &mut [[f32; 3]], unit: f32) {
    for axis in 0..3 {
        let sum: f64 = points.iter().map(|point| f64::from(point[axis])).sum();
        let mean = sum / points.len().max(1) as f64;
        for point in points.iter_mut() {
            point[axis] = ((f64::from(point[axis]) - mean) / f64::from(unit)) as f32;
        }
    }
}

/// The rank of each number: what a permutation is already.
fn ranks(priority: &[i32]) -> Result<Vec<u32>, String> {
    let mut seen = vec![false; priority.len()];
    priority
        .iter()
        .map(|&rank| {
            match usize::try_from(rank)
                .ok()
                .and_then(|rank| seen.get_mut(rank))
            {
                Some(seen) if !*seen => {
                    *seen = true;
                    Ok(rank as u32)
                }
                _ => Err(format!(
                    "priority {rank} is no rank within its cloud of {} points, or comes twice",
                    priority.len()
                )),
            }
        })
        .collect()
}

/// One cloud of a batch.
struct Cloud<'a> {
    rows: &'a [f32],
    channels: usize,
    priority: &'a [i32],
}

/// What the levels of all clouds are gathered in.
struct Batch {
    features: Vec<f32>,
    place_of_row: Vec<i32>,
    levels: Vec<Lists>,
}

#[derive(Default)]
struct Lists {
    points: Vec<f32>,
    neighbours: Vec<i32>,
    lists: Vec<i32>,
    kept: Vec<i32>,
    up: Vec<i32>,
    up_weights: Vec<f32>,
}

impl Lists {
    /// The first cloud's, whose lists are full.
    fn take(&mut self, level: Level, next_source: &[i32]) {
        self.lists = vec![level.points.len() as i32, level.k as i32];
        self.kept = next_source.to_vec();
        if level.up_k > 1 {
            let lists = level.up_distance.chunks_exact(level.up_k);
            self.up_weights = lists.flat_map(inverse_weights).collect();
        }
        self.points = level.points.into_flattened();
        self.neighbours = level.neighbours;
        self.up = level.up;
    }

    fn append(&mut self, level: &Level, next_source: &[i32], plan: &PointLevels) {
        let start = (self.points.len() / 3) as i32;
        let next_start = self.kept.len() as i32;
        self.points.extend(level.points.as_flattened());
        self.lists
            .extend([level.points.len() as i32, level.k as i32]);
        self.kept
            .extend(next_source.iter().map(|&place| start + place));
        for place in 0..level.points.len() {
            let own = start + place as i32;
            let listed = &level.neighbours[place * level.k..][..level.k];
            self.neighbours
                .extend(listed.iter().map(|&neighbour| start + neighbour));
            self.neighbours
                .extend(std::iter::repeat_n(own, plan.neighbours - level.k));
            let up = &level.up[place * level.up_k..][..level.up_k];
            self.up.extend(up.iter().map(|&to| next_start + to));
            self.up.extend(std::iter::repeat_n(
                next_start + up[0],
                plan.up - level.up_k,
            ));
            if plan.up > 1 {
                let squared = &level.up_distance[place * level.up_k..][..level.up_k];
                self.up_weights.extend(inverse_weights(squared));
                self.up_weights
                    .extend(std::iter::repeat_n(0.0, plan.up - level.up_k));
            }
        }
    }
}

/// What points at these squared distances count: the nearer, the more.
fn inverse_weights(squared: &[f32]) -> Vec<f32> {
    let inverse = squared.iter().map(|d| 1.0 / (d.sqrt() + CLOSEST));
    let inverse: Vec<f32> = inverse.collect();
    let sum: f32 = inverse.iter().sum();
    inverse.iter().map(|weight| weight / sum).collect()
}

/// Added to a distance before it is inverted.
const CLOSEST: f32 = 1e-8;

impl Operator for PointLevels {
    fn kind(&self) -> &'static str {
        "PointLevels"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [points, priority, counts] = inputs else {
            return Err("points, priorities and counts".to_owned());
        };
        let ([p, c], [also_p], [n]) = (&points.shape[..], &priority.shape[..], &counts.shape[..])
        else {
            return Err("points [P, C], priorities i32 [P] and counts i32 [N]".to_owned());
        };
        if p != also_p || priority.dtype != DType::I32 || counts.dtype != DType::I32 {
            return Err("points [P, C], priorities i32 [P] and counts i32 [N]".to_owned());
        }
        let mut outputs = vec![
            TensorType::f32([p.clone(), c.clone()]),
            TensorType::i32([p.clone()]),
        ];
        let mut here = p.clone();
        for level in 1..=self.ratios.len() {
            let next = Dim::symbol(&format!("P{level}"));
            outputs.extend([
                TensorType::f32([here.clone(), 3.into()]),
                TensorType::i32([here.clone(), self.neighbours.into()]),
                TensorType::i32([n.clone(), 2.into()]),
                TensorType::i32([next.clone()]),
                TensorType::i32([here.clone(), self.up.into()]),
            ]);
            if self.up > 1 {
                outputs.push(TensorType::f32([here, self.up.into()]));
            }
            here = next;
        }
        Ok(outputs)
    }

    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        // How many distances a search computes is the data's matter.
        Cost {
            macs: Amount::zero(),
            other_ops: Amount::Unknown,
        }
    }

    fn describe(&self) -> String {
        let Self {
            ratios,
            neighbours,
            up,
            ..
        } = self;
        format!("PointLevels(ratios={ratios:?}, neighbours={neighbours}, up={up})")
    }
}

impl CustomOp for PointLevels {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [points, priority, counts] = inputs else {
            return Err("takes points, priorities and counts".to_owned());
        };
        let cpu: &Cpu = context.machine()?;
        let (&[rows, channels], mut points) = points.read::<f32>()? else {
            return Err("takes points [P, C]".to_owned());
        };
        let mut priority = priority.values::<i32>()?;
        let counts = counts.values::<i32>()?;
        let mut batch = Batch {
            features: Vec::with_capacity(points.len()),
            place_of_row: Vec::with_capacity(rows),
            levels: self.ratios.iter().map(|_| Lists::default()).collect(),
        };
        for &count in counts {
            let too_many = || format!("counts {counts:?} are more than {rows} points");
            let count = usize::try_from(count).map_err(|_| format!("counts {counts:?}"))?;
            let (own, others) = points
                .split_at_checked(count.saturating_mul(channels))
                .ok_or_else(too_many)?;
            let (own_priority, other_priorities) =
                priority.split_at_checked(count).ok_or_else(too_many)?;
            (points, priority) = (others, other_priorities);
            let cloud = Cloud {
                rows: own,
                channels,
                priority: own_priority,
            };
            self.append(cpu, &mut batch, cloud)?;
        }
        if !points.is_empty() {
            return Err(format!("counts {counts:?} are fewer than {rows} points"));
        }
        let clouds = counts.len();
        let mut outputs = vec![
            Tensor::from_values([rows, channels], batch.features)?,
            Tensor::from_values([rows], batch.place_of_row)?,
        ];
        for level in batch.levels {
            let points = level.points.len() / 3;
            outputs.extend([
                Tensor::from_values([points, 3], level.points)?,
                Tensor::from_values([points, self.neighbours], level.neighbours)?,
                Tensor::from_values([clouds, 2], level.lists)?,
                Tensor::from_values([level.kept.len()], level.kept)?,
                Tensor::from_values([points, self.up], level.up)?,
            ]);
            if self.up > 1 {
                outputs.push(Tensor::from_values([points, self.up], level.up_weights)?);
            }
        }
        Ok(outputs)
    }

    fn cache(&self) -> Option<CacheCounters> {
        self.cache.as_ref().map(|cache| cache.counters())
    }
}

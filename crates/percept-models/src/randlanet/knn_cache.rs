//! Neighbours that were searched once and are kept: for further passes over the same cloud, and on disk for training.
//!
//! A cloud is known by its content: coordinates, priorities and how it is thinned out. Memory is linear in points times
//! neighbours: lists, never distances of all pairs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use percept_graph::CacheCounters;
use percept_kernels::Cpu;
use percept_kernels::machine::machine_memory_bytes;
use percept_kernels::points::{
    Level, LevelPlan, MAX_NEIGHBOURS, Numbering, PointTree, PointsError, levels,
};
use percept_store::{Blob, Cache, Collection, Key, StoreError, TensorRef};
use thiserror::Error;

/// What clouds in memory may hold together, unless said otherwise.
const DEFAULT_LIMIT_BYTES: u64 = 512 << 20;
/// The part of the free memory that a question's working memory may take.
const DEFAULT_CHUNK_SHARE: f64 = 0.3;
/// Working memory of a question for each point that asks: its place in a tree, a number and a distance for each neighbour.
const CHUNK_BYTES_PER_POINT: u64 = 64;
const CHUNK_BYTES_PER_NEIGHBOUR: u64 = 8;
/// Where the system does not say how much memory is free.
const ASSUMED_FREE_BYTES: u64 = 256 << 20;

/// Why neighbours cannot be had.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum KnnError {
    #[error(transparent)]
    Points(#[from] PointsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("level {level}: the cloud has the levels 0 to {last}")]
    NoLevel { level: usize, last: usize },
    #[error("{k} neighbours: at most {MAX_NEIGHBOURS} are supported")]
    TooMany { k: usize },
}

/// A cache of the levels of clouds; many threads may share it.
///
/// ```
/// use percept_kernels::Cpu;
/// use percept_kernels::points::LevelPlan;
/// use percept_models::randlanet::KnnCache;
/// let (cpu, cache) = (Cpu::new(1)?, KnnCache::new());
/// let points: Vec<[f32; 3]> = (0..100).map(|i| [i as f32, 0.0, 0.0]).collect();
/// let plan = LevelPlan { ratios: &[4], k: 3, up_k: 1, priority: None };
/// let cloud = cache.build(&cpu, &points, &plan)?;
/// let near = cloud.query(&cpu, 0, 0, 3)?;
/// assert_eq!(near.list(50), ([50, 49, 51].as_slice(), [0.0, 1.0, 1.0].as_slice()));
/// cache.build(&cpu, &points, &plan)?;
/// assert_eq!((cache.counters().hits, cache.counters().misses), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KnnCache {
    limit_bytes: u64,
    disk: Option<(Cache, Collection)>,
    /// Least recently used first.
    clouds: Mutex<VecDeque<(Key, Arc<CloudLevels>)>>,
    hits: AtomicU64,
    misses: AtomicU64,
    from_disk: AtomicU64,
}

impl Default for KnnCache {
    fn default() -> Self {
        Self::new()
    }
}

impl KnnCache {
    /// In memory only.
    pub fn new() -> Self {
        Self {
            limit_bytes: DEFAULT_LIMIT_BYTES,
            disk: None,
            clouds: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            from_disk: AtomicU64::new(0),
        }
    }

    /// With another bound on what clouds in memory hold together. The cloud used last always stays.
    pub fn with_limit(self, limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            ..self
        }
    }

    /// On disk too: what is not in memory is looked for there, and what is searched is written there.
    pub fn on_disk(self, disk: Cache) -> Result<Self, KnnError> {
        let kind = Collection::new("point-levels", 1)?;
        Ok(Self {
            disk: Some((disk, kind)),
            ..self
        })
    }

    /// The levels of a cloud: kept ones, or searched now.
    pub fn build(
        &self,
        cpu: &Cpu,
        points: &[[f32; 3]],
        plan: &LevelPlan<'_>,
    ) -> Result<Arc<CloudLevels>, KnnError> {
        let key = content_key(points, plan);
        if let Some(cloud) = self.take(key) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(self.keep(key, cloud));
        }
        if let Some((disk, kind)) = &self.disk
            && let Some(cloud) = disk
                .get(kind, key)?
                .and_then(|blob| CloudLevels::read(&blob, points.len(), plan))
        {
            self.hits.fetch_add(1, Ordering::Relaxed);
            self.from_disk.fetch_add(1, Ordering::Relaxed);
            return Ok(self.keep(key, Arc::new(cloud)));
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let cloud = CloudLevels::new(cpu, points, plan)?;
        if let Some((disk, kind)) = &self.disk {
            cloud.write(disk, kind, key)?;
        }
        Ok(self.keep(key, Arc::new(cloud)))
    }

    /// Forgets every cloud in memory. Files stay: other processes may use them.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// What it did so far, and holds.
    pub fn counters(&self) -> CacheCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let clouds = self.lock();
        CacheCounters {
            hits: read(&self.hits),
            misses: read(&self.misses),
            from_disk: read(&self.from_disk),
            entries: clouds.len() as u64,
            bytes: clouds.iter().map(|(_, cloud)| cloud.bytes()).sum(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Key, Arc<CloudLevels>)>> {
        // What a panicking thread left is a list of whole clouds all the same.
        self.clouds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, key: Key) -> Option<Arc<CloudLevels>> {
        let mut clouds = self.lock();
        let at = clouds.iter().position(|(other, _)| *other == key)?;
        clouds.remove(at).map(|(_, cloud)| cloud)
    }

    fn keep(&self, key: Key, cloud: Arc<CloudLevels>) -> Arc<CloudLevels> {
        let mut clouds = self.lock();
        clouds.push_back((key, Arc::clone(&cloud)));
        let mut bytes: u64 = clouds.iter().map(|(_, cloud)| cloud.bytes()).sum();
        while bytes > self.limit_bytes && clouds.len() > 1 {
            if let Some((_, gone)) = clouds.pop_front() {
                bytes -= gone.bytes();
            }
        }
        cloud
    }
}

/// Everything that the levels depend on.
fn content_key(points: &[[f32; 3]], plan: &LevelPlan<'_>) -> Key {
    let sizes: Vec<u64> = [plan.k, plan.up_k]
        .iter()
        .chain(plan.ratios)
        .map(|&size| size as u64)
        .collect();
    let key = Key::of().part(points.as_flattened()).part(&sizes);
    match plan.priority {
        Some(priority) => key.part(&[1u8]).part(priority).finish(),
        None => key.part(&[0u8]).finish(),
    }
}

/// The levels of one cloud.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudLevels {
    levels: Vec<Level>,
}

/// Nearest points in the numbering of the cloud's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Neighbours {
    /// How many each list has.
    pub k: usize,
    /// The rows of the nearest points, nearest first.
    pub rows: Vec<i32>,
    /// How far they are.
    pub distances: Vec<f32>,
}

impl Neighbours {
    /// One list: rows and distances.
    pub fn list(&self, at: usize) -> (&[i32], &[f32]) {
        let range = at * self.k..(at + 1) * self.k;
        (&self.rows[range.clone()], &self.distances[range])
    }
}

impl CloudLevels {
    /// Searches the levels of a cloud.
    pub fn new(cpu: &Cpu, points: &[[f32; 3]], plan: &LevelPlan<'_>) -> Result<Self, KnnError> {
        Ok(Self {
            levels: levels(cpu, points, plan)?,
        })
    }

    /// All levels, the whole cloud first.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// All levels: the given ones where nobody else holds them, else copies.
    pub(super) fn unwrap_or_clone(shared: Arc<Self>) -> Vec<Level> {
        Arc::unwrap_or_clone(shared).levels
    }

    /// Bytes that the lists hold.
    pub fn bytes(&self) -> u64 {
        let numbers = |level: &Level| {
            level.source.len()
                + 3 * level.points.len()
                + level.neighbours.len()
                + level.up.len()
                + level.up_distance.len()
        };
        4 * self.levels.iter().map(numbers).sum::<usize>() as u64
    }

    /// The coordinates of a level's points, and the rows of the cloud that they are: both in ascending order of the rows.
    pub fn coords(&self, level: usize) -> Result<(Vec<i32>, Vec<[f32; 3]>), KnnError> {
        let rows = self.rows(level)?;
        let mut points: Vec<(i32, [f32; 3])> = rows
            .into_iter()
            .zip(self.levels[level].points.iter().copied())
            .collect();
        points.sort_unstable_by_key(|&(row, _)| row);
        Ok(points.into_iter().unzip())
    }

    /// The `k` nearest points of level `sources` to each point of level `targets`, by rows of the cloud, in the order of
    /// [`CloudLevels::coords`]. Asked in chunks whose working memory is a part of what is free.
    pub fn query(
        &self,
        cpu: &Cpu,
        sources: usize,
        targets: usize,
        k: usize,
    ) -> Result<Neighbours, KnnError> {
        let free = machine_memory_bytes().map_or(ASSUMED_FREE_BYTES, |(_, free)| free);
        let chunk = chunk_points(free, DEFAULT_CHUNK_SHARE, k);
        self.query_in_chunks(cpu, sources, targets, k, chunk)
    }

    fn query_in_chunks(
        &self,
        cpu: &Cpu,
        sources: usize,
        targets: usize,
        k: usize,
        chunk: usize,
    ) -> Result<Neighbours, KnnError> {
        if k > MAX_NEIGHBOURS {
            return Err(KnnError::TooMany { k });
        }
        let (source_rows, source_points) = self.coords(sources)?;
        let (_, target_points) = self.coords(targets)?;
        let tree = PointTree::build(cpu, &source_points, Numbering::Rows)?;
        let k = tree.list_len(k);
        let mut found = Neighbours {
            k,
            rows: vec![0; target_points.len() * k],
            distances: vec![0.0; target_points.len() * k],
        };
        let lists = found
            .rows
            .chunks_mut((chunk * k).max(1))
            .zip(found.distances.chunks_mut((chunk * k).max(1)));
        for (points, (rows, squared)) in target_points.chunks(chunk).zip(lists) {
            let asking = PointTree::build(cpu, points, Numbering::Rows)?;
            tree.neighbours_of(cpu, &asking, k, rows, Some(squared));
            asking.give_back(cpu);
        }
        tree.give_back(cpu);
        for row in &mut found.rows {
            *row = source_rows[*row as usize];
        }
        found
            .distances
            .iter_mut()
            .for_each(|squared| *squared = squared.sqrt());
        Ok(found)
    }

    /// The row of the cloud at each place of a level.
    fn rows(&self, level: usize) -> Result<Vec<i32>, KnnError> {
        let last = self.levels.len().saturating_sub(1);
        let upper = self
            .levels
            .get(..=level)
            .ok_or(KnnError::NoLevel { level, last })?;
        let mut sources = upper.iter().map(|level| &level.source);
        let first = sources.next().cloned().unwrap_or_default();
        Ok(sources.fold(first, |above, source| {
            source.iter().map(|&place| above[place as usize]).collect()
        }))
    }

    fn write(&self, disk: &Cache, kind: &Collection, key: Key) -> Result<(), KnnError> {
        let names: Vec<[String; 5]> = (0..self.levels.len()).map(names).collect();
        let lists = |numbers: usize, width: usize| [numbers / width.max(1), width];
        let shapes: Vec<[[usize; 2]; 5]> = self
            .levels
            .iter()
            .map(|level| {
                let points = level.points.len();
                [
                    [points, 1],
                    [points, 3],
                    lists(level.neighbours.len(), level.k),
                    lists(level.up.len(), level.up_k),
                    lists(level.up_distance.len(), level.up_k),
                ]
            })
            .collect();
        let mut tensors = Vec::new();
        for ((level, names), shapes) in self.levels.iter().zip(&names).zip(&shapes) {
            tensors.push(TensorRef::new(&names[0], &shapes[0], &level.source));
            tensors.push(TensorRef::new(
                &names[1],
                &shapes[1],
                level.points.as_flattened(),
            ));
            tensors.push(TensorRef::new(&names[2], &shapes[2], &level.neighbours));
            tensors.push(TensorRef::new(&names[3], &shapes[3], &level.up));
            tensors.push(TensorRef::new(&names[4], &shapes[4], &level.up_distance));
        }
        match disk.put(kind, key, &tensors) {
            // A cloud that is larger than the whole cache is searched every time.
            Err(StoreError::TooLarge { .. }) => Ok(()),
            written => Ok(written?),
        }
    }

    /// What [`CloudLevels::write`] wrote; `None` when it is not a cloud of this many points, thinned out like this.
    fn read(blob: &Blob, points: usize, plan: &LevelPlan<'_>) -> Option<Self> {
        let mut count = points;
        let mut all = Vec::new();
        for depth in 0..=plan.ratios.len() {
            let [source, coordinates, neighbours, up, up_distance] = names(depth);
            let integers = |name: &str| blob.numbers::<i32>(name).map(<[i32]>::to_vec);
            let coordinates = blob
                .numbers::<f32>(&coordinates)?
                .as_chunks::<3>()
                .0
                .to_vec();
            let ratio = plan.ratios.get(depth);
            let next = ratio.map_or(0, |ratio| (count / ratio).max(1).min(count));
            let (k, up_k) = if ratio.is_some() {
                (plan.k.min(count), plan.up_k.min(next))
            } else {
                (0, 0)
            };
            let level = Level {
                source: integers(&source)?,
                points: coordinates,
                k,
                neighbours: integers(&neighbours)?,
                up: integers(&up)?,
                up_k,
                up_distance: blob.numbers::<f32>(&up_distance)?.to_vec(),
            };
            let fits = [level.source.len(), level.points.len()] == [count; 2]
                && level.neighbours.len() == count * k
                && level.up.len() == count * up_k
                && level
                    .neighbours
                    .iter()
                    .all(|&place| usize::try_from(place).is_ok_and(|place| place < count))
                && level
                    .up
                    .iter()
                    .all(|&place| usize::try_from(place).is_ok_and(|place| place < next));
            let above = all
                .last()
                .map_or(points, |above: &Level| above.points.len());
            if !fits
                || !level
                    .source
                    .iter()
                    .all(|&place| usize::try_from(place).is_ok_and(|place| place < above))
            {
                return None;
            }
            all.push(level);
            count = next;
        }
        Some(Self { levels: all })
    }
}

/// The tensors of a level.
fn names(depth: usize) -> [String; 5] {
    ["source", "points", "neighbours", "up", "up_distance"].map(|part| format!("{depth}.{part}"))
}

/// How many points may ask at a time.
fn chunk_points(free_bytes: u64, share: f64, k: usize) -> usize {
    let each = CHUNK_BYTES_PER_POINT + CHUNK_BYTES_PER_NEIGHBOUR * k as u64;
    let chunk = free_bytes as f64 * share / each as f64;
    // Less than this saves nothing worth the trips.
    (chunk as usize).max(1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cloud(seed: u64, len: usize) -> Vec<[f32; 3]> {
        let stream = percept_data::seeded::Stream::named(&format!("cloud {seed}"));
        (0..len as u64)
            .map(|i| [0, 1, 2].map(|axis| 20.0 * stream.uniform(3 * i + axis)))
            .collect()
    }

    const PLAN: LevelPlan<'static> = LevelPlan {
        ratios: &[4, 2],
        k: 8,
        up_k: 1,
        priority: None,
    };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn questions_between_levels_are_answered_like_a_plain_search(
            seed in any::<u64>(), len in 1usize..300, sources in 0usize..3, targets in 0usize..3, k in 1usize..9, chunk in 1usize..80,
        ) {
            let (cpu, points) = (Cpu::new(1).unwrap(), cloud(seed, len));
            let made = KnnCache::new().build(&cpu, &points, &PLAN).unwrap();
            let got = made.query_in_chunks(&cpu, sources, targets, k, chunk).unwrap();
            let (source_rows, _) = made.coords(sources).unwrap();
            let (target_rows, target_points) = made.coords(targets).unwrap();
            prop_assert_eq!(got.k, k.min(source_rows.len()));
            for (at, (row, point)) in target_rows.iter().zip(target_points).enumerate() {
                prop_assert_eq!(points[*row as usize], point);
                let distance = |row: i32| {
                    let other = points[row as usize];
                    let [x, y, z] = [0, 1, 2].map(|axis| point[axis] - other[axis]);
                    ((x * x + y * y) + z * z).sqrt()
                };
                let mut best: Vec<f32> = source_rows.iter().map(|&row| distance(row)).collect();
                best.sort_by(f32::total_cmp);
                let (rows, distances) = got.list(at);
                prop_assert_eq!(distances, &best[..got.k]);
                prop_assert!(rows.iter().map(|&row| distance(row)).eq(distances.iter().copied()));
            }
        }
    }

    #[test]
    fn a_cloud_is_known_by_its_content() {
        let (cpu, cache) = (Cpu::new(1).unwrap(), KnnCache::new());
        let points = cloud(1, 500);
        let first = cache.build(&cpu, &points, &PLAN).unwrap();
        let again = cache.build(&cpu, &points.clone(), &PLAN).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let priority: Vec<u32> = (0..500).rev().collect();
        let others = [
            LevelPlan { k: 7, ..PLAN },
            LevelPlan {
                ratios: &[4],
                ..PLAN
            },
            LevelPlan {
                priority: Some(&priority),
                ..PLAN
            },
        ];
        for plan in &others {
            assert_ne!(cache.build(&cpu, &points, plan).unwrap(), first);
        }
        let counters = cache.counters();
        assert_eq!(
            (counters.hits, counters.misses, counters.entries),
            (1, 4, 4)
        );
        assert!(counters.bytes >= 4 * first.bytes() / 2 && first.bytes() > 500 * 8 * 4);
        cache.clear();
        assert_eq!(cache.counters().bytes, 0);
    }

    #[test]
    fn memory_is_bounded_and_the_least_recently_used_goes() {
        let cpu = Cpu::new(1).unwrap();
        let [a, b, c] = [1, 2, 3].map(|seed| cloud(seed, 400));
        let size = KnnCache::new().build(&cpu, &a, &PLAN).unwrap().bytes();
        let cache = KnnCache::new().with_limit(2 * size);
        for points in [&a, &b, &a, &c] {
            cache.build(&cpu, points, &PLAN).unwrap();
        }
        assert_eq!(cache.counters().entries, 2);
        cache.build(&cpu, &a, &PLAN).unwrap();
        assert_eq!(cache.counters().hits, 2, "a was used after b");
    }

    #[test]
    fn what_is_on_disk_is_found_again_and_damage_is_searched_anew() {
        let (cpu, folder) = (Cpu::new(1).unwrap(), tempfile::tempdir().unwrap());
        let open = || {
            KnnCache::new()
                .on_disk(Cache::open(folder.path(), 1 << 20).unwrap())
                .unwrap()
        };
        let points = cloud(1, 300);
        let made = open().build(&cpu, &points, &PLAN).unwrap();
        let other = open();
        assert_eq!(other.build(&cpu, &points, &PLAN).unwrap(), made);
        assert_eq!(
            (other.counters().from_disk, other.counters().misses),
            (1, 0)
        );
        let file = std::fs::read_dir(folder.path().join("point-levels"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        let third = open();
        assert_eq!(third.build(&cpu, &points, &PLAN).unwrap(), made);
        assert_eq!(
            (third.counters().from_disk, third.counters().misses),
            (0, 1)
        );
    }

    #[test]
    fn chunks_follow_free_memory() {
        assert_eq!(chunk_points(0, 0.3, 16), 1024);
        assert_eq!(
            chunk_points(1 << 30, 0.3, 16),
            ((1u64 << 30) as f64 * 0.3 / 192.0) as usize
        );
        let levels = KnnCache::new()
            .build(&Cpu::new(1).unwrap(), &cloud(1, 9), &PLAN)
            .unwrap();
        assert!(matches!(
            levels.query(&Cpu::new(1).unwrap(), 3, 0, 1),
            Err(KnnError::NoLevel { level: 3, last: 2 })
        ));
        assert!(matches!(
            levels.query(&Cpu::new(1).unwrap(), 0, 0, 65),
            Err(KnnError::TooMany { k: 65 })
        ));
    }
}

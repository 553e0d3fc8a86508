//! The index: batches of places in a journal, whose descriptors are searched where the mapped file has them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use percept_kernels::Cpu;
use percept_kernels::nearest::{ByteRows, Near, nearest, nearest_through_bytes};
use percept_store::{Collection, Journal, Key, Recovery, StoreError, Tensor, TensorRef};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the descriptors of an index are: only those of the same mode can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mode {
    /// The network that makes them. Parts of one elastic network are the same network.
    pub network: String,
    /// Parts of a sample that it does without.
    pub without: Vec<String>,
    /// How many numbers a descriptor has.
    pub descriptor: usize,
}

/// A place to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// What it is found under; a place of the same name is replaced.
    pub name: String,
    /// Metres on the ground, where they are known.
    pub position: Option<[f64; 2]>,
    /// Its numbers.
    pub descriptor: Vec<f32>,
}

/// A place that is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct PlaceRef<'a> {
    pub name: &'a str,
    pub position: Option<[f64; 2]>,
    pub descriptor: &'a [f32],
}

/// A place that a query found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its number, for [`PlaceIndex::place`].
    pub place: usize,
    /// The Euclidean distance of the descriptors.
    pub distance: f64,
}

/// Why an index cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum PlaceError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}: not an index of places, or one of another version", path.display())]
    NotAnIndex { path: PathBuf },
    #[error("{}: it holds no places yet, and nothing says of which network", path.display())]
    Empty { path: PathBuf },
    #[error("{}: a record of it is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{}: its descriptors are {found}, not {asked}", path.display())]
    OtherMode {
        path: PathBuf,
        found: String,
        asked: String,
    },
    #[error("{name}: a descriptor of {got} numbers, the index has {expected}")]
    OtherSize {
        name: String,
        got: usize,
        expected: usize,
    },
    #[error("{name}: a descriptor with NaN or infinity")]
    NotFinite { name: String },
}

/// What a journal is called by those who know it as an index.
fn not_an_index(error: StoreError) -> PlaceError {
    match error {
        StoreError::NotAJournal { path } => PlaceError::NotAnIndex { path },
        error => error.into(),
    }
}

impl Mode {
    /// In words.
    pub fn words(&self) -> String {
        let mut words = format!("of {} with {} numbers", self.network, self.descriptor);
        if !self.without.is_empty() {
            words += &format!(" without {}", self.without.join(" and "));
        }
        words
    }
}

/// Places on disk, and where each stands.
#[derive(Debug)]
pub struct PlaceIndex {
    path: PathBuf,
    journal: Journal,
    mode: Mode,
    /// Keys of batches, in the order in which they were appended.
    batches: Vec<Key>,
    /// Live places: name, position, batch, row.
    places: Vec<Row>,
    by_name: HashMap<String, usize>,
    /// All descriptors as bytes, where searches are to be fast.
    bytes: Option<ByteRows>,
}

#[derive(Clone, Debug)]
struct Row {
    name: String,
    position: Option<[f64; 2]>,
    batch: usize,
    row: usize,
    alive: bool,
}

const MODE: &str = "mode";
const DESCRIPTORS: &str = "descriptors";
const POSITIONS: &str = "positions";
const NAMES: &str = "names";
const FORGOTTEN: &str = "forgotten";

fn kind() -> Result<Collection, StoreError> {
    Collection::new("places", 1)
}

impl PlaceIndex {
    /// Opens an index for writing, and makes it where it is missing; one of another mode is an error.
    pub fn open(path: impl Into<PathBuf>, mode: &Mode) -> Result<Self, PlaceError> {
        let path = path.into();
        let mut journal = Journal::open(&path, &kind()?).map_err(not_an_index)?;
        if journal.is_empty() {
            let text = serde_json::to_vec(mode).expect("texts and numbers are JSON");
            let key = Key::of().part(b"mode").finish();
            journal.append(key, &[TensorRef::new(MODE, &[text.len()], &text)])?;
        }
        let index = Self::of(path, journal)?;
        index.check(mode)?;
        Ok(index)
    }

    /// Opens an index that exists, for reading.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, PlaceError> {
        let path = path.into();
        let journal = Journal::read(&path, &kind()?).map_err(not_an_index)?;
        Self::of(path, journal)
    }

    /// Opens an index that exists, for writing.
    pub fn change(path: impl Into<PathBuf>) -> Result<Self, PlaceError> {
        let path = path.into();
        let mode = Self::read(&path)?.mode;
        Self::open(path, &mode)
    }

    fn of(path: PathBuf, journal: Journal) -> Result<Self, PlaceError> {
        let mut mode = None;
        let mut batches: Vec<(Key, Batch)> = Vec::new();
        for (key, tensors) in journal.iter() {
            let record = Record::of(&path, tensors)?;
            match record {
                Record::Mode(found) => mode = Some(found),
                Record::Batch(batch) => batches.push((key, batch)),
            }
        }
        let mode = mode.ok_or_else(|| PlaceError::Empty { path: path.clone() })?;
        let mut index = Self {
            path,
            journal,
            mode,
            batches: Vec::new(),
            places: Vec::new(),
            by_name: HashMap::new(),
            bytes: None,
        };
        for (key, batch) in batches {
            if batch
                .width
                .is_some_and(|width| width != index.mode.descriptor)
            {
                return Err(index.damaged("a batch of another width"));
            }
            index.note(key, batch);
        }
        Ok(index)
    }

    fn damaged(&self, what: &str) -> PlaceError {
        PlaceError::Damaged {
            path: self.path.clone(),
            what: what.to_owned(),
        }
    }

    /// Takes a batch into account.
    fn note(&mut self, key: Key, batch: Batch) {
        for name in batch.forgotten {
            if let Some(place) = self.by_name.remove(&name) {
                self.places[place].alive = false;
            }
        }
        let number = self.batches.len();
        for (row, (name, position)) in batch.places.into_iter().enumerate() {
            if let Some(older) = self.by_name.insert(name.clone(), self.places.len()) {
                self.places[older].alive = false;
            }
            self.places.push(Row {
                name,
                position,
                batch: number,
                row,
                alive: true,
            });
        }
        self.batches.push(key);
    }

    /// An error unless descriptors of this mode can be compared with those of the index.
    pub fn check(&self, mode: &Mode) -> Result<(), PlaceError> {
        match self.mode == *mode {
            true => Ok(()),
            false => Err(PlaceError::OtherMode {
                path: self.path.clone(),
                found: self.mode.words(),
                asked: mode.words(),
            }),
        }
    }

    /// What its descriptors are.
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// What opening found besides whole records: a torn tail, damage.
    pub fn recovery(&self) -> &Recovery {
        self.journal.recovery()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many places it holds.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Appends places, all or none; they are on the disk when this returns.
    pub fn append(&mut self, places: &[Place]) -> Result<(), PlaceError> {
        if places.is_empty() {
            return Ok(());
        }
        let width = self.mode.descriptor;
        for place in places {
            let (name, got) = (place.name.clone(), place.descriptor.len());
            if got != width {
                return Err(PlaceError::OtherSize {
                    name,
                    got,
                    expected: width,
                });
            }
            if !place.descriptor.iter().all(|value| value.is_finite()) {
                return Err(PlaceError::NotFinite { name });
            }
        }
        let descriptors: Vec<f32> = places.iter().flat_map(|p| &p.descriptor).copied().collect();
        let unknown = [f64::NAN; 2];
        let positions: Vec<f64> = places
            .iter()
            .flat_map(|place| place.position.unwrap_or(unknown))
            .collect();
        let names: Vec<String> = places.iter().map(|p| p.name.replace('\n', " ")).collect();
        let text = names.join("\n").into_bytes();
        let count = self.batches.len() as u64;
        let key = Key::of().part(b"batch").part(&[count]).part(&text).finish();
        let shape = [places.len(), width];
        self.journal.append(
            key,
            &[
                TensorRef::new(DESCRIPTORS, &shape, &descriptors),
                TensorRef::new(POSITIONS, &[places.len(), 2], &positions),
                TensorRef::new(NAMES, &[text.len()], &text),
            ],
        )?;
        let positions = places.iter().map(|place| place.position);
        self.note(
            key,
            Batch {
                width: Some(width),
                places: names.into_iter().zip(positions).collect(),
                forgotten: Vec::new(),
            },
        );
        Ok(())
    }

    /// Deletes the places of these names; says how many there were.
    pub fn forget(&mut self, names: &[String]) -> Result<usize, PlaceError> {
        let known: Vec<String> = names
            .iter()
            .filter(|name| self.by_name.contains_key(*name))
            .cloned()
            .collect();
        if known.is_empty() {
            return Ok(0);
        }
        let text = known.join("\n").into_bytes();
        let count = self.batches.len() as u64;
        let key = Key::of()
            .part(b"forget")
            .part(&[count])
            .part(&text)
            .finish();
        self.journal
            .append(key, &[TensorRef::new(FORGOTTEN, &[text.len()], &text)])?;
        let before = self.len();
        self.note(
            key,
            Batch {
                width: None,
                places: Vec::new(),
                forgotten: known,
            },
        );
        Ok(before - self.len())
    }

    /// The numbers of all places, in the order in which they were appended.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.places.len()).filter(|&place| self.places[place].alive)
    }

    /// A place by its number.
    ///
    /// # Panics
    /// When no search or listing of this index gave the number: the caller's bug.
    pub fn place(&self, place: usize) -> PlaceRef<'_> {
        let row = &self.places[place];
        let width = self.mode.descriptor;
        let batch = self.descriptors(row.batch);
        PlaceRef {
            name: &row.name,
            position: row.position,
            descriptor: batch
                .get(row.row * width..(row.row + 1) * width)
                .unwrap_or(&[]),
        }
    }

    fn descriptors(&self, batch: usize) -> &[f32] {
        let tensors = self.journal.get(self.batches[batch]);
        let mut tensors = tensors.into_iter().flatten();
        let found = tensors.find(|tensor| tensor.name == DESCRIPTORS);
        found.and_then(|tensor| tensor.numbers()).unwrap_or(&[])
    }

    /// Keeps all descriptors in memory as bytes too, a quarter of what they are. Searches look at these first and give the same
    /// answers several times faster. Places that are appended later join by another call.
    pub fn compress(&mut self, cpu: &Cpu) {
        let width = self.mode.descriptor;
        let kept = self
            .bytes
            .take()
            .filter(|bytes| bytes.len() <= self.places.len());
        let mut bytes = kept.unwrap_or_else(|| ByteRows::new(width.max(1)));
        let mut first = 0;
        for batch in 0..self.batches.len() {
            let rows = self.descriptors(batch);
            let count = rows.len() / width.max(1);
            if first >= bytes.len() {
                bytes.extend(cpu, rows);
            }
            first += count;
        }
        self.bytes = Some(bytes);
    }

    /// The `count` places nearest to each query, exactly, nearest first. Queries stand one behind the other.
    pub fn search(
        &self,
        cpu: &Cpu,
        queries: &[f32],
        count: usize,
    ) -> Result<Vec<Vec<Found>>, PlaceError> {
        let width = self.mode.descriptor;
        if width == 0 || !queries.len().is_multiple_of(width) {
            return Err(PlaceError::OtherSize {
                name: "query".to_owned(),
                got: queries.len(),
                expected: width,
            });
        }
        let segments: Vec<&[f32]> = (0..self.batches.len())
            .map(|b| self.descriptors(b))
            .collect();
        // Places that are gone still have rows.
        let is_there = |row: usize| self.places[row].alive;
        let bytes = self.bytes.as_ref();
        let near = match bytes.filter(|bytes| bytes.len() == self.places.len()) {
            Some(bytes) => nearest_through_bytes(cpu, bytes, queries, &segments, count, is_there),
            None => nearest(cpu, width, queries, &segments, count, is_there),
        };
        let found = |near: &Near| Found {
            place: near.row,
            distance: f64::from(near.squared).sqrt(),
        };
        let all = near.iter().map(|near| near.iter().map(found).collect());
        Ok(all.collect())
    }
}

/// What a record of the journal says.
enum Record {
    Mode(Mode),
    Batch(Batch),
}

#[derive(Default)]
struct Batch {
    width: Option<usize>,
    places: Vec<(String, Option<[f64; 2]>)>,
    forgotten: Vec<String>,
}

impl Record {
    fn of<'a>(path: &Path, tensors: impl Iterator<Item = Tensor<'a>>) -> Result<Self, PlaceError> {
        let damaged = |what: &str| PlaceError::Damaged {
            path: path.to_owned(),
            what: what.to_owned(),
        };
        let mut batch = Batch::default();
        let (mut names, mut positions, mut rows) = (Vec::new(), Vec::new(), 0);
        for tensor in tensors {
            let text = || {
                let bytes: Option<&[u8]> = tensor.numbers();
                let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
                text.ok_or_else(|| damaged("a text that is none"))
            };
            match tensor.name.as_ref() {
                MODE => {
                    let mode = serde_json::from_str(text()?);
                    return mode
                        .map(Record::Mode)
                        .map_err(|error| damaged(&error.to_string()));
                }
                NAMES => names = text()?.split('\n').map(str::to_owned).collect(),
                FORGOTTEN => batch.forgotten = text()?.split('\n').map(str::to_owned).collect(),
                POSITIONS => {
                    let numbers: Option<&[f64]> = tensor.numbers();
                    positions = numbers.ok_or_else(|| damaged("positions"))?.to_vec();
                }
                DESCRIPTORS => {
                    let numbers: Option<&[f32]> = tensor.numbers();
                    let length = numbers.ok_or_else(|| damaged("descriptors"))?.len();
                    let [count, width] = tensor.shape[..] else {
                        return Err(damaged("descriptors that are no rows"));
                    };
                    if count * width != length {
                        return Err(damaged("descriptors that are no rows"));
                    }
                    (rows, batch.width) = (count, Some(width));
                }
                _ => {}
            }
        }
        if batch.width.is_some() && (names.len() != rows || positions.len() != 2 * rows) {
            return Err(damaged("not a name and a position for each descriptor"));
        }
        let (pairs, _) = positions.as_chunks::<2>();
        let known = |pair: &[f64; 2]| pair.iter().all(|v| v.is_finite()).then_some(*pair);
        let positions = pairs.iter().map(known);
        batch.places = names.into_iter().zip(positions).collect();
        Ok(Record::Batch(batch))
    }
}

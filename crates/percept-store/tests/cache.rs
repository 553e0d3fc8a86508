//! The cache: what it keeps, what it forgets, and what it refuses to believe.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use half::f16;
use percept_store::{Cache, Collection, Element, Key, StoreError, TensorRef};

const LIMIT: u64 = 1 << 20;

fn kind() -> Collection {
    Collection::new("squares", 3).unwrap()
}

fn key(number: u32) -> Key {
    Key::of().part(&[number]).finish()
}

fn squares(number: u32) -> Vec<i32> {
    (0..number as i32).map(|n| n * n).collect()
}

fn put(cache: &Cache, number: u32) {
    let (values, half) = (squares(number), [f16::from_f32(0.5)]);
    let shape = [values.len()];
    let tensors = [
        TensorRef::new("squares", &shape, &values),
        TensorRef::new("half", &[1, 1], &half),
    ];
    cache.put(&kind(), key(number), &tensors).unwrap();
}

/// Whether the cache has the number; panics when it has something else.
fn has(cache: &Cache, number: u32) -> bool {
    let Some(blob) = cache.get(&kind(), key(number)).unwrap() else {
        return false;
    };
    assert_eq!(blob.numbers::<i32>("squares"), Some(&squares(number)[..]));
    assert_eq!(blob.numbers::<f16>("half"), Some(&[f16::from_f32(0.5)][..]));
    true
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let kinds = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = kinds
        .filter(|path| path.is_dir())
        .flat_map(|kind| fs::read_dir(kind).unwrap());
    files.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn tensors_come_back_with_names_types_and_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), LIMIT).unwrap();
    let (kind, key) = (kind(), key(0));
    assert!(cache.get(&kind, key).unwrap().is_none());
    let tensors = [
        TensorRef::new("a", &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]),
        TensorRef::new("empty", &[0, 7], &[0i32; 0]),
        TensorRef::new("scalar", &[], &[9u8]),
        TensorRef::new("wide", &[1], &[1e300f64]),
    ];
    cache.put(&kind, key, &tensors).unwrap();
    let blob = cache.get(&kind, key).unwrap().unwrap();
    let names: Vec<_> = blob
        .tensors()
        .map(|tensor| tensor.name.into_owned())
        .collect();
    assert_eq!(names, ["a", "empty", "scalar", "wide"]);
    let a = blob.tensor("a").unwrap();
    assert_eq!((a.element, &a.shape[..]), (Element::F32, &[2, 3][..]));
    assert_eq!(a.bytes.as_ptr().addr() % 64, 0);
    assert_eq!(blob.numbers::<i32>("empty"), Some(&[][..]));
    assert_eq!(blob.numbers::<u8>("scalar"), Some(&[9][..]));
    assert_eq!(blob.numbers::<f64>("wide"), Some(&[1e300][..]));
    assert_eq!(blob.numbers::<i32>("a"), None, "of another type");
    assert_eq!(blob.numbers::<f32>("b"), None);
    let counters = cache.counters();
    assert_eq!((counters.hits, counters.misses), (1, 1));
    assert_eq!(counters.bytes_read, counters.bytes_written);
    assert_eq!(cache.list().unwrap()[0].bytes, counters.bytes_written);
}

#[test]
fn another_version_of_the_kind_is_a_miss_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), LIMIT).unwrap();
    put(&cache, 4);
    let newer = Collection::new("squares", 4).unwrap();
    assert!(cache.get(&newer, key(4)).unwrap().is_none());
    assert_eq!(cache.counters().damaged, 1);
    assert!(!has(&cache, 4));
}

#[test]
fn a_file_cut_off_or_flipped_at_any_byte_is_a_miss_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), LIMIT).unwrap();
    put(&cache, 5);
    let path = files(folder.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    damaged.extend((0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    }));
    damaged.push([&whole[..], &[0; 64]].concat());
    let cases = damaged.len() as u64;
    for bytes in damaged {
        fs::write(&path, bytes).unwrap();
        assert!(!has(&cache, 5));
        assert!(!path.exists());
    }
    assert_eq!(cache.counters().damaged, cases);
    fs::write(&path, &whole).unwrap();
    assert!(has(&cache, 5));
}

#[test]
fn huge_sizes_in_a_header_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), LIMIT).unwrap();
    put(&cache, 5);
    let path = files(folder.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    // Lengths of the header and the body, and every aligned or unaligned place where a size may stand.
    for at in 8..whole.len().min(192) - 8 {
        for huge in [u64::MAX, u64::MAX / 2, 1 << 40, u64::MAX - 63] {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&huge.to_le_bytes());
            let same = bytes == whole;
            fs::write(&path, bytes).unwrap();
            assert_eq!(has(&cache, 5), same);
        }
    }
}

#[test]
fn the_least_recently_used_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), LIMIT).unwrap();
    for number in 1..=4 {
        put(&cache, number);
    }
    // An hour apart, so that the test does not hang on the clock.
    let now = SystemTime::now();
    for entry in cache.list().unwrap() {
        let number = (1..=4).find(|&number| key(number) == entry.key).unwrap();
        let path = folder
            .path()
            .join("squares")
            .join(format!("{}.blob", entry.key));
        let used = now - Duration::from_secs(3600 * u64::from(10 - number));
        fs::File::open(path).unwrap().set_modified(used).unwrap();
    }
    assert!(has(&cache, 1), "now the last one used");
    let bytes = cache.list().unwrap()[0].bytes;
    // Room for three of the five: 2 and 3 are the oldest.
    let small = Cache::open(folder.path(), 3 * bytes).unwrap();
    put(&small, 5);
    let there: Vec<u32> = (1..=5).filter(|&number| has(&small, number)).collect();
    assert_eq!(there, [1, 4, 5]);
    assert_eq!(small.counters().evicted, 2);
}

#[test]
fn the_limit_holds_and_too_large_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 4096).unwrap();
    for number in 0..100 {
        put(&cache, number);
        let total: u64 = cache.list().unwrap().iter().map(|entry| entry.bytes).sum();
        assert!(total <= 4096 + 4096 / 16, "{total}");
    }
    let large = vec![0i32; 2000];
    let refused = cache.put(&kind(), key(0), &[TensorRef::new("x", &[2000], &large)]);
    assert!(matches!(
        refused,
        Err(StoreError::TooLarge { limit: 4096, .. })
    ));
}

#[test]
fn verify_removes_what_is_damaged_and_clear_removes_all() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), LIMIT).unwrap();
    (1..=3).for_each(|number| put(&cache, number));
    let path = files(folder.path()).remove(0);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 64]).unwrap();
    let verified = cache.verify().unwrap();
    assert_eq!(verified.whole, 2);
    assert_eq!(verified.removed.len(), 1);
    assert_eq!(verified.removed[0].0, path);
    assert_eq!(cache.clear().unwrap(), (2, verified.bytes));
    assert!(cache.list().unwrap().is_empty());
}

#[test]
fn a_read_blob_outlives_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), LIMIT).unwrap();
    put(&cache, 300);
    let blob = cache.get(&kind(), key(300)).unwrap().unwrap();
    cache.clear().unwrap();
    assert_eq!(blob.numbers::<i32>("squares"), Some(&squares(300)[..]));
}

/// Names the folder that this test's other processes write to.
const CHILD: &str = "PERCEPT_STORE_TEST_FOLDER";

#[test]
fn processes_and_threads_share_it() {
    if let Ok(folder) = std::env::var(CHILD) {
        return write_and_read(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let child = || {
        let mut command = Command::new(&exe);
        command.args(["--exact", "processes_and_threads_share_it"]);
        command.env(CHILD, folder.path()).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let mut children = [child(), child()];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| write_and_read(folder.path()));
        }
    });
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let cache = Cache::open(folder.path(), LIMIT).unwrap();
    assert!(cache.verify().unwrap().removed.is_empty());
}

/// Everybody writes and reads the same keys, in a cache so small that all evict all the time.
fn write_and_read(folder: &Path) {
    let cache = Cache::open(folder, 16 << 10).unwrap();
    for round in 0..60 {
        put(&cache, 200 + round % 20);
        for number in 200..220 {
            has(&cache, number);
        }
    }
    let counters = cache.counters();
    assert_eq!(counters.damaged, 0, "nobody ever sees half a file");
    assert!(counters.hits > 0);
}

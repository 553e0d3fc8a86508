use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::augment::{Augment, AugmentConfig, ColourJitter, Normalise, TransformError, ViewKey};
use crate::error::FileError;
use crate::images::{ImageFault, RgbImage};

/// Pictures of one colour, some of which are broken.
#[derive(Default)]
struct Colours {
    count: usize,
    classes: Vec<String>,
    /// Every n-th picture cannot be read.
    broken_every: Option<usize>,
    panics_at: Option<usize>,
    takes: Duration,
    reads: AtomicUsize,
}

impl Colours {
    fn new(count: usize) -> Self {
        Self {
            count,
            classes: ["even", "odd"].map(str::to_owned).to_vec(),
            ..Self::default()
        }
    }
}

impl ImageDataset for Colours {
    fn len(&self) -> usize {
        self.count
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> usize {
        index % 2
    }

    fn image(&self, index: usize) -> Result<RgbImage, FileError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        assert_ne!(
            self.panics_at,
            Some(index),
            "the panic that a test asks for"
        );
        thread::sleep(self.takes);
        if self.broken_every.is_some_and(|n| index % n == n - 1) {
            let fault = ImageFault::Truncated { format: "PNG" };
            return Err(FileError::new(self.name(index).as_ref(), fault));
        }
        let pixels = (0..9 * 7 * 3).map(|i| (index * 31 + i * 5) as u8).collect();
        Ok(RgbImage {
            width: 9,
            height: 7,
            pixels,
        })
    }

    fn name(&self, index: usize) -> String {
        format!("{index}.png")
    }
}

fn augment() -> Arc<dyn Transform> {
    let config = AugmentConfig {
        jitter: ColourJitter {
            brightness: 0.5,
            ..ColourJitter::default()
        },
        ..AugmentConfig::default()
    };
    let normalise = Normalise {
        mean: [0.5; 3],
        std: [0.25; 3],
    };
    Arc::new(Augment::new(config, [4, 6], normalise).unwrap())
}

fn start(dataset: Colours, config: LoaderConfig, from: Position) -> Loader {
    Loader::start(Arc::new(dataset), augment(), config, from).unwrap()
}

fn batches(dataset: Colours, config: LoaderConfig, from: Position) -> Vec<Batch> {
    start(dataset, config, from)
        .map(|batch| batch.unwrap())
        .collect()
}

fn assert_same(a: &[Batch], b: &[Batch]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!(
            (&a.labels, &a.samples, a.epoch, a.next),
            (&b.labels, &b.samples, b.epoch, b.next)
        );
        assert_eq!(a.skipped, b.skipped);
        for (a, b) in a.views.iter().zip(&b.views) {
            assert_eq!(a, b);
        }
    }
}

const TWO_VIEWS: LoaderConfig = LoaderConfig {
    batch: 4,
    views: 2,
    epochs: 3,
    seed: 7,
    shuffle: true,
    drop_last: false,
    strict: false,
    workers: 1,
    prefetch: 2,
};

fn broken() -> Colours {
    Colours {
        broken_every: Some(5),
        ..Colours::new(18)
    }
}

#[test]
fn any_number_of_workers_gives_the_same_batches() {
    let one = batches(broken(), TWO_VIEWS, Position::default());
    assert_eq!(one.len(), 3 * 5);
    for workers in [2, 3, 8] {
        let config = LoaderConfig {
            workers,
            prefetch: workers,
            ..TWO_VIEWS
        };
        assert_same(&batches(broken(), config, Position::default()), &one);
    }
}

#[test]
fn a_loader_that_begins_behind_a_batch_goes_on_as_the_first_one_would() {
    let whole = batches(broken(), TWO_VIEWS, Position::default());
    for (i, batch) in whole.iter().enumerate() {
        let config = LoaderConfig {
            workers: 2,
            ..TWO_VIEWS
        };
        assert_same(&batches(broken(), config, batch.next), &whole[i + 1..]);
    }
}

#[test]
fn batches_hold_what_the_transform_makes_of_each_picture() {
    let (dataset, transform) = (Colours::new(18), augment());
    let cpu = Cpu::new(1).unwrap();
    for batch in batches(Colours::new(18), TWO_VIEWS, Position::default()) {
        assert_eq!(batch.labels.len(), batch.samples.len());
        for (view, tensor) in batch.views.iter().enumerate() {
            assert_eq!(tensor.shape(), [batch.labels.len(), 3, 4, 6]);
            for (place, &sample) in batch.samples.iter().enumerate() {
                let key = ViewKey {
                    seed: 7,
                    epoch: batch.epoch,
                    sample: sample as u64,
                    view: view as u64,
                };
                let mut expected = [0.0; 72];
                let image = dataset.image(sample).unwrap();
                transform.apply(&cpu, &image, &key, &mut expected).unwrap();
                assert_eq!(
                    tensor.values::<f32>().unwrap()[place * 72..][..72],
                    expected
                );
                assert_eq!(batch.labels[place], (sample % 2) as i32);
            }
        }
        assert_ne!(batch.views[0], batch.views[1]);
    }
}

#[test]
fn broken_pictures_are_named_skipped_and_counted() {
    let mut loader = start(broken(), TWO_VIEWS, Position::default());
    let first_epoch: Vec<Batch> = loader
        .by_ref()
        .take(5)
        .map(|batch| batch.unwrap())
        .collect();
    assert!(first_epoch[4].ends_epoch() && !first_epoch[3].ends_epoch());
    let mut skipped: Vec<_> = first_epoch
        .iter()
        .flat_map(|batch| &batch.skipped)
        .collect();
    skipped.sort_by_key(|skipped| skipped.sample);
    let reasons: Vec<_> = skipped.iter().map(|skipped| skipped.to_string()).collect();
    assert_eq!(
        reasons,
        [4, 9, 14].map(|i| format!("{i}.png: the PNG image is truncated"))
    );
    assert_eq!(loader.skipped_images(), 3);
    let kept: usize = first_epoch.iter().map(|batch| batch.labels.len()).sum();
    assert_eq!(kept, 15);
}

#[test]
fn strict_stops_at_the_batch_of_the_first_broken_picture() {
    let config = LoaderConfig {
        strict: true,
        shuffle: false,
        workers: 3,
        ..TWO_VIEWS
    };
    let mut loader = start(broken(), config, Position::default());
    assert_eq!(loader.next().unwrap().unwrap().samples, [0, 1, 2, 3]);
    let error = loader.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "4.png: the PNG image is truncated");
    assert!(loader.next().is_none());
}

#[test]
fn batches_of_broken_pictures_only_are_passed_over() {
    let config = LoaderConfig {
        batch: 1,
        epochs: 1,
        shuffle: false,
        ..TWO_VIEWS
    };
    let dataset = Colours {
        broken_every: Some(2),
        ..Colours::new(4)
    };
    let mut loader = start(dataset, config, Position::default());
    let samples: Vec<_> = loader
        .by_ref()
        .map(|batch| batch.unwrap().samples)
        .collect();
    assert_eq!(samples, [[0], [2]]);
    // The last picture has no batch to tell it.
    assert_eq!(loader.skipped_images(), 2);

    let dataset = Colours {
        broken_every: Some(1),
        ..Colours::new(4)
    };
    let config = LoaderConfig {
        epochs: 9,
        ..config
    };
    let error = start(dataset, config, Position::default())
        .next()
        .unwrap()
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("none of the 4 images can be used; the first: 0.png"),
        "{error}"
    );
}

#[test]
fn a_transform_that_refuses_is_told_with_the_name_of_the_picture() {
    struct Refuses;
    impl Transform for Refuses {
        fn size(&self) -> [usize; 2] {
            [1, 1]
        }
        fn apply(
            &self,
            _: &Cpu,
            _: &RgbImage,
            _: &ViewKey,
            _: &mut [f32],
        ) -> Result<(), TransformError> {
            Err(TransformError::Other("too thin".into()))
        }
    }
    let config = LoaderConfig {
        strict: true,
        shuffle: false,
        ..TWO_VIEWS
    };
    let mut loader = Loader::start(
        Arc::new(Colours::new(3)),
        Arc::new(Refuses),
        config,
        Position::default(),
    )
    .unwrap();
    assert_eq!(
        loader.next().unwrap().unwrap_err().to_string(),
        "0.png: too thin"
    );
}

#[test]
fn a_panic_in_a_worker_reaches_the_consumer() {
    let dataset = Colours {
        panics_at: Some(6),
        ..Colours::new(18)
    };
    let config = LoaderConfig {
        shuffle: false,
        workers: 2,
        ..TWO_VIEWS
    };
    let outcomes: Vec<_> = start(dataset, config, Position::default()).collect();
    assert!(matches!(
        outcomes.last(),
        Some(Err(LoaderError::WorkerDied))
    ));
}

#[test]
fn no_more_is_made_ahead_than_asked_for() {
    let dataset = Arc::new(Colours::new(1000));
    let config = LoaderConfig {
        batch: 4,
        prefetch: 3,
        workers: 2,
        ..TWO_VIEWS
    };
    let mut loader =
        Loader::start(dataset.clone(), augment(), config, Position::default()).unwrap();
    for taken in 1..=3 {
        loader.next().unwrap().unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(dataset.reads.load(Ordering::SeqCst) <= (taken + 3) * 4);
    }
}

#[test]
fn a_dropped_loader_ends_its_threads() {
    let dataset = Arc::new(Colours {
        takes: Duration::from_millis(1),
        ..Colours::new(100_000)
    });
    let config = LoaderConfig {
        workers: 3,
        prefetch: 100,
        ..TWO_VIEWS
    };
    let mut loader =
        Loader::start(dataset.clone(), augment(), config, Position::default()).unwrap();
    loader.next().unwrap().unwrap();
    drop(loader);
    // Joined: nobody else holds the dataset any more.
    assert_eq!(Arc::strong_count(&dataset), 1);
}

#[test]
fn the_wait_for_a_batch_is_measured() {
    let takes = Duration::from_millis(20);
    let config = LoaderConfig {
        epochs: 1,
        ..TWO_VIEWS
    };
    let dataset = Colours {
        takes,
        ..Colours::new(8)
    };
    let begun = Instant::now();
    let waited: Duration = batches(dataset, config, Position::default())
        .iter()
        .map(|b| b.waited)
        .sum();
    assert!(waited >= takes && waited <= begun.elapsed(), "{waited:?}");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let error = |count, config| {
        let loader = Loader::start(
            Arc::new(Colours::new(count)),
            augment(),
            config,
            Position::default(),
        );
        loader.err().unwrap().to_string()
    };
    assert_eq!(error(0, TWO_VIEWS), "the dataset has no images");
    assert_eq!(
        error(
            4,
            LoaderConfig {
                batch: 0,
                ..TWO_VIEWS
            }
        ),
        "batch is 0: expected at least 1"
    );
    assert_eq!(
        error(
            4,
            LoaderConfig {
                workers: 300,
                ..TWO_VIEWS
            }
        ),
        "workers is 300: expected 1 to 256"
    );
    assert!(
        error(
            4,
            LoaderConfig {
                views: 0,
                ..TWO_VIEWS
            }
        )
        .starts_with("views is 0")
    );
    assert!(
        error(
            4,
            LoaderConfig {
                prefetch: 0,
                ..TWO_VIEWS
            }
        )
        .starts_with("prefetch is 0")
    );
    assert!(
        error(
            3,
            LoaderConfig {
                drop_last: true,
                ..TWO_VIEWS
            }
        )
        .contains("3 images, which fill no batch of 4")
    );
    assert!(
        error(
            3,
            LoaderConfig {
                prefetch: usize::MAX,
                ..TWO_VIEWS
            }
        )
        .contains("do not fit memory")
    );
}

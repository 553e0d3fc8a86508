use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::augment::{
    Augment, AugmentConfig, ColourJitter, LABELS, Normalise, PictureViews, Transform,
    TransformError, ViewKey,
};
use crate::error::FileError;
use crate::images::{ImageFault, RgbImage};
use crate::{Datum, Example, Sample, SampleError, SampleKey};

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

impl Colours {
    fn picture(index: usize) -> RgbImage {
        let pixels = (0..9 * 7 * 3).map(|i| (index * 31 + i * 5) as u8).collect();
        RgbImage {
            width: 9,
            height: 7,
            pixels,
        }
    }
}

impl Samples for Colours {
    fn len(&self) -> usize {
        self.count
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn name(&self, index: usize) -> String {
        format!("{index}.png")
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        assert_ne!(
            self.panics_at,
            Some(index),
            "the panic that a test asks for"
        );
        thread::sleep(self.takes);
        let name = self.name(index);
        if self.broken_every.is_some_and(|n| index % n == n - 1) {
            let fault = ImageFault::Truncated { format: "PNG" };
            return Err(FileError::new(name.as_ref(), fault).into());
        }
        let image = Datum::Image(Self::picture(index));
        Ok(Sample::of(name, "image", image).with("class", Datum::Class(index % 2)))
    }
}

fn augment() -> Augment {
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
    Augment::new(config, [4, 6], normalise).unwrap()
}

fn two_views() -> Arc<dyn Prepare> {
    Arc::new(PictureViews::new(Arc::new(augment()), VIEWS))
}

/// The labels of all parts of a batch.
fn labels(batch: &Batch) -> Vec<i32> {
    let parts = batch.parts.iter();
    let labels = parts.map(|part| part.get(LABELS).unwrap().values::<i32>().unwrap());
    labels.flatten().copied().collect()
}

fn start(dataset: Colours, config: LoaderConfig, from: Position) -> Loader {
    Loader::start(Arc::new(dataset), two_views(), config, from).unwrap()
}

fn batches(dataset: Colours, config: LoaderConfig, from: Position) -> Vec<Batch> {
    start(dataset, config, from)
        .map(|batch| batch.unwrap())
        .collect()
}

fn assert_same(a: &[Batch], b: &[Batch]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!((&a.samples, a.epoch, a.next), (&b.samples, b.epoch, b.next));
        assert_eq!(a.skipped, b.skipped);
        assert_eq!(a.parts, b.parts);
    }
}

const VIEWS: [&str; 2] = ["image", "image_2"];
const TWO_VIEWS: LoaderConfig = LoaderConfig {
    batch: 4,
    parts: 1,
    epochs: 3,
    seed: 7,
    order: Order::Shuffled,
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
    let transform = augment();
    let cpu = Cpu::new(1).unwrap();
    for batch in batches(Colours::new(18), TWO_VIEWS, Position::default()) {
        let [part] = &batch.parts[..] else {
            panic!("{} parts", batch.parts.len())
        };
        assert_eq!(part.samples, batch.samples.len());
        let expected: Vec<i32> = batch.samples.iter().map(|s| (s % 2) as i32).collect();
        assert_eq!(labels(&batch), expected);
        for (view, name) in VIEWS.iter().enumerate() {
            let tensor = part.get(name).unwrap();
            assert_eq!(tensor.shape(), [part.samples, 3, 4, 6]);
            for (place, &sample) in batch.samples.iter().enumerate() {
                let key = ViewKey {
                    seed: 7,
                    epoch: batch.epoch,
                    sample: sample as u64,
                    view: view as u64,
                };
                let mut expected = [0.0; 72];
                let image = Colours::picture(sample);
                transform.apply(&cpu, &image, &key, &mut expected).unwrap();
                assert_eq!(
                    tensor.values::<f32>().unwrap()[place * 72..][..72],
                    expected
                );
            }
        }
        assert_ne!(part.get(VIEWS[0]), part.get(VIEWS[1]));
    }
}

#[test]
fn a_batch_in_parts_holds_the_same_examples() {
    let whole = batches(broken(), TWO_VIEWS, Position::default());
    let config = LoaderConfig {
        parts: 3,
        ..TWO_VIEWS
    };
    for (parts, whole) in batches(broken(), config, Position::default())
        .iter()
        .zip(&whole)
    {
        let most = whole.samples.len().div_ceil(3);
        assert!(
            parts
                .parts
                .iter()
                .all(|part| (1..=most).contains(&part.samples))
        );
        assert_eq!(labels(parts), labels(whole));
        let pixels = |batch: &Batch| -> Vec<f32> {
            let views = batch.parts.iter().map(|part| part.get(VIEWS[1]).unwrap());
            views.flat_map(|view| view.to_f32().into_owned()).collect()
        };
        assert_eq!(pixels(parts), pixels(whole));
    }
}

#[test]
fn a_group_comes_whole_or_not_at_all() {
    let groups = [vec![0, 1, 2], vec![3, 4], vec![5, 5], vec![9]];
    let config = LoaderConfig {
        batch: 3,
        epochs: 1,
        order: Order::Planned(Arc::new(EpochPlan::of_groups(groups))),
        ..TWO_VIEWS
    };
    let batches = batches(broken(), config, Position::default());
    // 4 and 9 are broken: their groups go, and the last one leaves nothing.
    let [batch] = &batches[..] else {
        panic!("{} batches", batches.len())
    };
    assert_eq!(batch.samples, [0, 1, 2, 5, 5]);
    let sizes = batch.parts[0].get(GROUPS).unwrap();
    assert_eq!(sizes.values::<i32>().unwrap(), [3, 2]);
    let view = batch.parts[0]
        .get(VIEWS[0])
        .unwrap()
        .values::<f32>()
        .unwrap();
    assert_ne!(
        view[3 * 72..4 * 72],
        view[4 * 72..],
        "each time another view"
    );
}

#[test]
fn examples_that_do_not_go_together_end_the_batches() {
    struct Growing;
    impl Prepare for Growing {
        fn prepare(&self, _: &Cpu, _: &Sample, key: &SampleKey) -> Result<Example, SampleError> {
            let values = vec![0.0f32; key.sample as usize + 1];
            let values = percept_graph::Tensor::from_values([1, values.len()], values);
            Ok(Example::of_one([("x", values.unwrap())]))
        }
    }
    let config = LoaderConfig {
        order: Order::Given,
        ..TWO_VIEWS
    };
    let dataset = Arc::new(Colours::new(2));
    let mut loader =
        Loader::start(dataset, Arc::new(Growing), config, Position::default()).unwrap();
    assert_eq!(
        loader.next().unwrap().unwrap_err().to_string(),
        "`x` becomes [2], the batch is [1] (0.png, 1.png)"
    );
    assert!(loader.next().is_none());
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
    assert_eq!(loader.skipped(), 3);
    let kept: usize = first_epoch.iter().map(|batch| batch.samples.len()).sum();
    assert_eq!(kept, 15);
}

#[test]
fn strict_stops_at_the_batch_of_the_first_broken_picture() {
    let config = LoaderConfig {
        strict: true,
        order: Order::Given,
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
        order: Order::Given,
        ..TWO_VIEWS
    };
    let dataset = Colours {
        broken_every: Some(2),
        ..Colours::new(4)
    };
    let mut loader = start(dataset, config.clone(), Position::default());
    let samples: Vec<_> = loader
        .by_ref()
        .map(|batch| batch.unwrap().samples)
        .collect();
    assert_eq!(samples, [[0], [2]]);
    // The last picture has no batch to tell it.
    assert_eq!(loader.skipped(), 2);

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
            .starts_with("none of the 4 samples can be used; the first: 0.png"),
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
        order: Order::Given,
        ..TWO_VIEWS
    };
    let mut loader = Loader::start(
        Arc::new(Colours::new(3)),
        Arc::new(PictureViews::new(Arc::new(Refuses), VIEWS)),
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
        order: Order::Given,
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
        Loader::start(dataset.clone(), two_views(), config, Position::default()).unwrap();
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
        Loader::start(dataset.clone(), two_views(), config, Position::default()).unwrap();
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
            two_views(),
            config,
            Position::default(),
        );
        loader.err().unwrap().to_string()
    };
    assert_eq!(error(0, TWO_VIEWS), "the dataset is empty");
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
                parts: 0,
                ..TWO_VIEWS
            }
        )
        .starts_with("parts is 0")
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
        .contains("3 samples fills no batch of 4")
    );
    assert_eq!(
        error(
            3,
            LoaderConfig {
                order: Order::Planned(Arc::new(EpochPlan::of_samples(vec![2, 3]))),
                ..TWO_VIEWS
            }
        ),
        "sample 3 is planned, of a dataset of 3"
    );
    assert!(
        error(
            3,
            LoaderConfig {
                prefetch: usize::MAX,
                ..TWO_VIEWS
            }
        )
        .contains("expected 1 to 1024")
    );
}

//! Classifiers of pictures: cross-entropy or a loss of their own, torchvision's augmentation, top-1.

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::augment::{
    Augment, AugmentConfig, LABELS, Normalise, PictureViews, Transform, TransformError, ViewKey,
};
use percept_data::images::RgbImage;
use percept_data::seeded::{Family, seeded_values};
use percept_data::{Example, Prepare};
use percept_graph::{Builder, CrossEntropy, Graph, GraphError, Tensor, ValueId};
use percept_kernels::Cpu;
use serde_json::{Map, Value, json};

use super::{
    Accuracy, Course, DataKind, Lesson, LessonError, LessonOptions, Metric, NamedOutputs,
    TrainingGraph, tensor_of,
};
use crate::Model;
use crate::preprocess::{IMAGENET_MEAN, IMAGENET_STD, Preprocess};

/// The output that holds the classes' scores.
const LOGITS: &str = "logits";
/// The input of the network, and the first view.
const IMAGE: &str = "image";
const LOSS: &str = "loss";

/// Classifiers that learn by cross-entropy.
pub const CLASSIFIER: Course = Course {
    data: DataKind::Pictures,
    built_in: include_str!("birds.toml"),
    frozen: &[],
    lesson: |model, options| Ok(Arc::new(Classifier::by_cross_entropy(model, options)?)),
};

/// The lesson of a classifier of pictures.
#[derive(Clone, Debug)]
pub struct Classifier {
    training: TrainingGraph,
    inference: Graph,
    /// The inputs of the training graph that take views of a picture, each augmented on its own.
    views: Vec<&'static str>,
    classes: usize,
    augment: Augment,
    config: AugmentConfig,
    look: Look,
}

/// A network's own preprocessing, always the same.
#[derive(Clone, Copy, Debug)]
struct Look {
    preprocess: Preprocess,
    size: [usize; 2],
}

impl Classifier {
    /// Of a network with `logits` [N, classes] from one `image`.
    pub fn by_cross_entropy(model: &Model, options: &LessonOptions) -> Result<Self, LessonError> {
        let logits = model.graph.find(LOGITS);
        let logits = logits.map_err(|_| LessonError::NotAClassifier { model: model.name })?;
        let training = cross_entropy(model, logits, options.label_smoothing)?;
        Self::new(model, training, vec![IMAGE], options)
    }

    /// Of a network with a loss of its own over views of a picture and `labels`, which gives `logits` too.
    pub fn by_own_loss(
        model: &Model,
        training: TrainingGraph,
        views: Vec<&'static str>,
        options: &LessonOptions,
    ) -> Result<Self, LessonError> {
        if options.label_smoothing != 0.0 {
            return Err(LessonError::OwnLoss { model: model.name });
        }
        Self::new(model, training, views, options)
    }

    fn new(
        model: &Model,
        training: TrainingGraph,
        views: Vec<&'static str>,
        options: &LessonOptions,
    ) -> Result<Self, LessonError> {
        let not_a_classifier = || LessonError::NotAClassifier { model: model.name };
        let (preprocess, own_size) = picture_of(model).ok_or_else(not_a_classifier)?;
        let logits = model.graph.find(LOGITS).map_err(|_| not_a_classifier())?;
        let classes = model.graph.value(logits).ty.shape.last();
        let classes = classes.and_then(|dim| dim.as_const()?.try_into().ok());
        let size = options.size.unwrap_or(own_size);
        let augment = Value::Object(options.augment.clone());
        let config = serde_json::from_value(augment).map_err(|error| LessonError::Augment {
            reason: error.to_string(),
        })?;
        let normalise = Normalise {
            mean: IMAGENET_MEAN,
            std: IMAGENET_STD,
        };
        Ok(Self {
            training,
            inference: model.graph.clone(),
            views,
            classes: classes.ok_or_else(not_a_classifier)?,
            augment: Augment::new(config, size, normalise)?,
            config,
            look: Look { preprocess, size },
        })
    }
}

/// How a picture becomes the input of a network, and of what size; none where it takes something else.
fn picture_of(model: &Model) -> Option<(Preprocess, [usize; 2])> {
    let shapes = model.input_shapes(1);
    match shapes.first()?.1[..] {
        [_, _, height, width] => Some((*model.intake.picture()?, [height, width])),
        _ => None,
    }
}

fn cross_entropy(
    model: &Model,
    logits: ValueId,
    smoothing: f32,
) -> Result<TrainingGraph, GraphError> {
    let mut b = Builder::resume(model.graph.clone());
    let images = b.shape(logits)[0].clone();
    let labels = b.integer_input(LABELS, [images]);
    let loss = b.call(LOSS, CrossEntropy { smoothing }, &[logits, labels]);
    b.output(LOSS, loss);
    Ok(TrainingGraph {
        graph: b.finish()?,
        loss: LOSS,
        terms: Vec::new(),
    })
}

impl Lesson for Classifier {
    fn samples(&self) -> &'static str {
        "pictures"
    }

    fn sizes(&self) -> BTreeMap<String, [usize; 2]> {
        BTreeMap::from([(IMAGE.to_owned(), self.look.size)])
    }

    fn settings(&self) -> Map<String, Value> {
        let settings = json!({"image_size": self.look.size, "augment": self.config});
        match settings {
            Value::Object(settings) => settings,
            _ => Map::new(),
        }
    }

    fn check_classes(&self, classes: &[String]) -> Result<(), LessonError> {
        let (outputs, classes) = (self.classes, classes.len());
        match outputs == classes {
            true => Ok(()),
            false => Err(LessonError::Classes { outputs, classes }),
        }
    }

    fn graphs(&self) -> Vec<TrainingGraph> {
        vec![self.training.clone()]
    }

    fn preparation(&self) -> Arc<dyn Prepare> {
        let views = self.views.iter().copied();
        Arc::new(PictureViews::new(Arc::new(self.augment.clone()), views))
    }

    fn observe(
        &self,
        outputs: &NamedOutputs<'_>,
        examples: &Example,
    ) -> Result<Vec<(&'static str, f64)>, LessonError> {
        let (logits, labels) = (outputs.get(LOGITS)?, tensor_of(examples, LABELS)?);
        let mut accuracy = Accuracy::new(vec![String::new(); self.classes]);
        accuracy.count(&logits.to_f32(), labels.values()?)?;
        Ok(vec![("accuracy", accuracy.top1().unwrap_or(f64::NAN))])
    }

    fn inference(&self) -> Graph {
        self.inference.clone()
    }

    fn evaluation(&self) -> Arc<dyn Prepare> {
        Arc::new(PictureViews::new(Arc::new(self.look), [IMAGE]))
    }

    fn metric(&self, classes: &[String]) -> Box<dyn Metric> {
        Box::new(Accuracy::new(classes.to_vec()))
    }

    fn rehearsal(&self, samples: usize) -> Result<Example, LessonError> {
        let [height, width] = self.look.size;
        let shape = [samples, 3, height, width];
        let view = |name: &&'static str| {
            let values = seeded_values(Family::Vision, &format!("input.{name}"), &shape);
            Ok((*name, Tensor::from_values(shape, values)?))
        };
        let mut tensors: Vec<(&str, Tensor<'static>)> = self
            .views
            .iter()
            .map(view)
            .collect::<Result<_, LessonError>>()?;
        let labels = (0..samples).map(|sample| (sample % self.classes.max(1)) as i32);
        let labels: Vec<i32> = labels.collect();
        tensors.push((LABELS, Tensor::from_values([samples], labels)?));
        Ok(Example {
            samples,
            ..Example::of_one(tensors)
        })
    }
}

impl Transform for Look {
    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn apply(
        &self,
        _: &Cpu,
        image: &RgbImage,
        _: &ViewKey,
        planes: &mut [f32],
    ) -> Result<(), TransformError> {
        let (size, to) = ([image.height, image.width], Some(self.size));
        let tensor = self.preprocess.apply(&image.pixels, size, to);
        let tensor = tensor.map_err(|error| TransformError::Other(error.into()))?;
        planes.copy_from_slice(&tensor.to_f32());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use percept_data::augment::RandomResizedCrop;
    use percept_data::classification::{Birds, BirdsConfig};

    use super::*;
    use crate::preprocess::{Fit, PillowFilter};
    use crate::{Settings, zoo};

    const LOOK: Look = Look {
        preprocess: Preprocess {
            fit: Fit::CoverAndCrop {
                covered: 40,
                kept: 40,
            },
            filter: PillowFilter::Bilinear,
        },
        size: [40, 40],
    };

    fn apply(transform: &dyn Transform, image: &RgbImage) -> Vec<f32> {
        let mut planes = vec![f32::NAN; 3 * 40 * 40];
        let cpu = Cpu::new(1).unwrap();
        transform
            .apply(&cpu, image, &ViewKey::default(), &mut planes)
            .unwrap();
        planes
    }

    #[test]
    fn training_without_any_change_sees_what_evaluation_sees() {
        let image = Birds::new(BirdsConfig::default()).unwrap().image(0);
        let config = AugmentConfig {
            crop: RandomResizedCrop {
                scale: [1.0, 1.0],
                ratio: [1.0, 1.0],
            },
            flip: 0.0,
            ..AugmentConfig::default()
        };
        let normalise = Normalise {
            mean: IMAGENET_MEAN,
            std: IMAGENET_STD,
        };
        let training = Augment::new(config, LOOK.size, normalise).unwrap();
        assert_eq!(apply(&training, &image), apply(&LOOK, &image));
    }

    #[test]
    fn a_picture_that_cannot_be_resized_is_refused() {
        let image = RgbImage {
            width: 1_000_000,
            height: 1,
            pixels: vec![0; 3_000_000],
        };
        let cpu = Cpu::new(1).unwrap();
        let huge = Look {
            size: [4000, 4000],
            ..LOOK
        };
        let mut planes = vec![0.0; 3 * 4000 * 4000];
        let error = huge.apply(&cpu, &image, &ViewKey::default(), &mut planes);
        assert!(error.unwrap_err().to_string().contains("too large"));
    }

    #[test]
    fn options_that_are_not_this_lessons_are_refused() {
        let settings = Settings::none().with("classes", 4);
        let model = zoo::build("resnet18", &settings).unwrap();
        let error = |options: &LessonOptions| {
            let lesson = Classifier::by_cross_entropy(&model, options);
            lesson.unwrap_err().to_string()
        };
        let augment = |key: &str, value: Value| LessonOptions {
            augment: Map::from_iter([(key.to_owned(), value)]),
            ..LessonOptions::default()
        };
        let unknown = error(&augment("rotate", json!(3)));
        assert!(
            unknown.starts_with("augment: unknown field `rotate`"),
            "{unknown}"
        );
        assert_eq!(
            error(&augment("flip", json!(2.0))),
            "flip is 2.0: expected 0 to 1"
        );
        let lesson = Classifier::by_cross_entropy(&model, &LessonOptions::default()).unwrap();
        let three = vec![String::new(); 3];
        let error = lesson.check_classes(&three).unwrap_err().to_string();
        assert_eq!(error, "the network has 4 classes, the data 3");
        let dino = zoo::build("dinov2-vits14", &Settings::none()).unwrap();
        let error = Classifier::by_cross_entropy(&dino, &LessonOptions::default());
        assert!(error.unwrap_err().to_string().contains("is no classifier"));
    }
}

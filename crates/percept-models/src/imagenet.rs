//! The 1000 classes of ImageNet-1k, in the order of every public classifier, and what logits say about them.

use std::sync::OnceLock;

static CLASS_LINES: &str = include_str!("imagenet_classes.txt");

/// The English class names, by index.
pub fn class_names() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| CLASS_LINES.lines().collect())
}

/// One class and how probable a network holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Index of the class.
    pub class: usize,
    /// Its name; `None` when the network's classes are not ImageNet's.
    pub name: Option<&'static str>,
    /// Softmax of the logits.
    pub probability: f32,
}

/// The `count` most probable classes, best first; equal logits keep the order of the classes, and a NaN comes last.
pub fn top(logits: &[f32], count: usize) -> Vec<Prediction> {
    let names = (logits.len() == class_names().len()).then(class_names);
    let rank = |class: &usize| {
        if logits[*class].is_nan() {
            f32::NEG_INFINITY
        } else {
            logits[*class]
        }
    };
    let mut classes: Vec<usize> = (0..logits.len()).collect();
    classes.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    let largest = classes.first().map_or(0.0, rank);
    let weight = |logit: f32| f64::from(logit - largest).exp();
    let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
    let prediction = |&class: &usize| Prediction {
        class,
        name: names.map(|names| names[class]),
        probability: (weight(logits[class]) / total) as f32,
    };
    classes.iter().take(count).map(prediction).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_are_imagenets() {
        let names = class_names();
        assert_eq!(names.len(), 1000);
        let rows = [
            (0, "tench"),
            (281, "tabby"),
            (207, "golden retriever"),
            (999, "toilet tissue"),
        ];
        for (class, name) in rows {
            assert_eq!(names[class], name);
        }
    }

    #[test]
    fn probabilities_are_the_softmax_of_the_best() {
        let best = top(&[0.0, 2f32.ln(), 5f32.ln(), 0.0, 0.0], 2);
        assert_eq!((best[0].class, best[1].class), (2, 1));
        assert!((best[0].probability - 0.5).abs() < 1e-6);
        assert!((best[1].probability - 0.2).abs() < 1e-6);
        assert_eq!(best[0].name, None);
    }

    #[test]
    fn ties_keep_their_order_and_large_logits_do_not_overflow() {
        let best = top(&vec![1e30; 1000], 5);
        let classes: Vec<usize> = best.iter().map(|p| p.class).collect();
        assert_eq!(classes, [0, 1, 2, 3, 4]);
        assert_eq!(best[1].name, Some("goldfish"));
        assert!((best[0].probability - 0.001).abs() < 1e-6);
        assert_eq!(top(&[f32::NAN, 1.0], 1)[0].class, 1);
        assert!(top(&[], 5).is_empty());
    }
}

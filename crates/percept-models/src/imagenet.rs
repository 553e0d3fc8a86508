//! The 1000 classes of ImageNet-1k, in the order of every public classifier.

use std::sync::OnceLock;

static CLASS_LINES: &str = include_str!("imagenet_classes.txt");

/// The English class names, by index.
pub fn class_names() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| CLASS_LINES.lines().collect())
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
}

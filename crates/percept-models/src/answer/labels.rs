//! A class for every point.

use std::sync::Arc;

/// What a network takes each point of a cloud for.
#[derive(Clone, Debug, PartialEq)]
pub struct PointLabels {
    /// The class of each point of the sample's frame, in its order; 0 is what is left out.
    pub classes: Vec<u16>,
    /// How sure the network is of each, 0 to 1.
    pub confidence: Vec<f32>,
    /// The names of the classes.
    pub names: Arc<[String]>,
    /// What label files call each class; its own number where they say nothing else.
    pub raw_ids: Arc<[u16]>,
    /// What each class is drawn in; empty where names choose colours.
    pub colours: Arc<[[u8; 3]]>,
}

impl PointLabels {
    /// The name of a class, or its number.
    pub fn class_name(&self, class: usize) -> String {
        let name = self.names.get(class);
        name.cloned().unwrap_or_else(|| class.to_string())
    }

    /// How many points there are of each class that there is, most first, then by class.
    pub fn counts(&self) -> Vec<(usize, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for class in &self.classes {
            *counts.entry(usize::from(*class)).or_insert(0) += 1;
        }
        let mut counts: Vec<(usize, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }

    /// What label files say of each point.
    pub fn raw(&self) -> Vec<u16> {
        let id = |class: &u16| self.raw_ids.get(usize::from(*class)).copied();
        let raw = self.classes.iter();
        raw.map(|class| id(class).unwrap_or(*class)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_counted_and_named_as_files_do() {
        let labels = PointLabels {
            classes: vec![1, 2, 2, 0, 9],
            confidence: vec![1.0; 5],
            names: ["unlabeled", "car", "road"].map(str::to_owned).into(),
            raw_ids: [0, 10, 40].into(),
            colours: [].into(),
        };
        assert_eq!(labels.counts(), [(2, 2), (0, 1), (1, 1), (9, 1)]);
        assert_eq!(labels.raw(), [10, 40, 40, 0, 9]);
        assert_eq!(
            (labels.class_name(2), labels.class_name(9)),
            ("road".into(), "9".into())
        );
    }
}

//! Boxes around objects.

use std::sync::Arc;

/// An object that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundBox {
    /// The class id.
    pub class: usize,
    /// How sure the network is, 0 to 1.
    pub score: f32,
    /// The middle of the box, metres in the sensor's frame.
    pub center: [f32; 3],
    /// Length (along the heading), width, height, metres.
    pub size: [f32; 3],
    /// Heading, radians counter-clockwise from x.
    pub yaw: f32,
    /// Metres per second along x and y.
    pub velocity: [f32; 2],
}

/// The objects that a detector found in one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Boxes {
    /// Best first.
    pub found: Vec<FoundBox>,
    /// The names of the classes.
    pub names: Arc<[String]>,
    /// How far from the sensor the network looks along x and y.
    pub reach_m: f32,
}

impl Boxes {
    /// Boxes with the best first; equal ones stay in the network's order.
    pub fn new(mut found: Vec<FoundBox>, names: Arc<[String]>, reach_m: f32) -> Self {
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        Self {
            found,
            names,
            reach_m,
        }
    }

    /// The name of a class, or its number.
    pub fn class_name(&self, class: usize) -> String {
        let name = self.names.get(class);
        name.cloned().unwrap_or_else(|| class.to_string())
    }

    /// How many there are of each class that there is, by class.
    pub fn counts(&self) -> Vec<(usize, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for found in &self.found {
            *counts.entry(found.class).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_comes_first_and_classes_are_counted() {
        let found = |class, score| FoundBox {
            class,
            score,
            center: [0.0; 3],
            size: [1.0; 3],
            yaw: 0.0,
            velocity: [0.0; 2],
        };
        let names = ["car".to_owned()].into();
        let boxes = vec![found(1, 0.2), found(0, 0.9), found(1, 0.9)];
        let boxes = Boxes::new(boxes, names, 50.0);
        let order: Vec<usize> = boxes.found.iter().map(|b| b.class).collect();
        assert_eq!(order, [0, 1, 1]);
        assert_eq!(boxes.counts(), [(0, 1), (1, 2)]);
        assert_eq!(
            (boxes.class_name(0), boxes.class_name(1)),
            ("car".into(), "1".into())
        );
    }
}

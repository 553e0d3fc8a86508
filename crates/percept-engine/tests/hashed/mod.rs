//! Numbers from a hash of name and index: small, never all alike, and the same in every run.

// Each test file that shares this one takes what it needs of it.
#![allow(dead_code)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use percept_graph::{Tensor, WeightError, WeightSource};

/// A number in -1..1.
pub fn hashed(name: &str, index: usize) -> f32 {
    let mut state = name.bytes().fold(index as u64 ^ 0x9E37_79B9, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    state ^= state >> 29;
    state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state ^= state >> 32;
    (state >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// A tensor of such numbers.
pub fn tensor(name: &str, shape: &[usize]) -> Tensor<'static> {
    let values = (0..shape.iter().product()).map(|i| hashed(name, i));
    Tensor::from_values(shape, values.collect::<Vec<_>>()).unwrap()
}

/// Weights in -0.5..0.5, or as they were set.
#[derive(Default)]
pub struct Weights {
    pub set: Mutex<BTreeMap<String, Vec<f32>>>,
}

impl WeightSource for Weights {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        if let Some(values) = self.set.lock().unwrap().get(name) {
            return Ok(Cow::Owned(values.clone()));
        }
        // Variances must be positive; the others may be anything.
        let offset = match name.ends_with("running_var") {
            true => 1.0,
            false => 0.0,
        };
        let len = shape.iter().product();
        Ok((0..len).map(|i| 0.5 * hashed(name, i) + offset).collect())
    }

    fn describe(&self) -> String {
        "hashed".to_owned()
    }
}

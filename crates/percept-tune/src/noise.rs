//! How far quantised answers are from those of floats.

use percept_graph::Tensor;

/// Signal and noise, summed over any number of tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    signal: f64,
    noise: f64,
}

impl Noise {
    /// Takes a pair of tensors into account: as it should be, and as it is.
    pub fn add(&mut self, should: &[f32], is: &[f32]) {
        for (should, is) in should.iter().zip(is) {
            let (should, away) = (f64::from(*should), f64::from(is - should));
            self.signal += should * should;
            self.noise += away * away;
        }
    }

    /// Adds what was summed elsewhere.
    pub fn join(&mut self, other: Noise) {
        self.signal += other.signal;
        self.noise += other.noise;
    }

    /// The ratio of signal to noise in decibels; infinite without noise.
    pub fn sqnr_db(&self) -> f64 {
        match self.noise > 0.0 {
            true => 10.0 * (self.signal / self.noise).log10(),
            false => f64::INFINITY,
        }
    }
}

/// The noise of each output that holds floats, by name.
pub fn noise_of(
    should: &[(String, Tensor<'_>)],
    is: &[(String, Tensor<'_>)],
) -> Vec<(String, Noise)> {
    let pairs = should.iter().zip(is);
    let floats = pairs.filter(|((_, a), (_, b))| {
        a.dtype() == percept_graph::DType::F32 && a.shape() == b.shape()
    });
    floats
        .map(|((name, should), (_, is))| {
            let mut noise = Noise::default();
            noise.add(&should.to_f32(), &is.to_f32());
            (name.clone(), noise)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decibels_are_tenths_of_powers_of_ten() {
        let mut noise = Noise::default();
        noise.add(&[1.0, -1.0], &[1.1, -1.1]);
        assert!((noise.sqnr_db() - 20.0).abs() < 1e-5);
        let mut same = Noise::default();
        same.add(&[1.0], &[1.0]);
        assert_eq!(same.sqnr_db(), f64::INFINITY);
        same.join(noise);
        assert!(same.sqnr_db() > 20.0);
    }
}

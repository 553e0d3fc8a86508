//! Which input pixels make an output pixel, along one axis, and with what weights.

use super::{Interpolation, Resize, ResizeShape, Sampling};

/// A run of neighbouring input pixels and their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Taps {
    /// The first pixel.
    pub start: usize,
    /// The weights of the pixels from there on; they sum to 1.
    pub weights: Vec<f64>,
}

impl Taps {
    /// The taps of every output pixel of an axis (0: rows, 1: columns).
    pub fn of_axis(resize: &Resize, shape: &ResizeShape, axis: usize) -> Vec<Self> {
        let (input, output) = (shape.input[axis], shape.output[axis]);
        assert!(
            input > 0 || output == 0,
            "an empty map cannot be resized to a non-empty one"
        );
        let step = match (resize.sampling, resize.step) {
            (Sampling::AlignCorners, _) if output > 1 => (input - 1) as f64 / (output - 1) as f64,
            (Sampling::AlignCorners, _) => 0.0,
            (_, Some(step)) => step[axis],
            (_, None) => input as f64 / output as f64,
        };
        (0..output)
            .map(|index| match (resize.interpolation, resize.sampling) {
                (Interpolation::Nearest, _) => Self::nearest(index, step, input),
                (_, Sampling::HalfPixel) => {
                    let at = (index as f64 + 0.5) * step - 0.5;
                    // A triangle has nothing to extrapolate with: PyTorch holds it at the edge.
                    let held = resize.interpolation == Interpolation::Bilinear;
                    let at = if held { at.max(0.0) } else { at };
                    Self::around(resize.interpolation, at, input)
                }
                (_, Sampling::AlignCorners) => {
                    Self::around(resize.interpolation, index as f64 * step, input)
                }
                (_, Sampling::Antialiased) => {
                    Self::antialiased(resize.interpolation, index, step, input)
                }
            })
            .collect()
    }

    /// PyTorch multiplies in f32, and which pixel is nearest hangs on that rounding.
    fn nearest(index: usize, step: f64, input: usize) -> Self {
        let start = (index as f32 * step as f32).floor() as usize;
        Self {
            start: start.min(input - 1),
            weights: vec![1.0],
        }
    }

    /// The curve centred at coordinate `at`; a pixel beyond the edge lends its weight to the edge.
    fn around(interpolation: Interpolation, at: f64, input: usize) -> Self {
        let reach = interpolation.reach();
        let first = at.floor() as i64 - reach + 1;
        let clamp = |pixel: i64| pixel.clamp(0, input as i64 - 1) as usize;
        let start = clamp(first);
        let mut weights = vec![0.0; clamp(first + 2 * reach - 1) - start + 1];
        for pixel in first..first + 2 * reach {
            weights[clamp(pixel) - start] += interpolation.weight(pixel as f64 - at);
        }
        Self { start, weights }
    }

    /// The curve over the area of an output pixel: widened when shrinking, cut at the edge, normalised.
    pub(super) fn antialiased(
        interpolation: Interpolation,
        index: usize,
        step: f64,
        input: usize,
    ) -> Self {
        let widening = step.max(1.0);
        let support = interpolation.reach() as f64 * widening;
        let centre = step * (index as f64 + 0.5);
        let start = ((centre - support + 0.5).max(0.0) as usize).min(input - 1);
        let end = ((centre + support + 0.5) as usize).clamp(start + 1, input);
        let mut weights: Vec<f64> = (start..end)
            .map(|pixel| interpolation.weight((pixel as f64 - centre + 0.5) / widening))
            .collect();
        let sum: f64 = weights.iter().sum();
        if sum != 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        Self { start, weights }
    }
}

impl Interpolation {
    /// Half the curve's width, in pixels.
    fn reach(self) -> i64 {
        match self {
            Self::Nearest | Self::Bilinear => 1,
            Self::Bicubic { .. } => 2,
        }
    }

    /// The curve's height at a distance.
    fn weight(self, distance: f64) -> f64 {
        let d = distance.abs();
        match self {
            Self::Nearest => f64::from(u8::from(d < 0.5)),
            Self::Bilinear => (1.0 - d).max(0.0),
            Self::Bicubic { a } if d < 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            Self::Bicubic { a } if d < 2.0 => (((d - 5.0) * d + 8.0) * d - 4.0) * a,
            Self::Bicubic { .. } => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taps(resize: Resize, input: usize, output: usize) -> Vec<Taps> {
        let shape = ResizeShape {
            planes: 1,
            input: [input; 2],
            output: [output; 2],
        };
        Taps::of_axis(&resize, &shape, 0)
    }

    fn of(start: usize, weights: &[f64]) -> Taps {
        Taps {
            start,
            weights: weights.to_vec(),
        }
    }

    #[test]
    fn bilinear_by_two_takes_quarters() {
        let expected = [
            of(0, &[1.0, 0.0]),
            of(0, &[0.75, 0.25]),
            of(0, &[0.25, 0.75]),
            of(1, &[1.0]),
        ];
        assert_eq!(taps(Resize::BILINEAR, 2, 4), expected);
    }

    #[test]
    fn aligned_corners_keep_the_corners() {
        let resize = Resize::new(Interpolation::Bilinear, Sampling::AlignCorners);
        let expected = [of(0, &[1.0, 0.0]), of(0, &[0.5, 0.5]), of(1, &[1.0])];
        assert_eq!(taps(resize, 2, 3), expected);
        assert_eq!(taps(resize, 5, 1), [of(0, &[1.0, 0.0])]);
    }

    #[test]
    fn nearest_floors() {
        let starts: Vec<_> = taps(Resize::NEAREST, 5, 3)
            .iter()
            .map(|t| t.start)
            .collect();
        assert_eq!(starts, [0, 1, 3]);
    }

    #[test]
    fn an_explicit_step_moves_the_coordinates() {
        let plain = taps(Resize::BICUBIC, 37, 9);
        let offset = taps(Resize::BICUBIC.with_step([37.0 / 9.1; 2]), 37, 9);
        assert_eq!(plain[0].start, offset[0].start);
        // The last centre: 8.5 * 37 / 9.1 - 0.5 = 34.06 instead of 34.44.
        assert_eq!(offset[8].start, 33);
        let at = 8.5 * 37.0 / 9.1 - 0.5;
        let centre: f64 = offset[8]
            .weights
            .iter()
            .zip(33..)
            .map(|(w, i)| w * f64::from(i))
            .sum();
        assert!((centre - at).abs() < 0.2, "{centre} is near {at}");
    }

    #[test]
    fn weights_sum_to_one_and_stay_inside() {
        let aligned = Resize::new(Interpolation::Bicubic { a: -0.75 }, Sampling::AlignCorners);
        let all = [
            Resize::NEAREST,
            Resize::BILINEAR,
            Resize::BICUBIC,
            Resize::ANTIALIASED_BILINEAR,
            Resize::ANTIALIASED_BICUBIC,
            aligned,
        ];
        for resize in all {
            for (input, output) in [(1, 1), (1, 7), (7, 1), (37, 9), (9, 37), (5, 5)] {
                for tap in taps(resize, input, output) {
                    let sum: f64 = tap.weights.iter().sum();
                    assert!(
                        (sum - 1.0).abs() < 1e-12,
                        "{resize:?} {input} -> {output}: {sum}"
                    );
                    assert!(tap.start + tap.weights.len() <= input);
                }
            }
        }
    }
}

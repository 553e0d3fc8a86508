//! Grids of integers: what quantised numbers lie on.
//!
//! A number x becomes q = clamp(round_half_to_even(x · scale), low, high) with scale = (2^(bits-1) - 1) / amax, and stands for
//! q / scale, as NVIDIA's pytorch-quantization has it. Where amax is no more than 2^-24 everything is 0.

use std::fmt;

/// The largest magnitude that a grid covers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amax {
    /// That of the tensor at hand, measured in every run.
    Dynamic,
    /// Measured beforehand; what is larger is cut.
    Static(f32),
}

/// Which half of the integers a grid uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sign {
    /// Both, -128..127 in 8 bits.
    #[default]
    Signed,
    /// 0..127 in 8 bits: the same steps, for data that is never negative. Some kernels want to know.
    NonNegative,
}

/// The grid of a layer's input: one scale for the whole tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct InputGrid {
    /// 2 to 16, the sign included.
    pub bits: u8,
    pub amax: Amax,
    pub sign: Sign,
}

/// What shares a scale among weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Per {
    /// Each index of the first axis: output channels, but the input channels of a transposed convolution.
    #[default]
    Channel,
    /// The whole tensor.
    Tensor,
}

/// The grid of a layer's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct WeightGrid {
    /// 2 to 8, the sign included.
    pub bits: u8,
    pub per: Per,
}

impl WeightGrid {
    /// 8 bits, a scale for each channel.
    pub const BYTES: WeightGrid = WeightGrid {
        bits: 8,
        per: Per::Channel,
    };
}

/// Below this, everything is zero.
const SMALLEST_AMAX: f32 = 1.0 / (1u32 << 24) as f32;

/// A grid whose largest magnitude is known: numbers to integers and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantizer {
    /// Integers to the unit; 0 where everything is zero.
    pub scale: f32,
    /// The smallest integer.
    pub low: f32,
    /// The largest integer.
    pub high: f32,
}

impl Quantizer {
    /// The signed grid of this many bits over -amax..amax.
    pub fn new(bits: u8, amax: f32) -> Self {
        let high = (1u32 << (bits - 1)) as f32 - 1.0;
        let scale = match amax > SMALLEST_AMAX {
            true => high / amax,
            false => 0.0,
        };
        Self {
            scale,
            low: -high - 1.0,
            high,
        }
    }

    /// The integer of a number; 0 for what is no number.
    pub fn integer(&self, x: f32) -> i32 {
        (x * self.scale)
            .round_ties_even()
            .clamp(self.low, self.high) as i32
    }

    /// What an integer stands for.
    pub fn number(&self, q: i32) -> f32 {
        match self.scale > 0.0 {
            true => q as f32 / self.scale,
            false => 0.0,
        }
    }

    /// The nearest number on the grid.
    pub fn round(&self, x: f32) -> f32 {
        self.number(self.integer(x))
    }

    /// The distance of two neighbours on the grid.
    pub fn step(&self) -> f32 {
        self.number(1)
    }
}

impl InputGrid {
    /// A signed grid that measures every tensor.
    pub fn dynamic(bits: u8) -> Self {
        Self {
            bits,
            amax: Amax::Dynamic,
            sign: Sign::Signed,
        }
    }

    /// The grid over this range.
    pub fn quantizer(&self, amax: f32) -> Quantizer {
        let whole = Quantizer::new(self.bits, amax);
        match self.sign {
            Sign::Signed => whole,
            Sign::NonNegative => Quantizer { low: 0.0, ..whole },
        }
    }
}

impl WeightGrid {
    /// How many weights share a scale, of a tensor of this shape.
    pub fn group(&self, shape: &[usize]) -> usize {
        let elements = shape.iter().product::<usize>();
        match (self.per, shape.first()) {
            (Per::Channel, Some(&channels)) => elements / channels.max(1),
            _ => elements,
        }
        .max(1)
    }

    /// The largest magnitude of each group of weights.
    pub fn amax(&self, weights: &[f32], shape: &[usize]) -> Vec<f32> {
        let groups = weights.chunks(self.group(shape));
        groups.map(largest_magnitude).collect()
    }

    /// The integers of weights, group by group.
    pub fn integers(&self, weights: &[f32], shape: &[usize]) -> Vec<i8> {
        let groups = weights.chunks(self.group(shape));
        groups
            .flat_map(|group| {
                let quantizer = Quantizer::new(self.bits, largest_magnitude(group));
                group.iter().map(move |w| quantizer.integer(*w) as i8)
            })
            .collect()
    }

    /// What one integer of each group stands for; 0 where all of its weights are zero.
    pub fn steps(&self, weights: &[f32], shape: &[usize]) -> Vec<f32> {
        let amax = self.amax(weights, shape).into_iter();
        amax.map(|amax| Quantizer::new(self.bits, amax).step())
            .collect()
    }

    /// Moves each weight to the nearest one on the grid of its group.
    pub fn round(&self, weights: &mut [f32], shape: &[usize]) {
        for group in weights.chunks_mut(self.group(shape)) {
            let quantizer = Quantizer::new(self.bits, largest_magnitude(group));
            group.iter_mut().for_each(|w| *w = quantizer.round(*w));
        }
    }
}

/// The largest |x|; 0 of nothing.
pub fn largest_magnitude(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

impl fmt::Display for Amax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amax::Dynamic => f.pad("dynamic"),
            Amax::Static(amax) => f.pad(&format!("{amax:.4}")),
        }
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Per::Channel => "channel",
            Per::Tensor => "tensor",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_even_integer_and_what_is_larger_is_cut() {
        let grid = Quantizer::new(8, 127.0);
        for (x, q) in [
            (0.5, 0),
            (1.5, 2),
            (2.5, 2),
            (-0.5, 0),
            (-1.5, -2),
            (300.0, 127),
            (-300.0, -128),
            (f32::NAN, 0),
        ] {
            assert_eq!(grid.integer(x), q, "{x}");
        }
        let four = Quantizer::new(4, 7.0);
        assert_eq!(
            (four.integer(9.0), four.integer(-9.0), four.step()),
            (7, -8, 1.0)
        );
    }

    #[test]
    fn a_range_of_nothing_gives_zeros() {
        for amax in [0.0, 1e-9] {
            let grid = Quantizer::new(8, amax);
            assert_eq!((grid.integer(3.0), grid.round(3.0)), (0, 0.0));
        }
    }

    #[test]
    fn numbers_that_are_never_negative_have_the_same_steps() {
        let signed = InputGrid::dynamic(8);
        let positive = InputGrid {
            sign: Sign::NonNegative,
            ..signed
        };
        let (signed, positive) = (signed.quantizer(2.0), positive.quantizer(2.0));
        assert_eq!(signed.step(), positive.step());
        assert_eq!((signed.integer(-1.0), positive.integer(-1.0)), (-64, 0));
        assert_eq!(signed.integer(1.3), positive.integer(1.3));
    }

    #[test]
    fn weights_have_a_scale_for_each_channel_or_one() {
        let weights = [1.0, -2.0, 0.1, 0.05];
        let channel = WeightGrid {
            bits: 8,
            per: Per::Channel,
        };
        let tensor = WeightGrid {
            bits: 8,
            per: Per::Tensor,
        };
        assert_eq!(channel.amax(&weights, &[2, 2]), [2.0, 0.1]);
        assert_eq!(tensor.amax(&weights, &[2, 2]), [2.0]);
        let mut rounded = weights;
        channel.round(&mut rounded, &[2, 2]);
        // Rounding again changes nothing: the largest of each channel lies on the grid.
        let mut again = rounded;
        channel.round(&mut again, &[2, 2]);
        assert_eq!(rounded, again);
        assert!((rounded[3] - 0.05).abs() <= 0.05 / 127.0);
        assert_eq!(channel.amax(&[], &[0, 3]), Vec::<f32>::new());
    }
}

//! Resizing of images and maps.

mod taps;

pub use taps::Taps;

/// The cubic parameter that PyTorch uses without antialiasing.
pub const TORCH_BICUBIC_A: f64 = -0.75;
/// The cubic parameter of antialiased resizing, in PyTorch and Pillow alike.
pub const ANTIALIASED_BICUBIC_A: f64 = -0.5;

/// The curve that weighs the input pixels near an output pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interpolation {
    /// The pixel at floor(o * step).
    Nearest,
    /// A triangle, two pixels wide.
    Bilinear,
    /// A piecewise cubic, four pixels wide.
    Bicubic {
        /// The slope at distance 1: -0.75 and -0.5 are usual.
        a: f64,
    },
}

/// How output pixels map to input coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Pixels are areas: (o + 1/2) * step - 1/2, and indices outside are clamped.
    HalfPixel,
    /// Pixels are points and the corner points coincide: o * (input - 1) / (output - 1).
    AlignCorners,
    /// As `HalfPixel`, with the curve widened by the step when shrinking, cut at the edge and normalised.
    Antialiased,
}

/// How to resize.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// The curve.
    pub interpolation: Interpolation,
    /// The coordinates; nearest ignores them.
    pub sampling: Sampling,
    /// Input pixels per output pixel, down and to the right, when that is not input / output.
    pub step: Option<[f64; 2]>,
}

impl Resize {
    /// PyTorch's `nearest`.
    pub const NEAREST: Self = Self::new(Interpolation::Nearest, Sampling::HalfPixel);
    /// PyTorch's `bilinear`.
    pub const BILINEAR: Self = Self::new(Interpolation::Bilinear, Sampling::HalfPixel);
    /// PyTorch's `bicubic`.
    pub const BICUBIC: Self = Self::new(
        Interpolation::Bicubic { a: TORCH_BICUBIC_A },
        Sampling::HalfPixel,
    );
    /// PyTorch's `bilinear` with `antialias`.
    pub const ANTIALIASED_BILINEAR: Self =
        Self::new(Interpolation::Bilinear, Sampling::Antialiased);
    /// PyTorch's `bicubic` with `antialias`.
    pub const ANTIALIASED_BICUBIC: Self = Self::new(
        Interpolation::Bicubic {
            a: ANTIALIASED_BICUBIC_A,
        },
        Sampling::Antialiased,
    );

    /// A curve and coordinates, with a step of input / output.
    pub const fn new(interpolation: Interpolation, sampling: Sampling) -> Self {
        Self {
            interpolation,
            sampling,
            step: None,
        }
    }

    /// The same with an explicit step: the inverse of PyTorch's `scale_factor`.
    pub const fn with_step(self, step: [f64; 2]) -> Self {
        Self {
            step: Some(step),
            ..self
        }
    }
}

/// Sizes of a resize of [planes, height, width].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResizeShape {
    /// Maps: batch * channels.
    pub planes: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
}

impl ResizeShape {
    /// How many numbers the input has.
    pub fn in_len(&self) -> usize {
        self.planes * self.input[0] * self.input[1]
    }

    /// How many numbers the output has.
    pub fn out_len(&self) -> usize {
        self.planes * self.output[0] * self.output[1]
    }
}

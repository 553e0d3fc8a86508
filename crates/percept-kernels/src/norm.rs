//! Normalisations.

/// A tensor seen as [batch, channels, area]: NCHW maps have area = height * width, rows have area 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelShape {
    /// Samples.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Numbers of one channel of one sample.
    pub area: usize,
}

impl ChannelShape {
    /// How many numbers the tensor has.
    pub fn len(&self) -> usize {
        self.batch * self.channels * self.area
    }

    /// Whether the tensor has no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How channels are grouped, and what keeps the division finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Groups; divides the channels.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f64,
}

//! What a RandLA-Net is made of.

use thiserror::Error;

/// Which public network: they share their idea and differ in nearly every layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Variant {
    /// Open3D-ML's maths and names, which are the paper's.
    Faithful,
    /// The network of kalmary/RandLANet_Segmentation.
    Seed {
        /// Coordinates are divided by half of it, after their mean was subtracted.
        max_voxel_dim: f32,
    },
}

/// A network and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct RandLaNet {
    /// Whose layers.
    pub variant: Variant,
    /// Values of a point: x, y, z first.
    pub channels_in: usize,
    /// Neighbours that a point looks at.
    pub neighbours: usize,
    /// From each level to the next one point of so many stays.
    pub ratios: Vec<usize>,
    /// Width of the first layer.
    pub start: usize,
    /// Half the width of each level's features, finest first.
    pub encoder: Vec<usize>,
    /// Width of the features on the way back, coarsest first.
    pub decoder: Vec<usize>,
    /// Widths of the hidden layers of the classifier.
    pub end: Vec<usize>,
    /// Share of the last hidden layer's values that training drops.
    pub dropout: f32,
    /// Classes of a point.
    pub classes: usize,
}

/// Sizes that do not fit together.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WidthError {
    #[error("{layer}: its input has {given} channels, but what comes to it has {fits}")]
    Input {
        layer: String,
        given: usize,
        fits: usize,
    },
    #[error("{layer}: a width of {given}, which must be even")]
    Odd { layer: String, given: usize },
    #[error("{layer}: {given}, which must be {expected}")]
    Bound {
        layer: String,
        given: usize,
        expected: &'static str,
    },
    #[error("{decoders} decoder layers for {encoders} encoder layers: there must be as many")]
    Depth { encoders: usize, decoders: usize },
}

/// Wider layers, or more of them, than any network has: what a hostile file could ask for.
const MOST_CHANNELS: usize = 1 << 14;
const MOST_LAYERS: usize = 16;
/// The longest lists of neighbours that can be searched.
const MOST_NEIGHBOURS: usize = percept_kernels::points::MAX_NEIGHBOURS;

impl RandLaNet {
    /// The paper's network for SemanticKITTI: 1,242,307 parameters.
    pub fn faithful(classes: usize) -> Self {
        Self {
            variant: Variant::Faithful,
            channels_in: 3,
            neighbours: 16,
            ratios: vec![4; 4],
            start: 8,
            encoder: vec![16, 64, 128, 256],
            decoder: vec![256, 128, 32, 32],
            end: vec![64, 32],
            dropout: 0.5,
            classes,
        }
    }

    /// Channels that encoder `level` takes.
    pub(super) fn encoder_input(&self, level: usize) -> usize {
        level
            .checked_sub(1)
            .map_or(self.start, |l| 2 * self.encoder[l])
    }

    /// Channels of what decoder `step` joins to the features from below: of the level that it goes up to.
    pub(super) fn skip(&self, step: usize) -> usize {
        let level = self.encoder.len() - 1 - step;
        match self.variant {
            Variant::Seed { .. } => 2 * self.encoder[level],
            // Open3D-ML keeps the sampled features, so that level 0 and level 1 have the same.
            Variant::Faithful => 2 * self.encoder[level.saturating_sub(1)],
        }
    }

    /// Channels that decoder `step` takes.
    pub fn decoder_input(&self, step: usize) -> usize {
        let below = match step.checked_sub(1) {
            Some(before) => self.decoder[before],
            None => 2 * self.encoder[self.encoder.len() - 1],
        };
        below + self.skip(step)
    }

    /// Whether the network can be built.
    pub fn check(&self) -> Result<(), WidthError> {
        let bound = |layer: &str, given, within: std::ops::RangeInclusive<usize>, expected| {
            let layer = layer.to_owned();
            match within.contains(&given) {
                true => Ok(()),
                false => Err(WidthError::Bound {
                    layer,
                    given,
                    expected,
                }),
            }
        };
        bound(
            "d_in",
            self.channels_in,
            3..=MOST_CHANNELS,
            "3 (x, y, z) to 16384",
        )?;
        bound(
            "num_neighbors",
            self.neighbours,
            1..=MOST_NEIGHBOURS,
            "1 to 64",
        )?;
        bound("num_classes", self.classes, 1..=MOST_CHANNELS, "1 to 16384")?;
        bound(
            "encoder_layers",
            self.encoder.len(),
            1..=MOST_LAYERS,
            "1 to 16 layers",
        )?;
        bound(
            "fc_end.layers",
            self.end.len(),
            0..=MOST_LAYERS,
            "at most 16 layers",
        )?;
        let (encoders, decoders) = (self.encoder.len(), self.decoder.len());
        if decoders != encoders || self.ratios.len() != encoders {
            return Err(WidthError::Depth { encoders, decoders });
        }
        for &ratio in &self.ratios {
            bound("decimation", ratio, 1..=MOST_CHANNELS, "1 to 16384")?;
        }
        bound(
            "fc_start.d_out",
            self.start,
            1..=MOST_CHANNELS,
            "1 to 16384",
        )?;
        let lists = [
            ("encoder_layers", &self.encoder),
            ("decoder_layers", &self.decoder),
            ("fc_end.layers", &self.end),
        ];
        for (list, widths) in lists {
            for (at, &width) in widths.iter().enumerate() {
                bound(
                    &format!("{list}[{at}]"),
                    width,
                    1..=MOST_CHANNELS,
                    "1 to 16384 channels",
                )?;
            }
        }
        // Half of an encoder's width is encoded positions, half is features.
        match self.encoder.iter().position(|width| width % 2 == 1) {
            Some(at) => Err(WidthError::Odd {
                layer: format!("encoder_layers[{at}]"),
                given: self.encoder[at],
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_on_the_way_back_are_the_published_ones() {
        let network = RandLaNet::faithful(19);
        let inputs: Vec<usize> = (0..4).map(|step| network.decoder_input(step)).collect();
        assert_eq!(inputs, [768, 384, 160, 64]);
        assert_eq!(network.check(), Ok(()));
    }

    #[test]
    fn what_cannot_be_built_is_named() {
        let network = RandLaNet::faithful(19);
        let odd = RandLaNet {
            encoder: vec![16, 64, 127, 256],
            ..network.clone()
        };
        assert_eq!(
            odd.check(),
            Err(WidthError::Odd {
                layer: "encoder_layers[2]".to_owned(),
                given: 127
            })
        );
        let short = RandLaNet {
            decoder: vec![256],
            ..network.clone()
        };
        assert_eq!(
            short.check(),
            Err(WidthError::Depth {
                encoders: 4,
                decoders: 1
            })
        );
        let flat = RandLaNet {
            channels_in: 2,
            ..network.clone()
        };
        assert!(flat.check().unwrap_err().to_string().starts_with("d_in: 2"));
        let wide = RandLaNet {
            end: vec![1 << 20],
            ..network
        };
        assert!(
            wide.check()
                .unwrap_err()
                .to_string()
                .starts_with("fc_end.layers[0]: 1048576")
        );
    }
}

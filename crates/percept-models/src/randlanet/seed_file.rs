//! The configuration files of the seed repository (JSON), as they are.

use serde::Deserialize;
use thiserror::Error;

use super::config::{RandLaNet, Variant, WidthError};

/// Why a configuration is no network.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum SeedFileError {
    #[error("not a configuration of RandLA-Net: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Widths(#[from] WidthError),
    #[error("max_voxel_dim is {0}: expected a length above 0")]
    Extent(f32),
    #[error("fc_end.dropout is {0}: expected a share from 0 to below 1")]
    Dropout(f32),
}

#[derive(Deserialize)]
struct File {
    model_config: ModelConfig,
}

#[derive(Deserialize)]
struct ModelConfig {
    d_in: usize,
    num_neighbors: usize,
    decimation: usize,
    max_voxel_dim: f32,
    fc_start: Start,
    encoder_layers: Vec<Layer>,
    decoder_layers: Vec<Layer>,
    fc_end: End,
}

#[derive(Deserialize)]
struct Start {
    d_out: usize,
}

#[derive(Clone, Copy, Deserialize)]
struct Layer {
    d_in: usize,
    d_out: usize,
}

#[derive(Deserialize)]
struct End {
    layers: Vec<usize>,
    dropout: f32,
}

impl RandLaNet {
    /// The seed variant that a file of its repository describes; the file does not say how many classes there are.
    pub fn from_seed_file(text: &str, classes: usize) -> Result<Self, SeedFileError> {
        let File { model_config: file } = serde_json::from_str(text)?;
        if !(file.max_voxel_dim > 0.0 && file.max_voxel_dim.is_finite()) {
            return Err(SeedFileError::Extent(file.max_voxel_dim));
        }
        if !(0.0..1.0).contains(&file.fc_end.dropout) {
            return Err(SeedFileError::Dropout(file.fc_end.dropout));
        }
        let widths = |layers: &[Layer]| layers.iter().map(|layer| layer.d_out).collect();
        let network = Self {
            variant: Variant::Seed {
                max_voxel_dim: file.max_voxel_dim,
            },
            channels_in: file.d_in,
            neighbours: file.num_neighbors,
            ratios: vec![file.decimation; file.encoder_layers.len()],
            start: file.fc_start.d_out,
            encoder: widths(&file.encoder_layers),
            decoder: widths(&file.decoder_layers),
            end: file.fc_end.layers,
            dropout: file.fc_end.dropout,
            classes,
        };
        network.check()?;
        let encoders = file.encoder_layers.iter().enumerate();
        let encoders = encoders.map(|(at, layer)| {
            (
                format!("encoder_layers[{at}]"),
                layer.d_in,
                network.encoder_input(at),
            )
        });
        let decoders = file.decoder_layers.iter().enumerate();
        let decoders = decoders.map(|(at, layer)| {
            (
                format!("decoder_layers[{at}]"),
                layer.d_in,
                network.decoder_input(at),
            )
        });
        match encoders
            .chain(decoders)
            .find(|(_, given, fits)| given != fits)
        {
            Some((layer, given, fits)) => Err(WidthError::Input { layer, given, fits }.into()),
            None => Ok(network),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CFG3: &str = r#"{"model_config": {"d_in": 4, "num_neighbors": 16, "decimation": 4, "max_voxel_dim": 20.0,
        "fc_start": {"d_out": 16},
        "encoder_layers": [{"d_in": 16, "d_out": 32}, {"d_in": 64, "d_out": 128}, {"d_in": 256, "d_out": 256}],
        "decoder_layers": [{"d_in": 1024, "d_out": 256}, {"d_in": 512, "d_out": 128}, {"d_in": 192, "d_out": 32}],
        "fc_end": {"layers": [16], "dropout": 0.3}}, "learning_rate": 0.001}"#;

    #[test]
    fn a_file_of_the_repository_reads_unchanged() {
        let network = RandLaNet::from_seed_file(CFG3, 10).unwrap();
        assert_eq!(
            network.variant,
            Variant::Seed {
                max_voxel_dim: 20.0
            }
        );
        assert_eq!(
            (network.encoder, network.decoder),
            (vec![32, 128, 256], vec![256, 128, 32])
        );
    }

    #[test]
    fn a_width_that_does_not_fit_is_named_with_the_one_that_would() {
        let error = |from: &str, to: &str| {
            RandLaNet::from_seed_file(&CFG3.replace(from, to), 10)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(r#""d_in": 512"#, r#""d_in": 384"#),
            "decoder_layers[1]: its input has 384 channels, but what comes to it has 512"
        );
        assert_eq!(
            error(r#"{"d_in": 64, "#, r#"{"d_in": 63, "#),
            "encoder_layers[1]: its input has 63 channels, but what comes to it has 64"
        );
        assert_eq!(
            error("20.0", "-1"),
            "max_voxel_dim is -1: expected a length above 0"
        );
        assert_eq!(
            error("0.3", "1"),
            "fc_end.dropout is 1: expected a share from 0 to below 1"
        );
        assert!(error(r#""num_neighbors": 16,"#, "").contains("missing field `num_neighbors`"));
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_an_error_or_a_network_that_fits(at in 0usize..CFG3.len(), byte in any::<u8>(), cut in any::<bool>()) {
            let mut bytes = CFG3.as_bytes().to_vec();
            match cut {
                true => bytes.truncate(at),
                false => bytes[at] = byte,
            }
            if let Ok(network) = RandLaNet::from_seed_file(&String::from_utf8_lossy(&bytes), 10) {
                prop_assert_eq!(network.check(), Ok(()));
            }
        }
    }
}

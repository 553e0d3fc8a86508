//! Where features of frozen modules are kept: an option that train, eval and features share.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use percept_graph::WeightSource;
use percept_report::bytes;
use percept_train::features::{
    CutLesson, DEFAULT_LIMIT_BYTES, FeatureError, FeatureOptions, Features,
};
use percept_train::{Learner, TrainConfig};
use serde_json::{Value, json};

use crate::fail::{Fail, Result};

/// The folder that is taken where none is named.
const FOLDER_VARIABLE: &str = "PERCEPT_FEATURES";

/// Where features are kept.
#[derive(Args, Clone, Debug)]
pub struct FeatureArgs {
    /// Keep what frozen modules make of samples in this folder, by content [default: $PERCEPT_FEATURES, or the user's cache]
    #[arg(long, value_name = "DIR")]
    features: Option<PathBuf>,
    /// What all features may take on disk, in GB; those that were not used for longest go first
    #[arg(long, value_name = "GB")]
    features_limit: Option<f64>,
}

impl FeatureArgs {
    /// The folder.
    pub fn folder(&self) -> Result<PathBuf> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let of_user = || {
            let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
            let home = || Some(PathBuf::from(variable("HOME")?).join(".cache"));
            Some(cache.or_else(home)?.join("percept").join("features"))
        };
        let folder = self.features.clone();
        let folder = folder.or_else(|| variable(FOLDER_VARIABLE).map(PathBuf::from));
        folder.or_else(of_user).ok_or_else(|| {
            Fail::usage("there is no folder to keep features in").hint("name one with --features")
        })
    }

    /// The folder, which is there if it was named: what is listed or removed is not made for that.
    pub fn existing_folder(&self) -> Result<PathBuf> {
        let folder = self.folder()?;
        match self.features.is_none() || folder.is_dir() {
            true => Ok(folder),
            false => Err(Fail::bad_input(format!(
                "--features {}: there is no such folder",
                folder.display()
            ))),
        }
    }

    /// Bytes that all of them may take.
    pub fn limit_bytes(&self) -> Result<u64> {
        match self.features_limit {
            None => Ok(DEFAULT_LIMIT_BYTES),
            Some(gigabytes) if gigabytes > 0.0 && gigabytes < 1e6 => Ok((gigabytes * 1e9) as u64),
            Some(gigabytes) => Err(Fail::usage(format!(
                "--features-limit {gigabytes}: expected gigabytes, above 0"
            ))),
        }
    }

    /// Leaves what `config` freezes out of a lesson, where it has something that comes again; gives what makes it instead.
    pub fn cut(
        &self,
        learner: &mut Learner,
        config: &TrainConfig,
        weights: &Arc<dyn WeightSource>,
        threads: usize,
    ) -> Result<Option<Arc<Features>>> {
        if learner.lesson.recurring().is_empty() {
            return Ok(None);
        }
        let options = FeatureOptions {
            folder: Some(self.folder()?),
            limit_bytes: self.limit_bytes()?,
            kind: config.features,
            threads,
        };
        let cut = CutLesson::new(&learner.lesson, &config.freeze, weights, &options);
        let Some(cut) = cut.map_err(blame)? else {
            return Ok(None);
        };
        let features = Arc::clone(cut.features());
        learner.lesson = Arc::new(cut);
        Ok(Some(features))
    }
}

/// Whose mistake it is.
pub fn blame(error: FeatureError) -> Fail {
    match error {
        FeatureError::Engine(error) => error.into(),
        error => Fail::bad_input(error),
    }
}

/// What was read and what was made, for people.
pub fn text(features: &Features) -> String {
    let counters = features.counters();
    let disk = counters.disk;
    format!(
        "features: {} read ({}), {} made in {:.1} s ({} written), {} evicted, {} damaged",
        disk.hits,
        bytes(disk.bytes_read),
        counters.computed,
        counters.seconds,
        bytes(disk.bytes_written),
        disk.evicted,
        disk.damaged
    )
}

/// The same for the record.
pub fn record(features: &Features) -> Value {
    let counters = features.counters();
    let disk = counters.disk;
    json!({
        "hits": disk.hits, "misses": disk.misses, "bytes_read": disk.bytes_read,
        "bytes_written": disk.bytes_written, "evicted": disk.evicted, "damaged": disk.damaged,
        "computed": counters.computed, "seconds": counters.seconds,
    })
}

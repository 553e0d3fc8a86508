//! The synthetic world's street, where a user names no sweep.

use std::sync::{Mutex, PoisonError};

use percept_data::points::LidarConvention;
use percept_data::{Datum, Sample, SampleError, Samples};
use percept_kernels::Cpu;
use percept_world::{World, WorldConfig, WorldKind};

use crate::OpenOptions;
use crate::error::OpenError;

/// The first frames of the world of a seed, with their truth.
pub(crate) struct Street {
    part: &'static str,
    /// It keeps the town that was looked at last.
    world: Mutex<World>,
    cpu: Cpu,
    seed: u64,
    count: usize,
}

impl Street {
    pub(crate) fn new(
        part: &'static str,
        convention: LidarConvention,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let kind = match convention {
            LidarConvention::NuScenes => WorldKind::NuScenes,
            LidarConvention::Kitti => WorldKind::SemanticKitti,
        };
        let world = World::new(WorldConfig {
            sweeps: options.sweeps,
            ..WorldConfig::new(kind, options.seed)
        });
        Ok(Self {
            part,
            world: Mutex::new(world),
            cpu: Cpu::new(options.threads)?,
            seed: options.seed,
            count: options.count,
        })
    }
}

impl Samples for Street {
    fn len(&self) -> usize {
        self.count
    }

    fn name(&self, index: usize) -> String {
        format!("synthetic world, seed {}, frame {index}", self.seed)
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        // A town is replaced whole, so one that somebody stopped at is still a town.
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = Box::new(world.frame(&self.cpu, index));
        Ok(Sample::of(self.name(index), self.part, Datum::Frame(frame)))
    }
}
